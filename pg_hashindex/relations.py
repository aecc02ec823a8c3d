"""Pairs and triplets from the database: which rows are near to which, named by their keys."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg import RawCursor, sql
from psycopg.postgres import types

from .database import translated_errors
from .errors import HashIndexError, InvalidInputError
from .table_source import TableSource, find_relation

__all__ = ["Relations"]

# Pairs and triplets are held in memory, as text at first.
_MOST_LINES = 1_000_000
_FETCH_LINES = 10_000

_BLANK = re.compile(r"(?:\s|\(|--[^\n]*)*")
_COMMENT_MARK = re.compile(r"/\*|\*/")
_QUERY = re.compile(r"(select|with|values|table)\b", re.IGNORECASE)

_BOOLEAN = types["bool"].oid
_FRACTIONAL = frozenset(types[name].oid for name in ("numeric", "float4", "float8"))


@dataclass(frozen=True)
class Relations:
    """The lines of pairs or triplets.

    Attributes
    ----------
    what : {"pairs", "triplets"}
    key, table : str
        The key that lines name rows by, and whose it is, for messages.
    lines : list of lists of str
        Keys, two or three a line, as `TableSource.key_text` writes them.
    sides : list of int
        Of pairs: 1 for neighbours or -1 for others; empty for triplets.
    """

    what: Literal["pairs", "triplets"]
    key: str
    table: str
    lines: list[list[str]]
    sides: list[int]

    @classmethod
    def read(
        cls, source: TableSource, what: Literal["pairs", "triplets"], query: str
    ) -> "Relations":
        """Read and check the lines.

        Parameters
        ----------
        source : TableSource
            With a key.
        what : {"pairs", "triplets"}
        query : str
            A table, a view or a query. It is never run by the simple protocol, which would take
            several statements at once.

        Raises
        ------
        InvalidInputError
            If there is no such table, or the query or one of its lines cannot be used.
        """
        relation = _relation(source, what, query)
        lines: list[list[str]] = []
        sides: list[int] = []
        about = f"as key {source.key} of {source.name} is of type {source.key_type}"
        with _naming(what, about), source.connection.cursor(name="pg_hashindex_relations") as rows:
            rows.itersize = _FETCH_LINES
            rows.execute(
                sql.SQL("SELECT ARRAY[{}] FROM {} known(a, b, c)").format(
                    sql.SQL(", ").join(_values(source, what, relation)), relation
                )
            )
            for (line,) in rows:
                number = len(lines) + 1
                if None in line:
                    raise InvalidInputError(f"line {number} of the {what} has a NULL: {line}")
                if what == "pairs":
                    sides.append(_side(line, number))
                lines.append(line[:2] if what == "pairs" else line)
                if number > _MOST_LINES:
                    raise InvalidInputError(
                        f"there are more than {_MOST_LINES} {what}; give fewer, by a query"
                    )
        if not lines:
            raise InvalidInputError(f"there are no {what} in {query}")
        read = cls(what, source.key or "", source.name, lines, sides)
        read._check()
        return read

    def _check(self) -> None:
        """Refuse lines that say nothing, or contradict each other."""
        first: dict[tuple[str, ...], int] = {}
        for place, line in enumerate(self.lines):
            if len(set(line)) < len(line):
                doubled = max(line, key=line.count)
                raise InvalidInputError(
                    f"{self.what} must name different rows, but line {place + 1} has {self.key} = "
                    f"{doubled} twice: {', '.join(line)}"
                )
            if not self.sides:
                continue
            before = first.setdefault(tuple(sorted(line)), place)
            if self.sides[before] != self.sides[place]:
                raise InvalidInputError(
                    f"rows with {self.key} = {' and '.join(line)} are given both as neighbours and "
                    f"as others, by lines {before + 1} and {place + 1} of the pairs; keep one of "
                    "the two"
                )

    def named_keys(self) -> set[str]:
        """Return the keys of all rows that are named."""
        return {key for line in self.lines for key in line}

    def numbered(self, places: Mapping[str | None, int]) -> NDArray[np.intp]:
        """Put row numbers in the place of keys, intp (n, 3), as ``fit`` takes them.

        Raises
        ------
        InvalidInputError
            If a key has no place.
        """
        for key in self.named_keys():
            if key not in places:
                raise InvalidInputError(
                    f"{self.what} name a row with {self.key} = {key}, but {self.table} has none "
                    "with a vector"
                )
        numbers = np.array([[places[key] for key in line] for line in self.lines], np.intp)
        return np.column_stack([numbers, self.sides]) if self.sides else numbers


def _relation(source: TableSource, what: str, query: str) -> sql.Composable:
    """Return what may stand after FROM."""
    # A word of SQL's begins a query; anything else is the name of a table or a view.
    if _QUERY.match(_without_blank(query)):
        # A comment at the end must not take the bracket along.
        return sql.SQL("({}\n)").format(sql.SQL(query.rstrip("; \t\r\n")))
    try:
        relation, _, _ = find_relation(source.connection, query)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"{what}: {error}; give a table, or a query that begins with SELECT, WITH, VALUES or "
            "TABLE"
        ) from error
    return relation


def _without_blank(query: str) -> str:
    """Leave out the spaces, comments and opening brackets that a query begins with."""
    place = 0
    while True:
        blank = _BLANK.match(query, place)
        place = blank.end() if blank else place
        if not query.startswith("/*", place):
            return query[place:]
        depth = 0
        for mark in _COMMENT_MARK.finditer(query, place):
            depth += 1 if mark.group() == "/*" else -1
            if not depth:
                place = mark.end()
                break
        else:
            return query[place:]


def _values(source: TableSource, what: str, relation: sql.Composable) -> list[sql.Composable]:
    """Return SQL for the three values of a line, as text."""
    # Raw, and with a parameter: that is what the extended protocol is for, which takes one
    # statement alone.
    described = RawCursor(source.connection).execute(
        sql.SQL("SELECT * FROM {} known LIMIT $1").format(relation), [0]
    )
    columns = described.description or []
    if len(columns) != 3:
        raise InvalidInputError(
            f"{what} must come in 3 columns, got {len(columns)}: "
            f"{', '.join(column.name for column in columns)}; choose them by a query"
        )
    values: list[sql.Composable] = []
    for name, column in zip("abc", columns, strict=True):
        value: sql.Composable = sql.Identifier(name)
        if column.type_code in _FRACTIONAL:
            # 1.00 is the integer 1; a cast would make one of 1.5 too.
            value = sql.SQL("trim_scale({}::numeric)::text").format(value)
        if name != "c" or what == "triplets":
            value = source.key_text(sql.SQL("{}::{}").format(value, sql.SQL(source.key_type or "")))
        elif column.type_code == _BOOLEAN:
            value = sql.SQL("CASE {0} WHEN true THEN '1' WHEN false THEN '-1' END").format(value)
        values.append(sql.SQL("{}::text").format(value))
    return values


def _side(line: Sequence[str], number: int) -> int:
    try:
        side = float(line[2])
    except ValueError:
        side = 0
    if side not in (1, -1):
        raise InvalidInputError(
            "the third column of the pairs must be 1 for neighbours or -1 for others; line "
            f"{number}, {line[0]} and {line[1]}, has {line[2]}"
        )
    return int(side)


@contextmanager
def _naming(what: str, about: str) -> Iterator[None]:
    """Say in PostgreSQL's messages which query they are of, and what its values were cast for."""
    try:
        with translated_errors():
            yield
    except HashIndexError as error:
        cause = error.__cause__
        if not isinstance(cause, psycopg.Error):
            raise
        message = f"{what}: {str(error).rstrip('.')}"
        if isinstance(cause, psycopg.DataError | psycopg.errors.CannotCoerce):
            raise InvalidInputError(f"{message}; {about}") from cause
        raise type(error)(message) from cause
