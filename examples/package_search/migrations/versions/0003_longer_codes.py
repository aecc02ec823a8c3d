"""Longer codes, by another model for the index, which is searched as before."""

from pg_hashindex.contrib.alembic import swap_hash_model

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    swap_hash_model("packages_idx", "packages_576", existing_model="packages_384")


def downgrade() -> None:
    swap_hash_model("packages_idx", "packages_384", existing_model="packages_576")
