"""Recall over time: measurements that were kept, in table ``hashindex.recall_history``."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

import psycopg

from ..db.server_errors import translated_errors
from ..db.sql_files import query
from ..db.statements import one_row, read_as
from ..errors import DatabaseStateError
from ..index.catalog import Access, HasRow, IndexRow
from ..index.search import as_count
from .measuring import Measured

__all__ = ["HEADINGS", "HistoryPoint", "history", "obstacle", "save"]

#: The fields of a `HistoryPoint`, as tables name them.
HEADINGS = (
    *("measured", "seed", "queries", "model", "access", "candidates", "effort", "k"),
    *("recall", "p50 ms", "p95 ms"),
)

_OBSTACLE = query("recall_history.obstacle")
_SAVE = query("recall_history.save")
_HISTORY = query("recall_history.history")


@dataclass(frozen=True)
class HistoryPoint:
    """A measurement; see `pg_hashindex.quality.measuring.Measured`.

    Those of one seed, number of queries, candidates and k can be compared: they are of the same
    rows. ``seed`` is None where the queries were given, not drawn.
    """

    measured_at: datetime
    seed: int | None
    queries: int
    model: str
    access: Access
    candidates: int
    effort: int | None
    k: int
    recall: float
    p50_ms: float
    p95_ms: float


def obstacle(index: HasRow) -> str | None:
    """Return why this session cannot save, or None."""
    with translated_errors():
        reason: str | None = one_row(index.row.connection, _OBSTACLE)[0]
    return reason


def save(index: IndexRow, seed: int | None, points: Sequence[Measured]) -> None:
    """Add points to the history of an index, measured with rows drawn by a seed or other queries.

    Refused if the session cannot write there, or the index got another model meanwhile.
    """
    more = {"seed": seed, "model_id": index.model_id}
    with translated_errors(), index.connection.transaction():
        # The connection's own cursors may be of another kind.
        cursor = psycopg.Cursor(index.connection)
        cursor.executemany(_SAVE, [asdict(point) | more for point in points])
        if cursor.rowcount != len(points):
            raise DatabaseStateError(
                f"index {index.name!r} was given another model while it was measured, or dropped; "
                "nothing is saved: evaluate it again"
            )


def history(index: HasRow, *, limit: int = 1000) -> list[HistoryPoint]:
    """Return the measurements of an index, the latest last.

    Parameters
    ----------
    limit
        Number of latest measurements.

    Raises
    ------
    InvalidInputError
        If limit is below 1.
    """
    index = index.row
    as_count("limit", limit)
    with translated_errors():
        return read_as(HistoryPoint, index.connection, _HISTORY, [index.name, limit])[::-1]
