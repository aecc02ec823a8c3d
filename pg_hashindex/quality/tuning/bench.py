"""What all systems are tried on: a scratch table, queries, exact answers, and a limit of time."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pgvector import Vector
from psycopg import sql

from ...db.connection import Connection, translated_errors
from ...errors import HashIndexError
from ...models.model import Metric
from .drawing import Drawn
from .scale import Scale
from .scratch import Scratch
from .timing import Asked, ask
from .trials import Goal, Trial

__all__ = ["OPERATORS", "TABLE", "Bench", "Step"]

#: pgvector's operator for a metric, by its bare name.
OPERATORS: Mapping[Metric, str] = {"l2": "<->", "cosine": "<=>", "ip": "<#>"}
#: Name of the scratch table.
TABLE = "items"

_EXTENSION_SCHEMA = (
    "SELECT n.nspname FROM pg_catalog.pg_extension e "
    "JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace "
    "WHERE e.extname = 'vector'"
)

Step = Callable[[str], None]


@dataclass(eq=False)
class Bench:
    """What trials share.

    Attributes
    ----------
    scratch : Scratch
    drawn : Drawn
    goal : Goal
    metric : {"l2", "cosine", "ip"}
    deadline : float
        Of time.monotonic.
    on_step : callable, optional
        Told what is being done.
    trials : list of Trial
    left_out : list of str
    truth : list of float64 (j,)
        Distances of the right answers of each query among the rows of the scratch table.
    """

    scratch: Scratch
    drawn: Drawn
    goal: Goal
    metric: Metric
    deadline: float
    on_step: Step | None = None
    trials: list[Trial] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    truth: Sequence[NDArray[np.float64]] = ()

    def __post_init__(self) -> None:
        self.queries = [Vector(query) for query in self.drawn.Q]
        n_rows = len(self.drawn.keys)
        self.scale = Scale(n_rows, max(self.drawn.rows, n_rows), self.drawn.whole)
        #: Milliseconds of a statement that does nothing.
        self.empty_ms = 0.0
        self._exact: Asked | None = None
        row = self.connection.execute(_EXTENSION_SCHEMA).fetchone()
        self._extension = "public" if row is None else str(row[0])

    @property
    def connection(self) -> Connection:
        """The connection that all is done on."""
        return self.scratch.connection

    @property
    def table(self) -> sql.Identifier:
        """The scratch table."""
        return self.scratch.table(TABLE)

    @property
    def operator(self) -> sql.Composable:
        """The operator of pgvector for the metric."""
        return sql.SQL("OPERATOR({}.{})").format(
            sql.Identifier(self._extension), sql.SQL(OPERATORS[self.metric])
        )

    def of_pgvector(self, name: str) -> sql.Identifier:
        """Return the full name of a type or operator class of pgvector's."""
        return sql.Identifier(self._extension, name)

    def say(self, message: str) -> None:
        """Tell what is being done."""
        if self.on_step is not None:
            self.on_step(message)

    def leave_out(self, reason: str) -> None:
        """Say once what is not tried, and why."""
        if reason not in self.left_out:
            self.left_out.append(reason)

    def load(self) -> None:
        """Make the scratch table, and try the exact scan."""
        self.say(f"copying {self.scale.sample} of {self.scale.full} rows")
        with translated_errors():
            self.scratch.copy(TABLE, self.drawn.source, self.drawn.keys)
        nothing = sql.Composed([sql.SQL("SELECT NULL, 0::float8 WHERE $1 IS NOT NULL")])
        self.empty_ms = self.ask(nothing, most_seconds=0.5).p50_ms
        exact = self.ask(
            sql.SQL("{} ORDER BY distance LIMIT {}").format(
                self.distances(), sql.Literal(self.goal.k)
            ),
            most_seconds=None,
        )
        self.truth, self._exact = exact.distances, exact
        self.trials.append(self._timed_exact(exact))

    def correct(self, full: int) -> None:
        """Set the rows of the full table, once they are known better; also in the exact scan."""
        self.scale = replace(self.scale, full=max(full, self.scale.sample))
        if self._exact is not None:
            self.trials[0] = self._timed_exact(self._exact)

    def _timed_exact(self, exact: Asked) -> Trial:
        each = max(exact.p50_ms - self.empty_ms, 0.0) / self.scale.sample
        return Trial("exact", recall=1.0, bytes=0, build_s=0.0, sample_recall=1.0).timed(
            exact, lambda ms: self.scale.scan_time(ms, each)
        )

    def distances(self) -> sql.Composed:
        """Return SQL for the ids of the scratch table, and their distances to the query."""
        return sql.SQL("SELECT id, embedding {} $1 AS distance FROM {}").format(
            self.operator, self.table
        )

    def ask(
        self,
        statement: sql.Composed,
        more: Sequence[Sequence[Any]] = (),
        settings: Mapping[str, Any] | None = None,
        most_seconds: float | None = 15.0,
    ) -> Asked:
        """Ask all queries; see `timing.ask`."""
        given = dict(settings or {})
        if settings is not None and not self.scale.whole:
            # The planner would read a small table where it would not read the full one.
            given["enable_seqscan"] = "off"
        with translated_errors():
            return ask(self.connection, statement, self.queries, more, given, most_seconds)

    @property
    def seconds_left(self) -> float:
        """Until nothing more is begun."""
        return self.deadline - time.monotonic()

    def attempt(self, what: str, work: Callable[[], None]) -> None:
        """Do something that may fail or come too late: it is left out then, with the reason."""
        try:
            self.check_time()
            with translated_errors():
                work()
        except _TooLateError:
            self.left_out.append(f"{what}: the time was up")
        except (HashIndexError, ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
            # The last three: what a method cannot learn from, such as rows that are all the same.
            if self.connection.closed:
                raise
            self.left_out.append(f"{what}: {error}")

    def check_time(self) -> None:
        """End an attempt where the time is up."""
        if self.seconds_left <= 0:
            raise _TooLateError


class _TooLateError(Exception):
    pass
