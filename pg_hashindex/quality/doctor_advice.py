"""The doctor's advice: what to do about what it found, in plain words, with commands to run."""

import shlex
from collections.abc import Iterator

from ..models.model import OPERATORS
from .doctor_catalog import usual_metric
from .doctor_findings import CodeFit, Diagnosis, Point, Scope, Suggestion, VectorIndex
from .sizes import (
    HNSW_DIMENSIONS,
    as_setting,
    expected_bytes,
    hnsw_bytes,
    hnsw_seconds,
    megabytes,
)

# Searched exactly in less, a table needs no index.
_FAST_MS = 10.0
_MANY_DEAD = 0.2
_LEAST_RETURNED = 0.99
# A b-tree is advised if it leaves so small a part of the rows, and of the time at the most.
_SELECTIVE, _FASTER, _WORTH_MS = 0.1, 0.5, 1.0
# Rows found by a b-tree lie apart, and are read slower than all rows in their order.
_APART = 3
# Centring is for fewer candidates, by this part at the least.
_CENTRING = 0.8
# Smaller rows are kept whole; a vector of at most so many bytes fits in a page with a few columns.
_IN_ROWS, _MOST_IN_ROWS = 2000, 7500


def advise(found: Diagnosis, goal: float) -> list[Suggestion]:
    """Say what to do to reach a recall, what matters most first; where all is well, that."""
    urgent = [*_indexes(found, goal), *_filters(found, goal), *_dead(found)]
    smaller = [*_memory(found)]
    if not urgent and not smaller:
        urgent.append(_leave(found))
    return [*urgent, *smaller, *_unused(found), *_toast(found)]


def _points(found: Diagnosis, index: VectorIndex) -> list[Point]:
    """Return what searches without a filter found by an index."""
    return [p for p in found.points if p.index == index.name and p.filter is None]


def _now(found: Diagnosis, index: VectorIndex) -> Point | None:
    return next((point for point in _points(found, index) if point.current), None)


def _exact(found: Diagnosis) -> Scope | None:
    return next((scope for scope in found.scopes if scope.filter is None), None)


def _leave(found: Diagnosis) -> Suggestion:
    if not found.indexes:
        exact = _exact(found)
        time = "" if exact is None else f": an exact search takes {exact.p50_ms:.3g} ms"
        return Suggestion("leave", f"Leave it: {found.table.rows} rows need no index{time}.")
    good = [point for index in found.indexes if (point := _now(found, index)) is not None]
    if not good:
        return Suggestion("leave", "Nothing was measured; see the notes.")
    best = max(good, key=lambda point: point.recall)
    return Suggestion(
        "leave",
        f"Leave it: {best.index} finds {best.recall:.1%} of the true {found.k} nearest in "
        f"{best.p50_ms:.3g} ms, and fits in memory.",
    )


def _indexes(found: Diagnosis, goal: float) -> Iterator[Suggestion]:
    usable = [index for index in found.indexes if index.valid]
    exact = _exact(found)
    if not usable and exact is not None and exact.p50_ms > _FAST_MS:
        yield _first_index(found, exact)
    for index in usable:
        now, points = _now(found, index), _points(found, index)
        if now is None or now.recall >= goal:
            continue
        module = f"{index.method}.{index.setting}"
        enough = next((point for point in points if point.recall >= goal), None)
        if enough is not None:
            text = (
                f"Raise {module} from {now.value} to {enough.value}: {index.name} finds "
                f"{now.recall:.1%} of the true {found.k} nearest now, and {enough.recall:.1%} "
                f"then, in {enough.p50_ms:.3g} ms instead of {now.p50_ms:.3g}."
            )
            if index.metric is None:
                text += " Re-rank as many candidates: the LIMIT of the inner query, too."
            session = f"SET {module} = {enough.value};"
            role = f"ALTER ROLE CURRENT_USER SET {module} = {enough.value};  -- for new sessions"
            yield Suggestion("raise", text, (session, role))
            continue
        best = max(points, key=lambda point: point.recall)
        signs = _best_signs(found)
        if index.metric is None and signs is not None and signs.recall > best.recall:
            text, commands = _small_index(found)
            said = f"{best.recall:.1%} is the best that {index.name} finds. {text}"
            yield Suggestion("binary_quantize", said, commands)
            continue
        how = "with more edges (m = 32, ef_construction = 128)"
        if index.method != "hnsw":
            lists = max(10, int(found.table.rows**0.5))
            how = f"on the rows as they are now, with {lists} lists or as HNSW"
        yield Suggestion(
            "rebuild",
            f"Build {index.name} again {how}: {best.recall:.1%} is the best that it finds, with "
            f"{module} = {best.value}.",
            (f"REINDEX INDEX CONCURRENTLY {index.name};  -- or a new one beside, then drop this",),
        )


