"""The index, which needs model packages_384: trained on the rows of revision 0001, or imported."""

from pg_hashindex.contrib.alembic import create_hash_index, drop_hash_index

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    create_hash_index("packages_idx", "packages", "embedding", model="packages_384")


def downgrade() -> None:
    drop_hash_index("packages_idx")
