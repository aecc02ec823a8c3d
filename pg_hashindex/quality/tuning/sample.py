"""Rows and queries that settings are tried on, drawn from the user's table."""

from collections.abc import Generator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from ...db.citus import is_distributed, refuse_unsuitable
from ...db.connection import Connection
from ...db.keys import KeyColumns
from ...db.owners import settings_kept
from ...db.server_errors import translated_errors
from ...db.statements import execute, one_row
from ...db.table_source import TableSource, find_relation
from ...errors import InvalidInputError
from ...index.landmarks.memory import DEFAULT_MEMORY, as_bytes
from ...index.search import as_count
from ...models.model import Metric
from ..queries import read_log

# The least number of rows: fewer do not represent the full table.
_LEAST_ROWS = 1000
_ROWS_PER_ANSWER = 20
# Rows to read for an estimate of how many have a vector; if fewer are met, all rows are read.
_COUNTED_ROWS = 100_000
_LEAST_COUNTED = 1000

_CHECK_COLUMN = "SELECT hashindex._check_vector_column($1::regclass, $2, $3)"


@dataclass(frozen=True)
class Budget:
    """The limits and data of tuning.

    Attributes
    ----------
    sample
        The most rows of the scratch table; the whole table if it has fewer.
    queries
        Rows held out of the scratch table as queries, or taken from ``queries_from``.
    queries_from
        A table, a view or a query of one column of vectors: a log of queries. The first ones that
        it returns are used.
    minutes
        Minutes after which nothing more is begun.
    random_state
        Seed of every draw.
    memory
        The memory to take for building landmarks; see `HashIndex.encode`.
    """

    sample: int = 50_000
    queries: int = 200
    queries_from: str | None = None
    minutes: float = 5.0
    random_state: int = 0
    memory: str | int = DEFAULT_MEMORY

    def check(self) -> None:
        """Refuse values out of range."""
        as_count("sample", self.sample)
        as_count("queries", self.queries)
        if not self.minutes > 0:
            raise InvalidInputError(f"minutes must be above 0, got {self.minutes}")
        as_bytes(self.memory)


@dataclass(frozen=True, eq=False)
class TuningSample:
    """Rows, with keys as text in random order and vectors X (n, d), and queries Q (m, d).

    ``held_out`` are the keys of the rows that are the queries. If rows and queries are the
    ``whole`` table, ``rows`` is the exact number of rows with a vector, else an estimate.
    """

    source: TableSource
    keys: list[str]
    X: NDArray[np.float32]
    Q: NDArray[np.float32]
    held_out: frozenset[str]
    whole: bool
    rows: int
    partitioned: bool
    distributed: bool


def draw(
    connection: Connection,
    table: str,
    column: str,
    key_columns: KeyColumns,
    budget: Budget,
    k: int,
    metric: Metric,
) -> TuningSample:
    """Draw rows and queries, in a read-only transaction.

    With cosine distance, zero vectors have no neighbours and are not used as queries.

    What no index could be made of is refused, and too few rows, rows or logged queries of another
    dimension.
    """
    with translated_errors(), settings_kept(connection), connection.transaction():
        connection.execute("SET TRANSACTION READ ONLY")
        refuse_unsuitable(connection, table)
        distributed = is_distributed(connection, table)
        source, rows = _counted(TableSource.find(connection, table, column).with_key(key_columns))
        n_held = 0 if budget.queries_from is not None else budget.queries
        wanted = budget.sample + n_held
        found = source.draw(sql.SQL("true"), wanted, rows, budget.random_state)
        if not found:
            raise InvalidInputError(
                f"{source.name} has no row with a vector in column {column!r}; load the rows first"
            )
        vectors = source.vectors_of(found)
        execute(connection, _CHECK_COLUMN, [source.name, column, vectors.shape[1]])
        logged = None
        if budget.queries_from is not None:
            logged = read_log(connection, budget.queries_from, budget.queries, vectors.shape[1])
    whole = len(found) < wanted
    _check_enough(source, len(found), n_held, k, whole)
    order = np.random.default_rng(budget.random_state).permutation(len(found))
    if metric == "cosine":
        # Zero vectors go last, since the first rows are held out as queries.
        order = order[np.argsort(~vectors[order].any(axis=1), kind="stable")]
    held, kept = order[:n_held], order[n_held:]
    queries = vectors[held] if logged is None else logged
    if metric == "cosine":
        queries = queries[queries.any(axis=1)]
        if not len(queries):
            raise InvalidInputError(
                "all queries are vectors of zeros, which have no neighbours by cosine; give "
                "others, or use another metric"
            )
    keys = [row.key or "" for row in found]
    return TuningSample(
        source,
        [keys[place] for place in kept],
        vectors[kept],
        queries,
        frozenset(keys[place] for place in held),
        whole,
        len(found) if whole else max(rows, len(found)),
        find_relation(connection, table)[1] == "p",
        distributed,
    )


def _check_enough(source: TableSource, n_rows: int, n_held: int, k: int, whole: bool) -> None:
    if n_rows <= n_held:
        raise InvalidInputError(
            f"{source.name} has {n_rows} rows with a vector, and {n_held} are to be held out as "
            "queries; ask fewer, or give queries of your own"
        )
    least = k if whole else max(_LEAST_ROWS, _ROWS_PER_ANSWER * k)
    if n_rows - n_held < least:
        raise InvalidInputError(
            f"{n_rows - n_held} rows are too few to try {k} answers on: "
            + (f"{source.name} has no more" if whole else f"draw a sample of {least} or more")
        )


def blocks(
    drawn: TuningSample, share: float, seed: int
) -> Generator[NDArray[np.float32], None, None]:
    """Read the vectors of the full table once, or of a uniform part of it, in blocks (b, d).

    The queries are left out. Runs in a transaction; close the generator if it is not read to its
    end.
    """
    source = drawn.source
    with translated_errors(), source.connection.transaction():
        source.connection.execute("SET TRANSACTION READ ONLY")
        yield from source.blocks(drawn.X.shape[1], without=drawn.held_out, share=share, seed=seed)


def _counted(source: TableSource) -> tuple[TableSource, int]:
    """Estimate a table's rows, and those with a vector, from what it has now.

    Statistics may be outdated, count rows without a vector, and lack partitions. So take the
    planner's estimate, which uses the current number of pages, and count the rows with a vector in
    some pages.
    """
    connection = source.connection
    every_row = sql.SQL("SELECT FROM {}").format(source.table).as_string(connection)
    (planned,) = one_row(connection, "SELECT matching FROM hashindex._estimate($1)", [every_row])
    expected = max(float(source.estimate), planned)
    share = min(1.0, _COUNTED_ROWS / max(expected, 1.0))
    sample = sql.SQL("" if share == 1 else "TABLESAMPLE SYSTEM ({}) REPEATABLE (0)").format(
        sql.Literal(100 * share)
    )
    every, with_vector = one_row(
        connection,
        sql.SQL("SELECT count(*), pg_catalog.count({}) FROM {} {}").format(
            sql.Identifier(source.vector), source.table, sample
        ),
    )
    if share < 1 and with_vector < _LEAST_COUNTED:
        # Too few rows were met for an estimate.
        condition = sql.SQL("{} IS NOT NULL").format(sql.Identifier(source.vector))
        return replace(source, estimate=round(expected)), source.count(condition)
    return replace(source, estimate=round(every / share)), round(with_vector / share)
