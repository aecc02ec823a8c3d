"""The adviser: what facts say of a table or an index, and what to do, with commands to run.

The doctor, training, quickstart, tuning, evaluations, checks and the page read facts, and print
what these functions make of them; nothing here asks the database. `decide` is the doctor's one
sentence.
"""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from psycopg import sql

from ..hashers import HASHERS
from ..index.catalog import IndexRow
from ..models.model import OPERATORS
from ..models.store import StoredModel
from ..training import METHOD
from .doctor_catalog import usual_metric
from .doctor_findings import Advice, CodeFit, Diagnosis, Point, Scope, VectorIndex
from .measuring import Measured
from .sizes import as_setting, expected_bytes, hnsw_bytes, megabytes
from .systems import Signs, VectorColumn

#: Quickstart makes an index of codes in pgvector's HNSW, or in lists.
Kind = Literal["hnsw", "lists"]

#: The method of functions, which cost a few microseconds.
GRAPH_METHOD = "thermometer"
#: Below this a search misses one of twenty of the nearest rows.
RECALL = 0.95
#: Searches are slower than the exact query if their median is, by more than this: of a small table
#: either is fast enough.
SAME_TIME, SAME_MS = 1.1, 5.0

# Searched exactly in less, a table needs no index.
_FAST_MS = 10.0
_MANY_DEAD = 0.2
_LEAST_RETURNED = 0.99
# A b-tree is advised if it leaves so small a part of the rows, and of the time at the most.
_SELECTIVE, _FASTER, _WORTH_MS = 0.1, 0.5, 1.0
# Rows found by a b-tree lie apart, and are read slower than all rows in their order.
_APART = 3
#: With more candidates than this, a graph over codes is slower than an index with fewer.
MOST_CANDIDATES = 60
# Below this recall on held-back rows, other options of training are suggested.
_GOOD_RECALL = 0.9
# Bytes: smaller rows are kept whole; a vector of up to the second fits in a page with few columns.
_IN_ROWS, _MOST_IN_ROWS = 2000, 7500


def decide(found: Diagnosis, goal: float) -> Advice:
    """Recommend in one sentence: an existing index, the exact query, or an index over codes.

    Only what was measured is advised, and the simplest that reaches the recall.
    """
    exact = found.exact
    if exact is None:
        return Advice("unknown", "Nothing was measured, so nothing is advised; see the notes.")
    usable = [index for index in found.indexes if index.valid]
    fitting = [index for index in usable if _too_large(found, index) is None]
    points = [point for index in fitting for point in _points(found, index)]
    enough = [point for point in points if point.recall >= goal]
    failing = next((one for one, enough in _filtered(found, goal) if enough is None), None)
    time = f"an exact search of {found.table.rows} rows takes {exact.p50_ms:.3g} ms"
    if failing is not None:
        why = (
            f"where {failing.filter}, {failing.index} finds {failing.recall:.1%} of the true "
            f"{found.k} nearest, and iterative scans do not help"
        )
    elif enough:
        # The current setting needs no change.
        return _keep(found, min(enough, key=lambda point: (not point.current, point.p50_ms)))
    elif points:
        best = max(points, key=lambda point: point.recall)
        why = f"{best.index} finds {best.recall:.1%} of the true {found.k} nearest at the most"
    elif fitting:
        return Advice("unknown", "No index was measured, so nothing is advised; see the notes.")
    else:
        why = str(_too_large(found, usable[0])) if usable else time
    if exact.p50_ms <= _FAST_MS:
        beside = "" if why == time else f", and {why}"
        said = f"Nothing is needed: {time}, which is fast enough{beside}."
        return Advice("nothing", said, level="ok", figures={"exact_p50_ms": exact.p50_ms})
    if failing is not None:
        return _index(found, why)
    return _codes(found, why)


def _keep(found: Diagnosis, chosen: Point) -> Advice:
    """Keep an index, with the setting that was chosen."""
    index = found.index_of(chosen)
    now = _now(found, index)
    figures = {"recall": chosen.recall, "p50_ms": chosen.p50_ms}
    if now is None or chosen.current:
        return Advice(
            "keep",
            f"Keep {index.name}: it finds {chosen.recall:.1%} of the true {found.k} nearest in "
            f"{chosen.p50_ms:.3g} ms, and fits in memory.",
            level="ok",
            figures=figures,
        )
    module = f"{index.method}.{index.setting}"
    limit = "" if index.metric else ", with as many candidates in the LIMIT of the inner query"
    return Advice(
        "keep",
        f"Keep {index.name}, and raise {module} to {chosen.value}{limit}: recall {now.recall:.1%} "
        f"-> {chosen.recall:.1%}, median {now.p50_ms:.3g} -> {chosen.p50_ms:.3g} ms.",
        (f"SET {module} = {chosen.value};",),
        figures=figures,
    )