def _first_index(found: Diagnosis, scope: Scope) -> Suggestion:
    table = found.table
    size = hnsw_bytes(table.rows, table.type, table.dimension)
    exact = f"An exact search takes {scope.p50_ms:.3g} ms"
    if table.dimension > HNSW_DIMENSIONS[table.type]:
        return Suggestion(
            "index",
            f"{exact}, and pgvector indexes {HNSW_DIMENSIONS[table.type]} dimensions of a "
            f"{table.type} at most, of {table.dimension}.",
            _small_index(found)[1] + _ours(found),
        )
    column = table.quoted_column
    if not table.declared:
        column = f"({column}::{table.type}({table.dimension}))"
    operators = f"{table.type}_{scope.metric}_ops"
    return Suggestion(
        "index",
        f"{exact}, and there is no vector index. HNSW would take about {megabytes(size)}, and "
        f"{_duration(hnsw_seconds(table.rows, table.dimension))} or more to build. "
        f"{_learned(found)} {_small_index(found)[0]}".rstrip()
        + _refusal(found),
        (
            f"SET maintenance_work_mem = '{max(64, int(1.2 * size / 1e6))}MB';",
            _create(found, f"{column} {operators}"),
            *_small_index(found)[1],
            *_ours(found),
        ),
    )


def _memory(found: Diagnosis) -> Iterator[Suggestion]:
    """Say what to do about indexes that are larger than memory."""
    table, memory, exact = found.table, found.memory, _exact(found)
    for index in found.indexes:
        if index.valid and index.bytes > memory.effective_cache_size:
            what = "the memory that the server expects to have (effective_cache_size)"
            limit = memory.effective_cache_size
        elif index.valid and index.bytes > memory.shared_buffers and _misses(found, index):
            what, limit = "shared_buffers, and searches wait for the disk", memory.shared_buffers
        else:
            continue
        yield Suggestion(
            "memory",
            f"{index.name} takes {megabytes(index.bytes)}, more than {what}: "
            f"{as_setting(limit)}. If the machine has the memory, raise that; else have a smaller "
            "index.",
            (f"ALTER SYSTEM SET shared_buffers = '{int(1.2 * index.bytes / 1e6)}MB';  -- restart",),
        )
        if index.expression is None and table.type == "vector":
            n_bytes = hnsw_bytes(table.rows, "halfvec", table.dimension)
            yield Suggestion(
                "halfvec",
                f"An index in half precision is about {megabytes(n_bytes)}, with nearly the same "
                "recall; queries have to be written with the same cast.",
                (
                    _create(
                        found,
                        f"({table.quoted_column}::halfvec({table.dimension})) "
                        f"halfvec_{exact.metric if exact else 'l2'}_ops",
                    ),
                ),
            )
        text, commands = _small_index(found)
        # Not what there was no time to measure.
        if index.metric is not None and commands:
            yield Suggestion("binary_quantize", text, commands)
        yield Suggestion(
            "codes",
            _learned(found) + _refusal(found),
            _ours(found),
        )


def _misses(found: Diagnosis, index: VectorIndex) -> bool:
    now, first = _now(found, index), index.first_p50_ms
    cold = now is not None and first is not None and first > 3 * now.p50_ms
    return cold or (index.cached_share is not None and index.cached_share < 0.9)


def _best_signs(found: Diagnosis) -> CodeFit | None:
    """Return the signs that need the fewest candidates, centred only where that gains enough."""
    return min(
        (fit for fit in found.codes if fit.code.startswith("binary_quantize")),
        key=lambda fit: (
            -round(fit.recall, 2),
            fit.candidates * (_CENTRING if fit.code == "binary_quantize" else 1),
        ),
        default=None,
    )


def _fit(found: Diagnosis, code: str) -> CodeFit | None:
    return next((fit for fit in found.codes if fit.code == code), None)


