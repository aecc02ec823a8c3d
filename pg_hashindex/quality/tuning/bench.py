"""Parts that trials share: a scratch schema with a copy of the rows, the queries, and a time limit.

Trials have to be committed: pages of an open transaction are read slower, and a long transaction
would hold up VACUUM in the whole database. So each run has a schema of its own, named by a random
token, and its session holds a lock on it. A killed run cannot clean up, but its lock is free, and
the next run drops its schema.
"""

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any, LiteralString

import numpy as np
from numpy.typing import NDArray
from pgvector import Vector
from psycopg import sql

from ...db.connection import EXTENSION, Connection, outside_transactions
from ...db.locks import claim, release
from ...db.owners import prepare_schema
from ...db.server_errors import translated_errors
from ...db.statements import execute, one_row
from ...db.table_source import TableSource
from ...errors import HashIndexError, MissingRightsError
from ...models.model import Metric
from ...models.store import check_may_save
from ..measuring import Answers, Prepared, ask
from ..pgvector_index import VectorColumn
from .advice import Goal, Trial
from .sample import TuningSample

_TABLE = "items"
_WARM_UP = 10
# Vectors whose mean is so large a part of their deviations, over all dimensions, ask for centring.
_OFF_CENTRE = 0.1

_SET = "SELECT pg_catalog.set_config($1, $2, true)"
_PREFIX = "hashindex_tune_"

_MAY_MAKE_SCHEMAS = """
    SELECT quote_ident(current_user), quote_ident(current_database()),
           has_database_privilege(current_database(), 'CREATE')
"""

_LEFT_OVER = """
    SELECT nspname FROM pg_catalog.pg_namespace
    WHERE nspname ~ ('^' || $1 || '[0-9a-f]{12}$') AND pg_has_role(nspowner, 'USAGE')
"""


class Scratch:
    """A scratch schema, on a connection in autocommit mode."""

    def __init__(self, connection: Connection, schema: str) -> None:
        self.connection, self.schema = connection, schema

    @property
    def token(self) -> str:
        """The prefix of the names of tried models and indexes."""
        return "tune_" + self.schema.removeprefix(_PREFIX)

    def table(self, name: str) -> sql.Identifier:
        """Return the full name of a table."""
        return sql.Identifier(self.schema, name)

    def create(self) -> None:
        """Make the schema."""
        with self.connection.transaction():
            self._execute("CREATE SCHEMA {schema}")
            self._execute(
                "COMMENT ON SCHEMA {schema} IS 'scratch tables of pg-hashindex tune; dropped at "
                "its end, or by the next run'"
            )

    def copy(self, name: str, source: TableSource, keys: Sequence[str]) -> None:
        """Copy the rows of some keys into a new table: columns id (or id_1, ...) and embedding."""
        copied, key = self.table(name), source.known_key
        # Unlogged, since neither the log nor replicas need it.
        self._execute(
            "CREATE UNLOGGED TABLE {name} AS SELECT {key}, {vector} AS embedding "
            "FROM {table} WHERE {drawn} AND {vector} IS NOT NULL",
            name=copied,
            key=key.as_ids(),
            vector=sql.Identifier(source.vector),
            table=source.table,
            drawn=source.has_key(list(keys)),
        )
        self._execute("ALTER TABLE {name} ADD PRIMARY KEY ({ids})", name=copied, ids=key.ids)
        self._execute("ANALYZE {name}", name=copied)

    def drop(self) -> None:
        """Drop the schema, and the indexes and models that were made for it."""
        with self.connection.transaction():
            self._execute(
                "SELECT hashindex.drop_index(i.name) FROM hashindex.index i "
                "WHERE i.schema_name = $1",
                [self.schema],
            )
            self._execute(
                "DELETE FROM hashindex.model m WHERE pg_catalog.starts_with(m.name, $1)",
                [self.token],
            )
            # Another run may have dropped it.
            self._execute("DROP SCHEMA IF EXISTS {schema} CASCADE")

    def _execute(
        self,
        statement: LiteralString,
        values: Sequence[Any] | None = None,
        **names: sql.Composable,
    ) -> Any:
        names = {"schema": sql.Identifier(self.schema), **names}
        return execute(self.connection, sql.SQL(statement).format(**names), values)


