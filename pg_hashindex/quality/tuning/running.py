"""Tuning: try pgvector's own indexes, then codes, on a sample of a table's rows, in a given time.

The exact query, pgvector's HNSW and its ``binary_quantize``, centred too where the vectors do not
lie around 0, are measured before anything is trained. If the sample is the whole table, all
figures are measured. Else these are estimated for the full table:

- recall by codes: true neighbours and the places that they take by code are counted among the rows
  of the full table (see `models`). What an access path loses of that on the sample, it is taken to
  lose of the full table;
- recall of pgvector's HNSW: that on the sample, though among more rows it finds somewhat less;
- times of the exact scan and of scans of codes, bytes, and seconds to build, in proportion to the
  rows; times of all other searches as on the sample.

Scratch tables are never distributed, so times of a table that Citus distributes are those of one
server.
"""

import math
import shlex
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import psycopg
from psycopg import sql

from ...db.connection import Connection
from ...db.keys import KeyColumns
from ...db.owners import prepare_schema
from ...db.progress import Progress, tell
from ...db.server_errors import translated_errors
from ...db.statements import one_row
from ...errors import InvalidInputError
from ...index.catalog import Access, HasRow, IndexRow
from ...index.handle import HashIndex
from ...index.landmarks import landmark_count
from ...models import codes, store
from ...models.model import Metric
from ...models.quantization import Ranking, bits_of
from ..doctor_catalog import metric_of_column
from ..pgvector_index import PgvectorIndex, VectorColumn
from ..sizes import HNSW_DIMENSIONS, hnsw_bytes
from .advice import SIGNS, SYSTEMS, Advice, Goal, Kind, Trial, recommend
from .bench import Bench, scratch
from .models import CANDIDATES, EncodedSample, code_all, of_index, of_table, worth_building
from .sample import Budget, draw

#: Ranking, candidates and probes of a search.
Setting = tuple[Ranking, int, int | None]

_PROBES = (8, 16, 32, 64, 112, 160, 200)
# The largest part of a sample's lists to read; of the full table, this is a far smaller part.
_MOST_READ = 0.25
# Recalls to try settings for, beside the goal's.
_RECALLS = (0.90, 0.95, 0.98, 0.99)
# Stop trying more candidates or probes if little recall can be gained, or little more is needed.
_ENOUGH = 0.998
_RISE = 0.0005
# With fewer codes, a scan is faster than any access path.
_LEAST_FOR_PATHS = 5_000

_EF_SEARCH = (10, 20, 40, 80, 160, 320, 640, 1000)
# The part of the remaining time for building it.
_HNSW_SHARE = 0.4
# Memory that a graph takes while it is built, of its size; and the most to take for it.
_GRAPH_MEMORY = 1.3
_MOST_GRAPH_MEMORY = 2**30
_INDEX = "items_hnsw"


def tune_index(
    index: HasRow,
    goal: Goal,
    budget: Budget | None = None,
) -> Advice:
    """Find the settings of an index that reach a recall the fastest.

    Tried are the exact scan, pgvector's HNSW over the vectors and over their signs
    (``binary_quantize``), the index's own model with every access path, and the same method with
    other bits and levels, all on scratch tables that hold a sample of the rows. This
    module's docstring says what is estimated for the full table. Neither the index nor its table
    is changed; see `apply`.

    Raises
    ------
    InvalidInputError
        If a number is out of range, the rows are too few, the queries cannot be used, or the
        connection is inside a transaction.
    MissingRightsError
        If the role may not make scratch tables.
    """
    row = index.row
    column = row.qualified_table, row.column_name, row.key_columns, row.metric
    return _tune(row.connection, *column, row, goal, budget or Budget())


