"""The tables of schema ``hashindex`` as SQLAlchemy sees them: the target of alembic."""

from typing import Any

import sqlalchemy as sa
from pgvector.sqlalchemy import VECTOR
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import UserDefinedType

__all__ = [
    "SCHEMA",
    "claim",
    "index",
    "job",
    "metadata",
    "model",
    "model_part",
    "query_set",
    "recall_history",
    "saved_query",
]

SCHEMA = "hashindex"

metadata = sa.MetaData(
    schema=SCHEMA,
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
        "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
    },
)


class LayerArray(UserDefinedType[Any]):
    """``hashindex.layer[]``, made by ``sql/010_types.sql`` and read and written by the store."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        """Return the type's name in DDL."""
        return "hashindex.layer[]"


def _moment(name: str) -> sa.Column[Any]:
    """Return a column of a time, by default that of the insertion."""
    kind = sa.DateTime(timezone=True)
    return sa.Column(name, kind, nullable=False, server_default=sa.func.now())


model = sa.Table(
    "model",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
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
    _moment("created_at"),
    sa.Column("network", JSONB),
    # Levels kept of each projection: 2 are its sign, 4 take two bits.
    sa.Column("levels", sa.SmallInteger, nullable=False, server_default="2"),
    # The distribution of the projections of the training rows; `health` compares later rows with
    # it.
    sa.Column("profile", JSONB),
    sa.Column("bit_weights", VECTOR),
    sa.UniqueConstraint("name", "version"),
    sa.CheckConstraint(r"name ~ '^[^:\x01-\x1f]{1,63}$'", "name"),
    sa.CheckConstraint("version >= 1", "version"),
    sa.CheckConstraint("dimension BETWEEN 1 AND 16000", "dimension"),
    sa.CheckConstraint("n_bits BETWEEN 1 AND 16000", "n_bits"),
    sa.CheckConstraint("metric IN ('l2', 'cosine', 'ip')", "metric"),
    sa.CheckConstraint("levels IN (2, 4)", "levels"),
    sa.CheckConstraint("cardinality(layers) BETWEEN 1 AND 64", "layers"),
    sa.CheckConstraint(
        "vector_dims(bit_weights) = n_bits "
        "AND 0 <= ALL (bit_weights::real[]) AND 0 < ANY (bit_weights::real[])",
        "bit_weights",
    ),
    # The last layer of a model with a network has kind 'network', so that SQL which evaluates
    # layers refuses it.
    sa.CheckConstraint(
        "(network IS NOT NULL) = ((layers[cardinality(layers)]).kind = 'network')", "network"
    ),
    comment="trained hash models; a saved model never changes",
)

# The numbers of a network or of learned codes, which may be hundreds of megabytes. The revision
# stores them uncompressed: compression would cost time and save nothing.
model_part = sa.Table(
    "model_part",
    metadata,
    sa.Column(
        "model_id", sa.ForeignKey(model.c.id, ondelete="CASCADE"), primary_key=True, nullable=False
    ),
    sa.Column("part", sa.Integer, primary_key=True),
    sa.Column("data", sa.LargeBinary, nullable=False),
    sa.CheckConstraint("part >= 0", "part"),
    comment="networks and learned codes of models, cut in parts",
)