@contextmanager
def scratch(connection: Connection) -> Iterator[Scratch]:
    """Make a scratch schema, and drop it with its contents at the end, also after errors."""
    prepare_schema(connection)
    with outside_transactions(connection, "tuning commits what it tries"), translated_errors():
        _check_rights(connection)
        _sweep(connection)
        made = Scratch(connection, _PREFIX + secrets.token_hex(6))
        claim(connection, "tune", made.schema)
        try:
            made.create()
            try:
                yield made
            finally:
                # If the session has ended, the next run drops the schema.
                if not connection.closed:
                    made.drop()
        finally:
            if not connection.closed:
                release(connection, "tune", made.schema)


def _check_rights(connection: Connection) -> None:
    ((role, database, may_make),) = connection.execute(_MAY_MAKE_SCHEMAS).fetchall()
    if not may_make:
        raise MissingRightsError(
            f"role {role} may not make the schema of scratch tables that settings are tried on; an "
            f"owner grants that with: GRANT CREATE ON DATABASE {database} TO {role}"
        )
    check_may_save(connection)


def _sweep(connection: Connection) -> None:
    """Drop the schemas that killed runs have left."""
    rows = execute(connection, _LEFT_OVER, [_PREFIX]).fetchall()
    for (schema,) in rows:
        if claim(connection, "tune", schema):
            try:
                Scratch(connection, schema).drop()
            finally:
                release(connection, "tune", schema)


