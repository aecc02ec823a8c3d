"""Work that asks the database, written apart from how it is asked: blocking, or with asyncio.

Such work is a generator, as in psycopg itself. It yields what it needs and is sent the answer; what
goes wrong is raised where it was needed. `run` and `run_async` bring the answers.
"""

import asyncio
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg import AsyncRawCursor, RawCursor, sql
from psycopg.rows import dict_row, tuple_row

__all__ = ["Once", "Statement", "Steps", "Work", "run", "run_async"]

Result = TypeVar("Result")


@dataclass(frozen=True)
class Statement:
    """A statement whose rows are wanted, as a list.

    Parameters
    ----------
    query : str, psycopg.sql.SQL or psycopg.sql.Composed
        With parameters $1, $2, ...: to psycopg's other cursors a % in a name starts a placeholder.
    values : sequence
        Of its parameters.
    binary : bool
        Whether values come in binary form.
    prepare : bool, optional
        Whether to prepare it; once it was run some times by default.
    named : bool
        Whether rows are dicts, not tuples.
    """

    query: LiteralString | sql.SQL | sql.Composed
    values: Sequence[Any] = ()
    binary: bool = False
    prepare: bool | None = None
    named: bool = False


@dataclass(frozen=True)
class Work:
    """Something to compute that takes its time; with asyncio another thread does it."""

    function: Callable[[], Any]


@dataclass(frozen=True)
class Once:
    """The result of other steps, which is kept as an attribute of an object.

    Tasks that want it at the same time wait for the one that came first.
    """

    owner: object
    attribute: str
    steps: "Callable[[], Steps[Any]]"


Steps = Generator[Statement | Work | Once, Any, Result]


def run(connection: psycopg.Connection[Any], steps: Steps[Result]) -> Result:
    """Take steps on a connection, and return what they come to."""
    try:
        step = next(steps)
        while True:
            try:
                answer = _answer(connection, step)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        result: Result = end.value
        return result


def _answer(connection: psycopg.Connection[Any], step: Statement | Work | Once) -> Any:
    match step:
        case Statement():
            cursor = RawCursor(connection, row_factory=_row_factory(step))
            cursor.execute(step.query, step.values, prepare=step.prepare, binary=step.binary)
            return cursor.fetchall()
        case Work():
            return step.function()
        case Once():
            kept = vars(step.owner)
            if step.attribute not in kept:
                kept[step.attribute] = run(connection, step.steps())
            return kept[step.attribute]


async def run_async(connection: psycopg.AsyncConnection[Any], steps: Steps[Result]) -> Result:
    """Take steps on an async connection; other tasks may use it between any two of them."""
    try:
        step = next(steps)
        while True:
            try:
                answer = await _answer_async(connection, step)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        result: Result = end.value
        return result


async def _answer_async(
    connection: psycopg.AsyncConnection[Any], step: Statement | Work | Once
) -> Any:
    match step:
        case Statement():
            cursor = AsyncRawCursor(connection, row_factory=_row_factory(step))
            await cursor.execute(step.query, step.values, prepare=step.prepare, binary=step.binary)
            return await cursor.fetchall()
        case Work():
            return await asyncio.to_thread(step.function)
        case Once():
            kept = vars(step.owner)
            async with kept.setdefault(f"_{step.attribute}_lock", asyncio.Lock()):
                if step.attribute not in kept:
                    kept[step.attribute] = await run_async(connection, step.steps())
            return kept[step.attribute]


def _row_factory(step: Statement) -> Any:
    # Whatever rows the caller's own cursors give.
    return dict_row if step.named else tuple_row