def _small_index(found: Diagnosis) -> tuple[str, tuple[str, ...]]:
    """Return the advice of an HNSW of signs, plain or centred, as they were measured if at all."""
    table, best = found.table, _best_signs(found)
    if best is None:
        return "", ()
    text = (
        f"An HNSW of signs (binary_quantize) is about {_signs_size(found)}: {best.candidates} "
        f"candidates, re-ranked by the vectors themselves, hold {best.recall:.1%} of the true ten "
        f"nearest of {best.rows} sampled rows."
    )
    centre = ""
    lines: tuple[str, ...] = ()
    if best.code != "binary_quantize":
        text += " Centre the vectors first, or signs say less (lines for psql)."
        centre = f" - :'mean'::{table.type}"
        lines = (f"SELECT avg({table.quoted_column}) AS mean FROM {table.name} \\gset",)  # noqa: S608

    def signs(of: str) -> str:
        return f"binary_quantize({of}{centre})::bit({table.dimension})"

    code, asked = signs(table.quoted_column), f"$1::{table.type}"
    if found.metric in OPERATORS:
        query = (
            f"SELECT * FROM (SELECT * FROM {table.name} ORDER BY {code} <~> {signs(asked)} "  # noqa: S608
            f"LIMIT {best.candidates}) c ORDER BY {table.quoted_column} "
            f"{OPERATORS[found.metric]} {asked} LIMIT {found.k}"
        )
        text += f" Set hnsw.ef_search = {best.candidates}, and query: {query}"
    return text, (*lines, _create(found, f"({code}) bit_hamming_ops"))


def _learned(found: Diagnosis) -> str:
    """Say how many candidates learned codes need, and how large an index of them is."""
    graph, lists = _fit(found, "thermometer"), _fit(found, "itq")
    if graph is None or lists is None:
        return f"A pg_hashindex index takes about {megabytes(expected_bytes(found.table.rows))}."
    size = hnsw_bytes(found.table.rows, "bit", graph.bits)
    return (
        f"An HNSW of thermometer codes is about {megabytes(size)}, and needs {graph.candidates} "
        f"candidates for {graph.recall:.1%}; a pg_hashindex index (ITQ) is about "
        f"{megabytes(expected_bytes(found.table.rows))}, needs {lists.candidates} for "
        f"{lists.recall:.1%}, and is built and written to faster."
    )


def _signs_size(found: Diagnosis) -> str:
    return megabytes(hnsw_bytes(found.table.rows, "bit", found.table.dimension))


def _filters(found: Diagnosis, goal: float) -> Iterator[Suggestion]:
    fast: set[str | None] = set()
    for scope in found.scopes:
        if scope.filter in fast or (milliseconds := _by_btree(found, scope)) is None:
            continue
        if milliseconds <= _FAST_MS:
            # Exact search is all that this filter needs then.
            fast.add(scope.filter)
        columns = ", ".join(scope.unindexed)
        how = "" if found.table.kind == "partitioned table" else "CONCURRENTLY "
        yield Suggestion(
            "btree",
            f"Where {scope.filter}, an exact search reads the whole table for {scope.rows} rows, "
            f"in {scope.p50_ms:.3g} ms. By a b-tree on {columns} it takes about "
            f"{milliseconds:.2g} ms, and finds all of the true {found.k} nearest.",
            (f"CREATE INDEX {how}ON {found.table.name} ({columns});",),
        )
    for now in found.points:
        if now.filter is None or not now.current or now.filter in fast:
            continue
        short = now.returned < _LEAST_RETURNED * now.wanted
        if not short and now.recall >= goal:
            continue
        index = next(index for index in found.indexes if index.name == now.index)
        said = (
            f"Where {now.filter}, {index.name} brings {now.returned:.3g} of {now.wanted:.3g} "
            f"answers, and finds {now.recall:.1%} of the true ones."
        )
        exact = next((s for s in found.scopes if s.filter == now.filter), None)
        if exact is not None and exact.planner == "exact" and exact.p50_ms <= _FAST_MS:
            # PostgreSQL chooses exact search, and it is fast.
            continue
        iterative = [
            point
            for point in found.points
            if (point.index, point.filter) == (now.index, now.filter) and point.iterative
        ]
        best = max(iterative, key=lambda point: point.recall, default=None)
        enough = next((point for point in iterative if point.recall >= goal), None)
        if enough is not None:
            yield Suggestion(
                "iterative_scan",
                f"{said} With iterative scans it finds {enough.recall:.1%} in "
                f"{enough.p50_ms:.3g} ms.",
                (
                    f"SET {index.method}.iterative_scan = 'relaxed_order';",
                    f"SET {index.method}.{index.setting} = {enough.value};",
                ),
            )
            continue
        yield Suggestion(
            "codes",
            f"{said} Iterative scans do not help"
            + (f" ({best.recall:.1%} in {best.p50_ms:.3g} ms)" if best is not None else "")
            + ". A pg_hashindex index keeps the columns of filters beside its codes, and restricts "
            "the rows that are searched. With --tenant COLUMN in their place it trains landmarks "
            "within each value of a column: take that if most searches ask for one value."
            + _refusal(found),
            _ours(found, " --filter-columns COLUMN,..."),
        )