def advise(found: Diagnosis, goal: float) -> list[Advice]:
    """Say what else to do to the table and its indexes, what matters most first."""
    faults = [
        Advice("codes", f"{_sentence(fault)}.", (remedy,), level="broken")
        for fault, remedy in found.code_faults
    ]
    return [*faults, *_filters(found, goal), *_dead(found), *_unused(found), *_toast(found)]


def _points(found: Diagnosis, index: VectorIndex) -> list[Point]:
    """Return what searches without a filter found by an index."""
    return [p for p in found.points if p.index == index.name and p.filter is None]


def _now(found: Diagnosis, index: VectorIndex) -> Point | None:
    return next((point for point in _points(found, index) if point.current), None)


def _too_large(found: Diagnosis, index: VectorIndex) -> str | None:
    """Say in which memory an index does not fit; None if it does."""
    memory = found.memory
    if index.bytes > memory.effective_cache_size:
        limit, setting = memory.effective_cache_size, "effective_cache_size"
    elif index.bytes > memory.shared_buffers and _misses(found, index):
        limit, setting = memory.shared_buffers, "shared_buffers"
    else:
        return None
    return f"{index.name} takes {megabytes(index.bytes)}, more than {setting} ({as_setting(limit)})"


def _misses(found: Diagnosis, index: VectorIndex) -> bool:
    now, first = _now(found, index), index.first_p50_ms
    cold = now is not None and first is not None and first > 3 * now.p50_ms
    return cold or (index.cached_share is not None and index.cached_share < 0.9)


def against_graph(found: Diagnosis, bits: int) -> str | None:
    """Say what speaks for an index of pg_hashindex, and against an HNSW over codes, if anything."""
    table, memory = found.table, found.memory.effective_cache_size
    if table.changed > max(table.rows, 1):
        return "many rows were changed, and it is written to several times as fast"
    if (size := hnsw_bytes(table.rows, "bit", bits)) <= memory:
        return None
    return (
        f"a graph would take about {megabytes(size)}, more than the memory that the server expects "
        f"to have ({as_setting(memory)}, effective_cache_size)"
    )


def _codes(found: Diagnosis, why: str) -> Advice:
    """Take signs or a learned code in an HNSW, or an index of pg_hashindex."""
    signs, graph = _fit(found, "binary_quantize"), _fit(found, "thermometer")
    lists = _fit(found, "itq")
    if graph is None:
        return Advice("unknown", f"{_sentence(why)}; codes were not measured: see the notes.")
    size = hnsw_bytes(found.table.rows, "bit", graph.bits)
    if (
        lists is not None
        and not found.table.takes_function_only
        and (
            against_graph(found, graph.bits) is not None or fewer_by_lists(graph, lists) is not None
        )
    ):
        return _index(found, why)
    if signs is not None and (-signs.recall, signs.candidates) <= (-graph.recall, graph.candidates):
        size = hnsw_bytes(found.table.rows, "bit", found.table.dimension)
        return Advice(
            "signs",
            f"Take an HNSW of signs, about {megabytes(size)}, since {why}: {_holds(signs)}.",
            _statements(found, signs),
        )
    return Advice(
        "function",
        f"Take a learned code in an HNSW, about {megabytes(size)}, since {why}: {_holds(graph)}.",
        _quickstart(found, " --access hnsw"),
    )


def _index(found: Diagnosis, why: str) -> Advice:
    """Take an index of pg_hashindex, if the table can have one."""
    table, lists = found.table, _fit(found, "itq")
    if table.without_codes is not None:
        return Advice(
            "unknown",
            f"{_sentence(why)}, but this table cannot have a pg_hashindex index: "
            f"{table.without_codes}.",
        )
    held = "" if lists is None else f": {_holds(lists)}"
    return Advice(
        "index",
        f"Take an index of pg_hashindex, about {megabytes(expected_bytes(table.rows))}, since {why}"
        f"{held}.",
        _quickstart(found, " --access lists"),
    )


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _holds(fit: CodeFit) -> str:
    return (
        f"{fit.candidates} candidates, re-ranked, hold {fit.recall:.1%} of the true ten nearest of "
        f"{fit.rows} sampled rows"
    )


