"""Models, indexes, recall measured over time, and work under way."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB, OID
from sqlalchemy.types import UserDefinedType

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_PATHS = "'scan', 'landmarks'"


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


def upgrade() -> None:
    op.create_table(
        "model",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("method", sa.Text, nullable=False),
        sa.Column("dimension", sa.Integer, nullable=False),
        sa.Column("n_bits", sa.Integer, nullable=False),
        sa.Column("metric", sa.Text, nullable=False),
        sa.Column("parameters", JSONB, nullable=False),
        sa.Column("training", JSONB, nullable=False),
        sa.Column("layers", LayerArray, nullable=False),
        sa.Column("checksum", sa.Text, nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()
        ),
        sa.Column("network", JSONB),
        # A code has a bit for each cut of each projection; one cut at 0 is its sign.
        sa.Column("cuts", sa.ARRAY(sa.REAL), nullable=False, server_default="{0}"),
        # The distribution of the projections of the training rows, for the checks of an index.
        sa.Column("profile", JSONB),
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
    # The numbers of a network or of learned codes, which may be hundreds of megabytes.
    op.create_table(
        "model_part",
        sa.Column("model_id", sa.BigInteger, nullable=False),
        sa.Column("part", sa.Integer, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
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
    # Tables are found by their names: oids differ between nodes and after a restore.
    op.create_table(
        "index",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("model_id", sa.BigInteger, nullable=False),
        sa.Column("schema_name", sa.Text, nullable=False),
        sa.Column("table_name", sa.Text, nullable=False),
        sa.Column("column_name", sa.Text, nullable=False),
        # The columns of the key, and their types as the table declares them.
        sa.Column("key_columns", sa.ARRAY(sa.Text), nullable=False),
        sa.Column("key_types", sa.ARRAY(sa.Text), nullable=False),
        sa.Column("metric", sa.Text, nullable=False),
        sa.Column("code_table", sa.Text, nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()
        ),
        # For searches: the access path in use, the one being built, and the defaults.
        sa.Column("access", sa.Text, nullable=False, server_default="scan"),
        sa.Column("building", sa.Text),
        sa.Column("ranking", sa.Text, nullable=False, server_default="hamming"),
        sa.Column("candidates", sa.Integer, nullable=False, server_default="200"),
        sa.Column("probes", sa.Integer),
        # The number of rows when the landmarks were trained, and the table of landmarks in schema
        # hashindex.
        sa.Column("trained_rows", sa.BigInteger),
        sa.Column("landmark_table", sa.Text),
        # Columns of the table that are copied beside the codes, as filter_1, filter_2, ...
        sa.Column("filter_columns", sa.ARRAY(sa.Text), nullable=False, server_default="{}"),
        # The column of the tenants, which have landmarks of their own; the first filter column.
        sa.Column("tenant_column", sa.Text),
        # Whether all rows have had their codes once. Until then searches are exact.
        sa.Column("encoded", sa.Boolean, nullable=False, server_default=sa.false()),
        # Roles that own the table, a partition or their schemas, and are trusted by their names.
        sa.Column("trusted_owners", sa.ARRAY(sa.Text), nullable=False, server_default="{}"),
        # Each creation, build and swap sets a new value. If a snapshot sees another value than the
        # search function has, the snapshot is too old for the codes.
        sa.Column("generation", sa.BigInteger, nullable=False),
        # While landmarks are built: the next generation, the place up to which the table was read,
        # and a mark that changes when rows move to other places.
        sa.Column("next_generation", sa.BigInteger),
        sa.Column("built_pages", sa.BigInteger),
        sa.Column("built_from", sa.Text),
        # The names of its codes and landmarks contain this; at first it is the index's name.
        sa.Column("storage", sa.Text, nullable=False),
        # The names of its triggers, and of the functions that write its codes, contain this. They
        # stay when a swap exchanges the codes: sessions keep a function compiled for good.
        sa.Column("triggers", sa.Text, nullable=False),
        # While a swap is under way, another row describes the new codes (next or ready). After it,
        # that row describes the old codes (previous) until they are pruned. It shares the triggers:
        # they write the codes in use, and log the keys for the others.
        sa.Column("swap_of", sa.Text),
        sa.Column("swap_state", sa.Text),
        # The table and its codes as they were made. A restore of one of them gives it another oid,
        # and a restore of the whole database gives both others.
        sa.Column("table_oid", OID),
        sa.Column("codes_oid", OID),
        # The partitions whose rows have codes: one that is restored has another oid too.
        sa.Column("part_oids", sa.ARRAY(OID)),
        sa.PrimaryKeyConstraint("name", name="index_pkey"),
        sa.ForeignKeyConstraint(
            ["model_id"], ["hashindex.model.id"], name="index_model_id_fkey", ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(["swap_of"], ["hashindex.index.name"], name="index_swap_of_fkey"),
        # Two indexes exchange theirs in one statement.
        sa.UniqueConstraint("storage", name="index_storage_key", deferrable=True),
        sa.UniqueConstraint("swap_of", "swap_state", name="index_swap_of_swap_state_key"),
        sa.CheckConstraint("octet_length(name) BETWEEN 1 AND 40", name="index_name_check"),
        sa.CheckConstraint(
            "cardinality(key_columns) >= 1 AND cardinality(key_types) = cardinality(key_columns)",
            name="index_key_columns_check",
        ),
        sa.CheckConstraint("metric IN ('l2', 'cosine', 'ip')", name="index_metric_check"),
        sa.CheckConstraint(f"access IN ({_PATHS})", name="index_access_check"),
        sa.CheckConstraint(f"building IN ({_PATHS})", name="index_building_check"),
        sa.CheckConstraint(
            "ranking IN ('hamming', 'asymmetric', 'weighted')", name="index_ranking_check"
        ),
        sa.CheckConstraint("candidates >= 1", name="index_candidates_check"),
        sa.CheckConstraint("probes BETWEEN 1 AND 1000", name="index_probes_check"),
        sa.CheckConstraint("octet_length(storage) BETWEEN 1 AND 40", name="index_storage_check"),
        sa.CheckConstraint(
            "(swap_of IS NULL) = (swap_state IS NULL) "
            "AND swap_state IN ('next', 'ready', 'previous')",
            name="index_swap_state_check",
        ),
        schema="hashindex",
        comment="indexes: which column is searched with which model, and where its codes are",
    )
    op.create_table(
        "recall_history",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), nullable=False),
        sa.Column("index_name", sa.Text, nullable=False),
        sa.Column(
            "measured_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()
        ),
        sa.Column("seed", sa.BigInteger),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("access", sa.Text, nullable=False),
        sa.Column("ranking", sa.Text, nullable=False),
        sa.Column("candidates", sa.Integer, nullable=False),
        sa.Column("probes", sa.Integer),
        sa.Column("k", sa.Integer, nullable=False),
        sa.Column("queries", sa.Integer, nullable=False),
        sa.Column("recall", sa.Double, nullable=False),
        sa.Column("p50_ms", sa.Double, nullable=False),
        sa.Column("p95_ms", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="recall_history_pkey"),
        sa.ForeignKeyConstraint(
            ["index_name"],
            ["hashindex.index.name"],
            name="recall_history_index_name_fkey",
            ondelete="CASCADE",
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
        sa.Column("work", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("lock", sa.BigInteger, nullable=False),
        sa.Column("role", sa.Text, nullable=False, server_default=sa.text("CURRENT_USER")),
        sa.Column("phase", sa.Text),
        sa.Column("rows_done", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("rows_total", sa.BigInteger),
        sa.Column(
            "started_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()
        ),
        sa.Column(
            "phase_started_at",
            sa.DateTime(timezone=True),
            nullable=False,
            server_default=sa.func.now(),
        ),
        sa.PrimaryKeyConstraint("work", "name", name="claim_pkey"),
        schema="hashindex",
        comment="work that one session at a time does, and how far that session is",
    )


def downgrade() -> None:
    for table in (
        "claim",
        "recall_history",
        "index",
        "model_part",
        "model",
    ):
        op.drop_table(table, schema="hashindex")