def tune_table(
    connection: Connection,
    table: str,
    column: str,
    goal: Goal,
    budget: Budget | None = None,
    *,
    key_columns: KeyColumns = None,
    metric: Metric | None = None,
) -> Advice:
    """Find the method, bits, access path and settings that reach a recall the fastest.

    As `tune_index`, with models of several methods and lengths that are trained on the sample.

    Parameters
    ----------
    table, column
        As SQL writes the table; the column by its bare name.
    key_columns : str or sequence of str, optional
        A column, or several, that are unique together and NOT NULL; the primary key by default.
    metric : {"l2", "cosine", "ip"}, optional
        That of a vector index of the column, or else cosine, by default.

    Raises
    ------
    InvalidInputError
        As `tune_index`, and if there is no such table, column or key.
    MissingRightsError
        As `tune_index`.
    """
    budget = budget or Budget()
    metric = metric or metric_of_column(connection, table, column)
    return _tune(connection, table, column, key_columns, metric, None, goal, budget)


def _tune(
    connection: Connection,
    table: str,
    column: str,
    key_columns: KeyColumns,
    metric: Metric,
    index: IndexRow | None,
    goal: Goal,
    budget: Budget,
) -> Advice:
    goal.check()
    budget.check()
    began = time.monotonic()
    deadline = began + 60 * budget.minutes
    with translated_errors():
        prepare_schema(connection)
    # First, since its errors say best what is wrong with the connection or its role.
    most = round(60 * budget.minutes) if math.isfinite(budget.minutes) else None
    with scratch(connection) as made, Progress("tuning", most, "s") as bar:

        def tick() -> None:
            bar.update(int(time.monotonic() - began) - bar.n)

        def say(message: str) -> None:
            tick()
            tell(message)

        say(f"drawing rows of {table}")
        drawn = draw(connection, table, column, key_columns, budget, goal.k, metric)
        bench = Bench(made, drawn, goal, metric, deadline, say, tick)
        bench.load()
        try_pgvector(bench)
        if index is None:
            candidates = of_table(bench, budget.random_state)
        else:
            candidates = of_index(bench, index)
        coded, n_reference = code_all(bench, candidates, budget)
        _estimate_signs(bench, coded)
        learned = [one for one in coded if one.name not in SIGNS]
        for one in worth_building(bench, learned):
            CodeTrials(bench, one, budget.memory).run()
        chosen, reason = recommend(bench.trials, goal)
        if chosen is not None and not drawn.whole:
            reason += f"; estimated from {bench.sample} of {bench.full} rows: measure it there"
        if drawn.distributed:
            reason += "; times are those of one server, without the rounds to the nodes of Citus"
        advice = Advice(
            goal=goal,
            table=table,
            column=column,
            key_columns=list(drawn.source.known_key.columns),
            metric=metric,
            index=None if index is None else index.name,
            rows=bench.full,
            sample_rows=bench.sample,
            reference_rows=n_reference,
            queries=len(drawn.Q),
            trials=bench.trials,
            recommended=chosen,
            reason=reason,
            left_out=bench.left_out,
            models={one.name: one.model for one in learned if one.candidate.reference is None},
        )
        if chosen is None:
            return advice
        return replace(advice, statements=_statements(bench, advice, chosen))


def _estimate_signs(bench: Bench, coded: list[EncodedSample]) -> None:
    """Estimate the recall of ``binary_quantize`` among all rows, as that of other codes."""
    if bench.drawn.whole:
        return
    signs = {one.name: one for one in coded if one.name in SIGNS}
    for place, trial in enumerate(bench.trials):
        if trial.kind in signs and trial.candidates is not None:
            recall = signs[trial.kind].recall(trial.candidates, "hamming", trial.sample_recall)
            bench.trials[place] = replace(trial, recall=round(recall, 4))


