"""Recall of a live index, against exact search in the database, and its latency."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..errors import DatabaseStateError, InvalidInputError
from ..index.catalog import HasRow
from ..index.search import as_count
from . import recall_history
from .measuring import Measured, Measuring
from .queries import as_queries

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
    """

    index: str
    queries: int
    k: int
    points: list[Measured]
    exact_p50_ms: float
    exact_p95_ms: float

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)


def evaluate(
    index: HasRow,
    *,
    queries: int | ArrayLike = 200,
    k: int = 10,
    candidates: Sequence[int] = CANDIDATES,
    random_state: int = 0,
    save: bool = False,
) -> Evaluation:
    """Measure recall@k and latency of an index.

    If the index has tenants, a row is searched for within its own.

    Parameters
    ----------
    queries : int or array-like (n, dimension)
        A number of rows to draw from the table, each left out of its own answers: the same ones
        each time (`pg_hashindex.quality.queries.draw`). Or other vectors.
    candidates
        The index's own number is added if the result is saved.
    random_state
        Seed of the draw.
    save
        Whether to add the result to ``hashindex.recall_history``.

    Returns
    -------
    Evaluation
        An answer counts as correct if it is no farther than the true k-th, so any of tied rows is
        correct.

    Raises
    ------
    InvalidInputError
        If there is nothing to search, or a number is out of range.
    DatabaseStateError
        If it cannot be saved, before anything is measured. Or if the index got another model
        meanwhile; nothing is saved then.
    """
    as_count("k", k)
    if not candidates or min(candidates) < 1:
        raise InvalidInputError(f"candidates must be 1 or more, got {list(candidates)}")
    as_count("candidates", max(candidates))
    index = index.row
    if save and index.state != "used":
        raise DatabaseStateError(
            f"the result cannot be saved: index {index.name!r} has no set in use yet; pg-hashindex "
            f"index check {index.name} names what completes it"
        )
    if save and (reason := recall_history.obstacle(index)) is not None:
        raise DatabaseStateError(
            f"the result cannot be saved: {reason}; evaluate without saving, or as a role that may "
            "write to hashindex.recall_history"
        )
    seed = random_state if isinstance(queries, int | np.integer) else None
    counts = sorted({*candidates, *([index.candidates_for(k)] if save else [])})
    measuring = Measuring(index, as_queries(index, queries, random_state), k)
    exact, points = measuring.run("evaluating", counts)
    if save:
        recall_history.save(index, seed, points)
    return Evaluation(index.name, len(measuring.asked), k, points, *exact)
