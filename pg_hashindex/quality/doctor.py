"""Whether pgvector's indexes serve a table, looked at from outside: nothing is installed.

`diagnose` reads the catalog, then asks sampled rows, or queries of the caller's, by an exact scan
and by each vector index that is there. All of it happens in one read-only transaction, so that
answers are compared on the same rows; `quality.advice` says what follows from it, and
`doctor_catalog` reads the catalog.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import compress
from typing import Any, LiteralString

import numpy as np
import psycopg
from numpy.typing import ArrayLike, NDArray
from pgvector import Vector
from psycopg import sql

from ..db import rows as rows_of
from ..db.connection import EXTENSION, Connection, outside_transactions, prepare
from ..db.gate import reading
from ..db.progress import Progress, tell
from ..db.server_errors import translated_errors
from ..db.statements import execute, one_row
from ..db.table_source import TableSource
from ..errors import (
    DatabaseStateError,
    HashIndexError,
    InUseError,
    InvalidInputError,
    MissingRightsError,
    MissingSchemaError,
)
from ..index.catalog import IndexRow
from ..models.vectors import are_trainable, as_rows, as_vector
from ..training import METHOD
from .advice import GRAPH_METHOD, RECALL, advise, decide
from .doctor_catalog import (
    CatalogIndex,
    as_name,
    check_table,
    locked,
    names_of,
    only_column,
    read_code_faults,
    read_facts,
    read_indexes,
    read_memory,
    read_tenants,
)
from .doctor_filters import nodes, unindexed
from .doctor_findings import (
    CodeFit,
    Diagnosis,
    NameFacts,
    Point,
    Scope,
    TableFacts,
    VectorIndex,
)
from .measuring import Answers, Measuring, Prepared, ask
from .queries import Query, as_queries, first_of, read_queries
from .systems import OPERATORS, Exact, Existing, VectorColumn

__all__ = ["as_role", "diagnose"]

# The longest that the doctor waits for a lock.
_LOCK_TIMEOUT = "3s"
_WARM_UP = 3
# The parts of the time left that exact answers may take, and training of codes.
_SHARE_OF_TRUTH = 0.4
_SHARE_OF_CODES = 0.2
# The methods whose codes are tried: that of functions, and that of lists.
_CODES = (GRAPH_METHOD, METHOD)
# Rows to try codes on, the queries for that, and the rows near each of these.
_CODE_ROWS = 5_000
_CODE_QUERIES, _NEAR_ROWS = 50, 50
# Rows looked at for the share that has no vector.
_COUNTED_ROWS = 10_000
# Before PostgreSQL 18, each step that is switched off and cannot be avoided adds this to the cost.
_SWITCHED_OFF = 1e10
_JIT_LIMITS = ("jit_above_cost", "jit_inline_above_cost", "jit_optimize_above_cost")
_MOST_QUERIES = 10_000
_HIDDEN: LiteralString = "SELECT CASE WHEN row_security_active($1::oid) THEN current_user::text END"
_DRAWN: LiteralString = """
    SELECT {column}, {key}, pg_catalog.pg_column_size({column}) FROM {table} {part}
    WHERE {column} IS NOT NULL LIMIT {n}
