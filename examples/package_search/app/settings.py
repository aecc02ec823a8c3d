"""The URL of the database, from the variable that the commands of pg-hashindex read too."""

import os

from sqlalchemy import URL, make_url

__all__ = ["VARIABLE", "database_url", "engine_url"]

VARIABLE = "PG_HASHINDEX_DATABASE_URL"


def database_url() -> str:
    """Return the URL as it was given, for pg_hashindex."""
    url = os.environ.get(VARIABLE)
    if not url:
        raise SystemExit(f"set {VARIABLE}, for instance to postgresql://user@host/database")
    return url


def engine_url() -> URL:
    """Return the URL for SQLAlchemy; psycopg 3 serves its sync and its async engines."""
    return make_url(database_url()).set(drivername="postgresql+psycopg")
