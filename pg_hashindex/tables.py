"""The tables of schema ``hashindex`` as SQLAlchemy sees them: the target of alembic."""

from typing import Any

import sqlalchemy as sa
from pgvector.sqlalchemy import VECTOR
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import UserDefinedType

__all__ = ["SCHEMA", "index", "metadata", "model", "model_part"]

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
    sa.Column(
        "created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()
    ),
    sa.Column("bit_weights", VECTOR),
    sa.Column("network", JSONB),
    sa.UniqueConstraint("name", "version"),
    sa.CheckConstraint(r"name ~ '^[^:\x01-\x1f]{1,63}$'", "name"),
    sa.CheckConstraint("version >= 1", "version"),
    sa.CheckConstraint("dimension BETWEEN 1 AND 16000", "dimension"),
    sa.CheckConstraint("n_bits BETWEEN 1 AND 16000", "n_bits"),
    sa.CheckConstraint("metric IN ('l2', 'cosine', 'ip')", "metric"),
    sa.CheckConstraint("cardinality(layers) BETWEEN 1 AND 64", "layers"),
    sa.CheckConstraint(
        "vector_dims(bit_weights) = n_bits "
        "AND 0 <= ALL (bit_weights::real[]) AND 0 < ANY (bit_weights::real[])",
        "bit_weights",
    ),
    # The last layer says that Python goes on, so that whatever evaluates layers meets it.
    sa.CheckConstraint(
        "(network IS NOT NULL) = ((layers[cardinality(layers)]).kind = 'network')", "network"
    ),
    comment="trained hash models; a saved model never changes",
)

# The numbers of a network's arrays, which may be hundreds of megabytes. The revision has them
# stored without compression, which would cost time and save nothing.
model_part = sa.Table(
    "model_part",
    metadata,
    sa.Column(
        "model_id", sa.ForeignKey(model.c.id, ondelete="CASCADE"), primary_key=True, nullable=False
    ),
    sa.Column("part", sa.Integer, primary_key=True),
    sa.Column("data", sa.LargeBinary, nullable=False),
    sa.CheckConstraint("part >= 0", "part"),
    comment="the numbers of models that are evaluated in Python, cut in parts",
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
    sa.Column(
        "created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()
    ),
    sa.CheckConstraint("octet_length(name) BETWEEN 1 AND 40", "name"),
    sa.CheckConstraint("metric IN ('l2', 'cosine', 'ip')", "metric"),
    # Of the searches: the path in use, the one that is being built, and their defaults.
    sa.Column("access", sa.Text, nullable=False, server_default="scan"),
    sa.Column("building", sa.Text),
    sa.Column("ranking", sa.Text, nullable=False, server_default="hamming"),
    sa.Column("candidates", sa.Integer, nullable=False, server_default="200"),
    sa.Column("probes", sa.Integer),
    # Rows of the table when its landmarks were trained.
    sa.Column("trained_rows", sa.BigInteger),
    # Substrings of the codes that have a b-tree, for lookup.
    sa.Column("chunks", sa.Integer),
    sa.CheckConstraint("layout IN ('table', 'column')", "layout"),
    sa.CheckConstraint("access IN ('scan', 'lookup', 'landmarks', 'hnsw')", "access"),
    sa.CheckConstraint("building IN ('scan', 'lookup', 'landmarks', 'hnsw')", "building"),
    sa.CheckConstraint("ranking IN ('hamming', 'asymmetric', 'weighted')", "ranking"),
    sa.CheckConstraint("candidates >= 1", "candidates"),
    sa.CheckConstraint("probes BETWEEN 1 AND 1000", "probes"),
    comment="indexes: which column is searched with which model, and where its codes are",
)
