"""What belongs to no index: ``sql/149_leftovers.sql`` knows it."""

from dataclasses import dataclass

from ..db.connection import Connection, prepare, translated_errors

__all__ = ["Orphan", "drop_orphans", "list_orphans"]


@dataclass(frozen=True)
class Orphan:
    """Something that was made for an index that is no more.

    Parameters
    ----------
    kind : str
        ``index``, ``model``, ``schema``, ``trigger``, ``column``, ``function`` or ``table``.
    object : str
        As SQL writes it.
    """

    kind: str
    object: str


def list_orphans(connection: Connection) -> list[Orphan]:
    """Return what belongs to no index, and what runs of tune have left that were killed.

    Parameters
    ----------
    connection : psycopg.Connection

    Returns
    -------
    list of Orphan
    """
    with translated_errors():
        prepare(connection)
        rows = connection.execute("SELECT kind, object FROM hashindex.orphans()").fetchall()
    return [Orphan(*row) for row in rows]


def drop_orphans(connection: Connection) -> list[Orphan]:
    """Drop what `list_orphans` lists, in one transaction, and return it.

    Parameters
    ----------
    connection : psycopg.Connection

    Returns
    -------
    list of Orphan
    """
    with translated_errors():
        prepare(connection)
        with connection.transaction():
            rows = connection.execute(
                "SELECT kind, object FROM hashindex.drop_orphans()"
            ).fetchall()
    return [Orphan(*row) for row in rows]