def _by_btree(found: Diagnosis, scope: Scope) -> float | None:
    """Return the milliseconds that an exact search would take by the b-tree that a filter lacks.

    None if there is none to make, or it would gain little.
    """
    whole, rows = _exact(found), found.table.rows
    if not scope.unindexed or scope.rows is None or whole is None:
        return None
    expected = found.round_trip_ms + _APART * whole.p50_ms * scope.rows / max(rows, 1)
    gains = scope.p50_ms > _WORTH_MS and expected < _FASTER * scope.p50_ms
    return expected if gains and scope.rows <= _SELECTIVE * rows else None


def _dead(found: Diagnosis) -> Iterator[Suggestion]:
    table = found.table
    if table.dead_share is None or table.dead_share <= _MANY_DEAD:
        return
    graphs = [index.name for index in found.indexes if index.method == "hnsw"]
    yield Suggestion(
        "vacuum",
        f"{table.dead_share:.0%} of the rows are dead, and searches walk over them."
        + (" HNSW is vacuumed faster if it is rebuilt first." if graphs else ""),
        (
            *(f"REINDEX INDEX CONCURRENTLY {name};" for name in graphs),
            f"VACUUM (ANALYZE) {table.name};",
        ),
    )


def _unused(found: Diagnosis) -> Iterator[Suggestion]:
    if len(found.indexes) < 2:
        return
    for index in found.indexes:
        if not index.scans:
            yield Suggestion(
                "unused",
                f"Nobody has searched by {index.name} ({megabytes(index.bytes)}) since the "
                "server's statistics began.",
                (f"DROP INDEX CONCURRENTLY {index.name};  -- if that is no surprise",),
            )


def _toast(found: Diagnosis) -> Iterator[Suggestion]:
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
        yield Suggestion(
            "toast",
            f"{text} In half precision they would stay in their rows.",
            (f"{column} TYPE halfvec({table.dimension});  -- rewrites and locks the table",),
        )
    elif table.vector_bytes <= _MOST_IN_ROWS and table.storage != "main":
        where = "its partitions' rows" if table.kind == "partitioned table" else "the rows"
        yield Suggestion(
            "toast",
            f"{text} With storage MAIN they stay in their rows, if a row fits in a page of 8 kB, "
            f"once {where} are written again. A scan that needs no vectors reads more then.",
            (
                f"{column} SET STORAGE MAIN;",
                f"VACUUM FULL {table.name};  -- locks the table, builds its indexes again",
            ),
        )
    else:
        yield Suggestion("toast", text)


def _ours(found: Diagnosis, options: str = "") -> tuple[str, ...]:
    """Return the command that makes an index of codes; none where it would refuse."""
    table = found.table
    if table.without_codes is not None:
        return ()
    key = (
        ""
        if table.primary_key is not None
        else f" --id {shlex.quote(','.join(table.other_key or ()))}"
    )
    metric = found.metric
    if metric in OPERATORS and metric != usual_metric(index.metric for index in found.indexes):
        # Quickstart takes that of an index, else cosine, unasked.
        options = f" --metric {metric}{options}"
    return (
        f"pg-hashindex quickstart --table {shlex.quote(table.name)} --column "
        f"{shlex.quote(table.column)}{key}{options}",
    )


def _refusal(found: Diagnosis) -> str:
    reason = found.table.without_codes
    return "" if reason is None else f" But this table cannot have a pg_hashindex index: {reason}."


def _create(found: Diagnosis, what: str) -> str:
    how = "" if found.table.kind == "partitioned table" else "CONCURRENTLY "
    return f"CREATE INDEX {how}ON {found.table.name} USING hnsw ({what});"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
