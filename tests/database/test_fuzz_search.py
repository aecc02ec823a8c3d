"""Searches with any vector and any numbers: the answer of brute force, or a clear error."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pgvector import Vector
from psycopg.types.json import Jsonb

from pg_hashindex import store
from pg_hashindex.database import Connection
from pg_hashindex.errors import HashIndexError
from pg_hashindex.hashers import LSH
from pg_hashindex.index import HashIndex
from pg_hashindex.layers import shift
from pg_hashindex.model import Model

FEW = settings(
    max_examples=16,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
PATHS = (
    ("scan", "table", "l2"),
    ("scan", "column", "cosine"),
    ("lookup", "table", "cosine"),
    ("hnsw", "table", "ip"),
    ("hnsw", "column", "l2"),
    ("landmarks", "table", "l2"),
    ("landmarks", "table", "cosine"),
)
OPERATORS = {"l2": "<->", "cosine": "<=>", "ip": "<#>"}
MOST = 2**31 - 1

numbers = st.one_of(
    st.sampled_from([0.0, -0.0, 1e-45, -1e-45, 1e-38, 1.0, -1.0, 1e19, -1e19, 1e30, 3.4028235e38]),
    st.floats(-10, 10, width=32),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
)
vectors_of_8 = st.one_of(
    st.lists(st.floats(-10, 10, width=32), min_size=8, max_size=8),
    st.lists(numbers, min_size=8, max_size=8),
    numbers.map(lambda number: [number] * 8),
)
counts = st.one_of(
    st.none(), st.integers(1, 400), st.sampled_from([-MOST - 1, -1, 0, 1, 1000, MOST - 1, MOST])
)
rankings = st.sampled_from([None, None, "hamming", "asymmetric", "weighted", "", "x'"])


@pytest.fixture(params=PATHS, ids="-".join)
def fuzzed(
    request: pytest.FixtureRequest, connection: Connection, items: str, model: Model
) -> HashIndex:
    """Rows as they come, and zeros, the least and the greatest, and many of one kind."""
    access, layout, metric = request.param
    index = HashIndex.create(
        connection,
        "items_idx",
        table=items,
        column="embedding",
        model="lsh",
        layout=layout,
        metric=metric,
        access=access,
    )
    index.encode()
    connection.execute(
        "INSERT INTO items SELECT 400 + n, NULL, array_fill(v, ARRAY[8])::vector "
        "FROM unnest('{0,-0,1e-45,1e-40,1e19,-1e19}'::real[]) WITH ORDINALITY u(v, n);"
        "INSERT INTO items SELECT 500 + n, 'same', '[1,1,1,1,2,2,2,2]' "
        "FROM generate_series(1, 9) n;"
        "INSERT INTO items VALUES (600, 'none', NULL)"
    )
    return HashIndex.open(connection, "items_idx")


Answer = tuple[list[Any], psycopg.Error | None]


def ask(connection: Connection, query: str, values: Any) -> Answer:
    """Run a query; return its rows, or the error that it ended in."""
    try:
        return connection.execute(query.encode(), values).fetchall(), None
    except psycopg.Error as error:
        return [], error


def brute_force(index: HashIndex, query: Vector) -> list[tuple[int, float]]:
    """All rows by distance, NaN last, and by key, as PostgreSQL orders them."""
    rows = index.connection.execute(
        f"SELECT id, embedding {OPERATORS[index.metric]} %s FROM items "
        "WHERE embedding IS NOT NULL".encode(),
        [query],
    ).fetchall()
    return sorted(rows, key=place)


def place(row: Any) -> tuple[bool, float, int]:
    return math.isnan(row[1]), 0.0 if math.isnan(row[1]) else row[1], row[0]


def same(found: list[Any], wanted: list[Any]) -> bool:
    return [place(row) for row in found] == [place(row) for row in wanted]


def refused_rightly(error: psycopg.Error, query: list[float]) -> bool:
    """Whether a query of such size may be refused; internal errors never may."""
    assert error.sqlstate is not None
    assert error.sqlstate[:2] == "22", error
    return max(map(abs, query)) > 1e18


@FEW
@given(query=vectors_of_8, k=counts, candidates=counts, probes=counts, ranking=rankings)
def test_search(
    fuzzed: HashIndex,
    query: list[float],
    k: int | None,
    candidates: int | None,
    probes: int | None,
    ranking: str | None,
) -> None:
    connection, vector = fuzzed.connection, Vector(query)
    sound = (
        (k is not None and k >= 1)
        and (candidates is None or candidates >= 1)
        and (probes is None or 1 <= probes <= 1000)
        and ranking in {None, "hamming", "asymmetric"}
    )
    wanted = brute_force(fuzzed, vector)
    calls: dict[str, list[Any]] = {}
    for name, call in {
        "typed": "hashindex.search_items_idx(%s, %s, %s, %s, %s)",
        "by name": "hashindex.search('items_idx', %s, %s, %s, probes => %s, ranking => %s)",
    }.items():
        found, error = ask(
            connection,
            f"SELECT id::bigint, distance FROM {call}",
            [vector, k, candidates, probes, ranking],
        )
        if error is not None:
            assert refused_rightly(error, query) or not sound, error
            continue
        assert sound
        assert k is not None
        calls[name] = found
        assert same(found, sorted(found, key=place))
        assert len(found) == len({row[0] for row in found}) == min(k, len(wanted))
        truth = {row[0]: row for row in wanted}
        assert same(found, [truth[row[0]] for row in found])
        # Of other paths not every code is a candidate.
        exact = fuzzed.access in ("scan", "lookup")
        if exact and max(k, candidates or fuzzed.candidates) >= len(wanted):
            assert same(found, wanted[:k])
    assert len(calls) in (0, 2)
    try:
        hits = fuzzed.search(query, k, candidates=candidates, probes=probes, ranking=ranking)  # type: ignore[arg-type]
    except HashIndexError:
        # One less than in SQL, for a row that is left out.
        assert not calls or MOST in (k, candidates)
    else:
        assert same(hits, calls["typed"])


@pytest.mark.parametrize("fuzzed", [PATHS[1], PATHS[2], PATHS[5]], ids="-".join, indirect=True)
@FEW
@given(query=vectors_of_8, radius=st.one_of(counts, st.integers(0, 12)))
def test_within(fuzzed: HashIndex, query: list[float], radius: int | None) -> None:
    connection, vector = fuzzed.connection, Vector(query)
    sound = radius is not None and 0 <= radius <= 12
    found, error = ask(
        connection, "SELECT id, distance FROM hashindex.within_items_idx(%s, %s)", [vector, radius]
    )
    if error is not None:
        assert refused_rightly(error, query) or not sound, error
        with pytest.raises(HashIndexError):
            fuzzed.within(query, radius)  # type: ignore[arg-type]
        return
    hits = fuzzed.within(query, radius)  # type: ignore[arg-type]
    assert sound
    assert hits == found
    wanted = connection.execute(
        "SELECT x.id, x.far FROM (SELECT i.id, bit_count(hashindex.encode('lsh', i.embedding) # "
        "hashindex.encode('lsh', %s)) AS far FROM items i WHERE i.embedding IS NOT NULL) x "
        "WHERE x.far <= %s ORDER BY x.far, x.id",
        [vector, radius],
    ).fetchall()
    assert found == wanted


@pytest.mark.parametrize("fuzzed", [PATHS[1], PATHS[5]], ids="-".join, indirect=True)
@FEW
@given(query=vectors_of_8, k=counts, sample=counts, candidates=counts)
def test_exact_search_and_recall(
    fuzzed: HashIndex,
    query: list[float],
    k: int | None,
    sample: int | None,
    candidates: int | None,
) -> None:
    connection, vector = fuzzed.connection, Vector(query)
    found, error = ask(
        connection,
        "SELECT id::bigint, distance FROM hashindex.exact_search('items_idx', %s, %s)",
        [vector, k],
    )
    if k is None or k < 1:
        assert error is not None
        assert error.sqlstate in {"22004", "22023"}
    else:
        assert error is None
        assert same(found, brute_force(fuzzed, vector)[:k])
    # Of more rows it would take its time.
    sample = sample if sample is None else min(sample, 3)
    found, error = ask(
        connection, "SELECT hashindex.recall('items_idx', %s, %s, %s)", [k, sample, candidates]
    )
    if k is None or sample is None or not 1 <= k <= 10**6 or min(sample, candidates or 1) < 1:
        assert error is not None
        assert error.sqlstate == "22023"
    else:
        assert error is None
        assert 0 <= found[0][0] <= 1


values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8),
        st.sampled_from(["a", "same", "'; DROP TABLE items; --", "1e400"]),
    ),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab"), inner, max_size=2),
    max_leaves=3,
)


@pytest.mark.parametrize("fuzzed", [PATHS[0], PATHS[4], PATHS[6]], ids="-".join, indirect=True)
@FEW
@given(
    where=st.one_of(
        st.dictionaries(st.sampled_from(["category", "id", "other", ""]), values, max_size=2),
        st.fixed_dictionaries({"category": st.sampled_from(["a", "b", "same", None, "%s"])}),
        values,
    ),
    query=vectors_of_8,
)
def test_where_equals(fuzzed: HashIndex, where: Any, query: list[float]) -> None:
    found, error = ask(
        fuzzed.connection,
        "SELECT id::bigint, distance FROM hashindex.search('items_idx', %s, 20, 20, %s)",
        [Vector(query), Jsonb(where)],
    )
    if error is not None:
        assert (error.sqlstate or "")[:2] in {"22", "42"}, error
        return
    if (
        isinstance(where, dict)
        and set(where) == {"category"}
        and isinstance(where["category"], str | None)
    ):
        truth = fuzzed.connection.execute(
            "SELECT count(*) FROM items WHERE category IS NOT DISTINCT FROM %s "
            "AND embedding IS NOT NULL",
            [where["category"]],
        ).fetchone()
        assert truth is not None
        assert len(found) == min(20, truth[0])


NOT_FINITE = [[math.nan] * 8, [math.inf] * 8, [1.0] * 7 + [-math.inf]]


@pytest.mark.parametrize("values", NOT_FINITE, ids=str)
def test_what_is_not_finite_comes_in_nowhere(
    connection: Connection, items: str, model: Model, values: list[float]
) -> None:
    """As text, as a binary parameter, by COPY of both kinds, and from Python."""
    index = HashIndex.create(connection, "items_idx", table=items, column="embedding", model="lsh")
    index.encode()
    vector = Vector(values)
    for form in ("%s", "%b"):
        for call in ("search_items_idx({})", "within_items_idx({}, 3)", "encode('lsh', {})"):
            with pytest.raises(psycopg.errors.DataError):
                connection.execute(f"SELECT hashindex.{call.format(form)}".encode(), [vector])
    for kind in ("", "WITH (FORMAT binary)"):
        with pytest.raises(psycopg.errors.DataError), connection.cursor() as cursor:
            with cursor.copy(f"COPY items (id, embedding) FROM STDIN {kind}".encode()) as copy:
                if kind:
                    copy.set_types(["int8", "vector"])
                copy.write_row((1001, vector))
    calls: list[Callable[[], Any]] = [
        lambda: index.search(values),
        lambda: index.within(values, 3),
        lambda: model.project([values]),
        lambda: model.encode([values]),
    ]
    for run in calls:
        with pytest.raises(HashIndexError, match="finite"):
            run()
    assert index.summary().codes == 300


@pytest.mark.parametrize("dimension", [1, 2, 16_000])
def test_the_least_and_most_dimensions(connection: Connection, dimension: int) -> None:
    """Of vectors, and of codes: as many bits as dimensions."""
    rng = np.random.default_rng(dimension)
    rows = rng.standard_normal((12, dimension)).astype(np.float32)
    bits = min(dimension, 64)
    store.save(connection, LSH(n_bits=bits, random_state=1).fit(rows).to_model("m"))
    store.save(connection, _signs("wide", rng, dimension))
    connection.execute(f"CREATE TABLE t (id bigint PRIMARY KEY, v vector({dimension}))".encode())
    with connection.cursor() as cursor, cursor.copy("COPY t FROM STDIN") as copy:
        for number, row in enumerate(rows):
            copy.write_row((number, Vector(row)))
    for name, model in (("m_idx", "m"), ("w_idx", "wide")):
        HashIndex.create(connection, name, table="t", column="v", model=model).encode()
    connection.execute("UPDATE t SET v = %s WHERE id = 3", [Vector(rows[4] + 1)])
    rows[3] = rows[4] + 1
    for name in ("m_idx", "w_idx"):
        for access in ("lookup", "landmarks", "hnsw") if dimension < 100 else ("landmarks", "scan"):
            index = HashIndex.open(connection, name).configure(access=access)  # type: ignore[arg-type]
            index.encode()
            hits = HashIndex.open(connection, name).search(rows[3], 12)
            near = np.argsort(np.linalg.norm(rows - rows[3], axis=1), kind="stable")
            assert [hit.id for hit in hits][:3] == near[:3].tolist()
            assert len(index.within(rows[0], index.n_bits)) == 12
    for wrong in {dimension - 1 or 2, min(dimension + 1, 15_000)}:
        with pytest.raises(psycopg.errors.DataError):
            connection.execute("SELECT hashindex.encode('m', %s)", [Vector([1.0] * wrong)])
        for call in ("search_m_idx(%s)", "within_m_idx(%s, 0)", "search('m_idx', %s)"):
            with pytest.raises(psycopg.errors.DataError, match="dimensions"):
                connection.execute(
                    f"SELECT * FROM hashindex.{call}".encode(), [Vector([1.0] * wrong)]
                )


def _signs(name: str, rng: np.random.Generator, dimension: int) -> Model:
    """One bit for each dimension; a square of weights would not fit into a row."""
    return Model(name, "byhand", dimension, [shift(rng.standard_normal(dimension) * 0.1)])


@FEW
@given(
    values=st.lists(numbers, min_size=1, max_size=10),
    reference=st.sampled_from(["lsh", "lsh:1", "lsh:2", "", "x'", None]),
)
def test_encode_and_project(
    connection: Connection, items: str, model: Model, values: list[float], reference: str | None
) -> None:
    rows, error = ask(
        connection,
        "SELECT hashindex.encode(%(m)s, %(v)s)::text, hashindex.project(%(m)s, %(v)s)",
        {"m": reference, "v": Vector(values)},
    )
    if error is not None:
        if reference in ("lsh", "lsh:1") and len(values) == 8:
            assert refused_rightly(error, values)
        else:
            assert error.sqlstate in {"22023", "42704"}
        return
    row = rows[0]
    if reference is None:
        assert row == (None, None)
        return
    assert len(values) == 8
    ours: NDArray[np.float32] = model.project([values])[0]
    scale = max(float(np.abs(ours).max()), 1e-30)
    theirs = row[1].to_numpy()
    np.testing.assert_allclose(theirs / scale, ours / scale, atol=1e-4)
    for bit, projection in zip(row[0], theirs, strict=True):
        assert (bit == "1") == (projection > 0)
