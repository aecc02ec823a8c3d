"""Training rows: vectors drawn from a table, with their supervision."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from psycopg import sql

from ..db.connection import Connection, prepare
from ..db.keys import KeyColumns
from ..db.progress import Progress
from ..db.server_errors import translated_errors
from ..db.statements import execute
from ..db.table_source import IN_ORDER, TableRow, TableSource
from ..errors import InvalidInputError
from ..hashers import HASHERS
from ..models.vectors import (
    LARGEST_LENGTH,
    SparseRows,
    are_trainable,
    have_directions,
    warn_of_left_out,
    warn_of_zeros,
)
from .edges import Edges
from .relations import Relations

__all__ = [
    "SAMPLE_ROWS",
    "UNSUPERVISED_ROWS",
    "Sample",
    "number_labels",
    "sample_rows",
    "sample_table",
]

#: Default rows of a sample.
SAMPLE_ROWS = 100_000
#: Default rows for methods that learn from rows alone: 256 bits of ITQ gain nothing from 100,000.
UNSUPERVISED_ROWS = 20_000


def sample_rows(method: str) -> int:
    """Return the default number of rows to train a method on."""
    known = HASHERS.get(method)
    return UNSUPERVISED_ROWS if known is not None and known.ranks_by_distance() else SAMPLE_ROWS


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows to train on.

    Attributes
    ----------
    X : floating (n, d)
    y : intp (n,) or scipy.sparse.csr_array (n, c), optional
        Labels as ``fit`` takes them; the matrix if a row may have several.
    pairs : intp (p, 3), optional
        Two row numbers, and 1 for neighbours or -1 for others.
    triplets : intp (t, 3), optional
        Three row numbers: the first row is nearer to the second than to the third.
    graph : scipy.sparse.csr_array, float32 (n, m), optional
        Weights of the edges between rows and objects, as ``fit`` takes them.
    graph_features : floating (n, k), optional
        Vectors to make a graph from.
    """

    X: NDArray[Any]
    y: Any = None
    pairs: NDArray[np.intp] | None = None
    triplets: NDArray[np.intp] | None = None
    graph: SparseRows | None = None
    graph_features: NDArray[Any] | None = None


def sample_table(
    connection: Connection,
    table: str,
    column: str,
    *,
    labels: str | None = None,
    pairs: str | None = None,
    triplets: str | None = None,
    graph: str | None = None,
    graph_features: str | None = None,
    key_columns: KeyColumns = None,
    rows: int = SAMPLE_ROWS,
    random_state: int = 0,
    metric: str | None = None,
) -> Sample:
    """Draw vectors and their supervision from a table.

    Rows that pairs and triplets name come first, then labelled rows, then others. Rows with edges
    of the graph have no precedence, since rows without edges are part of the graph too.

    Parameters
    ----------
    table
        As SQL writes it.
    column
        A column of type ``vector`` or ``halfvec``, by its bare name.
    labels
        A column of integers, text, an enum, booleans, dates or uuids, or of arrays of these for
        several labels a row. NULL and the integer -1 are not a label; other integers below 0 are
        refused.
    pairs
        A table, view or query of three columns: two keys, and 1 or true for neighbours, -1 or
        false for others.
    triplets
        A table, view or query of three columns of keys: the first row is nearer to the second than
        to the third.
    graph
        A table, view or query of two columns, a key and an object (of any type; equal texts are
        one object), or three, with a weight above 0. Weights of repeated edges add up; edges of
        rows that are not drawn are left out. Queries of all three kinds may only read. Keys may
        have any type that casts to the type of the key.
    graph_features
        A column of type ``vector`` or ``halfvec`` to make the graph from, instead of ``column``; no
        drawn row may be without.
    key_columns : str or sequence of str, optional
        The key that pairs, triplets and the graph name; the primary key by default. A key of
        several columns is named by the JSON array of its values, ``[7, 12]``.
    rows
        Most rows to draw; all of a smaller table. From tables above a million rows, whole pages are
        sampled, which is fast but not quite uniform if neighbours on a page are alike.
    random_state
        Seed of the draw; an unchanged table gives the same rows.
    metric
        With "cosine", rows of zeros are left out, and a warning counts them.

    Raises
    ------
    InvalidInputError
        If there is no such table or column, it holds no vectors, or vectors of several dimensions;
        if a column cannot be labels; if pairs or triplets are not as described, name too many or
        unknown rows, a row twice in a line, or a pair both as neighbours and as others; or if the
        graph is not as described, names an unknown row, or has no edge of the drawn rows.
    """
    if rows < 1:
        raise InvalidInputError(f"the sample must have 1 row or more, got {rows}")
    with translated_errors(table=table):
        prepare(connection)
        with connection.transaction():
            # The caller's queries run in here. An outer transaction gets its own mode back
            # afterwards.
            execute(connection, "SET TRANSACTION READ ONLY")
            execute(connection, IN_ORDER)
            source = TableSource.find(connection, table, column)
            if labels is not None:
                source = source.with_labels(labels)
            if any(what is not None for what in (pairs, triplets, graph, graph_features)):
                source = source.with_key(key_columns)
            relations = []
            if pairs is not None:
                relations.append(Relations.read(source, "pairs", pairs))
            if triplets is not None:
                relations.append(Relations.read(source, "triplets", triplets))
            edges = None if graph is None else Edges.find(source, graph)
            beside = None
            if graph_features is not None:
                beside = TableSource.find(connection, table, graph_features).with_key(key_columns)
            with Progress("reading", min(rows, source.estimate)) as bar:
                drawn = _draw(source, relations, rows, random_state, bar)
            drawn, vectors = _trainable(drawn, source, metric)
            sample = _as_sample(drawn, vectors, relations, source)
            keys = [row.key or "" for row in drawn]
            if edges is not None:
                sample = replace(sample, graph=edges.read(keys))
            if beside is not None:
                sample = replace(sample, graph_features=_features(beside, keys))
            return sample


