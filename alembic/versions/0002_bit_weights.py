"""Models may say what each bit counts in distances between codes."""

import sqlalchemy as sa
from alembic import op
from pgvector.sqlalchemy import VECTOR

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("model", sa.Column("bit_weights", VECTOR), schema="hashindex")
    op.create_check_constraint(
        op.f("model_bit_weights_check"),
        "model",
        "vector_dims(bit_weights) = n_bits "
        "AND 0 <= ALL (bit_weights::real[]) AND 0 < ANY (bit_weights::real[])",
        schema="hashindex",
    )


def downgrade() -> None:
    op.drop_column("model", "bit_weights", schema="hashindex")
