"""The tables, and schema hashindex."""

import sqlalchemy as sa
from alembic import op
from pgvector.sqlalchemy import VECTOR

from pg_hashindex.contrib.alembic import install_hashindex, uninstall_hashindex

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.execute("CREATE EXTENSION IF NOT EXISTS vector")
    install_hashindex()
    op.create_table(
        "packages",
        sa.Column("id", sa.BigInteger(), sa.Identity(), primary_key=True),
        sa.Column("name", sa.String(), nullable=False, unique=True),
        sa.Column("section", sa.String(), nullable=False, index=True),
        sa.Column("description", sa.String(), nullable=False),
        sa.Column("embedding", VECTOR(384), nullable=False),
    )
    op.create_table(
        "tags",
        sa.Column(
            "package_id",
            sa.BigInteger(),
            sa.ForeignKey("packages.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("label", sa.String(), primary_key=True, index=True),
    )


def downgrade() -> None:
    op.drop_table("tags")
    op.drop_table("packages")
    # With the models. The extension stays: others may use it.
    uninstall_hashindex(drop_models=True)
