"""Indexes change their model while they are searched; jobs, saved queries and recall are kept."""

import sqlalchemy as sa
from alembic import op
from pgvector.sqlalchemy import VECTOR
from sqlalchemy.dialects.postgresql import JSONB

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("model", sa.Column("profile", JSONB), schema="hashindex")
    # The objects of an index were named by its own name until now.
    op.add_column("index", sa.Column("storage", sa.Text), schema="hashindex")
    op.execute("UPDATE hashindex.index SET storage = name")
    op.alter_column("index", "storage", nullable=False, schema="hashindex")
    op.add_column("index", sa.Column("swap_of", sa.Text), schema="hashindex")
    op.add_column("index", sa.Column("swap_state", sa.Text), schema="hashindex")
    op.create_unique_constraint(
        op.f("index_storage_key"),
        "index",
        ["storage"],
        schema="hashindex",
        # Two indexes exchange theirs in one statement.
        deferrable=True,
    )
    op.create_unique_constraint(
        op.f("index_swap_of_swap_state_key"), "index", ["swap_of", "swap_state"], schema="hashindex"
    )
    op.create_foreign_key(
        op.f("index_swap_of_fkey"),
        "index",
        "index",
        ["swap_of"],
        ["name"],
        source_schema="hashindex",
        referent_schema="hashindex",
    )
    op.create_check_constraint(
        op.f("index_storage_check"),
        "index",
        "octet_length(storage) BETWEEN 1 AND 40",
        schema="hashindex",
    )
    op.create_check_constraint(
        op.f("index_swap_state_check"),
        "index",
        "(swap_of IS NULL) = (swap_state IS NULL) AND swap_state IN ('next', 'ready', 'previous')",
        schema="hashindex",
    )
    op.create_table(
        "query_set",
        sa.Column("index_name", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()
        ),
        sa.PrimaryKeyConstraint("index_name", "name", name="query_set_pkey"),
        sa.ForeignKeyConstraint(
            ["index_name"],
            ["hashindex.index.name"],
            name="query_set_index_name_fkey",
            ondelete="CASCADE",
        ),
        sa.CheckConstraint(
            "octet_length(name) BETWEEN 1 AND 63", name=op.f("query_set_name_check")
        ),
        schema="hashindex",
        comment="sets of queries that the recall of an index is measured with over time",
    )
    op.create_table(
        "saved_query",
        sa.Column("index_name", sa.Text, nullable=False),
        sa.Column("query_set", sa.Text, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("vector", VECTOR, nullable=False),
        sa.Column("row_id", sa.Text),
        sa.PrimaryKeyConstraint("index_name", "query_set", "number", name="saved_query_pkey"),
        sa.ForeignKeyConstraint(
            ["index_name", "query_set"],
            ["hashindex.query_set.index_name", "hashindex.query_set.name"],
            name="saved_query_index_name_query_set_fkey",
            ondelete="CASCADE",
        ),
        schema="hashindex",
        comment="the queries of a set; row_id is the row that one was taken from, if any",
    )
    op.create_table(
        "recall_history",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), nullable=False),
        sa.Column("index_name", sa.Text, nullable=False),
        sa.Column(
            "measured_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()
        ),
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
        sa.PrimaryKeyConstraint("id", name="recall_history_pkey"),
        sa.ForeignKeyConstraint(
            ["index_name"],
            ["hashindex.index.name"],
            name="recall_history_index_name_fkey",
            ondelete="CASCADE",
        ),
        sa.CheckConstraint("recall BETWEEN 0 AND 1", name=op.f("recall_history_recall_check")),
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
        "job",
        sa.Column("id", sa.Integer, sa.Identity(always=True), nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("phase", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False, server_default="running"),
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
        sa.Column(
            "heartbeat_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()
        ),
        sa.Column("ended_at", sa.DateTime(timezone=True)),
        sa.Column("role", sa.Text, nullable=False, server_default=sa.text("CURRENT_USER")),
        sa.Column("message", sa.Text),
        sa.PrimaryKeyConstraint("id", name="job_pkey"),
        sa.CheckConstraint(
            "kind IN ('encode', 'swap', 'tune', 'rebalance', 'repair')", name=op.f("job_kind_check")
        ),
        sa.CheckConstraint("state IN ('running', 'done', 'failed')", name=op.f("job_state_check")),
        schema="hashindex",
        comment="long runs of pg-hashindex, as they say how far they are; see the view jobs",
    )


def downgrade() -> None:
    # Earlier releases know objects by the name of their index, and one model for each.
    op.execute(
        """
        DO $$
        DECLARE
            in_use hashindex.index;
        BEGIN
            SELECT i.* INTO in_use FROM hashindex.index i
            WHERE i.swap_of IS NOT NULL OR i.storage <> i.name
            ORDER BY i.swap_of NULLS LAST LIMIT 1;
            IF in_use.swap_of IS NOT NULL THEN
                RAISE EXCEPTION 'index "%" has codes of another model beside its own',
                    in_use.swap_of
                    USING ERRCODE = 'object_in_use',
                          HINT = 'Run: pg-hashindex index prune, or drop the index.';
            ELSIF in_use.name IS NOT NULL THEN
                RAISE EXCEPTION 'index "%" has had its model swapped', in_use.name
                    USING ERRCODE = 'object_in_use',
                          HINT = 'Drop the index, and make it anew afterwards.';
            END IF;
        END
        $$
        """
    )
    # Of sql/, where functions stay behind; a view would keep its table.
    op.execute("DROP VIEW IF EXISTS hashindex.jobs")
    for table in ("job", "recall_history", "saved_query", "query_set"):
        op.drop_table(table, schema="hashindex")
    for column in ("swap_state", "swap_of", "storage"):
        op.drop_column("index", column, schema="hashindex")
    op.drop_column("model", "profile", schema="hashindex")