# Schema and table names are text, never oids: oids differ between nodes and after a restore.
index = sa.Table(
    "index",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("model_id", sa.ForeignKey(model.c.id, ondelete="RESTRICT"), nullable=False),
    sa.Column("schema_name", sa.Text, nullable=False),
    sa.Column("table_name", sa.Text, nullable=False),
    sa.Column("column_name", sa.Text, nullable=False),
    sa.Column("id_column", sa.Text, nullable=False),
    sa.Column("id_type", sa.Text, nullable=False),
    sa.Column("metric", sa.Text, nullable=False),
    sa.Column("layout", sa.Text, nullable=False),
    sa.Column("code_schema", sa.Text, nullable=False),
    sa.Column("code_table", sa.Text, nullable=False),
    sa.Column("code_column", sa.Text, nullable=False),
    _moment("created_at"),
    sa.CheckConstraint("octet_length(name) BETWEEN 1 AND 40", "name"),
    sa.CheckConstraint("metric IN ('l2', 'cosine', 'ip')", "metric"),
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
    # Each creation, build and swap sets a new value. If a snapshot sees another value than the
    # search function has, the snapshot is too old for the codes.
    sa.Column("generation", sa.BigInteger, nullable=False),
    # While landmarks are built: the next generation, the place up to which the table was read, and
    # a mark that changes when rows move to other places.
    sa.Column("next_generation", sa.BigInteger),
    sa.Column("built_pages", sa.BigInteger),
    sa.Column("built_from", sa.Text),
    # The number of substrings of the codes that have a b-tree, for lookup.
    sa.Column("chunks", sa.Integer),
    # The names of its codes, landmarks, triggers and indexes contain this; at first it is the
    # index's name.
    sa.Column("storage", sa.Text, nullable=False),
    # While a swap is under way, another row describes the new codes (next or ready). After it, that
    # row describes the old codes (previous) until they are pruned.
    sa.Column("swap_of", sa.ForeignKey("hashindex.index.name")),
    sa.Column("swap_state", sa.Text),
    # Deferrable, so that two indexes can exchange theirs in one statement.
    sa.UniqueConstraint("storage", deferrable=True),
    sa.UniqueConstraint("swap_of", "swap_state"),
    sa.CheckConstraint("octet_length(storage) BETWEEN 1 AND 40", "storage"),
    sa.CheckConstraint(
        "(swap_of IS NULL) = (swap_state IS NULL) AND swap_state IN ('next', 'ready', 'previous')",
        "swap_state",
    ),
    sa.CheckConstraint("layout IN ('table', 'column')", "layout"),
    sa.CheckConstraint("access IN ('scan', 'lookup', 'landmarks', 'hnsw')", "access"),
    sa.CheckConstraint("building IN ('scan', 'lookup', 'landmarks', 'hnsw')", "building"),
    sa.CheckConstraint("ranking IN ('hamming', 'asymmetric', 'weighted')", "ranking"),
    sa.CheckConstraint("candidates >= 1", "candidates"),
    sa.CheckConstraint("probes BETWEEN 1 AND 1000", "probes"),
    comment="indexes: which column is searched with which model, and where its codes are",
)

query_set = sa.Table(
    "query_set",
    metadata,
    sa.Column("index_name", sa.ForeignKey(index.c.name, ondelete="CASCADE"), primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    _moment("created_at"),
    sa.CheckConstraint("octet_length(name) BETWEEN 1 AND 63", "name"),
    comment="sets of queries that the recall of an index is measured with over time",
)

saved_query = sa.Table(
    "saved_query",
    metadata,
    sa.Column("index_name", sa.Text, primary_key=True),
    sa.Column("query_set", sa.Text, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("row_id", sa.Text),
    sa.Column("vector", VECTOR, nullable=False),
    sa.ForeignKeyConstraint(
        ["index_name", "query_set"], [query_set.c.index_name, query_set.c.name], ondelete="CASCADE"
    ),
    comment="the queries of a set; row_id is the row that one was taken from, if any",
)

recall_history = sa.Table(
    "recall_history",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
    sa.Column("index_name", sa.ForeignKey(index.c.name, ondelete="CASCADE"), nullable=False),
    _moment("measured_at"),
    sa.Column("query_set", sa.Text),
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
    sa.CheckConstraint("recall BETWEEN 0 AND 1", "recall"),
    sa.Index("recall_history_index_name_measured_at_idx", "index_name", "measured_at"),
    comment="recall and latency of indexes as they were measured over time",
)

# The view hashindex.jobs knows which of them still run: the session of a running job holds a lock.
job = sa.Table(
    "job",
    metadata,
    sa.Column("id", sa.Integer, sa.Identity(always=True), primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("subject", sa.Text, nullable=False),
    sa.Column("phase", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False, server_default="running"),
    sa.Column("rows_done", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("rows_total", sa.BigInteger),
    _moment("started_at"),
    _moment("phase_started_at"),
    _moment("heartbeat_at"),
    sa.Column("ended_at", sa.DateTime(timezone=True)),
    sa.Column("role", sa.Text, nullable=False, server_default=sa.text("CURRENT_USER")),
    sa.Column("message", sa.Text),
    sa.Column("pid", sa.Integer),
    sa.Column("lock", sa.BigInteger),
    sa.CheckConstraint("kind IN ('encode', 'swap', 'tune', 'rebalance', 'repair')", "kind"),
    sa.CheckConstraint("state IN ('running', 'done', 'failed')", "state"),
    comment="long runs of pg-hashindex, as they say how far they are; see the view jobs",
)

claim = sa.Table(
    "claim",
    metadata,
    sa.Column("work", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("lock", sa.BigInteger, nullable=False),
    comment="work that one session at a time does, and the session that is at it",
)
