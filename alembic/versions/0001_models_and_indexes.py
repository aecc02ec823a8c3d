"""Models and indexes."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import UserDefinedType

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


class LayerArray(UserDefinedType[Any]):
    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "hashindex.layer[]"


def upgrade() -> None:
    # op.f: the name is whole, not to be put into the naming convention of pg_hashindex.tables.
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
        sa.PrimaryKeyConstraint("id", name="model_pkey"),
        sa.UniqueConstraint("name", "version", name="model_name_version_key"),
        sa.CheckConstraint(r"name ~ '^[^:\x01-\x1f]{1,63}$'", name=op.f("model_name_check")),
        sa.CheckConstraint("version >= 1", name=op.f("model_version_check")),
        sa.CheckConstraint("dimension BETWEEN 1 AND 16000", name=op.f("model_dimension_check")),
        sa.CheckConstraint("n_bits BETWEEN 1 AND 16000", name=op.f("model_n_bits_check")),
        sa.CheckConstraint("metric IN ('l2', 'cosine', 'ip')", name=op.f("model_metric_check")),
        sa.CheckConstraint("cardinality(layers) BETWEEN 1 AND 64", name=op.f("model_layers_check")),
        schema="hashindex",
        comment="trained hash models; a saved model never changes",
    )
    op.create_table(
        "index",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("model_id", sa.BigInteger, nullable=False),
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
        sa.PrimaryKeyConstraint("name", name="index_pkey"),
        sa.ForeignKeyConstraint(
            ["model_id"], ["hashindex.model.id"], name="index_model_id_fkey", ondelete="RESTRICT"
        ),
        sa.CheckConstraint("octet_length(name) BETWEEN 1 AND 40", name=op.f("index_name_check")),
        sa.CheckConstraint("metric IN ('l2', 'cosine', 'ip')", name=op.f("index_metric_check")),
        sa.CheckConstraint("layout IN ('table', 'column')", name=op.f("index_layout_check")),
        schema="hashindex",
        comment="indexes: which column is searched with which model, and where its codes are",
    )


def downgrade() -> None:
    op.drop_table("index", schema="hashindex")
    op.drop_table("model", schema="hashindex")