class Bench:
    """The scratch table, queries, exact answers and time limit of all trials.

    ``deadline`` is the end, as time.monotonic, ``say`` is called with the current step in words,
    and ``tick`` after each query. ``full`` are the rows of the full table; ``left_out`` are things
    that are not tried, and why.
    """

    def __init__(
        self,
        scratch: Scratch,
        drawn: TuningSample,
        goal: Goal,
        metric: Metric,
        deadline: float,
        say: Callable[[str], None],
        tick: Callable[[], object] | None = None,
    ) -> None:
        self.scratch, self.drawn, self.goal, self.metric = scratch, drawn, goal, metric
        self.connection: Connection = scratch.connection
        self.deadline, self.say, self.tick = deadline, say, tick
        self.trials: list[Trial] = []
        self.left_out: list[str] = []
        self.sample = len(drawn.keys)
        self.full = max(drawn.rows, self.sample)
        self.exact = Answers([], [])
        self.dimension = drawn.X.shape[1]
        self._queries = [Vector(query) for query in drawn.Q]
        # Milliseconds of a statement that does nothing.
        self._empty_ms = 0.0
        (self._extension, _) = one_row(self.connection, EXTENSION)

    @cached_property
    def mean(self) -> NDArray[np.float32] | None:
        """The mean of the vectors; None where they lie around 0, so that signs need no centring."""
        mean, deviation = self.drawn.X.mean(axis=0), self.drawn.X.std(axis=0)
        if np.abs(mean).mean() < _OFF_CENTRE * deviation.mean():
            return None
        # It is written into statements.
        return np.array([float(f"{value:.4g}") for value in mean], np.float32)

    @property
    def table(self) -> sql.Identifier:
        """The scratch table."""
        return self.scratch.table(_TABLE)

    def column(self, of_user: bool = False) -> VectorColumn:
        """Return the column of vectors of the scratch table, or that of the user's table."""
        source, table, name = self.drawn.source, self.table, "embedding"
        shown = source.known_key.ids
        if of_user:
            table, shown, name = source.table, source.known_key.of(), source.vector
        return VectorColumn(self._extension, table, name, source.vector_type, shown, shown)

    def choices(self, values: Sequence[int]) -> tuple[int, ...]:
        """Return the values that give k answers, at least one."""
        return tuple(value for value in values if value >= self.goal.k) or (self.goal.k,)

    def load(self) -> None:
        """Make the scratch table, and try the exact scan."""
        self.say(f"copying {self.sample} of {self.full} rows")
        with translated_errors():
            self.scratch.copy(_TABLE, self.drawn.source, self.drawn.keys)
        nothing = sql.Composed([sql.SQL("SELECT NULL, 0::float8 WHERE $1 IS NOT NULL")])
        self._empty_ms = self.ask(nothing, most_seconds=0.5).p50_ms
        exact = self.column().exact(self.metric, self.goal.k)
        self.exact = self.ask(exact, most_seconds=None)
        trial = Trial("exact", recall=1.0, bytes=0, build_s=0.0, sample_recall=1.0)
        self.add(trial, self.exact)

    def ask(
        self,
        statement: sql.Composed,
        more: Sequence[Sequence[Any]] = (),
        settings: Mapping[str, Any] | None = None,
        most_seconds: float | None = 15.0,
    ) -> Answers:
        """Run all queries by a prepared statement, with vectors and answers in binary.

        The statement returns ids and distances, nearest first; ``$1`` is the query, and ``more``
        are further parameters of each. Settings of PostgreSQL are given if an index should be used.
        ``most_seconds`` is as in `pg_hashindex.quality.measuring.ask`.
        """
        given = dict(settings or {})
        if settings is not None and not self.drawn.whole:
            # The planner might scan the small table, but not the full one.
            given["enable_seqscan"] = "off"
        run = Prepared(self.connection, statement)
        lines = [[q, *(more[i] if more else ())] for i, q in enumerate(self._queries)]
        with translated_errors(), self.connection.transaction():
            for name, value in given.items():
                execute(self.connection, _SET, [name, str(value)])
            return ask(
                lambda line: run(*line),
                lines,
                warm_up=_WARM_UP,
                most_seconds=most_seconds,
                done=self.tick,
            )

    def add(self, trial: Trial, answers: Answers, fixed: tuple[int, float] = (0, 0.0)) -> Trial:
        """Keep a trial of the sample, with its times and its estimates for the full table.

        Its recall is that of the full table already. ``fixed`` are bytes and seconds that do not
        grow with the rows.
        """
        timed = replace(
            trial,
            recall=round(trial.recall, 4),
            sample_recall=round(trial.sample_recall, 4),
            p50_ms=answers.p50_ms,
            p95_ms=answers.p95_ms,
            sample_p50_ms=round(answers.p50_ms, 4),
        )
        factor = 1.0 if self.drawn.whole else self.full / self.sample
        grown = self._grown(timed, factor)
        n_bytes, seconds = grown.bytes + fixed[0], round(grown.build_s + fixed[1], 2)
        self.trials.append(replace(grown, bytes=n_bytes, build_s=seconds))
        return self.trials[-1]

    def correct(self, full: int) -> None:
        """Correct the number of rows of the full table, also in earlier trials."""
        full = max(full, self.sample)
        factor, self.full = full / self.full, full
        self.trials = [self._grown(trial, factor) for trial in self.trials]

    def _grown(self, trial: Trial, factor: float) -> Trial:
        """Scale bytes, seconds to build, and times of scans to the rows of the full table."""

        def time_of(ms: float) -> float:
            reads_all = trial.kind == "exact" or trial.access == "scan"
            beyond = max(ms - self._empty_ms, 0.0) * (factor - 1) if reads_all else 0.0
            return round(ms + beyond, 4)

        return replace(
            trial,
            p50_ms=time_of(trial.p50_ms),
            p95_ms=time_of(trial.p95_ms),
            bytes=int(trial.bytes * factor),
            build_s=round(trial.build_s * factor, 2),
        )

    def leave_out(self, reason: str) -> None:
        """Record once what is not tried, and why."""
        if reason not in self.left_out:
            self.left_out.append(reason)

    @property
    def seconds_left(self) -> float:
        """The seconds left until nothing more is begun."""
        return self.deadline - time.monotonic()

    def attempt(self, what: str, work: Callable[[], object]) -> None:
        """Run a step that may fail or come too late; then record what is left out, and why."""
        try:
            self.check_time()
            with translated_errors():
                work()
        except _TooLateError:
            self.left_out.append(f"{what}: the deadline has passed")
        except (HashIndexError, ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
            # The last three come from methods that cannot learn from the rows, such as equal rows.
            if self.connection.closed:
                raise
            self.left_out.append(f"{what}: {error}")

    def check_time(self) -> None:
        """End an attempt at the deadline."""
        if self.seconds_left <= 0:
            raise _TooLateError


class _TooLateError(Exception):
    pass