"""
_NULL_SHARE: LiteralString = "SELECT avg(({column} IS NULL)::int) FROM {table} {part}"
# The query that everybody writes.
_PLAIN: LiteralString = "SELECT ctid FROM {table}{where} ORDER BY {distance} LIMIT {n}"


class _LateError(Exception):
    """The deadline has passed."""


def diagnose(
    connection: Connection,
    table: str,
    column: str | None,
    *,
    k: int = 10,
    sample: int = 100,
    queries: str | ArrayLike | None = None,
    filters: Sequence[str] = (),
    metric: str | None = None,
    goal: float = RECALL,
    timeout: float = 300.0,
    random_state: int = 0,
    measure: bool = True,
    codes: bool = True,
    tenant: str | None = None,
    writes: float | None = None,
    memory: int | None = None,
    role: str | None = None,
) -> Diagnosis:
    """Look at a table of vectors and its indexes, in one read-only transaction.

    That does not protect: a table's owner can run code as the role that plans a query on it, so a
    table of another role is refused. Schema hashindex need not be installed. Rows are searched by
    an exact scan, then by each HNSW or IVFFlat index with several settings, where EXPLAIN says that
    the index is used.

    Parameters
    ----------
    connection
        Not inside a transaction.
    table, column
        As SQL writes the table; a column of type ``vector`` or ``halfvec`` by its bare name, or
        None for the only one. A partitioned table is looked at as a whole; a foreign table is
        refused.
    k
        Answers compared.
    sample
        Rows drawn as queries, or taken of ``queries``.
    queries : str or array-like (n, d), optional
        A table, view or query of one column of vectors; or the vectors themselves.
    filters
        SQL filters of the table, each to be measured by itself. They are run with the rights of
        the caller.
    metric : {"l2", "cosine", "ip", "l1"}, optional
        The distance of exact search; by default that of an index of the column, or ``cosine``.
    goal
        The recall that advice is to reach.
    timeout
        Seconds after which nothing more is measured.
    random_state
        Seed of the draw.
    measure
        Whether to search at all; else there are facts alone, and no advice.
    codes
        Whether to try codes on the sample too.
    tenant
        A column, within one value of which searches stay.
    writes
        Rows written a second; as the server's statistics say by default.
    memory
        Bytes that the server has for the table and a set; ``effective_cache_size`` by default.
    role
        Look and measure as this role (SET ROLE), under its policies.

    Raises
    ------
    InvalidInputError
        If there is no such table or column, it cannot be compared, or an argument is not usable;
        or it is to be measured, and its rows are in other tables.
    MissingRightsError
        If the role may not read the table.
    InUseError
        If somebody has locked the table.
    """
    _check(k, sample, goal, timeout, metric)
    with translated_errors():
        prepare(connection)
    deadline = time.monotonic() + timeout
    with outside_transactions(connection, "the doctor looks at one state of the table"):
        try:
            with (
                translated_errors(),
                connection.transaction(),
            ):
                connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
                # It is idle while a model is trained.
                connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
                if role is not None:
                    connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(role)))
                # The first statements: they wait for whoever has locked the table.
                column = only_column(connection, table) if column is None else column
                found = _Doctor(
                    connection,
                    table,
                    column,
                    tenant,
                    k,
                    filters,
                    metric,
                    deadline,
                    measure,
                    measure and codes,
                )
                asked = found.queries(queries, sample, random_state)
                diagnosis = replace(found.look(asked, measure), writes=writes, memory_given=memory)
            # A role under policies sees no statistics of the table.
            with translated_errors():
                diagnosis = found.with_tenants(diagnosis)
            if diagnosis.table.standby and writes is None:
                told = "a standby does not count the writes of the primary: give --writes"
                diagnosis = replace(diagnosis, notes=[*diagnosis.notes, told])
        except _LateError:
            raise DatabaseStateError(
                f"the table could not be read within {timeout:g} s; give a longer --timeout"
            ) from None
        except DatabaseStateError as error:
            if isinstance(error.__cause__, psycopg.errors.LockNotAvailable):
                raise InUseError(locked(connection, table)) from error
            raise
    if not measure:
        return diagnosis
    with as_role(connection, role):
        diagnosis = _with_names(connection, diagnosis, sample, queries, deadline, random_state)
    decision, sets = decide(diagnosis, goal)
    diagnosis = replace(diagnosis, decision=decision, sets=sets)
    return replace(diagnosis, advice=advise(diagnosis, goal))


@contextmanager
def as_role(connection: Connection, role: str | None) -> Iterator[None]:
    """Have a role for the block's transactions."""
    if role is None:
        yield
        return
    (before,) = one_row(connection, "SELECT pg_catalog.current_setting('role')")
    set_role = "SELECT pg_catalog.set_config('role', $1, false)"
    execute(connection, set_role, [role])
    try:
        yield
    finally:
        if not connection.closed:
            execute(connection, set_role, [before])