def _features(source: TableSource, keys: list[str]) -> NDArray[np.float32]:
    """Read the vectors of the rows of some keys, in their order."""
    found = {row.key: row for row in source.read(source.has_key(keys))}
    if missing := [key for key in keys if key not in found]:
        raise InvalidInputError(
            f"{len(missing)} of {len(keys)} rows have no vector in column {source.vector!r}, which "
            f"the graph is made from, the first is that with {source.known_key.name} = "
            f"{missing[0]}; give each row one"
        )
    return source.vectors_of([found[key] for key in keys])


def _draw(
    source: TableSource, relations: Sequence[Relations], rows: int, seed: int, bar: Progress
) -> list[TableRow]:
    drawn: list[TableRow] = []
    others: sql.Composable = sql.SQL("true")
    if relations:
        keys = sorted({key for known in relations for key in known.named_keys()})
        if len(keys) > rows:
            raise InvalidInputError(
                f"{' and '.join(known.what for known in relations)} name {len(keys)} rows, but at "
                f"most {rows} are drawn; draw more rows, or give fewer of them"
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


def _trainable(
    drawn: list[TableRow], source: TableSource, metric: str | None
) -> tuple[list[TableRow], NDArray[np.float32]]:
    """Leave out the rows that cannot be trained on; return the others' vectors too."""
    vectors = source.vectors_of(drawn) if drawn else np.empty((0, 0), np.float32)
    fit = are_trainable(vectors)
    if not fit.all():
        warn_of_untrainable(source, int((~fit).sum()))
        drawn, vectors = list(compress(drawn, fit)), vectors[fit]
    there = have_directions(vectors, metric)
    if not there.all():
        warn_of_zeros(source.name, int((~there).sum()))
        drawn, vectors = list(compress(drawn, there)), vectors[there]
    if not drawn and len(fit):
        raise InvalidInputError(
            f"no row drawn from {source.name} has a vector to train on in column "
            f"{source.vector!r}: all are zeros or too long; correct them"
        )
    if not drawn:
        raise InvalidInputError(
            f"{source.name} has no row with a vector in column {source.vector!r}; load the rows "
            "first"
        )
    return drawn, vectors


def warn_of_untrainable(source: TableSource, count: int) -> None:
    """Warn of rows that cannot be trained on; the table names them."""
    keys = source.large_keys(LARGEST_LENGTH, count + 1)
    warn_of_left_out(source.name, keys, count, "to train on")


def _as_sample(
    drawn: list[TableRow],
    vectors: NDArray[np.float32],
    relations: Sequence[Relations],
    source: TableSource,
) -> Sample:
    y: Any = None
    if source.labels is not None:
        y = number_labels(
            [row.label for row in drawn], several=source.several, numbered=source.numbered
        )
    places = {row.key: number for number, row in enumerate(drawn)}
    return Sample(
        vectors,
        y,
        **{known.what: known.numbered(places) for known in relations},
    )


def number_labels(labels: Sequence[Any], *, several: bool = False, numbered: bool = False) -> Any:
    """Give a number to each class of labels that are names; return labels as ``fit`` takes them.

    None is not a label, and an empty list none if each row has ``several``. If the names are
    integers (``numbered``), classes have their order, ``-1`` means no label, and other integers
    below 0 are refused, as by ``fit``, since they often mean no label too.
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
    if numbered and classes and int(classes[0]) < 0:
        raise InvalidInputError(
            f"there is a label {classes[0]}; integer labels are 0 or more, and -1 means no label: "
            "use NULL for no label, or store such a label as text"
        )
    number = {name: place for place, name in enumerate(classes)}
    if not several:
        return np.array([number[row[0]] if row else -1 for row in of_rows])
    columns = [number[name] for row in of_rows for name in row]
    ends = np.cumsum([0, *map(len, of_rows)])
    shape = (len(of_rows), len(classes))
    ones = np.ones(len(columns), np.uint8)
    return scipy.sparse.csr_array((ones, columns, ends), shape=shape)
