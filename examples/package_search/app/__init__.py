"""Packages that are searched by meaning: FastAPI, SQLAlchemy, alembic and pg_hashindex."""
