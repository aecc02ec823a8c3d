"""Rows to train on: vectors drawn from a table or a file, with what is known about them."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from psycopg import sql
from tqdm import tqdm

from .database import Connection, prepare, translated_errors
from .errors import InvalidInputError
from .table_source import TableRow, TableSource, find_relation

__all__ = ["SAMPLE_ROWS", "Sample", "number_labels", "sample_table"]

#: Rows that training draws unless told otherwise.
SAMPLE_ROWS = 100_000

# Pairs and triplets are held in memory, as text at first.
_MOST_RELATIONS = 1_000_000
_FETCH_LINES = 10_000
_QUERY = re.compile(r"\s*(select|with|values|table)\b", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows to train on.

    Attributes
    ----------
    X : floating (n, d)
    y : intp (n,) or scipy.sparse.csr_array (n, c), optional
        Labels as ``fit`` takes them; the second where a row may have several.
    classes : tuple of str
        What the numbers, or the columns, of ``y`` stand for.
    pairs : intp (p, 3), optional
        Two row numbers, and 1 for neighbours or -1 for others.
    triplets : intp (t, 3), optional
        Three row numbers: the first row is nearer to the second than to the third.
    """

    X: NDArray[Any]
    y: Any = None
    classes: tuple[str, ...] = ()
    pairs: NDArray[np.intp] | None = None
    triplets: NDArray[np.intp] | None = None


def sample_table(
    connection: Connection,
    table: str,
    column: str,
    *,
    labels: str | None = None,
    pairs: str | None = None,
    triplets: str | None = None,
    id_column: str | None = None,
    rows: int = SAMPLE_ROWS,
    random_state: int = 0,
    progress: bool = False,
) -> Sample:
    """Draw vectors from a table, in the database.

    Rows that are known to be something come first: those that pairs and triplets name, then
    labelled ones, then any others.

    Parameters
    ----------
    connection : psycopg.Connection
    table : str
        As SQL writes it.
    column : str
        A column of type ``vector``, by its bare name.
    labels : str, optional
        A column of integers, text, an enum, booleans or uuids, or of arrays of these for several
        labels a row. NULL, an empty array and the integer -1 mark an unlabelled row.
    pairs : str, optional
        A table, view or query of three columns: two keys, and 1 for neighbours or -1 for others.
    triplets : str, optional
        A table, view or query of three columns of keys: the first row is nearer to the second than
        to the third.
    id_column : str, optional
        The key that pairs and triplets name; the primary key by default.
    rows : int
        How many at the most; all of a smaller table. Of tables above a million rows whole pages
        are sampled, which is fast, but not quite uniform where neighbours on a page are alike.
    random_state : int
        Seed of the draw; an unchanged table gives the same rows.
    progress : bool
        Whether to draw a bar on stderr.

    Returns
    -------
    Sample

    Raises
    ------
    InvalidInputError
        If there is no such table or column, it holds no vectors, or vectors of several dimensions;
        if a column cannot be labels; if pairs or triplets are not as described, name more rows
        than may be drawn, or rows that are not there.
    """
    if rows < 1:
        raise InvalidInputError(f"the sample must have 1 row or more, got {rows}")
    asked = {"pairs": pairs, "triplets": triplets}
    with translated_errors():
        prepare(connection)
        with connection.transaction():
            source = TableSource.find(connection, table, column)
            if labels is not None:
                source = source.with_labels(labels)
            if pairs is not None or triplets is not None:
                source = source.with_key(id_column)
            relations = {
                what: _read_relations(connection, what, query)
                for what, query in asked.items()
                if query is not None
            }
            with tqdm(
                total=min(rows, source.estimate),
                unit="row",
                unit_scale=True,
                desc="reading",
                disable=not progress,
            ) as bar:
                drawn = _draw(source, relations, rows, random_state, bar)
    return _as_sample(drawn, relations, source)


def _draw(
    source: TableSource, relations: dict[str, list[list[str]]], rows: int, seed: int, bar: Any
) -> list[TableRow]:
    drawn: list[TableRow] = []
    others: sql.Composable = sql.SQL("true")
    if relations:
        keys = sorted({key for what in relations for key in _keys(what, relations[what])})
        if len(keys) > rows:
            raise InvalidInputError(
                f"{' and '.join(relations)} name {len(keys)} rows, but at most {rows} are to be "
                "drawn; draw more, or give fewer of them"
            )
        drawn = list(source.read(source.has_key(keys)))
        bar.update(len(drawn))
        others = sql.SQL("NOT {}").format(source.has_key(keys))
    labelled = sql.SQL("{} AND {}").format(source.has_label(), others)
    n_labelled = source.count(labelled) if source.labels is not None else 0
    if n_labelled and len(drawn) < rows:
        drawn += source.draw(labelled, rows - len(drawn), n_labelled, seed, bar)
    if len(drawn) < rows:
        rest = sql.SQL("NOT {} AND {}").format(source.has_label(), others)
        n_rest = max(source.estimate - n_labelled, 0)
        drawn += source.draw(rest, rows - len(drawn), n_rest, seed, bar)
    return drawn


