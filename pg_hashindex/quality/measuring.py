"""Recall and times of searches: the one measure of evaluations, tuning and benchmarks."""

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from pgvector import Vector
from psycopg import RawCursor, sql
from psycopg.rows import tuple_row

from ..db import sql_files
from ..db.connection import Connection
from ..db.progress import Progress
from ..db.server_errors import translated_errors
from ..db.statements import execute
from ..errors import InvalidInputError
from ..index.catalog import Access, IndexRow
from ..index.search import Hit, Search
from ..metrics.search import recall_of
from .queries import Query

_Query = TypeVar("_Query")

_EXACT = sql_files.query("measuring.exact")

# Standard errors below a mean that hold .95 of a normal distribution above.
_DEVIATIONS = 1.645
# How much less than the goal the lower bound of a recall may be.
_BELOW = 0.01
# The least number of queries to time, however long they take.
_LEAST_ASKED = 30


class Prepared:
    """A statement with a plan of its own, whose parameters and answers are binary."""

    _numbers = itertools.count(1)

    def __init__(self, connection: Connection, statement: sql.Composable) -> None:
        # A plan that was made under other settings must not be used again.
        self._text = sql.SQL("/* {} */ ").format(sql.SQL(str(next(self._numbers)))) + statement
        self._cursor = RawCursor(connection, row_factory=tuple_row)

    def __call__(self, *values: Any) -> list[tuple[Any, ...]]:
        """Run the statement with $1, $2, ..., and return the rows."""
        return self._cursor.execute(self._text, values, prepare=True, binary=True).fetchall()


