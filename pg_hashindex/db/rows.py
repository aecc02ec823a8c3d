"""The one sampler: parts of a table, rows drawn from it, and rows by the hashes of their keys.

Tables are plain or divided. `draw` reads a `part` of a table, and a larger
one until there are rows enough. `by_place` is for readers of some pages. `by_hash` draws the same
rows again while they are there, and costs a pass over all keys.
"""

import math
from collections.abc import Callable, Iterable
from typing import LiteralString, TypeVar

import numpy as np
from psycopg import sql

from .connection import Connection
from .statements import one_row

T = TypeVar("T")

# With more rows than this, reading some pages costs far less than reading every row.
_LARGE_TABLE = 1_000_000

_BY_PLACE: LiteralString = """
      AND (pg_catalog.hashtidextended(b.ctid, {seed}) OPERATOR(pg_catalog.&) 1048575)
          OPERATOR(pg_catalog.<) {share}
"""
_SHARES = 1 << 20

_SHARE: LiteralString = "SELECT hashindex._sample_share($1::text::regclass, $2)"


def part(share: float, seed: int = 0, *, rows: int = -1) -> sql.Composable:
    """Return the clause that reads a share of a table's rows; a share of 1 or more reads all.

    An unchanged table and the same seed give the same rows. Tables of more than a million
    ``rows``, or of an unknown number (-1), are sampled by whole pages.
    """
    if share >= 1:
        return sql.SQL("")
    method = sql.SQL("BERNOULLI" if 0 <= rows <= _LARGE_TABLE else "SYSTEM")
    clause = sql.SQL("TABLESAMPLE {} ({}) REPEATABLE ({})")
    return clause.format(method, sql.Literal(100 * share), sql.Literal(seed))


def by_place(share: float, seed: int) -> sql.Composed:
    """Return the condition on about a share of the rows of table ``b``, drawn by their places.

    Unlike `part` it can be had beside a condition on pages.
    """
    below = math.ceil(share * _SHARES)
    return sql.SQL(_BY_PLACE).format(seed=sql.Literal(seed), share=sql.Literal(below))


def share_of_pages(connection: Connection, table: sql.Composable, pages: int) -> float:
    """Return which share of a table's pages a number of pages is, at most 1."""
    (share,) = one_row(connection, _SHARE, [table.as_string(connection), float(pages)])
    return float(share)


def draw(read: Callable[[float], Iterable[T]], wanted: int, total: int, seed: int) -> list[T]:
    """Draw rows, ``wanted`` or all that there are.

    Parameters
    ----------
    read
        Reads the rows of about a share of the table.
    total
        How many rows there are, roughly.
    """
    share = 1.1 * wanted / max(total, 1)
    while True:
        # The table may be far larger than its statistics say: keep a uniform part of its rows,
        # never all of them.
        kept: list[T] = []
        rng = np.random.default_rng(seed)
        for seen, row in enumerate(read(share)):
            if seen < wanted:
                kept.append(row)
            elif (place := int(rng.integers(seen + 1))) < wanted:
                kept[place] = row
        if len(kept) >= wanted or share >= 1:
            return kept
        # The part is short by chance, or because many rows have no vector.
        share *= max(2.0, 1.2 * wanted / max(len(kept), 1))


def by_hash(text: sql.Composable, seed: int, most: int) -> sql.Composed:
    """Return the end of a statement that draws the rows whose texts have the least hashes.

    It reads vectors that are kept out of line for those rows alone. By keys, the draw is uniform,
    and the same after VACUUM FULL.
    """
    return sql.SQL("ORDER BY pg_catalog.hashtextextended({}, {}) LIMIT {}").format(
        text, sql.Literal(seed % 2**63), sql.Literal(most)
    )
