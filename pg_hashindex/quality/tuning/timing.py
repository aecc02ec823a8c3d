"""What searches answer and how long they take, one session asking one query after the other."""

import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pgvector import Vector
from psycopg import RawCursor, sql

from ...db.connection import Connection

__all__ = ["Asked", "ask"]

_WARM_UP = 10
# Fewer are asked only where they take very long.
_LEAST_ASKED = 30

_numbers = itertools.count(1)


class Asked(NamedTuple):
    """Answers and times.

    Attributes
    ----------
    distances : list of float64 (j,)
        Of each query's answers; of the first queries alone where each took very long.
    p50_ms, p95_ms : float
    """

    distances: list[NDArray[np.float64]]
    p50_ms: float
    p95_ms: float

    def recall(self, truth: Sequence[NDArray[np.float64]], k: int) -> float:
        """Return the share of the true neighbours that are among the answers.

        Parameters
        ----------
        truth : sequence of float64 (j,)
            Distances of the exact answers.
        k : int
        """
        found = wanted = 0
        for own, right in zip(self.distances, truth, strict=False):
            n_right = min(k, int(np.isfinite(right).sum()))
            if n_right:
                # Of rows at the distance of the last one any will do.
                found += min(n_right, int((own <= right[n_right - 1]).sum()))
                wanted += n_right
        return found / max(wanted, 1)


def ask(
    connection: Connection,
    statement: sql.Composed,
    queries: Sequence[Vector],
    more: Sequence[Sequence[Any]] = (),
    settings: Mapping[str, Any] | None = None,
    most_seconds: float | None = None,
) -> Asked:
    """Ask all queries by a prepared statement, vectors and answers in binary, after a warm-up.

    Parameters
    ----------
    connection : psycopg.Connection
    statement : psycopg.sql.Composed
        Rows of an id and a distance, by increasing distance; the query is ``$1``.
    queries : sequence of pgvector.Vector
    more : sequence of sequences
        The other parameters of each query, where there are some.
    settings : mapping, optional
        Of PostgreSQL, for these queries alone.
    most_seconds : float, optional
        After so many the rest is not asked, but 30 queries are in any case.

    Returns
    -------
    Asked
    """
    # A plan that was made under other settings is not to be used again.
    text = sql.SQL("/* {} */ ").format(sql.SQL(str(next(_numbers)))) + statement
    cursor = RawCursor(connection)
    lines = [[query, *(more[place] if more else ())] for place, query in enumerate(queries)]
    distances: list[NDArray[np.float64]] = []
    milliseconds: list[float] = []
    with connection.transaction():
        for name, value in (settings or {}).items():
            cursor.execute("SELECT set_config($1, $2, true)", [name, str(value)])
        for line in lines[:_WARM_UP]:
            cursor.execute(text, line, prepare=True, binary=True).fetchall()
        began = time.perf_counter()
        for line in lines:
            start = time.perf_counter()
            rows = cursor.execute(text, line, prepare=True, binary=True).fetchall()
            end = time.perf_counter()
            milliseconds.append(1000 * (end - start))
            distances.append(np.array([row[1] for row in rows], np.float64))
            slow = most_seconds is not None and end - began > most_seconds
            if slow and len(distances) >= _LEAST_ASKED:
                break
    return Asked(
        distances,
        float(np.percentile(milliseconds, 50)),
        float(np.percentile(milliseconds, 95)),
    )
