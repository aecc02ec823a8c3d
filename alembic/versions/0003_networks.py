"""Models may end in a network, which only Python evaluates."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("model", sa.Column("network", JSONB), schema="hashindex")
    op.create_check_constraint(
        op.f("model_network_check"),
        "model",
        "(network IS NOT NULL) = ((layers[cardinality(layers)]).kind = 'network')",
        schema="hashindex",
    )
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
        sa.CheckConstraint("part >= 0", name=op.f("model_part_part_check")),
        schema="hashindex",
        comment="the numbers of models that are evaluated in Python, cut in parts",
    )
    # Floats of a network do not compress.
    op.execute("ALTER TABLE hashindex.model_part ALTER COLUMN data SET STORAGE EXTERNAL")
    # Whoever may read models may read all of them, and let others as before.
    op.execute(
        """
        DO $$
        DECLARE
            reader record;
        BEGIN
            FOR reader IN
                SELECT
                    CASE WHEN acl.grantee = 0 THEN 'PUBLIC' ELSE acl.grantee::regrole::text END
                        AS name,
                    CASE WHEN bool_or(acl.is_grantable) THEN ' WITH GRANT OPTION' ELSE '' END
                        AS option
                FROM pg_class c, aclexplode(c.relacl) acl
                WHERE c.oid = 'hashindex.model'::regclass AND acl.privilege_type = 'SELECT'
                  AND acl.grantee <> c.relowner
                GROUP BY acl.grantee
            LOOP
                EXECUTE 'GRANT SELECT ON hashindex.model_part TO ' || reader.name || reader.option;
            END LOOP;
        END
        $$
        """
    )


def downgrade() -> None:
    op.drop_table("model_part", schema="hashindex")
    # Earlier releases would take such a model for one of its layers alone. One that an index uses
    # keeps its row, and so the revision.
    op.execute("DELETE FROM hashindex.model WHERE network IS NOT NULL")
    op.drop_column("model", "network", schema="hashindex")