def _fit(found: Diagnosis, code: str) -> CodeFit | None:
    return next((fit for fit in found.codes if fit.code == code), None)


def _statements(found: Diagnosis, signs: CodeFit) -> tuple[str, ...]:
    """Return the SQL that makes an HNSW of signs, and the query."""
    table = found.table
    key = sql.SQL(", ").join(map(sql.Identifier, table.primary_key or ()))
    if not table.primary_key:
        key = sql.SQL("*").format()
    of = VectorColumn(
        None, sql.SQL(table.name), sql.SQL(table.quoted_column), table.type, key, key,
        table.kind == "partitioned table",
    )  # fmt: skip
    system = Signs(of, found.metric, table.dimension)
    query = system.example(found.k, system.setting(max(signs.candidates, found.k)))
    return (*system.graph_example(), *query.splitlines())


def _filters(found: Diagnosis, goal: float) -> Iterator[Advice]:
    seen: set[str | None] = set()
    for scope in found.scopes:
        # A filter has a scope for each distance.
        if scope.filter in seen or (milliseconds := _by_btree(found, scope)) is None:
            continue
        seen.add(scope.filter)
        columns = ", ".join(scope.unindexed)
        how = "" if found.table.kind == "partitioned table" else "CONCURRENTLY "
        yield Advice(
            "btree",
            f"Where {scope.filter}, an exact search reads the whole table for {scope.rows} rows, "
            f"in {scope.p50_ms:.3g} ms. By a b-tree on {columns} it takes about "
            f"{milliseconds:.2g} ms, and finds all of the true {found.k} nearest.",
            (f"CREATE INDEX {how}ON {found.table.name} ({columns});",),
        )
    for now, enough in _filtered(found, goal):
        if enough is None:
            continue
        index = found.index_of(now)
        yield Advice(
            "iterative_scan",
            f"Where {now.filter}, {index.name} brings {now.returned:.3g} of {now.wanted:.3g} "
            f"answers, and finds {now.recall:.1%} of the true ones. With iterative scans it finds "
            f"{enough.recall:.1%} in {enough.p50_ms:.3g} ms.",
            (
                f"SET {index.method}.iterative_scan = 'relaxed_order';",
                f"SET {index.method}.{index.setting} = {enough.value};",
            ),
        )


def _filtered(found: Diagnosis, goal: float) -> Iterator[tuple[Point, Point | None]]:
    """Yield what an index finds too little of under a filter, and the iterative scan that helps."""
    # Exact search is all that these filters need.
    fast = {
        scope.filter
        for scope in found.scopes
        if (expected := _by_btree(found, scope)) is not None and expected <= _FAST_MS
    }
    for now in found.points:
        if now.filter is None or not now.current or now.filter in fast:
            continue
        if now.returned >= _LEAST_RETURNED * now.wanted and now.recall >= goal:
            continue
        exact = next((s for s in found.scopes if s.filter == now.filter), None)
        if exact is not None and exact.planner == "exact" and exact.p50_ms <= _FAST_MS:
            # PostgreSQL chooses exact search, and it is fast.
            continue
        iterative = (
            point
            for point in found.points
            if (point.index, point.filter) == (now.index, now.filter) and point.iterative
        )
        yield now, next((point for point in iterative if point.recall >= goal), None)


def _by_btree(found: Diagnosis, scope: Scope) -> float | None:
    """Return the milliseconds that an exact search would take by the b-tree that a filter lacks.

    None if there is none to make, or it would gain little.
    """
    whole, rows = found.exact, found.table.rows
    if not scope.unindexed or scope.rows is None or whole is None:
        return None
    expected = found.round_trip_ms + _APART * whole.p50_ms * scope.rows / max(rows, 1)
    gains = scope.p50_ms > _WORTH_MS and expected < _FASTER * scope.p50_ms
    return expected if gains and scope.rows <= _SELECTIVE * rows else None


def _dead(found: Diagnosis) -> Iterator[Advice]:
    table = found.table
    if table.dead_share is None or table.dead_share <= _MANY_DEAD:
        return
    graphs = [index.name for index in found.indexes if index.method == "hnsw"]
    yield Advice(
        "vacuum",
        f"{table.dead_share:.0%} of the rows are dead, and searches walk over them."
        + (" HNSW is vacuumed faster if it is rebuilt first." if graphs else ""),
        (
            *(f"REINDEX INDEX CONCURRENTLY {name};" for name in graphs),
            f"VACUUM (ANALYZE) {table.name};",
        ),
    )


