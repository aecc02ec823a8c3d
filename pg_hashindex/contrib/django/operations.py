"""The operation of migrations that installs schema hashindex."""

from typing import Any

import sqlalchemy as sa
from django.db import router
from django.db.migrations.operations.base import Operation

from ...db import schema
from .indexes import DROP_LEFT, refuse_vendor


class InstallHashindex(Operation):  # type: ignore[misc]
    """Install schema hashindex, or bring it up to this release; reversed, remove it.

    Runs in the transaction of the migration. The schema is not removed while there are models.
    """

    def state_forwards(self, app_label: str, state: Any) -> None:
        """Leave the models as they are."""

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        """Install the schema; `sqlmigrate` shows the script for a database without it."""
        if not router.allow_migrate(schema_editor.connection.alias, app_label):
            return
        refuse_vendor(schema_editor.connection, "schema hashindex")
        if schema_editor.collect_sql:
            schema_editor.execute(schema.statements(), params=None)
        else:
            schema.upgrade(_alchemy(schema_editor.connection))

    def database_backwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        """Remove the schema; refused while there are indexes or models."""
        if not router.allow_migrate(schema_editor.connection.alias, app_label):
            return
        if schema_editor.collect_sql:
            schema_editor.execute("-- removes schema hashindex, if it is empty", params=None)
        else:
            # Drop the indexes of tables that the same run of migrations has dropped.
            lent = _alchemy(schema_editor.connection)
            # A later one of its kind may have removed the schema.
            if schema.status(lent).installed:
                schema_editor.execute(DROP_LEFT.format("ARRAY(SELECT name FROM hashindex.index)"))
            schema.downgrade(lent)

    def describe(self) -> str:
        """Say what it does."""
        return "Install schema hashindex"


def _alchemy(connection: Any) -> sa.Connection:
    """Lend a connection of Django's to SQLAlchemy, and leave transactions to Django."""
    connection.ensure_connection()
    engine = sa.create_engine(
        "postgresql+psycopg://",
        creator=lambda: connection.connection,
        poolclass=sa.StaticPool,
        pool_reset_on_return=None,
        use_native_hstore=False,
    )
    for method in ("do_begin", "do_commit", "do_rollback", "do_close", "do_terminate"):
        setattr(engine.dialect, method, lambda *_: None)
    return engine.connect()