def _statements(bench: Bench, advice: Advice, chosen: Trial) -> str:
    """Return how to apply the recommendation: SQL, or commands and the SQL of a search."""
    of_user = bench.column(of_user=True)
    if chosen.kind in ("pgvector", *SIGNS):
        index = _hnsw(bench, chosen.kind, of_user)
        # On a table with partitions PostgreSQL refuses CONCURRENTLY.
        create = index.create("" if bench.drawn.partitioned else "CONCURRENTLY ")
        setting = sql.SQL("SET hnsw.ef_search = {}").format(chosen.ef_search or 0)
        search = index.search(bench.goal.k, chosen.candidates or 0, distances=False)
        return sql.SQL("; ").join([create, setting, search]).as_string(bench.connection)
    if chosen.kind == "exact":
        return of_user.exact(bench.metric, bench.goal.k).as_string(bench.connection)
    name = advice.index or "NAME"
    table = ["--table", advice.table, "--column", advice.column]
    train = ["model", "train", "NAME", *table, "--method", chosen.method or ""]
    levels = chosen.levels or 2
    if chosen.method != "sign":
        train += ["--bits", str((chosen.bits or 0) // bits_of(levels))]
    train += ["--levels", str(levels), "--metric", advice.metric]
    commands = [["index", "configure", name, *chosen.options]]
    if advice.index is None:
        key = ["--id", ",".join(advice.key_columns)]
        options = ["--model", "NAME", "--access", chosen.access or "scan"]
        commands = [train, ["index", "create", name, *table, *key, *options], *commands]
    elif not chosen.own:
        commands = [train, ["index", "swap", name, "--model", "NAME"], *commands]
    shown = "id, distance" if len(advice.key_columns) == 1 else "*"
    search = sql.SQL("SELECT {} FROM hashindex.{}($1, {})").format(
        sql.SQL(shown), sql.Identifier(f"search_{name}"), sql.Literal(bench.goal.k)
    )
    lines = [f"pg-hashindex {shlex.join(one)}" for one in commands]
    return "; ".join([*lines, search.as_string(bench.connection)])


def try_pgvector(bench: Bench) -> None:
    """Try pgvector's HNSW over the vectors, and over their signs with an exact re-rank."""
    kinds: tuple[Kind, ...] = ("pgvector", *SIGNS)
    if bench.mean is None:
        kinds = kinds[:-1]
        bench.leave_out(f"{SYSTEMS[SIGNS[-1]]}: the vectors lie around 0 as they are")
    for kind in kinds:
        bench.attempt(SYSTEMS[kind], partial(_try_hnsw, bench, kind))


def _hnsw(bench: Bench, kind: Kind, of: VectorColumn) -> PgvectorIndex:
    """Return pgvector's HNSW of a table, over what can be indexed: vectors, halves or signs."""
    if kind in SIGNS:
        mean = None if kind == "binary_quantize" else bench.mean
        return PgvectorIndex.over_signs(of, bench.metric, bench.dimension, mean)
    return PgvectorIndex.over_vectors(of, bench.metric, bench.dimension)


def _try_hnsw(bench: Bench, kind: Kind) -> None:
    index, name = _hnsw(bench, kind, bench.column()), SYSTEMS[kind]
    if bench.dimension > (most := HNSW_DIMENSIONS[index.type]):
        raise InvalidInputError(f"it takes {most} dimensions at most")
    connection = bench.connection
    relation = bench.scratch.table(_INDEX)
    bench.say(f"building {name} of {bench.sample} rows")
    seconds = min(_HNSW_SHARE * bench.seconds_left, 1e6)
    start = time.perf_counter()
    try:
        with connection.transaction():
            # The transaction is its own, so that the time limit ends with it.
            connection.execute(
                sql.SQL("SET LOCAL statement_timeout = {}").format(max(1, int(1000 * seconds)))
            )
            expected = hnsw_bytes(bench.sample, index.type, bench.dimension)
            _give_memory(connection, _GRAPH_MEMORY * expected)
            connection.execute(index.create(name=_INDEX))
    except psycopg.errors.QueryCanceled as error:
        raise InvalidInputError(f"to build it takes more than {seconds:.0f} s") from error
    try:
        built = time.perf_counter() - start
        size = "SELECT pg_relation_size($1::text::regclass)"
        (n_bytes,) = one_row(connection, size, [relation.as_string(connection)])
        bench.say(f"measuring {name}")
        for count in bench.choices(_EF_SEARCH):
            bench.check_time()
            ef_search = min(count, _EF_SEARCH[-1])
            statement = index.search(bench.goal.k, count)
            answers = bench.ask(statement, (), {"hnsw.ef_search": ef_search})
            recall = answers.recall(bench.exact, bench.goal.k)
            trial = Trial(
                kind,
                recall=recall,
                bytes=n_bytes,
                build_s=built,
                sample_recall=recall,
                candidates=count if kind in SIGNS else None,
                ef_search=ef_search,
            )
            bench.add(trial, answers)
            if recall >= _ENOUGH:
                return
    finally:
        if not connection.closed:
            connection.execute(sql.SQL("DROP INDEX IF EXISTS {}").format(relation))


def _give_memory(connection: Connection, n_bytes: float) -> None:
    """Let this transaction build a graph in memory: one that does not fit takes many times as long.

    By one process, since several would take it from shared memory, of which containers have little.
    """
    connection.execute(
        "SELECT set_config('maintenance_work_mem', %(kB)s::text || 'kB', true), "
        "set_config('max_parallel_maintenance_workers', '0', true) "
        "WHERE pg_size_bytes(current_setting('maintenance_work_mem')) < 1024 * %(kB)s::bigint",
        {"kB": int(min(n_bytes, _MOST_GRAPH_MEMORY) / 1024)},
    )


class CodeTrials:
    """One model on the scratch table, until it is dropped."""

    def __init__(self, bench: Bench, coded: EncodedSample, memory: str | int) -> None:
        self.bench, self.coded, self.memory = bench, coded, memory
        self.index: HashIndex | None = None
        self.choices = bench.choices(CANDIDATES)
        self._model_name: str | None = None
        self._model_bytes = 0
        self._encode_s = 0.0
        self._ranking: Ranking = "hamming"
        self._more: list[list[object]] = []

    def run(self) -> None:
        """Try the model by each access path that makes sense, then drop its index."""

        def work() -> None:
            self._build()
            for access in self._paths():
                self.bench.attempt(f"{self.coded.name}, {access}", partial(self._try, access))

        try:
            self.bench.attempt(self.coded.name, work)
        finally:
            self._drop()

    def _build(self) -> None:
        """Store the model, and encode the scratch table."""
        bench, model = self.bench, self.coded.model
        connection, reference = bench.connection, self.coded.candidate.reference
        if reference is None:
            self._model_name = f"{bench.scratch.token}_{model.method}_{model.n_bits}_{model.levels}"
            saved = store.save(connection, replace(model, name=self._model_name))
            reference = f"{saved.name}:{saved.version}"
        self._model_bytes = store.describe(connection, reference).size_bytes
        bench.say(f"encoding {bench.sample} rows by {self.coded.name}")
        start = time.perf_counter()
        self.index = HashIndex.create(
            connection,
            bench.scratch.token,
            table=bench.table.as_string(connection),
            column="embedding",
            key_columns=bench.drawn.source.known_key.code_columns,
            model=reference,
            metric=bench.metric,
            layout=self.coded.candidate.layout,
            access="scan",
        )
        self.index.encode()
        self._ranking = self.index.ranking
        self._encode_s = time.perf_counter() - start
        if model.network is not None:
            packed = codes.to_postgres(model.encode(bench.drawn.Q), model.n_bits)
            self._more = [[code] for code in packed]

    def _drop(self) -> None:
        if self.bench.connection.closed:
            return
        if self.index is not None:
            self.index.drop()
            self.index = None
        if self._model_name is not None:
            store.drop(self.bench.connection, self._model_name)
            self._model_name = None

    def _paths(self) -> list[Access]:
        """Return the access paths to try; record those that cannot win, with the reason."""
        bench = self.bench
        if bench.full < _LEAST_FOR_PATHS:
            bench.leave_out(
                f"all paths but scan: {bench.full} codes are read faster than looked up"
            )
            return ["scan"]
        if self.coded.candidate.layout == "column":
            bench.leave_out("landmarks: the index has its codes in a column")
            return ["scan"]
        return ["scan", "landmarks"]

    def _try(self, access: Access) -> None:
        """Build an access path, and try it with many settings."""
        bench, index, model = self.bench, self.index, self.coded.model
        assert index is not None  # noqa: S101
        # Landmarks are built with codes in one pass, where SQL evaluates the model.
        seconds = 0.0 if access == "landmarks" and model.network is None else self._encode_s
        if access != "scan":
            bench.say(f"building {access} of {bench.sample} rows by {self.coded.name}")
            start = time.perf_counter()
            index.configure(access=access).encode(memory=self.memory)
            seconds += time.perf_counter() - start
        bench.say(f"measuring {self.coded.name} by {access}")
        summary = index.summary()
        fixed = Trial(
            "codes",
            recall=0.0,
            bytes=summary.code_bytes + summary.access_bytes,
            build_s=seconds,
            sample_recall=0.0,
            method=model.method,
            bits=model.n_bits,
            levels=model.levels,
            own=self.coded.candidate.reference is not None,
            access=access,
        )
        enough = min(max(_RECALLS[-1], bench.goal.recall + _RISE), _ENOUGH)
        for line in self._lines(access):
            recalls: list[float] = []
            for setting in line:
                recalls.append(self._point(fixed, setting).recall)
                if recalls[-1] >= enough or (
                    len(recalls) > 2 and recalls[-1] - recalls[-3] < _RISE
                ):
                    break

    def _lines(self, access: Access) -> Iterator[list[Setting]]:
        """Yield settings of rising cost and recall."""
        goal, (best, *others) = self.bench.goal.recall, self.coded.rankings

        def least(recall: float, ranking: Ranking = best) -> int:
            return self.coded.least(recall, ranking, self.choices)

        if access == "landmarks":
            # Lists lose some rows, so candidates may lose fewer.
            above = max((1 + goal) / 2, _RECALLS[-2])
            for candidates in sorted({least(above), least(min((1 + above) / 2, _ENOUGH))}):
                yield [(best, candidates, probes) for probes in self._probes()]
            return
        wanted = sorted({least(recall) for recall in (*_RECALLS, goal)})
        yield [(best, candidates, None) for candidates in wanted]
        if access == "scan":
            for ranking in others:
                yield [(ranking, least(goal, ranking), None)]

    def _probes(self) -> list[int]:
        """Return the numbers of probes that a sample of this size can measure."""
        bench = self.bench
        most = _PROBES[-1]
        if not bench.drawn.whole:
            most = int(max(_MOST_READ * landmark_count(bench.sample), _PROBES[0]))
        if most < _PROBES[-1]:
            bench.leave_out(
                f"landmarks with more than {most} probes: a sample of {bench.sample} rows has too "
                "few lists to tell"
            )
        return [probes for probes in _PROBES if probes <= most]

    def _point(self, fixed: Trial, setting: Setting) -> Trial:
        bench, index = self.bench, self.index
        bench.check_time()
        ranking, candidates, probes = setting
        if ranking != self._ranking and index is not None:
            index.configure(ranking=ranking)
            self._ranking = ranking
        statement = sql.SQL("SELECT * FROM hashindex.{}($1, {}{})").format(
            sql.Identifier(f"search_{bench.scratch.token}"),
            sql.SQL(", ").join(map(sql.Literal, (bench.goal.k, candidates, probes))),
            sql.SQL(", $2" if self._more else ""),
        )
        answers = bench.ask(statement, self._more, {})
        recall = answers.recall(bench.exact, bench.goal.k)
        full = recall
        if not bench.drawn.whole:
            full = self.coded.recall(candidates, ranking, recall)
        trial = replace(
            fixed,
            recall=full,
            sample_recall=recall,
            ranking=ranking,
            candidates=candidates,
            probes=probes,
        )
        return bench.add(trial, answers, (self._model_bytes, self.coded.train_s))
