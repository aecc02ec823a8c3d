"""Check the owners of schema and tables before reading.

PostgreSQL runs functions of a table's owner (in partial indexes, policies and CHECK constraints) as
the role that plans a query on the table, and a superuser's session runs whatever the owner of
schema ``hashindex`` has put there. ``sql/queries/owners.sql`` says which roles may.
"""

import weakref
from typing import Any

import psycopg

from ..errors import MissingRightsError, MissingSchemaError
from .connection import Connection, prepare
from .sql_files import query
from .statements import Statement, Steps, execute, run

# Connections that may use what the schema's owner has put there, which only that owner can change.
_ASKED: "weakref.WeakSet[psycopg.BaseConnection[Any]]" = weakref.WeakSet()

SCHEMA_OWNER = query("owners.schema_owner")

#: Refusal of a schema from before the first release.
NOT_UPGRADED = (
    "schema hashindex was made by an earlier commit, from which there is no upgrade; with that "
    "commit run pg-hashindex model export NAME FILE for each model, pg-hashindex index drop NAME "
    "for each index and pg-hashindex schema downgrade, then with this release pg-hashindex schema "
    "upgrade and pg-hashindex model import FILE, and create the indexes again"
)


def check_owner(connection: Connection, table: int | str) -> None:
    """Refuse a table, by its oid or name, whose owner could do more as the caller.

    So nothing reads it.
    """
    row = execute(connection, query("owners.other_owners"), [str(table), None]).fetchone()
    if row is not None:
        owner, refusal = row
        raise MissingRightsError(
            f"{refusal}; connect as role {owner}, or copy the rows into a table of your own (COPY)"
        )


def ask_schema(connection: Connection) -> None:
    """Refuse a superuser's session the schema ``hashindex`` of another role, before it is read.

    A session of another role is checked too, since a superuser may have lowered it by ``SET ROLE``.
    Every other role relies on the administrator, as docs/production.md says.
    """
    if connection not in _ASKED:
        # Without this block, a connection that is not in autocommit mode would begin a transaction.
        with connection.transaction():
            run(connection, schema_owner_steps(connection))


def schema_owner_steps(connection: psycopg.BaseConnection[Any]) -> Steps[None]:
    """Refuse the schema of another role as `ask_schema` does."""
    if connection not in _ASKED:
        for *row, is_earlier in (yield Statement(SCHEMA_OWNER)):
            refuse_owner(*row)
            if is_earlier:
                raise MissingSchemaError(NOT_UPGRADED)
            _ASKED.add(connection)


def refuse_owner(is_safe: bool, owner: str, role: str) -> None:
    """Refuse a schema whose owner, by a row of `SCHEMA_OWNER`, could do more as the caller."""
    if not is_safe:
        raise MissingRightsError(
            f"schema hashindex belongs to role {owner}, which can run code as superuser {role} "
            f"whenever {role} uses it; connect as role {owner}, or as a member of it that is not "
            "a superuser"
        )


def prepare_schema(connection: Connection) -> None:
    """Prepare a connection as `connection.prepare` does, and ask whose the schema is."""
    prepare(connection)
    ask_schema(connection)