class Answers(NamedTuple):
    """Distances of the answers to each query, nearest first, and the client's milliseconds."""

    distances: list[NDArray[np.float64]]
    milliseconds: list[float]

    @property
    def p50_ms(self) -> float:
        """The median."""
        return self._percentile(50)

    @property
    def p95_ms(self) -> float:
        """The 95th percentile."""
        return self._percentile(95)

    def _percentile(self, share: int) -> float:
        return float(np.percentile(self.milliseconds, share)) if self.milliseconds else 0.0

    def recall(self, exact: "Answers", k: int) -> float:
        """Return the share of the k true neighbours that are among the first k answers.

        Exact answers may be to more queries, if the search stopped early. An answer is right if it
        is no farther than the last true neighbour, so any of tied rows is right. 0 if there are no
        true neighbours.
        """
        return recall_of(*self._found(exact, k))

    def least_recall(self, exact: "Answers", k: int) -> float:
        """Return what the recall of all such queries exceeds with a probability of .95.

        Their shares of true neighbours differ, and so do those of other queries.
        """
        found, wanted = self._found(exact, k)
        if len(found) < 2:
            return self.recall(exact, k)
        error = float(np.std(found / wanted, ddof=1)) / math.sqrt(len(found))
        return max(0.0, self.recall(exact, k) - _DEVIATIONS * error)

    def _found(self, exact: "Answers", k: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Count the true neighbours found and wanted, by query."""
        counts = []
        for own, right in zip(self.distances, exact.distances, strict=False):
            # A zero vector has no cosine distance, and is not a neighbour.
            n_right = min(k, int(np.isfinite(right).sum()))
            if n_right:
                counts.append((min(n_right, int((own[:k] <= right[n_right - 1]).sum())), n_right))
        found, wanted = np.array(counts, np.intp).reshape(-1, 2).T
        return found, wanted


def ask(
    search: Callable[[_Query], Sequence[Sequence[Any]]],
    queries: Sequence[_Query],
    answers: Answers | None = None,
    *,
    warm_up: int = 0,
    most_seconds: float | None = None,
    done: Callable[[], object] | None = None,
) -> Answers:
    """Run searches one after the other, and time each.

    A search returns rows that end with a distance, nearest first. ``warm_up`` queries are run
    before, without timing. After ``most_seconds`` no more queries are run, except the first 30.
    ``done`` is called after each; if it raises, ``answers`` has what came before.
    """
    for query in queries[:warm_up]:
        search(query)
    answers = Answers([], []) if answers is None else answers
    began = time.perf_counter()
    for query in queries:
        start = time.perf_counter()
        rows = search(query)
        end = time.perf_counter()
        answers.milliseconds.append(1000 * (end - start))
        answers.distances.append(np.array([row[-1] for row in rows], np.float64))
        if done is not None:
            done()
        slow = most_seconds is not None and end - began > most_seconds
        if slow and len(answers.distances) >= _LEAST_ASKED:
            break
    return answers


@dataclass(frozen=True)
class Measured:
    """Recall and times of an index, and the settings of the measurement.

    Parameters
    ----------
    p50_ms, p95_ms
        As the client sees them.
    model
        As ``name:version``.
    queries
        How many queries were run.
    least_recall
        The lower bound of the recall of other queries; see `Answers.least_recall`.
    """

    candidates: int
    recall: float
    p50_ms: float
    p95_ms: float
    index: str
    model: str
    access: Access
    effort: int | None
    k: int
    queries: int
    least_recall: float

    def reaches(self, goal: float) -> bool:
        """Whether the recall is the goal or more, and its lower bound at most .01 below it."""
        return reaches(self.recall, self.least_recall, goal)


def reaches(recall: float, least_recall: float, goal: float) -> bool:
    """Whether a recall is the goal or more, and its lower bound at most .01 below it."""
    return recall >= goal and least_recall >= goal - _BELOW - 1e-9


class _Asked(NamedTuple):
    vector: Vector
    # The key of the query's row, in the types that search and exact search return.
    key: Any
    key_text: str | None
    #: The tenant of the row, within which the query is searched for; None is all of them.
    tenant: str | None


class Measuring:
    """Queries of an index, and the right answers to them; k answers are compared."""

    def __init__(self, index: IndexRow, queries: Sequence[Query], k: int) -> None:
        self.index, self.k = index, k
        self.asked = _resolved(index, queries)
        #: The right answers.
        self.exact = Answers([], [])

    def find_truth(
        self, done: Callable[[], object] | None = None, *, most_seconds: float | None = None
    ) -> tuple[float, float]:
        """Find the right answers by exact search; return its median and 95th percentile.

        After ``most_seconds`` the other queries are left out, except the first 30.
        """
        with translated_errors(table=self.index.qualified_table):
            self.exact = ask(self._exact, self.asked, most_seconds=most_seconds, done=done)
        self.asked = self.asked[: len(self.exact.distances)]
        if any(map(len, self.exact.distances)):
            return self.exact.p50_ms, self.exact.p95_ms
        raise InvalidInputError(
            f"{self.index.qualified_table} has fewer than two rows with a vector to compare"
        )

    def measure(
        self,
        candidates: int,
        done: Callable[[], object] | None = None,
        *,
        effort: int | None = None,
    ) -> Measured:
        """Search the index by its own access path; call ``done`` after each.

        ``effort`` is the index's own by default.
        """
        index = self.index
        with translated_errors(table=index.qualified_table):
            answers = ask(
                lambda query: self._search(query, candidates, effort),
                self.asked,
                done=done,
            )
        return Measured(
            candidates=candidates,
            recall=answers.recall(self.exact, self.k),
            p50_ms=answers.p50_ms,
            p95_ms=answers.p95_ms,
            index=index.name,
            model=index.model_name,
            access=index.access,
            effort=index.effort if effort is None else effort,
            k=self.k,
            queries=len(self.asked),
            least_recall=answers.least_recall(self.exact, self.k),
        )

    def run(self, what: str, counts: Sequence[int]) -> tuple[tuple[float, float], list[Measured]]:
        """Search exactly, and by the index with numbers of candidates; show the progress."""
        steps = len(self.asked) * (1 + len(counts))
        with Progress(what, steps, "query") as bar:
            exact = self.find_truth(bar.update)
            return exact, [self.measure(count, bar.update) for count in counts]

    def _exact(self, query: _Asked) -> list[Hit]:
        # The index is found by a function that checks whose table it is.
        more = query.key_text is not None
        values = [self.index.name, query.vector, self.k + more, query.tenant]
        cursor = RawCursor(self.index.connection, row_factory=tuple_row)
        rows = cursor.execute(_EXACT, values, prepare=True, binary=True).fetchall()
        return [Hit(*row) for row in rows if row[0] != query.key_text][: self.k]

    def _search(self, query: _Asked, candidates: int, effort: int | None) -> list[Hit]:
        index = self.index
        search = Search(
            query=query.vector,
            like=query.key_text is not None,
            key=query.key,
            k=self.k,
            candidates=candidates,
            effort=effort,
            **index.everywhere if query.tenant is None else {"tenant": query.tenant},
        )
        cursor = RawCursor(index.connection, row_factory=tuple_row)
        found = cursor.execute(*search.statement(index), prepare=True, binary=True)
        return search.hits(index, found.fetchall())


def _resolved(index: IndexRow, queries: Sequence[Query]) -> list[_Asked]:
    """Find the rows that queries were taken from; a deleted row is None.

    Their tenants are read too, if the index has a column of tenants. Keys are read in
    this session, since the text of some types depends on its settings.
    """
    tenant: sql.Composable = sql.SQL("NULL::text")
    if index.tenant_column is not None:
        tenant = sql.SQL("b.{}::text").format(sql.Identifier(index.tenant_column))
    with translated_errors(table=index.qualified_table):
        rows = execute(
            index.connection,
            sql.SQL(sql_files.query("measuring.asked")).format(
                **index.names, shown=index.key.shown(index.key.parts("b")), tenant=tenant
            ),
            [[query.row_id for query in queries]],
            binary=True,
        ).fetchall()
    return [
        _Asked(query.vector, index.key.read(values), text, of)
        for query, (*values, text, of) in zip(queries, rows, strict=True)
    ]
