"""Pairs and triplets from the database, which name rows by their keys."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from psycopg import sql
from psycopg.postgres import types

from ..db.caller_queries import columns_of, errors_naming, exact_text, find_query
from ..db.gate import reading
from ..db.table_source import TableSource
from ..errors import InvalidInputError

# Most lines, since they are held in memory as text.
_MOST_LINES = 1_000_000
_FETCH_LINES = 10_000

_BOOLEAN = types["bool"].oid


@dataclass(frozen=True)
class Relations:
    """The lines of pairs or triplets: two or three keys, as `Key.exact_text` writes them.

    ``sides`` are 1 for pairs of neighbours or -1 for others; empty for triplets. ``key`` and
    ``table`` are for messages.
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
        """Read and check the lines of a table, a view or a query.

        It never runs by the simple protocol, which would accept several statements.
        """
        relation = find_query(source.connection, what, query)
        lines: list[list[str]] = []
        sides: list[int] = []
        with (
            errors_naming(what, source),
            reading(source.connection, relation),
            source.connection.cursor(name="pg_hashindex_relations") as rows,
        ):
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
        read = cls(what, source.known_key.name, source.name, lines, sides)
        read._check()
        return read

    def _check(self) -> None:
        """Refuse lines that name a row twice, or contradict each other."""
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
        """Return the keys that lines name."""
        return {key for line in self.lines for key in line}

    def numbered(self, places: Mapping[str | None, int]) -> NDArray[np.intp]:
        """Replace keys by row numbers (n, 3), as ``fit`` takes them; each key must have a row."""
        for key in self.named_keys():
            if key not in places:
                raise InvalidInputError(
                    f"{self.what} name a row with {self.key} = {key}, but {self.table} has none "
                    "with a vector to train on"
                )
        numbers = np.array([[places[key] for key in line] for line in self.lines], np.intp)
        return np.column_stack([numbers, self.sides]) if self.sides else numbers


def _values(source: TableSource, what: str, relation: sql.Composable) -> list[sql.Composable]:
    """Return SQL for the three values of a line, as text."""
    columns = columns_of(source.connection, relation)
    if len(columns) != 3:
        raise InvalidInputError(
            f"{what} must come in 3 columns, got {len(columns)}: "
            f"{', '.join(column.name for column in columns)}; choose them by a query"
        )
    values: list[sql.Composable] = []
    for name, column in zip("abc", columns, strict=True):
        value = exact_text(name, column)
        if name != "c" or what == "triplets":
            value = source.known_key.exact_text(source.known_key.compared(value))
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