def _unused(found: Diagnosis) -> Iterator[Advice]:
    if len(found.indexes) < 2:
        return
    for index in found.indexes:
        if not index.scans:
            yield Advice(
                "unused",
                f"No query used {index.name} ({megabytes(index.bytes)}) since the "
                "server's statistics began.",
                (f"DROP INDEX CONCURRENTLY {index.name};  -- if you expected this",),
            )


def _toast(found: Diagnosis) -> Iterator[Advice]:
    table = found.table
    if not table.toasted:
        return
    touched = (
        "" if table.pages_a_row is None
        else f", and reads {table.pages_a_row:.2g} pages"
    )  # fmt: skip
    text = (
        f"Vectors of {table.vector_bytes} bytes are kept out of line (TOAST): each comparison of "
        f"an exact search, a filter or a re-rank takes two to four times as long{touched}."
    )
    column = f"ALTER TABLE {table.name} ALTER COLUMN {table.quoted_column}"
    if table.type == "vector" and 2 * table.dimension + 8 < _IN_ROWS:
        yield Advice(
            "toast",
            f"{text} In half precision they would stay in their rows.",
            (f"{column} TYPE halfvec({table.dimension});  -- rewrites and locks the table",),
        )
    elif table.vector_bytes <= _MOST_IN_ROWS and table.storage != "main":
        where = "its partitions' rows" if table.kind == "partitioned table" else "the rows"
        yield Advice(
            "toast",
            f"{text} With storage MAIN they stay in their rows, if a row fits in a page of 8 kB, "
            f"once {where} are written again. A scan that needs no vectors reads more then.",
            (
                f"{column} SET STORAGE MAIN;",
                f"VACUUM FULL {table.name};  -- locks the table, builds its indexes again",
            ),
        )
    else:
        yield Advice("toast", text)


def _quickstart(found: Diagnosis, options: str) -> tuple[str, ...]:
    """Return the command that makes codes of a kind."""
    table = found.table
    if table.primary_key is None and table.other_key is not None:
        options += f" --id {shlex.quote(','.join(table.other_key))}"
    metric = found.metric
    if metric in OPERATORS and metric != usual_metric(index.metric for index in found.indexes):
        # Quickstart takes that of an index, else cosine, unasked.
        options += f" --metric {metric}"
    return (
        f"pg-hashindex quickstart --table {shlex.quote(table.name)} --column "
        f"{shlex.quote(table.column)}{options}",
    )


def choose(
    found: Diagnosis, bits: int, model: StoredModel | None, asked: Iterable[str]
) -> tuple[Kind, str]:
    """Return which access to take, and why: HNSW unless something speaks for lists.

    ``bits`` are those of a code in HNSW, ``model`` is what an earlier run has left, and ``asked``
    are the options that call for lists.
    """
    if (option := next(iter(asked), None)) is not None:
        return "lists", f"{option} is what it is for"
    if found.table.takes_function_only:
        return "hnsw", f"pgvector's index serves a {found.table.kind}"
    if (why := against_graph(found, bits)) is not None:
        return "lists", why
    if model is not None and kind_of(model.method) == "lists":
        return "lists", f"its model {model.name}:{model.version} is there"
    return "hnsw", (
        "it needs nothing but pgvector, and its graph of about "
        f"{megabytes(hnsw_bytes(found.table.rows, 'bit', bits))} fits in memory"
    )


def kind_of(method: str) -> Kind:
    """Return what a method's models are made for."""
    return "hnsw" if method == GRAPH_METHOD else "lists"


def fewer_by_lists(graph: CodeFit, lists: CodeFit | None) -> str | None:
    """Say that an index with fewer candidates is faster than a graph over codes, if it is."""
    if lists is None or graph.candidates <= max(MOST_CANDIDATES, lists.candidates):
        return None
    return (
        f"codes of its model need {lists.candidates} candidates on the sample, those of the "
        f"function {graph.candidates}"
    )


def slower(milliseconds: float, exact_ms: float) -> str | None:
    """Say that searches are slower than the exact query, if they are."""
    if milliseconds <= SAME_TIME * exact_ms + SAME_MS:
        return None
    return (
        f"that takes {milliseconds:.3g} ms, and the exact query, without any index, "
        f"{exact_ms:.3g} ms: this table needs no index"
    )


def of_finding(name: str, level: Literal["warning", "broken"], detail: str, what: str) -> Advice:
    """Say what a check of an index of pg_hashindex has found."""
    words = "is broken" if level == "broken" else "needs attention"
    return Advice("check", f"Index {name} {words}: {detail}. {what}", level=level)


