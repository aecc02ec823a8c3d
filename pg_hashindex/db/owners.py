"""Check the owners of schema and tables before reading.

PostgreSQL runs functions of a table's owner (in partial indexes, policies and CHECK constraints) as
the role that plans a query on the table, and a superuser's session runs whatever the owner of
schema ``hashindex`` has put there. ``sql/queries/owners.sql`` says who is trusted.
"""

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

import psycopg

from ..errors import MissingRightsError, MissingSchemaError
from .connection import Connection, prepare
from .sql_files import query
from .statements import Statement, Steps, execute, run

#: Connections whose caller trusts the owners of tables and of the schema.
_TRUSTING: "weakref.WeakSet[psycopg.BaseConnection[Any]]" = weakref.WeakSet()
# Connections that have found the schema's owner to be trusted, which only that owner can change.
_ASKED: "weakref.WeakSet[psycopg.BaseConnection[Any]]" = weakref.WeakSet()

SCHEMA_OWNER = query("owners.schema_owner")

#: Refusal of a schema from before the first release.
NOT_UPGRADED = (
    "schema hashindex was made by an earlier commit, from which there is no upgrade; with that "
    "commit run pg-hashindex model export NAME FILE for each model, pg-hashindex index drop NAME "
    "for each index and pg-hashindex schema downgrade, then with this release pg-hashindex schema "
    "upgrade and pg-hashindex model import FILE, and create the indexes again"
)


def trust_owners(connection: psycopg.BaseConnection[Any]) -> None:
    """Let a connection read tables of any owner, and a schema ``hashindex`` of any owner."""
    _TRUSTING.add(connection)


def trusts_owners(connection: psycopg.BaseConnection[Any]) -> bool:
    """Return whether `trust_owners` was called for a connection."""
    return connection in _TRUSTING


def check_owners(connection: Connection, table: int | str, trust: str | None = None) -> None:
    """Refuse a table, by its oid or name, if its owner is not trusted, so that nothing reads it.

    ``trust`` says how a caller trusts one.
    """
    if trusts_owners(connection):
        return
    row = execute(
        connection, query("owners.untrusted_owners"), [str(table), [], False, None]
    ).fetchone()
    if row is not None:
        owner, why, _ = row
        raise MissingRightsError(refusal(owner, why, trust or _TRUST))


#: How a caller says that an owner is trusted.
_TRUST = "--trust-owner (in Python, pg_hashindex.trust_owners(connection))"


def refusal(owner: str, why: str, trust: str = _TRUST) -> str:
    """Return the message for an owner who is not trusted."""
    return (
        f"{why}, when a query on it is planned; connect as role {owner}, or if that role may do "
        f"all that you may: {trust}"
    )


@contextlib.contextmanager
def settings_kept(connection: Connection) -> Iterator[None]:
    """Set the path and the role back, where the block may have read a trusted role's table."""
    if not trusts_owners(connection):
        yield
        return
    names = ["search_path", "role"]
    current = "SELECT n, pg_catalog.current_setting(n) FROM pg_catalog.unnest($1::text[]) n"
    before = execute(connection, current, [names]).fetchall()
    yield
    for name, value in before:
        execute(connection, "SELECT pg_catalog.set_config($1, $2, false)", [name, value])


def ask_schema(connection: Connection) -> None:
    """Refuse a superuser's session the schema ``hashindex`` of another role, before it is read.

    A session of another role is checked too, since a superuser may have lowered it by ``SET ROLE``.
    Every other role trusts the administrator, as docs/production.md says.
    """
    if _must_ask(connection):
        # Without this block, a connection that is not in autocommit mode would begin a transaction.
        with connection.transaction():
            run(connection, schema_owner_steps(connection))


def _must_ask(connection: psycopg.BaseConnection[Any]) -> bool:
    """Return whether the owner of the schema matters to a session, and is not checked yet."""
    return connection not in _ASKED and connection not in _TRUSTING


def schema_owner_steps(connection: psycopg.BaseConnection[Any]) -> Steps[None]:
    """Refuse the schema of another role as `ask_schema` does."""
    if _must_ask(connection):
        for *row, is_earlier in (yield Statement(SCHEMA_OWNER)):
            refuse_owner(*row)
            if is_earlier:
                raise MissingSchemaError(NOT_UPGRADED)
            _ASKED.add(connection)


def refuse_owner(trusted: bool, owner: str, role: str) -> None:
    """Refuse a schema whose owner, by a row of `SCHEMA_OWNER`, could do more as the caller."""
    if not trusted:
        raise MissingRightsError(
            f"schema hashindex belongs to role {owner}, which can run code as superuser {role} "
            f"whenever {role} uses it; connect as role {owner}, or if that role may do all that "
            f"you may: {_TRUST}"
        )


def prepare_schema(connection: Connection) -> None:
    """Prepare a connection as `connection.prepare` does, and ask whose the schema is."""
    prepare(connection)
    ask_schema(connection)
