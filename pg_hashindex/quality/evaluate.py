"""Recall of a live index, against exact search in the database, and its latency."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from numpy.typing import ArrayLike

from ..db.progress import Progress
from ..errors import DatabaseStateError, InvalidInputError
from ..index.catalog import HasRow, IndexRow
from ..index.search import as_count
from . import recall_history
from .measuring import Measured, Measuring, OperatingPoint
from .query_sets import QuerySet, draw, load, of_vectors

#: Numbers of candidates to try by default.
CANDIDATES = (50, 100, 200, 400, 800)


@dataclass(frozen=True)
class Evaluation:
    """Recall and latency of an index over a range of candidate counts.

    Parameters
    ----------
    queries
        How many queries were searched for.
    exact_p50_ms, exact_p95_ms
        Times of exact search.
    query_set
        The saved set that was used.
    skipped
        Queries that were left out, since the index's model has no code for them.
    recorded
        Whether it was added to the history.
    milliseconds
        The time of each query, by the number of candidates.
    """

    index: str
    queries: int
    k: int
    points: list[OperatingPoint]
    exact_p50_ms: float
    exact_p95_ms: float
    query_set: str | None = None
    skipped: int = 0
    recorded: bool = False
    milliseconds: Mapping[int, Sequence[float]] = field(default_factory=dict, repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values, but for the time of each query."""
        fields = asdict(self)
        del fields["milliseconds"]
        return fields


def evaluate(
    index: HasRow,
    *,
    queries: int | ArrayLike | QuerySet = 200,
    query_set: str | None = None,
    k: int = 10,
    candidates: Sequence[int] = CANDIDATES,
    random_state: int = 0,
    record: bool | None = None,
) -> Evaluation:
    """Measure recall@k and latency of an index.

    If the index has tenants, a row is searched for within its own.

    Parameters
    ----------
    queries : int, array-like (n, dimension) or QuerySet
        A number of rows to draw from the table, each left out of its own answers; or other vectors.
        If Python encodes the index, only rows with a code are drawn.
    query_set
        Name of a saved set to use instead; see `pg_hashindex.quality.query_sets`. Queries that the
        index's model has no code for are left out and counted.
    candidates
        The index's own number is added if the evaluation is recorded.
    random_state
        Seed of the draw.
    record
        Whether to add the results to ``hashindex.recall_history``. By default, if the queries are a
        saved set and the session can write there.

    Returns
    -------
    Evaluation
        An answer counts as correct if it is no farther than the true k-th, so any of tied rows is
        correct.

    Raises
    ------
    InvalidInputError
        If there is nothing to search, no such set, or a number is out of range.
    DatabaseStateError
        If it cannot be recorded, before anything is measured. Or if the index got another model
        meanwhile; nothing is recorded then.
    """
    as_count("k", k)
    if not candidates or min(candidates) < 1:
        raise InvalidInputError(f"candidates must be 1 or more, got {list(candidates)}")
    as_count("candidates", max(candidates))
    index = index.row
    asked = _queries(index, queries, query_set, random_state)
    if record is None:
        record = asked.name is not None and recall_history.obstacle(index) is None
    elif record and (reason := recall_history.obstacle(index)) is not None:
        raise DatabaseStateError(
            f"the evaluation cannot be recorded: {reason}; evaluate without recording, or as a "
            "role that may write to hashindex.recall_history"
        )
    counts = sorted({*candidates, *([default_candidates(index, k)] if record else [])})
    measuring = Measuring([index], asked, k)
    steps = len(measuring.asked) * (1 + len(counts))
    with Progress("evaluating", steps, "query") as bar:
        exact = measuring.find_truth(bar.update)
        points, milliseconds = [], {}
        for count in counts:
            points.append(measuring.measure(index, count, bar.update))
            milliseconds[count] = measuring.milliseconds
    if record:
        recall_history.record(index, asked.name, points)
    return Evaluation(
        index.name,
        len(measuring.asked),
        k,
        [OperatingPoint(p.candidates, p.recall, p.p50_ms, p.p95_ms) for p in points],
        *exact,
        query_set=asked.name,
        skipped=measuring.skipped,
        recorded=record,
        milliseconds=milliseconds,
    )


def measure_defaults(indexes: Sequence[HasRow], queries: QuerySet, k: int = 10) -> list[Measured]:
    """Measure indexes of one table against each other, each by its own defaults.

    They have the same column and metric, too. Queries that one of them has no code for are left
    out.
    """
    as_count("k", k)
    rows = [index.row for index in indexes]
    measuring = Measuring(rows, queries, k)
    steps = len(measuring.asked) * (1 + len(rows))
    with Progress("comparing", steps, "query") as bar:
        measuring.find_truth(bar.update)
        return [measuring.measure(row, default_candidates(row, k), bar.update) for row in rows]


def default_candidates(index: HasRow, k: int) -> int:
    """Return how many candidates a search for k answers keeps by default."""
    return max(index.row.candidates, k)


def _queries(
    index: IndexRow,
    queries: int | ArrayLike | QuerySet,
    query_set: str | None,
    random_state: int,
) -> QuerySet:
    if query_set is not None:
        return load(index, query_set)
    if isinstance(queries, QuerySet):
        return queries
    if isinstance(queries, int):
        return draw(index, queries, random_state)
    return of_vectors(index, queries)