def of_measured(point: Measured, exact_ms: float) -> Advice:
    """Say how an index of pg_hashindex does with its own settings."""
    name = point.index
    said = (
        f"index {name} finds {point.recall:.1%} of the {point.k} nearest rows in "
        f"{point.p50_ms:.3g} ms; comparing every row takes {exact_ms:.3g} ms"
    )
    figures = {"recall": point.recall, "p50_ms": point.p50_ms, "exact_p50_ms": exact_ms}
    if point.recall < RECALL:
        tune = f"pg-hashindex tune {shlex.quote(name)} --recall {RECALL:g}"
        text = f"I{said[1:]}. To find more, tune it:"
        return Advice("recall", text, (tune,), figures=figures)
    if (why := slower(point.p50_ms, exact_ms)) is not None:
        said = f"Index {name} finds {point.recall:.1%} of the {point.k} nearest rows, but {why}."
        return Advice("exact", said, figures=figures)
    return Advice("keep", f"All is well: {said}.", level="ok", figures=figures)


def of_training(stored: StoredModel) -> str | None:
    """Suggest options of training if few true neighbours of the rows held back were found."""
    recall = stored.training.get("recall")
    if not isinstance(recall, dict) or recall["value"] >= _GOOD_RECALL:
        return None
    method = HASHERS[stored.method]
    cuts = len(stored.cuts)
    projections = stored.n_bits // cuts
    if method.takes_cuts() and cuts < 5:
        step = f"--cuts {cuts + 2} --bits {projections * (cuts + 2)}"
    elif "n_bits" in method.parameter_names() and projections < stored.dimension:
        step = f"--bits {min(2 * projections, stored.dimension) * cuts}"
    else:
        step = "--method sign" if stored.method == METHOD else f"--method {METHOD}"
    return (
        f"recall@{recall['k']} is {recall['value']:.2f} within {recall['candidates']} candidates "
        f"of {recall['among']} rows, and less among more rows; try {step} next"
    )


class ModelFacts(NamedTuple):
    """The method of an index's model, and its usual access; None where they may not be read."""

    method: str | None = None
    access: str | None = None


def remedy(
    row: IndexRow,
    model: ModelFacts,
    points: Sequence[Measured],
    recall: float,
    max_ms: float | None,
    exact_ms: float,
) -> str:
    """Return advice for an index that no candidates and effort bring to the goal."""
    if row.access == "scan" and model.access == "lists":
        return f"read some lists of codes instead of all: {_configure(row)} --access lists"
    if any(point.reaches(recall) for point in points):
        if max_ms is not None and exact_ms <= max_ms:
            return f"search exactly, by hashindex.exact_search: that takes {exact_ms:.3g} ms"
        return "allow more time, or a lower recall"
    if any(point.recall >= recall for point in points):
        tune = f"pg-hashindex tune {shlex.quote(row.name)} --recall {recall:g} --queries 1000"
        return f"more queries may show that other ones find as much: {tune}"
    return _better_codes(row, model)


def many_lists(row: IndexRow, model: ModelFacts, lists: int, effort: int) -> str | None:
    """Say how to read fewer lists if searches read a tenth of them."""
    if 10 * effort < lists:
        return None
    better = _better_codes(row, model)
    return f"that reads {min(effort, lists)} of {lists} lists; to read fewer, {better}"


def _configure(row: IndexRow) -> str:
    return f"pg-hashindex index configure {shlex.quote(row.name)}"


def _better_codes(row: IndexRow, model: ModelFacts) -> str:
    """Say which model would find more with the same settings."""
    other = model.method not in (None, METHOD)
    # As `train` has them by default, whatever the method was.
    cuts = max(3, len(row.cuts))
    bits = cuts * min(2 * row.n_bits // len(row.cuts), row.dimension)
    if row.n_bits >= bits and not other:
        return "codes have as many bits as help: compare pgvector's indexes by pg-hashindex doctor"
    name, table = shlex.quote(row.model), shlex.quote(row.qualified_table)
    take, more = (f"method {METHOD}", f" --method {METHOD}") if other else ("more bits", "")
    return (
        f"take {take}: pg-hashindex model train {name} --table {table} --column "
        f"{shlex.quote(row.column_name)}{more} --bits {bits} --cuts {cuts}; then pg-hashindex "
        f"index swap {shlex.quote(row.name)} --model {name}"
    )
