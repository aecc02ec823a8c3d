"""Runs the migrations on the database of the app's settings."""

from typing import Any

import sqlalchemy as sa
from alembic import context
from app.models import Base
from app.settings import engine_url

# This import is enough for alembic to write and compare indexes.
import pg_hashindex.contrib.alembic  # noqa: F401


def run(**options: Any) -> None:
    """Run the migrations."""
    context.configure(target_metadata=Base.metadata, typed_hash_indexes=True, **options)
    with context.begin_transaction():
        context.run_migrations()


if context.is_offline_mode():
    run(url=engine_url(), literal_binds=True)
else:
    with sa.create_engine(engine_url(), poolclass=sa.NullPool).connect() as connection:
        run(connection=connection)
