"""The gate before a table: who could run code in the session that reads it.

PostgreSQL runs functions of a table's owner (in partial indexes, policies and CHECK constraints) as
the role that plans a query on the table. So a statement names a table of a user's as a `UserTable`,
and whatever runs the statement passes the gate first, in the same transaction: it locks the table,
so that ALTER TABLE OWNER waits, and then asks. ``hashindex._require_read`` is the same in SQL, and
``sql/queries/owners.sql`` says which roles may.
"""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from ..errors import DatabaseStateError, MissingRightsError
from .sql_files import query


class UserTable(sql.Identifier):
    """The name of a table that may belong to another role, in a statement that reads it.

    ``columns`` are those that an index reads, and ``remedy`` what its administrator does about
    another owner. Without columns, the caller reads the table for himself.
    """

    columns: Sequence[str] | None = None
    remedy: str | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, sql.Identifier) and self._obj == other._obj

    def __hash__(self) -> int:
        return hash(tuple(self._obj))

    def kept_for(self, columns: Sequence[str], remedy: str) -> "UserTable":
        """Return the name of a table that an index reads."""
        found = UserTable(*self._obj)
        found.columns, found.remedy = columns, remedy
        return found


def tables_in(statement: Any) -> set[UserTable]:
    """Return the tables of users that a statement names."""
    if isinstance(statement, UserTable):
        return {statement}
    if isinstance(statement, sql.Composed):
        return {table for part in statement for table in tables_in(part)}
    return set()


@contextmanager
def reading(connection: psycopg.Connection[Any], statement: Any) -> Iterator[None]:
    """Run a statement behind the gate of the tables of users that it names.

    Where no transaction is open, the block is one, so that the statement runs under the same lock.
    """
    tables = tables_in(statement)
    idle = connection.info.transaction_status == TransactionStatus.IDLE
    own = connection.transaction() if tables and idle and connection.autocommit else nullcontext()
    with own:
        for table in tables:
            pass_gate(connection, table)
        yield


def pass_gate(connection: psycopg.Connection[Any], table: UserTable) -> None:
    """Lock a table until the transaction ends, and then refuse it if an owner could do more as we.

    Its partitions and the tables of a view are locked too. LOCK TABLE wants a right on the whole
    table, and takes no materialised view. A statement that is analysed, and not planned, locks what
    it names, and runs nothing.
    """
    name = table.as_string(connection)
    cursor = psycopg.RawCursor(connection, row_factory=tuple_row)
    row = cursor.execute(query("owners.read_with"), [name], prepare=False).fetchone()
    assert row is not None  # noqa: S101
    if row[0] is not None:
        # Another name each time, since Ctrl-C may come between the two.
        named = f"hashindex_{secrets.token_hex(8)}"
        for text in (f"PREPARE {named} AS SELECT FROM {row[0]}", f"DEALLOCATE {named}"):
            cursor.execute(text.encode(connection.info.encoding), prepare=False)
    values = [name, None if table.columns is None else list(table.columns)]
    row = cursor.execute(query("owners.other_owners"), values).fetchone()
    if row is None:
        return
    owner, refusal = row
    if owner is None:
        raise DatabaseStateError(f"{refusal}; run it again")
    remedy = f"connect as role {owner}, or copy the rows into a table of your own (COPY)"
    raise MissingRightsError(f"{refusal}; {table.remedy or remedy}")
