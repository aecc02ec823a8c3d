"""pgvector's own HNSW over the vectors, in the type of their column where that can be indexed."""

import time
from collections.abc import Iterator

from psycopg import RawCursor, sql

from ...errors import InvalidInputError
from .bench import Bench
from .trials import Trial

__all__ = ["statements", "try_pgvector"]

_EF_SEARCH = (10, 20, 40, 80, 160, 320, 640, 1000)
_MOST_EF_SEARCH = 1000
# Of this much recall there is no more to gain.
_ENOUGH = 0.998
# What a vector and a halfvec can be indexed up to.
_MOST_DIMENSIONS = {"vector": 2000, "halfvec": 4000}
# Numbers of vectors that go into a graph in a second, at the least to be expected.
_BUILT_A_SECOND = 800_000
_INDEX = "items_hnsw"
_CLASSES = {"l2": "l2_ops", "cosine": "cosine_ops", "ip": "ip_ops"}


def try_pgvector(bench: Bench) -> None:
    """Try pgvector's HNSW with a few values of ``hnsw.ef_search``.

    Vectors of more dimensions than it takes are indexed in half precision, up to twice as many.

    Parameters
    ----------
    bench : Bench
        Its scratch table is as before afterwards.
    """
    bench.attempt("pgvector's HNSW", lambda: _try(bench, bench.drawn.X.shape[1]))


def _try(bench: Bench, dimension: int) -> None:
    most = max(_MOST_DIMENSIONS.values())
    if dimension > most:
        raise InvalidInputError(f"it takes {most} dimensions at most")
    expected = bench.scale.sample * dimension / _BUILT_A_SECOND
    if expected > bench.seconds_left:
        raise InvalidInputError(f"to build it may take {expected:.0f} s, more than is left")
    index = bench.scratch.table(_INDEX)
    try:
        bench.say(f"building pgvector's HNSW of {bench.scale.sample} rows")
        start = time.perf_counter()
        bench.connection.execute(_create(bench, dimension))
        built = time.perf_counter() - start
        _sweep(bench, dimension, built)
    finally:
        if not bench.connection.closed:
            bench.connection.execute(sql.SQL("DROP INDEX IF EXISTS {}").format(index))


def _sweep(bench: Bench, dimension: int, built: float) -> None:
    bench.say("measuring pgvector's HNSW")
    n_bytes = _size(bench)
    for ef_search in _values(bench.goal.k):
        bench.check_time()
        asked = bench.ask(_search(bench, dimension), (), {"hnsw.ef_search": ef_search})
        recall = asked.recall(bench.truth, bench.goal.k)
        trial = Trial(
            "pgvector",
            recall=round(bench.scale.recall(recall), 4),
            bytes=int(bench.scale.amount(n_bytes)),
            build_s=round(bench.scale.graph_seconds(built), 2),
            sample_recall=round(recall, 4),
            ef_search=ef_search,
        )
        bench.trials.append(trial.timed(asked, bench.scale.search_time))
        # Not the sample's: of a far larger table more is lost.
        if trial.recall >= _ENOUGH:
            return


def _values(k: int) -> Iterator[int]:
    """Yield values to try: fewer than k would give fewer than k answers."""
    yield from (value for value in _EF_SEARCH if value >= k)
    if k > _EF_SEARCH[-1]:
        yield min(k, _MOST_EF_SEARCH)


def statements(bench: Bench, ef_search: int) -> str:
    """Return SQL that makes what was tried on the user's own table, and that searches by it.

    Parameters
    ----------
    bench : Bench
    ef_search : int
    """
    dimension, source = bench.drawn.X.shape[1], bench.drawn.source
    # On a table with partitions PostgreSQL refuses CONCURRENTLY.
    how = "" if bench.drawn.partitioned else "CONCURRENTLY "
    text = sql.SQL(
        "CREATE INDEX {how}ON {table} USING hnsw ({indexed} {operators}); "
        "SET hnsw.ef_search = {ef_search}; "
        "SELECT {key} FROM {table} ORDER BY {indexed} {operator} $1{type} LIMIT {k}"
    ).format(
        how=sql.SQL(how),
        table=source.table,
        key=sql.Identifier(source.key or ""),
        indexed=_indexed(bench, sql.Identifier(source.vector), dimension),
        operators=_operators(bench, dimension),
        ef_search=sql.Literal(ef_search),
        operator=bench.operator,
        type=_cast(bench, dimension),
        k=sql.Literal(bench.goal.k),
    )
    return text.as_string(bench.connection)


def _as_it_is(bench: Bench, dimension: int) -> bool:
    """Whether the column itself can be indexed, and not only a cast of it."""
    return dimension <= _MOST_DIMENSIONS[bench.drawn.source.vector_type]


def _cast(bench: Bench, dimension: int) -> sql.Composable:
    if _as_it_is(bench, dimension):
        return sql.SQL("")
    return sql.SQL("::{}({})").format(bench.of_pgvector("halfvec"), sql.Literal(dimension))


def _indexed(bench: Bench, column: sql.Composable, dimension: int) -> sql.Composable:
    if _as_it_is(bench, dimension):
        return column
    return sql.SQL("({}{})").format(column, _cast(bench, dimension))


def _operators(bench: Bench, dimension: int) -> sql.Composable:
    kind = bench.drawn.source.vector_type if _as_it_is(bench, dimension) else "halfvec"
    return bench.of_pgvector(f"{kind}_{_CLASSES[bench.metric]}")


def _create(bench: Bench, dimension: int) -> sql.Composed:
    return sql.SQL("CREATE INDEX {} ON {} USING hnsw ({} {})").format(
        sql.Identifier(_INDEX),
        bench.table,
        _indexed(bench, sql.Identifier("embedding"), dimension),
        _operators(bench, dimension),
    )


def _size(bench: Bench) -> int:
    name = bench.scratch.table(_INDEX).as_string(bench.connection)
    row = (
        RawCursor(bench.connection)
        .execute("SELECT pg_relation_size($1::text::regclass)", [name])
        .fetchone()
    )
    return int(row[0]) if row else 0


def _search(bench: Bench, dimension: int) -> sql.Composed:
    return sql.SQL("{} ORDER BY {} {} $1{} LIMIT {}").format(
        bench.distances(),
        _indexed(bench, sql.Identifier("embedding"), dimension),
        bench.operator,
        _cast(bench, dimension),
        sql.Literal(bench.goal.k),
    )
