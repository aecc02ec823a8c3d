"""Statements, run in one way: with parameters ``$1``, ``$2``, ..., whose rows are tuples.

What an async connection does too is written once, as `Steps`: a generator that never waits itself.
It yields each `Statement` to `run` or `run_async`, which execute it on their connection and send
back its rows; an empty list where it returns none. In a pipeline they wait for the results first.

An error of a step is raised inside the generator, at its ``yield``, where it may be handled; what
the generator does not handle reaches the caller of the driver. What the generator returns is what
the driver returns. A generator that is part of another one is called by ``yield from``: its
statements then reach the same driver, as if they stood in the outer one.

So ``rows = yield Statement("SELECT $1", [7])`` reads the same on both kinds of connection::

    run(connection, steps)              # psycopg.Connection
    await run_async(connection, steps)  # psycopg.AsyncConnection
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg import sql
from psycopg.pq import PipelineStatus
from psycopg.rows import class_row, tuple_row

from ..errors import InvalidInputError
from .gate import reading
from .times import keep_times

_Connection = psycopg.Connection[Any]

Result = TypeVar("Result")


def execute(
    connection: _Connection,
    statement: Any,
    values: Sequence[Any] | None = None,
    *,
    names: Mapping[str, sql.Composable] | None = None,
    binary: bool | None = None,
) -> psycopg.RawCursor[tuple[Any, ...]]:
    """Run a statement whose parameters are ``$1``, ``$2``, ...

    ``names`` are put in the places of a template in brackets. psycopg's other cursors would take a
    % in a name for a placeholder. A table of a user's is read behind its gate; see `gate.reading`.
    """
    if names is not None:
        statement = sql.SQL(statement).format(**names)
    cursor = psycopg.RawCursor(connection, row_factory=tuple_row)
    with reading(connection, statement):
        # Text without parameters may be several statements, which cannot be prepared as one.
        cursor.execute(statement, values, binary=binary, prepare=None if values else False)
        _receive(connection)
    return cursor


def _receive(connection: _Connection) -> None:
    """Wait for results in a pipeline: cursors have no description or row count before."""
    if connection.pgconn.pipeline_status != PipelineStatus.OFF:
        with connection.pipeline() as pipeline:
            pipeline.sync()


def check_text(what: str, value: Any) -> None:
    """Refuse what is neither text nor None: PostgreSQL finds no operator or function for it."""
    if not isinstance(value, str | None):
        raise InvalidInputError(f"{what} must be text, got {value!r}")


def one_row(
    connection: _Connection, statement: Any, values: Sequence[Any] | None = None, **more: Any
) -> tuple[Any, ...]:
    """Run a statement as `execute` does, and return the row that it always has."""
    row = execute(connection, statement, values, **more).fetchone()
    assert row is not None  # noqa: S101
    return row


def read_as(
    kind: type[Result],
    connection: _Connection,
    statement: Any,
    values: Sequence[Any] | None = None,
) -> list[Result]:
    """Run a statement as `execute` does, and make an object of each row, by the columns' names.

    Rows come as binary: psycopg reads times as text only if DateStyle is ISO.
    """
    cursor = psycopg.RawCursor(connection, row_factory=class_row(kind))
    with reading(connection, statement):
        return cursor.execute(statement, values, binary=True).fetchall()


@dataclass(frozen=True)
class Statement:
    """A statement with its parameters; ``rows`` is a row factory of psycopg.

    With ``times``, its rows may have times that Python has no values for; see `keep_times`.
    """

    text: Any
    values: Sequence[Any] | None = None
    rows: Any = tuple_row
    binary: bool | None = None
    prepare: bool | None = None
    times: bool = False


#: Statements, whose rows are sent back.
Steps: TypeAlias = Generator[Statement, Any, Result]


def run(connection: _Connection, steps: Steps[Result]) -> Result:
    """Run the statements of some steps one after another, and return what the steps return."""
    try:
        step = next(steps)
        while True:
            try:
                cursor = psycopg.RawCursor(connection, row_factory=step.rows)
                if step.times:
                    keep_times(cursor)
                cursor.execute(step.text, step.values, prepare=step.prepare, binary=step.binary)
                _receive(connection)
                found = cursor.fetchall() if cursor.description else []
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(found)
    except StopIteration as end:
        result: Result = end.value
        return result


async def run_async(connection: psycopg.AsyncConnection[Any], steps: Steps[Result]) -> Result:
    """Run the statements of some steps as `run` does."""
    try:
        step = next(steps)
        while True:
            try:
                cursor = psycopg.AsyncRawCursor(connection, row_factory=step.rows)
                if step.times:
                    keep_times(cursor)
                await cursor.execute(
                    step.text, step.values, prepare=step.prepare, binary=step.binary
                )
                if connection.pgconn.pipeline_status != PipelineStatus.OFF:
                    async with connection.pipeline() as pipeline:
                        await pipeline.sync()
                found = await cursor.fetchall() if cursor.description else []
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(found)
    except StopIteration as end:
        result: Result = end.value
        return result
