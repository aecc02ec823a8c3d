"""Indexes have an access path, a ranking, and defaults of their searches."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_PATHS = "'scan', 'lookup', 'landmarks', 'hnsw'"


def upgrade() -> None:
    op.add_column(
        "index",
        sa.Column("access", sa.Text, nullable=False, server_default="scan"),
        schema="hashindex",
    )
    op.add_column("index", sa.Column("building", sa.Text), schema="hashindex")
    op.add_column(
        "index",
        sa.Column("ranking", sa.Text, nullable=False, server_default="hamming"),
        schema="hashindex",
    )
    op.add_column(
        "index",
        sa.Column("candidates", sa.Integer, nullable=False, server_default="200"),
        schema="hashindex",
    )
    op.add_column("index", sa.Column("probes", sa.Integer), schema="hashindex")
    op.add_column("index", sa.Column("trained_rows", sa.BigInteger), schema="hashindex")
    op.add_column("index", sa.Column("chunks", sa.Integer), schema="hashindex")
    # The best that each model can do, as new indexes have it.
    op.execute(
        """
        UPDATE hashindex.index i SET ranking = CASE
            WHEN m.bit_weights IS NOT NULL THEN 'weighted' ELSE 'asymmetric'
        END
        FROM hashindex.model m
        WHERE m.id = i.model_id AND (m.bit_weights IS NOT NULL OR m.network IS NULL)
        """
    )
    for column in ("access", "building"):
        op.create_check_constraint(
            op.f(f"index_{column}_check"),
            "index",
            f"{column} IN ({_PATHS})",
            schema="hashindex",
        )
    op.create_check_constraint(
        op.f("index_ranking_check"),
        "index",
        "ranking IN ('hamming', 'asymmetric', 'weighted')",
        schema="hashindex",
    )
    op.create_check_constraint(
        op.f("index_candidates_check"), "index", "candidates >= 1", schema="hashindex"
    )
    op.create_check_constraint(
        op.f("index_probes_check"),
        "index",
        "probes BETWEEN 1 AND 1000",
        schema="hashindex",
    )


def downgrade() -> None:
    # Earlier releases would neither search by these paths nor keep them fresh.
    op.execute(
        """
        DO $$
        DECLARE
            in_use hashindex.index;
        BEGIN
            SELECT i.* INTO in_use FROM hashindex.index i
            WHERE i.access <> 'scan' OR i.building IS NOT NULL LIMIT 1;
            IF in_use.name IS NOT NULL THEN
                RAISE EXCEPTION 'index "%" has the access path %', in_use.name,
                    coalesce(in_use.building, in_use.access)
                    USING ERRCODE = 'object_in_use',
                          HINT = 'Set it to scan, or drop the index.';
            END IF;
        END
        $$
        """
    )
    for column in (
        "chunks",
        "trained_rows",
        "probes",
        "candidates",
        "ranking",
        "building",
        "access",
    ):
        op.drop_column("index", column, schema="hashindex")
