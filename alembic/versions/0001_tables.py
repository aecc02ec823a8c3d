"""Models, indexes, recall measured over time, and work under way."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB, OID
from sqlalchemy.types import UserDefinedType

revision = "0001d"
down_revision = None
branch_labels = None
depends_on = None

_TIME = sa.DateTime(timezone=True)
_NOW = sa.func.now()


class LayerArray(UserDefinedType[Any]):
    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "hashindex.layer[]"


def _execute_naming_pgvector(statement: str) -> None:
    # Nothing but pg_catalog is on the path, and a script that runs later does not know the schema.
    op.execute(
        f"DO $$ BEGIN EXECUTE replace($text${statement}$text$, '{{ext}}', quote_ident(n.nspname)) "
        "FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace "
        "WHERE e.extname = 'vector'; END $$"
    )


def column(
    name: str, comment: str, type_: Any, *more: Any, nullable: bool = False, **options: Any
) -> sa.Column[Any]:
    """Return a column that says what it is for, as ``\\d+`` of psql shows it."""
    return sa.Column(name, type_, *more, nullable=nullable, comment=comment, **options)


def upgrade() -> None:
    op.create_table(
        "model",
        column("id", "number by which sets name it", sa.BigInteger, sa.Identity(always=True)),
        column("name", "as its trainer named it", sa.Text),
        column("version", "1, 2, ... of the models of one name", sa.Integer),
        column("method", "hasher that fitted it", sa.Text),
        column("dimension", "of the vectors that it takes", sa.Integer),
        column("n_bits", "length of its codes", sa.Integer),
        column("metric", "distance that its codes stand for", sa.Text),
        column("parameters", "of the hasher, as they were given", JSONB),
        column("training", "rows it was fitted on, seconds, recall on rows held back", JSONB),
        column("layers", "what SQL evaluates, first to last", LayerArray),
        column("checksum", "of all that decides its codes", sa.Text),
        column("created_at", "when it was saved", _TIME, server_default=_NOW),
        column(
            "network",
            "what Python evaluates; NULL where SQL evaluates the layers",
            JSONB,
            nullable=True,
        ),
        column(
            "cuts",
            "a code has a bit for each cut of each projection; one cut at 0 is its sign",
            sa.ARRAY(sa.REAL),
            server_default="{0}",
        ),
        column(
            "profile",
            "distribution of the projections of training rows, for drift",
            JSONB,
            nullable=True,
        ),
        sa.PrimaryKeyConstraint("id", name="model_pkey"),
        sa.UniqueConstraint("name", "version", name="model_name_version_key"),
        sa.CheckConstraint(r"name ~ '^[^:\x01-\x1f]{1,63}$'", name="model_name_check"),
        sa.CheckConstraint("version >= 1", name="model_version_check"),
        sa.CheckConstraint("dimension BETWEEN 1 AND 16000", name="model_dimension_check"),
        sa.CheckConstraint("n_bits BETWEEN 1 AND 16000", name="model_n_bits_check"),
        sa.CheckConstraint("metric IN ('l2', 'cosine', 'ip')", name="model_metric_check"),
        sa.CheckConstraint("cardinality(layers) BETWEEN 1 AND 64", name="model_layers_check"),
        # The last layer of a model with a network has kind 'network', so that SQL which evaluates
        # layers refuses it.
        sa.CheckConstraint(
            "(network IS NOT NULL) = ((layers[cardinality(layers)]).kind = 'network')",
            name="model_network_check",
        ),
        schema="hashindex",
        comment="trained hash models; a saved model never changes",
    )
    _execute_naming_pgvector(
        "ALTER TABLE hashindex.model ADD bit_weights {ext}.vector, ADD CONSTRAINT "
        "model_bit_weights_check CHECK ({ext}.vector_dims(bit_weights) = n_bits "
        "AND 0 <= ALL (bit_weights::real[]) AND 0 < ANY (bit_weights::real[]))"
    )
    op.execute("COMMENT ON COLUMN hashindex.model.bit_weights IS 'weights that its bits rank by'")
    # The numbers of a network or of learned codes, which may be hundreds of megabytes.
    op.create_table(
        "model_part",
        column("model_id", "model that it is of", sa.BigInteger),
        column("part", "place in the order of the parts", sa.Integer),
        column("data", "numbers of the network or of the learned codes", sa.LargeBinary),
        sa.PrimaryKeyConstraint("model_id", "part", name="model_part_pkey"),
        sa.ForeignKeyConstraint(
            ["model_id"],
            ["hashindex.model.id"],
            name="model_part_model_id_fkey",
            ondelete="CASCADE",
        ),
        sa.CheckConstraint("part >= 0", name="model_part_part_check"),
        schema="hashindex",
        comment="networks and learned codes of models, cut in parts",
    )
    # Floats of a network do not compress.
    op.execute("ALTER TABLE hashindex.model_part ALTER COLUMN data SET STORAGE EXTERNAL")
    op.create_table(
        "index",
        column("name", "search_NAME and the other functions have it", sa.Text),
        column("schema_name", "schema of the table", sa.Text),
        column(
            "table_name", "table that is searched; by name, since a restore changes oids", sa.Text
        ),
        column("column_name", "its column of vectors", sa.Text),
        column("key_columns", "columns of the key, in the order of its index", sa.ARRAY(sa.Text)),
        column("key_types", "their types as the table declared them", sa.ARRAY(sa.Text)),
        column("metric", "distance that searches order by", sa.Text),
        column("tenant_column", "column of the tenants", sa.Text, nullable=True),
        column("created_at", "when it was made", _TIME, server_default=_NOW),
        sa.PrimaryKeyConstraint("name", name="index_pkey"),
        sa.CheckConstraint("octet_length(name) BETWEEN 1 AND 40", name="index_name_check"),
        sa.CheckConstraint(
            "cardinality(key_columns) >= 1 AND cardinality(key_types) = cardinality(key_columns)",
            name="index_key_columns_check",
        ),
        sa.CheckConstraint("metric IN ('l2', 'cosine', 'ip')", name="index_metric_check"),
        schema="hashindex",
        comment="indexes: names that are searched, and their tables",
    )
    op.create_table(
        "index_set",
        column("id", "order in which sets were made", sa.BigInteger, sa.Identity(always=True)),
        column("index_name", "index that it is of", sa.Text),
        column("model_id", "model of its codes; NULL: vectors", sa.BigInteger, nullable=True),
        column(
            "access",
            "hnsw or ivfflat; lists, scan: kept by lists, with landmarks or without; NULL: none",
            sa.Text,
            nullable=True,
        ),
        column("column_name", "column of the vectors", sa.Text),
        column("halves", "whether vectors are ranked as halfvec", sa.Boolean),
        column("dimension", "of the vectors", sa.Integer),
        column("code_column", "column of the codes, if they stand in one", sa.Text, nullable=True),
        column("stores", "whether the set made that column, and drops it", sa.Boolean),
        column("relation", "index of pgvector's, in the table's schema", sa.Text, nullable=True),
        column("owns_relation", "whether it was made for this set", sa.Boolean),
        column("candidates", "rows compared exactly, for ten", sa.Integer, nullable=True),
        column("effort", "ef_search, probes or lists; NULL: candidates", sa.Integer, nullable=True),
        column("state", "building, ready, used or former", sa.Text),
        column("created_at", "when it was begun", _TIME, server_default=_NOW),
        # These are of sets that are kept by lists.
        column(
            "encoded",
            "whether all rows have had codes once; until then searches are exact",
            sa.Boolean,
            nullable=True,
        ),
        column(
            "unverified",
            "whether triggers were away, and codes are yet to be compared with fresh ones",
            sa.Boolean,
            nullable=True,
        ),
        column(
            "trained_rows",
            "rows of the table when its landmarks were trained; NULL: it has none",
            sa.BigInteger,
            nullable=True,
        ),
        column(
            "generation",
            "new where landmarks are: a writer tells an old snapshot by it",
            sa.BigInteger,
            nullable=True,
        ),
        column(
            "table_oid",
            "table when codes were made; a restore of it or of its codes alone changes one oid",
            OID,
            nullable=True,
        ),
        column("codes_oid", "table of the codes when it was made", OID, nullable=True),
        sa.PrimaryKeyConstraint("id", name="index_set_pkey"),
        sa.ForeignKeyConstraint(
            ["index_name"],
            ["hashindex.index.name"],
            name="index_set_index_name_fkey",
            ondelete="CASCADE",
            onupdate="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["model_id"],
            ["hashindex.model.id"],
            name="index_set_model_id_fkey",
            ondelete="RESTRICT",
        ),
        sa.CheckConstraint(
            "access IN ('hnsw', 'ivfflat', 'lists', 'scan')", name="index_set_access_check"
        ),
        sa.CheckConstraint(
            "state IN ('building', 'ready', 'used', 'former')", name="index_set_state_check"
        ),
        sa.CheckConstraint("candidates >= 1 AND effort >= 1", name="index_set_candidates_check"),
        sa.CheckConstraint(
            "(access IS NOT NULL AND access IN ('lists', 'scan')) = (encoded IS NOT NULL)",
            name="index_set_encoded_check",
        ),
        schema="hashindex",
        comment="what indexes search: one set in use, and at most one beside it",
    )
    op.create_index(
        "index_set_used_key",
        "index_set",
        ["index_name"],
        unique=True,
        schema="hashindex",
        postgresql_where=sa.text("state = 'used'"),
    )
    op.create_table(
        "object",
        column("kind", "function, table, type or trigger", sa.Text),
        column("name", "bare name; a function's with the bare types of its arguments", sa.Text),
        column("index_name", "index that it was made for", sa.Text, nullable=True),
        column("model_id", "model that the function was made of", sa.BigInteger, nullable=True),
        column("hash", "of what it was when it was made", sa.Text),
        column("server", "major version of PostgreSQL by which the hash was taken", sa.Integer),
        sa.PrimaryKeyConstraint("kind", "name", name="object_pkey"),
        sa.CheckConstraint(
            "kind IN ('function', 'table', 'type', 'trigger')", name="object_kind_check"
        ),
        sa.CheckConstraint("num_nonnulls(index_name, model_id) = 1", name="object_owner_check"),
        schema="hashindex",
        comment="objects that were made for indexes and models, each with a hash",
    )
    op.create_table(
        "recall_history",
        column("id", "order of the measurements", sa.BigInteger, sa.Identity(always=True)),
        column("index_name", "index that was measured", sa.Text),
        column("measured_at", "when", _TIME, server_default=_NOW),
        column(
            "seed", "of the draw of queries; NULL if they were given", sa.BigInteger, nullable=True
        ),
        column("model", "model of the index then, as NAME:VERSION", sa.Text),
        column("access", "access path then", sa.Text),
        column("candidates", "rows that were compared exactly", sa.Integer),
        column("effort", "lists that were read", sa.Integer, nullable=True),
        column("k", "answers that were asked for", sa.Integer),
        column("queries", "number of queries", sa.Integer),
        column("recall", "share of the true answers that were found", sa.Double),
        column("p50_ms", "median time of a search", sa.Double),
        column("p95_ms", "time that 19 of 20 searches kept within", sa.Double),
        sa.PrimaryKeyConstraint("id", name="recall_history_pkey"),
        sa.ForeignKeyConstraint(
            ["index_name"],
            ["hashindex.index.name"],
            name="recall_history_index_name_fkey",
            ondelete="CASCADE",
            onupdate="CASCADE",
        ),
        sa.CheckConstraint("recall BETWEEN 0 AND 1", name="recall_history_recall_check"),
        schema="hashindex",
        comment="recall and latency of indexes as they were measured over time",
    )
    op.create_index(
        "recall_history_index_name_measured_at_idx",
        "recall_history",
        ["index_name", "measured_at"],
        schema="hashindex",
    )
    op.create_table(
        "claim",
        column("work", "encode, swap or repair", sa.Text),
        column("name", "index that is worked on", sa.Text),
        column("pid", "process that works", sa.Integer),
        column("lock", "number that the process holds an advisory lock on", sa.BigInteger),
        column("role", "role of the session", sa.Text, server_default=sa.text("CURRENT_USER")),
        column("phase", "step of the work, in words", sa.Text, nullable=True),
        column("rows_done", "rows that the phase has done", sa.BigInteger, server_default="0"),
        column(
            "rows_total", "rows that the phase has to do, if known", sa.BigInteger, nullable=True
        ),
        column("started_at", "when the work began", _TIME, server_default=_NOW),
        column("phase_started_at", "when the phase began", _TIME, server_default=_NOW),
        sa.PrimaryKeyConstraint("work", "name", name="claim_pkey"),
        schema="hashindex",
        comment="work that one session at a time does, and how far that session is",
    )


def downgrade() -> None:
    tables = ("claim", "recall_history", "object", "index_set", "index", "model_part", "model")
    for table in tables:
        op.drop_table(table, schema="hashindex")
