"""Runs the migrations of schema hashindex on the connection that `db.schema` hands over."""

from alembic import context

options = {"version_table_schema": "hashindex", "include_schemas": True}

if context.is_offline_mode():
    context.configure(dialect_name="postgresql", **options)
else:
    context.configure(connection=context.config.attributes["connection"], **options)

# The caller owns the transaction: sql/ is replayed in the same one.
context.run_migrations()