def _with_names(
    connection: Connection,
    found: Diagnosis,
    sample: int,
    queries: str | ArrayLike | None,
    deadline: float,
    seed: int,
) -> Diagnosis:
    """Measure the indexes of pg_hashindex by their names."""
    names: list[NameFacts] = []
    notes, complete = [*found.notes], found.complete
    rows: list[IndexRow] = []
    try:
        rows = names_of(connection, found.table.name, found.table.column)
    except MissingSchemaError:
        pass
    except MissingRightsError as error:
        notes.append(f"indexes of pg_hashindex are not shown: {error}")
    for row in rows:
        tell(f"searching by name {row.name}")
        try:
            name = as_name(row)
            names.append(name)
            if row.metric != found.metric:
                notes.append(f"index {row.name} searches by {row.metric}, and is measured by it")
            if not row.encoded:
                notes.append(
                    f"index {row.name} is not complete, and searched exactly: pg-hashindex index "
                    f"check {row.name} names what completes it"
                )
                continue
            if found.exact is None or time.monotonic() > deadline:
                complete = False
                notes.append(f"there was no time to measure index {row.name}: give more --timeout")
                continue
            given = first_of(row, queries, min(sample, found.exact.queries), seed)
            measuring = Measuring(row, as_queries(row, given, seed), found.k)
            measuring.find_truth(most_seconds=deadline - time.monotonic())
            point = measuring.measure(row.candidates_for(found.k))
            names[-1] = replace(
                name,
                recall=round(point.recall, 4),
                least_recall=round(point.least_recall, 4),
                p50_ms=round(point.p50_ms, 3),
            )
        except HashIndexError as error:
            complete = False
            notes.append(f"index {row.name} was not measured: {error}")
    return replace(found, names=tuple(names), notes=notes, complete=complete)


def _check(k: int, sample: int, goal: float, timeout: float, metric: str | None) -> None:
    for name, value in (("k", k), ("sample", sample)):
        if not 1 <= value <= _MOST_QUERIES:
            raise InvalidInputError(f"{name} is {value}; it must be 1 to {_MOST_QUERIES}")
    if not 0 <= goal <= 1:
        raise InvalidInputError(f"recall is {goal}; it must be 0 to 1")
    # PostgreSQL counts milliseconds in an integer.
    if not 0 < timeout <= 2_000_000:
        raise InvalidInputError(f"timeout is {timeout}; it must be above 0 seconds, and finite")
    if metric is not None and metric not in OPERATORS:
        raise InvalidInputError(f"metric is {metric!r}; it must be one of {', '.join(OPERATORS)}")