def _read_relations(connection: Connection, what: str, query: str) -> list[list[str]]:
    """Read the lines of pairs or triplets, each value as text."""
    # A word of SQL's begins a query; anything else is the name of a table or a view.
    source: sql.Composable = sql.SQL("({})").format(sql.SQL(query.rstrip("; \n")))
    if not _QUERY.match(query):
        try:
            source, _, _ = find_relation(connection, query)
        except InvalidInputError as error:
            raise InvalidInputError(
                f"{what}: {error}; give a table, or a query that begins with SELECT, WITH, VALUES "
                "or TABLE"
            ) from error
    described = connection.execute(sql.SQL("SELECT * FROM {} known LIMIT 0").format(source))
    columns = [column.name for column in described.description or ()]
    if len(columns) != 3:
        raise InvalidInputError(
            f"{what} must come in 3 columns, got {len(columns)}: {', '.join(columns)}; choose them "
            "by a query"
        )
    lines: list[list[str]] = []
    with connection.cursor(name="pg_hashindex_relations") as cursor:
        cursor.itersize = _FETCH_LINES
        cursor.execute(
            sql.SQL("SELECT ARRAY[a::text, b::text, c::text] FROM {} known(a, b, c)").format(source)
        )
        for (line,) in cursor:
            if None in line:
                raise InvalidInputError(f"line {len(lines) + 1} of the {what} has a NULL: {line}")
            lines.append(line)
            if len(lines) > _MOST_RELATIONS:
                raise InvalidInputError(
                    f"there are more than {_MOST_RELATIONS} {what}; give fewer, by a query"
                )
    if not lines:
        raise InvalidInputError(f"there are no {what} in {query}")
    return lines


def _keys(what: str, lines: Iterable[Sequence[str]]) -> set[str]:
    n_keys = 2 if what == "pairs" else 3
    return {key for line in lines for key in line[:n_keys]}


def _as_sample(
    drawn: list[TableRow], relations: dict[str, list[list[str]]], source: TableSource
) -> Sample:
    if not drawn:
        raise InvalidInputError(
            f"{source.name} has no row with a vector in column {source.vector!r}; load the rows "
            "first"
        )
    dimensions = sorted({len(row.vector) for row in drawn})
    if len(dimensions) > 1:
        raise InvalidInputError(
            f"column {source.vector!r} of {source.name} holds vectors of dimensions "
            f"{', '.join(map(str, dimensions))}; a model takes one"
        )
    y: Any = None
    classes: tuple[str, ...] = ()
    if source.labels is not None:
        y, classes = number_labels(
            [row.label for row in drawn], several=source.several, numbered=source.numbered
        )
    return Sample(
        np.stack([row.vector for row in drawn]),
        y,
        classes,
        **{what: _numbered(what, lines, drawn, source) for what, lines in relations.items()},
    )


def _numbered(
    what: str, lines: list[list[str]], drawn: list[TableRow], source: TableSource
) -> NDArray[np.intp]:
    """Put row numbers in the place of keys."""
    places = {row.key: number for number, row in enumerate(drawn)}
    for key in _keys(what, lines):
        if key not in places:
            raise InvalidInputError(
                f"{what} name a row with {source.key} = {key}, but {source.name} has none with a "
                "vector"
            )
    n_keys = 2 if what == "pairs" else 3
    try:
        return np.array(
            [[*(places[key] for key in line[:n_keys]), *map(int, line[n_keys:])] for line in lines],
            np.intp,
        )
    except ValueError as error:
        raise InvalidInputError(
            f"the third column of the pairs must be 1 for neighbours or -1 for others: {error}"
        ) from None


def number_labels(
    labels: Sequence[Any], *, several: bool = False, numbered: bool = False
) -> tuple[Any, tuple[str, ...]]:
    """Give each class of labels that are names a number.

    Parameters
    ----------
    labels : sequence of str or None, or of lists of them
        None is no label.
    several : bool
        Whether each row has a list of labels.
    numbered : bool
        Whether the names are integers: in their order then, and ``-1`` is no label.

    Returns
    -------
    y : intp (n,), or scipy.sparse.csr_array uint8 (n, c) where there are several a row
        As ``fit`` takes labels.
    classes : tuple of str
        The names, by number or column.
    """
    unlabelled = (None, "-1") if numbered else (None,)
    of_rows = [
        sorted({name for name in (row or ()) if name not in unlabelled})
        if several
        else [row] * (row not in unlabelled)
        for row in labels
    ]
    names = {name for row in of_rows for name in row}
    classes = sorted(names, key=int) if numbered else sorted(names)
    number = {name: place for place, name in enumerate(classes)}
    if not several:
        return np.array([number[row[0]] if row else -1 for row in of_rows]), tuple(classes)
    columns = [number[name] for row in of_rows for name in row]
    ends = np.cumsum([0, *map(len, of_rows)])
    shape = (len(of_rows), len(classes))
    ones = np.ones(len(columns), np.uint8)
    return scipy.sparse.csr_array((ones, columns, ends), shape=shape), tuple(classes)
