"""Read and measure everything that the report of an index shows; write nothing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import LiteralString, TypeVar

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from ...db.connection import EXTENSION
from ...db.server_errors import translated_errors
from ...db.statements import execute, one_row
from ...errors import ConnectionFailedError, HashIndexError, MissingSchemaError
from ...index.catalog import HasRow, IndexRow, IndexSummary, ListSummary
from ...index.search import as_count
from ...index.verifying import as_bits, draw_codes, percent_of_codes
from ...quality.evaluate import CANDIDATES, Evaluation, default_candidates, evaluate
from ...quality.query_sets import draw, load
from ...quality.recall_history import HistoryPoint, history
from ...quality.tenant_recall import Tenant, measure, tenants
from ..health import Health, check

T = TypeVar("T")

_LENGTHS: LiteralString = """
    SELECT pg_catalog.count(c.landmark) FROM {landmarks} l LEFT JOIN {codes} c USING (landmark)
    GROUP BY l.landmark ORDER BY 1
"""

# The most codes to draw, and the pages to draw them from; reading eight million bits takes about a
# second.
_MOST_CODES = 10_000
_MOST_BITS = 8_000_000
_PAGES = 2_000
# A picture of more bits would need more points than it has.
_MOST_CORRELATED = 512
_SHOWN_TENANTS = 10


@dataclass(frozen=True)
class Missing:
    """A part that could not be read, and why."""

    reason: str


@dataclass(frozen=True, eq=False)
class Bits:
    """The bits of codes that were drawn: in which share of codes each of them is one.

    ``numbers`` (c,) are the bits whose correlations (c, c) were computed: all, or some if there are
    many. A correlation is NaN if one of the two bits is the same in all codes.
    """

    codes: int
    ones: NDArray[np.float64]
    numbers: NDArray[np.intp]
    correlation: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Lists:
    """Lists of landmarks: a summary, and the codes in each."""

    summary: ListSummary
    lengths: NDArray[np.int64]


@dataclass(frozen=True)
class Tenants:
    """The tenants of an index: how many there are, and some, with the recall of searches in them.

    ``some`` are the largest, the one in the middle, and the smallest, by their codes.
    """

    count: int
    some: list[Tenant]


@dataclass(frozen=True, eq=False)
class Report:
    """The report of an index.

    Attributes
    ----------
    versions
        The versions of pg_hashindex, pgvector and PostgreSQL.
    candidates
        The index's own number of candidates.
    bits
        None where there are no codes.
    lists
        None where there are no landmarks.
    tenants
        None where there are none.
    """

    index: IndexRow
    made_at: datetime
    versions: str
    health: Health | Missing
    summary: IndexSummary | Missing
    candidates: int
    measurement: Evaluation | Missing
    bits: Bits | Missing | None
    lists: Lists | Missing | None
    tenants: Tenants | Missing | None
    history: list[HistoryPoint] | Missing


def gather(
    index: HasRow,
    *,
    queries: int = 200,
    query_set: str | None = None,
    k: int = 10,
    candidates: Sequence[int] = CANDIDATES,
    random_state: int = 0,
) -> Report:
    """Read and measure what the report of an index shows.

    Nothing is written, so this works in a read-only session, and measurements are not recorded. If
    a part cannot be read, since the index's table is gone say, the report says why.

    Parameters
    ----------
    queries
        Rows drawn from the table as queries.
    query_set
        The name of a saved set to use instead.
    k
        Answers compared.
    candidates
        Numbers of candidates to try; the index's own is always among them.
    random_state
        Seed of the draws.

    Raises
    ------
    InvalidInputError
        If a number is out of range, or there is no such set of queries.
    UnknownIndexError
        If the index is gone.
    """
    as_count("queries", queries)
    as_count("k", k)
    for count in candidates:
        as_count("candidates", count)
    row = index.row
    saved = None if query_set is None else load(row, query_set)
    own = default_candidates(row, k)

    def measured() -> Evaluation:
        return evaluate(
            row,
            queries=saved or draw(row, queries, random_state),
            k=k,
            candidates=(*candidates, own),
            record=False,
        )

    return Report(
        index=row,
        made_at=datetime.now(UTC),
        versions=_versions(row),
        health=_found(lambda: check(row)),
        summary=_found(row.summary),
        candidates=own,
        measurement=_found(measured),
        bits=_found(lambda: read_bits(row, random_state)),
        lists=_found(lambda: _lists(row)),
        tenants=None if row.tenant_column is None else _found(lambda: _tenants(row)),
        history=_found(lambda: history(row)),
    )


def _found(find: Callable[[], T]) -> T | Missing:
    try:
        return find()
    except (ConnectionFailedError, MissingSchemaError):
        # Nothing else can be read either.
        raise
    except HashIndexError as error:
        return Missing(str(error))


def _lists(index: IndexRow) -> Lists | None:
    summary, landmarks = index.lists(), index.landmarks
    if summary is None or landmarks is None:
        return None
    lengths = sql.SQL(_LENGTHS).format(landmarks=landmarks, codes=index.codes)
    with translated_errors():
        rows = execute(index.connection, lengths).fetchall()
    return Lists(summary, np.array([row[0] for row in rows], dtype=np.int64))


def _tenants(index: IndexRow) -> Tenants:
    found = tenants(index)
    places = sorted({*range(min(_SHOWN_TENANTS, len(found))), len(found) // 2, len(found) - 1})
    return Tenants(len(found), [measure(index, found[p]) for p in places if 0 <= p < len(found)])


def _versions(index: IndexRow) -> str:
    with translated_errors():
        (server,) = one_row(index.connection, "SELECT current_setting('server_version')")
        _, pgvector = one_row(index.connection, EXTENSION)
    return f"pg_hashindex {version('pg_hashindex')}, pgvector {pgvector}, PostgreSQL {server}"


def read_bits(index: IndexRow, random_state: int = 0) -> Bits | None:
    """Draw codes, and look at their bits; None where there are no codes."""
    most = min(_MOST_CODES, max(200, _MOST_BITS // index.n_bits))
    with translated_errors():
        drawn = draw_codes(index, most, percent_of_codes(index, _PAGES), random_state)
    if not drawn:
        return None
    codes = as_bits(drawn).astype(np.float32)
    ones = codes.mean(axis=0, dtype=np.float64)
    n_shown = min(len(ones), _MOST_CORRELATED)
    numbers = np.linspace(0, len(ones) - 1, n_shown).astype(np.intp)
    centred = codes[:, numbers] - ones[numbers]
    length = np.linalg.norm(centred, axis=0)
    # A bit that is the same in all codes has no correlation; np.corrcoef warns of a single code.
    unit = centred / np.where(length > 0, length, np.nan)
    correlation = np.clip(unit.T @ unit, -1, 1).astype(np.float32)
    return Bits(len(codes), ones, numbers, correlation)
