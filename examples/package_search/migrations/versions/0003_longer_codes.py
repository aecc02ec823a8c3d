"""Longer codes, by another model for the index, which is searched as before."""

from pg_hashindex.contrib.alembic import swap_hash_index

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    swap_hash_index("packages_idx", model="packages_576", existing={"model": "packages_384"})


def downgrade() -> None:
    swap_hash_index("packages_idx", model="packages_384", existing={"model": "packages_576"})
