"""Indexes on tables that Citus distributes; ``sql/155`` to ``157`` write what is run there."""

from psycopg import RawCursor

from .catalog import IndexEntry
from .database import translated_errors
from .errors import DatabaseStateError, InvalidInputError
from .jobs import Job

__all__ = ["distribute", "encode_shards", "refuse_distributed"]


def distribute(index: IndexEntry) -> None:
    """Bring an index to the shards of its table; see `HashIndex.distribute`."""
    with translated_errors(index), index.connection.transaction():
        RawCursor(index.connection).execute("SELECT hashindex.distribute($1)", [index.name])


def encode_shards(
    index: IndexEntry, job: Job, *, batch_rows: int | None, rows_per_second: float | None
) -> int:
    """Encode the rows of a distributed table without a code, each shard its own, in one statement.

    Parameters
    ----------
    index : IndexEntry
    job : Job
    batch_rows, rows_per_second : optional
        As `HashIndex.encode`; there are no batches here.

    Returns
    -------
    int
        Codes written.

    Raises
    ------
    InvalidInputError
        If batches, or a number of rows a second, are asked for.
    """
    for name, value in {"batch_rows": batch_rows, "rows_per_second": rows_per_second}.items():
        if value is not None:
            raise InvalidInputError(
                f"{name} is {value}, and the rows of distributed table {index.qualified_table} are "
                f"encoded by one statement; leave {name} out"
            )
    with index.connection.transaction():
        index.check_current()
    job.phase("encoding")
    with index.connection.transaction():
        row = (
            RawCursor(index.connection)
            .execute("SELECT hashindex.encode_distributed($1)", [index.name])
            .fetchone()
        )
    written: int = row[0] if row is not None else 0
    job.advance(written)
    return written


def refuse_distributed(index: IndexEntry, what: str, instead: str) -> None:
    """Refuse what cannot be done where Citus distributes an index's table.

    Parameters
    ----------
    index : IndexEntry
    what : str
        The beginning of the message: "index repair does".
    instead : str
        Its end: what to do.

    Raises
    ------
    DatabaseStateError
    """
    if index.distributed:
        raise DatabaseStateError(
            f"{what} not work on distributed table {index.qualified_table} of index "
            f"{index.name!r}; {instead}"
        )