class _Doctor:
    """Everything that is looked at, in the transaction of the caller."""

    def __init__(
        self,
        connection: Connection,
        table: str,
        column: str,
        tenant: str | None,
        k: int,
        filters: Sequence[str],
        metric: str | None,
        deadline: float,
        measure: bool,
        tries_codes: bool,
    ) -> None:
        self._connection, self._tenant, self._k = connection, tenant, k
        self._tries_codes = tries_codes
        self._deadline = deadline
        self._notes: list[str] = []
        self._complete = True
        with self._by(deadline):
            self._oid = check_table(connection, table, column, tenant=tenant, measured=measure)
            self._source = TableSource.find(connection, table, column)
            self._column = VectorColumn(
                one_row(connection, EXTENSION)[0],
                self._source.table,
                sql.Identifier(column),
                self._source.vector_type,
                # The doctor asks for no key: a row is known by its place.
                sql.SQL("tableoid::bigint AS hashindex_table, ctid::text AS hashindex_line"),
                sql.SQL("hashindex_table, hashindex_line"),
            )
            self._filters = [self._checked_filter(text) for text in filters]
        self._found = read_indexes(connection, self._oid, column)
        metrics = [found.entry.metric for found in self._found]
        if metric is None and not any(metrics):
            with suppress(HashIndexError), self._by(deadline):
                metrics += [row.metric for row in names_of(connection, table, column)]
        named = metric or next(filter(None, metrics), None)
        self._metric, self._assumed = named or "cosine", named is None
        self._facts: TableFacts
        # The rows that were drawn, and their places.
        self._rows: NDArray[np.float32]
        self._places: list[Any]
        # Place, vector and distance of the rows nearest to each of the first queries.
        self._near: list[list[Any]] = []
        # Counts searches that are done, of those planned.
        self._bar: Progress

    # The table and its indexes -------------------------------------------------------------------

    def queries(self, given: str | ArrayLike | None, wanted: int, seed: int) -> list[Query]:
        """Draw rows as queries, or take those given; learn what a vector of the table is like."""
        tell("reading the catalog, and drawing rows")
        drawn = max(wanted, _CODE_ROWS) if self._tries_codes else wanted
        rows, null_share = self._draw(drawn, seed)
        if not rows:
            why = f"{self._source.name} has no row with a vector in column {self._source.vector!r}"
            (hidden,) = one_row(self._connection, _HIDDEN, [self._oid])
            if hidden:
                raise InvalidInputError(
                    f"{why} that row security lets role {hidden} see: give --role, or set by "
                    "PGOPTIONS what the policies read"
                )
            raise InvalidInputError(f"{why}: there is nothing to measure")
        dimensions = sorted({row[0].dimensions() for row in rows})
        if len(dimensions) > 1:
            raise InvalidInputError(
                f"column {self._source.vector!r} of {self._source.name} holds vectors of "
                f"dimensions {', '.join(map(str, dimensions))}, which pgvector cannot compare: "
                "give each dimension a column, or a partition, of its own"
            )
        self._facts = read_facts(
            self._source,
            self._oid,
            dimension=dimensions[0],
            null_share=null_share,
            vector_bytes=sum(row[3] for row in rows) // len(rows),
            notes=self._notes,
        )
        self._rows = np.stack([as_vector(row[0]).to_numpy() for row in rows]).astype(np.float32)
        self._places = [row[1:3] for row in rows]
        if given is None:
            chosen = np.random.default_rng(seed).permutation(len(rows))[:wanted]
            return [
                Query(as_vector(rows[place][0]), (rows[place][1], rows[place][2]))
                for place in sorted(chosen)
            ]
        if isinstance(given, str):
            with self._by(self._deadline):
                array = read_queries(self._connection, given, wanted, dimensions[0], seed)
        else:
            array = as_rows(given, dimensions[0])[:wanted].astype(np.float32)
        if not len(array):
            raise InvalidInputError("there are no queries")
        return [Query(Vector(row)) for row in array]

    def _draw(self, wanted: int, seed: int) -> tuple[list[Any], float]:
        """Draw rows that have a vector; return them, and the share of rows without one.

        Unlike `TableSource.draw` this needs no key.
        """
        estimate = self._source.estimate

        def read(share: float, statement: LiteralString = _DRAWN) -> list[Any]:
            with self._by(self._deadline):
                part = rows_of.part(share, seed, rows=estimate)
                drawn = self._column.statement(statement, "l2", 4 * wanted, part=part)
                return execute(self._connection, drawn).fetchall()

        rows = rows_of.draw(read, wanted, estimate, seed)
        ((null_share,),) = read(_COUNTED_ROWS / max(estimate, 1), _NULL_SHARE)
        return rows, float(null_share or 0)

    def _tried(self, found: CatalogIndex, filter_: str | None) -> list[tuple[int, bool]]:
        """Return the settings to try an index with: values, and whether to scan iteratively."""
        index = found.entry
        if not index.valid:
            return []
        current, iterates = self._current(index)
        options = dict(option.partition("=")[::2] for option in index.options)
        most = int(options.get("lists", 100)) if index.method == "ivfflat" else 1000
        usual = (setting.candidates for setting in self._index(found).settings(self._k))
        values = sorted({current, *(value for value in usual if value <= most)})
        if filter_ is None:
            return [(value, iterates) for value in values]
        return list(dict.fromkeys([(current, iterates), (current, True), (values[-1], True)]))

    def _rounds(self, found: CatalogIndex, filter_: str | None) -> int:
        """Return how often each query is run by an index: without a filter, once to warm up."""
        tried = self._tried(found, filter_)
        return len(tried) + (filter_ is None and bool(tried))

    def _checked_filter(self, text: str) -> str:
        """Refuse what is not a filter of the table; a filter has the rights of the caller."""
        statement = self._column.statement(
            "SELECT FROM {table}{where} LIMIT $1", "l2", conditions=[text]
        )
        try:
            # A parameter calls for the extended protocol, which takes one statement alone.
            execute(self._connection, sql.SQL("EXPLAIN ") + statement, [0])
        except (psycopg.ProgrammingError, psycopg.DataError, psycopg.NotSupportedError) as error:
            if isinstance(error, psycopg.errors.InsufficientPrivilege):
                raise
            raise InvalidInputError(
                f"filter {text!r} cannot be used on {self._source.name}: "
                f"{error.diag.message_primary or error}"
            ) from error
        return text

    # Measuring ----------------------------------------------------------------------------------

    def look(self, asked: list[Query], measure: bool) -> Diagnosis:
        """Ask the queries by exact search, then by each index."""
        diagnosis = Diagnosis(
            table=self._facts,
            memory=read_memory(self._connection),
            indexes=[found.entry for found in self._found],
            metric=self._metric,
            metric_assumed=self._assumed,
            k=self._k,
            queries=len(asked),
            round_trip_ms=self._round_trip(),
            scopes=[],
            points=[],
            codes=[],
            notes=self._notes,
            complete=measure,
            code_faults=read_code_faults(self._connection, self._oid),
        )
        if not measure:
            return diagnosis
        planned = (
            len(asked)
            * sum(
                len(self._scopes(filter_)) + sum(self._rounds(f, filter_) for f in self._found)
                for filter_ in [None, *self._filters]
            )
            + len(_CODES) * self._tries_codes
        )
        with Progress("searching", planned, "query") as self._bar:
            first = self._measure(asked, diagnosis)
        return replace(
            diagnosis,
            table=replace(self._facts, pages_a_row=self._pages_a_row(asked)),
            indexes=[
                replace(index, first_p50_ms=first.get(index.name)) for index in diagnosis.indexes
            ],
            notes=list(dict.fromkeys(self._notes)),
            complete=self._complete,
        )

    def with_tenants(self, found: Diagnosis) -> Diagnosis:
        """Add tenants."""
        told = read_tenants(self._connection, self._oid, self._tenant)
        sure = next((one for one in told if one.source != "the key"), None)
        guessed = next((one for one in told if one.source == "the key"), None)
        if sure is not None and sure.largest is None:
            name = found.table.name
            unknown = (
                "how large tenants are is not known, so they do not count: ANALYZE "
                f"{name}, and look as a role that sees all rows"
            )
            found = replace(found, notes=[*found.notes, unknown])
        return replace(found, tenant=sure, key_tenant=guessed)

    def _measure(self, asked: list[Query], diagnosis: Diagnosis) -> dict[str, float | None]:
        """Add scopes, points and codes to a diagnosis; return the first median of each index."""
        first: dict[str, float | None] = {}
        for filter_ in [None, *self._filters]:
            truths: dict[tuple[str, str | None], Answers | None] = {}
            for metric, condition in self._scopes(filter_):
                with self._part(len(asked)):
                    answers = self._truth(asked, metric, condition, filter_)
                truth = truths[metric, condition] = self._judged(answers, asked, filter_)
                if truth is not None:
                    scope = self._as_scope(truth, metric, condition, filter_)
                    diagnosis.scopes.append(scope)
                    self._tell(
                        f"exact search by {metric}{_under(filter_)}: p50 {scope.p50_ms:.3g} ms"
                    )
            for found in self._found:
                truth = truths[self._scope_of(found, filter_)]
                with self._part(len(asked) * self._rounds(found, filter_)):
                    if truth is not None:
                        p50, points = self._sweep(found, asked, truth, filter_)
                        first.setdefault(found.entry.name, p50)
                        diagnosis.points.extend(points)
            if filter_ is None:
                with self._part(len(_CODES) * self._tries_codes):
                    diagnosis.codes.extend(self._try_codes(asked) if self._tries_codes else ())
        return first

    def _scopes(self, filter_: str | None) -> list[tuple[str, str | None]]:
        """Return the metrics and conditions to search exactly by."""
        # Without an index there is exact search all the same.
        wanted = [(self._metric, None), *(self._scope_of(f, filter_) for f in self._found)]
        return list(dict.fromkeys(wanted))

    def _scope_of(self, found: CatalogIndex, filter_: str | None) -> tuple[str, str | None]:
        """Return the metric, and the condition that queries need to have a partial index used.

        Under a filter it is the filter that has to imply it.
        """
        condition = found.entry.condition if filter_ is None else None
        return found.entry.metric or self._metric, condition

    @contextmanager
    def _part(self, searches: int) -> Iterator[None]:
        """Count the planned searches of a part as done at its end, those too that it left out."""
        end = self._bar.n + searches
        yield
        self._bar.update(end - self._bar.n)

    def _tell(self, message: str) -> None:
        """Pass a finding on when it is there."""
        tell(f"{message} ({min(self._bar.n / self._bar.total, 1):.0%} done)")

    def _round_trip(self) -> float:
        milliseconds = []
        for _ in range(7):
            start = time.perf_counter()
            one_row(self._connection, "SELECT 1")
            milliseconds.append(1000 * (time.perf_counter() - start))
        return round(float(np.median(milliseconds)), 3)

    def _truth(
        self, asked: list[Query], metric: str, condition: str | None, filter_: str | None
    ) -> Answers:
        """Find exact answers to as many queries as time allows."""
        tell(f"exact search by {metric}{_under(filter_)}")
        left = self._deadline - time.monotonic()
        until = time.monotonic() + _SHARE_OF_TRUTH * left
        answers = Answers([], [])
        exact = Exact(self._column, metric).search(self._k + 1, conditions=(condition, filter_))
        # The same searches find what codes are tried with.
        first = (metric, condition, filter_) == (self._metric, None, None)
        n_near = min(_CODE_QUERIES, len(asked) // 2) if first and self._tries_codes else 0
        with_vector = sql.SQL("{}, {}").format(self._column.key, self._column.column)
        nearest = Exact(replace(self._column, key=with_vector), metric).search(
            max(self._k, _NEAR_ROWS) + 1
        )
        parts = (nearest, asked[:n_near], self._near), (exact, asked[n_near:], None)
        with suppress(_LateError), self._by(until):
            for statement, part, near in parts:
                if part:
                    self._ask(statement, part, until, answers, near=near)
        if len(answers.milliseconds) > n_near:
            # The time of these is also of the vectors that they return.
            del answers.milliseconds[:n_near]
        return answers

    def _judged(self, answers: Answers, asked: list[Query], filter_: str | None) -> Answers | None:
        """Return exact answers if there is something to compare with; note what is missing."""
        found = answers.distances
        if not found:
            self._complete = False
            self._notes.append(
                f"no exact query{_under(filter_)} ended within {_SHARE_OF_TRUTH:.0%} of "
                "the time: recall was not measured; give a longer --timeout"
            )
            return None
        if len(found) < len(asked):
            self._notes.append(
                f"exact search{_under(filter_)} was slow: {len(found)} of {len(asked)} "
                "queries were compared; a longer --timeout compares more"
            )
        if not any(map(len, found)):
            self._notes.append(f"no query has a neighbour{_under(filter_)}: nothing was compared")
            return None
        return answers

    def _sweep(
        self, found: CatalogIndex, asked: list[Query], truth: Answers, filter_: str | None
    ) -> tuple[float | None, list[Point]]:
        """Ask by an index with one setting after the other; return the first median too."""
        index, points, first = found.entry, [], None
        if not index.valid:
            self._notes.append(
                f"index {index.name} is not valid, and so not used: REINDEX INDEX CONCURRENTLY "
                f"{index.name}"
            )
            return None, []
        tell(f"searching by {index.name}{_under(filter_)}")
        asked = asked[: len(truth.distances)]
        now = self._current(index)
        try:
            if filter_ is None:
                answers = self._ask_index(found, asked, filter_, *now)
                if answers is None:
                    return None, []
                first = round(answers.p50_ms, 3)
            for value, iterative in self._tried(found, filter_):
                answers = self._ask_index(found, asked, filter_, value, iterative)
                if answers is None:
                    break
                point = Point(
                    index=index.name,
                    filter=filter_,
                    value=value,
                    iterative=iterative,
                    current=(value, iterative) == now,
                    recall=round(answers.recall(truth, self._k), 4),
                    returned=round(sum(map(len, answers.distances)) / len(asked), 2),
                    wanted=round(sum(map(len, truth.distances)) / len(asked), 2),
                    p50_ms=round(answers.p50_ms, 3),
                    p95_ms=round(answers.p95_ms, 3),
                    least_recall=round(answers.least_recall(truth, self._k), 4),
                )
                points.append(point)
                self._tell(
                    f"{index.name}, {point.setting_of(index)}{_under(filter_)}: recall "
                    f"{point.recall:.3g}, p50 {point.p50_ms:.3g} ms"
                )
        except _LateError:
            self._complete = False
            self._notes.append(
                f"the deadline passed before all settings of {index.name}{_under(filter_)} "
                "were tried"
            )
        return first, points

    def _current(self, index: VectorIndex) -> tuple[int, bool]:
        """Return what sessions of this role search with, and whether they scan iteratively."""
        # Known only once pgvector's library is loaded, which exact search has done.
        names = [f"{index.method}.{index.setting}", f"{index.method}.iterative_scan"]
        value, iterative = one_row(
            self._connection,
            "SELECT current_setting($1::text, true), current_setting($2::text, true)",
            names,
        )
        usual = 40 if index.method == "hnsw" else 1
        return int(value or usual), (iterative or "off") != "off"

    def _ask_index(
        self,
        found: CatalogIndex,
        asked: list[Query],
        filter_: str | None,
        value: int,
        iterative: bool,
    ) -> Answers | None:
        index = found.entry
        system = self._index(found)
        setting = system.setting(value, iterative=iterative)
        settings = {
            # The other kind of index costs more.
            "hnsw.ef_search": 1000,
            "ivfflat.probes": 32768,
            f"{index.method}.iterative_scan": "off",
            **setting.session,
            # These make an index that has the order the cheapest.
            "enable_seqscan": "off",
            "enable_sort": "off",
            "enable_bitmapscan": "off",
        }
        answers = Answers([], [])
        with self._by(self._deadline, settings):
            condition = self._scope_of(found, filter_)[1]
            # One more, for the row that a query was taken from.
            statement = system.search(self._k + 1, setting, (condition, filter_))
            plan = self._plan(statement, asked[0])
            chosen = {node["Index Name"] for node in nodes(plan) if "Index Name" in node}
            if not chosen & found.names:
                if filter_ is not None and index.condition is not None:
                    return None
                other = " and ".join(sorted(chosen)) or "none of its indexes"
                self._notes.append(
                    f"index {index.name} was not measured{_under(filter_)}: PostgreSQL takes "
                    f"{other} for its queries"
                )
                return None
            self._compile_as_usual(plan)
            self._ask(statement, asked, self._deadline, answers, _WARM_UP)
        return answers

    def _compile_as_usual(self, plan: Mapping[str, Any]) -> None:
        """Have a plan compiled (JIT) only if the user's own settings would have it compiled.

        Settings that only choose the plan make it look costly: a sort that is switched off and
        needed all the same, that of a re-rank, adds 1e10 before PostgreSQL 18. Whether a statement
        is compiled at each execution, for 100 ms and more, goes by that cost. So the limits of
        the session rise by what was added, and the plan is run as the user's would be.
        """
        added = _SWITCHED_OFF * round(plan["Total Cost"] / _SWITCHED_OFF)
        for name in _JIT_LIMITS if added else ():
            (limit,) = one_row(self._connection, "SELECT current_setting($1)::float8", [name])
            # -1 switches it off.
            if limit >= 0:
                self._set(name, limit + added)

    def _try_codes(self, asked: list[Query]) -> Iterator[CodeFit]:
        """Find how many candidates codes need in the table."""
        # These load SciPy.
        from .code_fits import fit_code, train_code

        tell(f"trying codes on {len(self._rows)} rows")
        usable = are_trainable(self._rows)
        X, places = self._rows[usable], list(compress(self._places, usable))
        until = time.monotonic() + _SHARE_OF_CODES * (self._deadline - time.monotonic())
        near = [rows[:_NEAR_ROWS] for rows in self._near]
        if not near or min(map(len, near)) < 10:
            return
        queries = np.stack([query.vector.to_numpy() for query in asked[: len(near)]])
        length = min(len(rows) for rows in near)
        vectors = np.stack(
            [[as_vector(row[2]).to_numpy() for row in rows[:length]] for rows in near]
        )
        are_near = np.zeros((len(near), len(places)), bool)
        for number, (query, rows) in enumerate(zip(asked, near, strict=False)):
            there = {query.row_id, *(row[:2] for row in rows[:length])}
            are_near[number] = [place in there for place in places]
        count = max(self._facts.vectors, length)
        for code in _CODES:
            if time.monotonic() > until:
                return
            try:
                model = train_code(X, code, self._metric, force=True)
                fit = fit_code(code, model, queries, vectors, X, count, are_near)
            except InvalidInputError:  # rows from which nothing can be learned
                continue
            self._bar.update()
            self._tell(f"{code}: {fit.candidates} candidates of {fit.rows} rows")
            yield fit

    # Statements ---------------------------------------------------------------------------------

    def _index(self, found: CatalogIndex) -> Existing:
        """Return the statements of an index of the catalog."""
        entry, of = found.entry, self._column
        # Bits have no metric of their own, and are re-ranked.
        kind = of.type if entry.metric else "bit"
        metric = entry.metric or self._metric
        return Existing(of, metric, entry.expression, kind, found.operator, entry.method)

    # Running ------------------------------------------------------------------------------------

    @contextmanager
    def _by(self, until: float, settings: Mapping[str, Any] | None = None) -> Iterator[None]:
        """Have settings for the block alone, and end its statements at the deadline."""
        try:
            with self._connection.transaction(force_rollback=True):
                self._limit(until)
                for name, value in (settings or {}).items():
                    self._set(name, value)
                yield
        except psycopg.errors.QueryCanceled as error:
            if time.monotonic() < until:
                raise  # somebody else has ended it
            raise _LateError from error

    def _limit(self, until: float) -> None:
        # Rounded up: a statement that ends before the deadline was ended by somebody else.
        milliseconds = math.ceil(1000 * (until - time.monotonic()))
        if milliseconds < 1:
            raise _LateError
        self._set("statement_timeout", milliseconds)

    def _set(self, name: str, value: Any) -> None:
        setting = "SELECT pg_catalog.set_config($1, $2, true)"
        execute(self._connection, setting, [name, str(value)])

    def _ask(
        self,
        statement: sql.Composable,
        asked: list[Query],
        until: float,
        answers: Answers,
        warm_up: int = 0,
        near: list[list[Any]] | None = None,
    ) -> None:
        """Ask queries one after the other, and leave out the row that each was taken from.

        Rows end with their distances; ``near`` takes the others of each query.
        """
        run = Prepared(self._connection, statement)

        def search(query: Query) -> list[Any]:
            rows = run(query.vector)
            others = [row for row in rows if row[:2] != query.row_id and row[-1] is not None]
            if near is not None:
                near.append(others)
            return [row for row in others[: self._k] if np.isfinite(row[-1])]

        def done() -> None:
            self._bar.update()
            # The limit of time is of one statement.
            self._limit(until)

        with reading(self._connection, statement):
            ask(search, asked, answers, warm_up=warm_up, done=done)

    def _plan(
        self, statement: sql.Composable, query: Query, options: LiteralString = ""
    ) -> Mapping[str, Any]:
        explained = sql.SQL(f"EXPLAIN ({options}FORMAT JSON) ") + statement
        (plan,) = one_row(self._connection, explained, [query.vector])
        found: Mapping[str, Any] = plan[0]["Plan"]
        return found

    def _as_scope(
        self, truth: Answers, metric: str, condition: str | None, filter_: str | None
    ) -> Scope:
        vectors = {name for found in self._found for name in found.names}
        rows = None
        planner = "exact"
        lacking: tuple[str, ...] = ()
        try:
            with self._by(self._deadline):
                query = Query(Vector(np.zeros(self._facts.dimension, np.float32)))
                plan = self._plan(self._column.statement(_PLAIN, metric, self._k, [filter_]), query)
                chosen = {node.get("Index Name") for node in nodes(plan)} & vectors
                planner = next(
                    (found.entry.name for found in self._found if found.names & chosen), "exact"
                )
                if filter_ is not None:
                    counted = self._column.statement(
                        "SELECT pg_catalog.count(*) FROM {table}{where}",
                        metric,
                        conditions=(condition, filter_),
                    )
                    (rows,) = one_row(self._connection, counted)
                    plan = self._plan(
                        Exact(self._column, metric).search(
                            self._k + 1, conditions=(condition, filter_)
                        ),
                        query,
                    )
                    lacking = unindexed(self._connection, self._oid, plan)
        except _LateError:
            pass
        return Scope(
            filter_,
            metric,
            condition,
            rows,
            len(truth.distances),
            round(truth.p50_ms, 3),
            round(truth.p95_ms, 3),
            planner,
            lacking,
        )

    def _pages_a_row(self, asked: list[Query]) -> float | None:
        """Return how many pages an exact search touches for a row; None after the deadline."""
        statement = Exact(self._column, self._metric).search(self._k + 1)
        try:
            with self._by(self._deadline, {"max_parallel_workers_per_gather": 0}):
                plan = self._plan(statement, asked[0], "ANALYZE, BUFFERS, TIMING OFF, ")
        except _LateError:
            return None
        pages: int = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        return round(pages / max(self._facts.rows, 1), 2)


def _under(filter_: str | None) -> str:
    return "" if filter_ is None else f" where {filter_}"
