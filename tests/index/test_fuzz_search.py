"""Searches with any vector and any numbers: the answer of brute force, or a clear error."""

import math

import pytest
from fixtures.fuzzing import FEW, ask, refused_rightly, vectors_of_8
from fixtures.indexes import indexed
from hypothesis import given
from hypothesis import strategies as st
from pgvector import Vector
from psycopg.types.json import Jsonb

from pg_hashindex.errors import HashIndexError
from pg_hashindex.index.handle import HashIndex

pytestmark = pytest.mark.newest

PATHS = (
    ("scan", "l2"),
    ("scan", "cosine"),
    ("lists", "l2"),
    ("lists", "cosine"),
    ("lists", "ip"),
)
OPERATORS = {"l2": "<->", "cosine": "<=>", "ip": "<#>"}
MOST = 2**31 - 1

counts = st.one_of(
    st.none(), st.integers(1, 400), st.sampled_from([-MOST - 1, -1, 0, 1, 1000, MOST - 1, MOST])
)


@pytest.fixture(params=PATHS, ids="-".join)
def fuzzed(request, connection, items, model):
    """Rows as they come, and zeros, the least and the greatest, and many of one kind."""
    access, metric = request.param
    indexed(connection, metric=metric, access=access)
    connection.execute(
        "INSERT INTO items SELECT 400 + n, NULL, array_fill(v, ARRAY[8])::vector "
        "FROM unnest('{0,-0,1e-45,1e-40,1e19,-1e19}'::real[]) WITH ORDINALITY u(v, n);"
        "INSERT INTO items SELECT 500 + n, 'same', '[1,1,1,1,2,2,2,2]' "
        "FROM generate_series(1, 9) n;"
        "INSERT INTO items VALUES (600, 'none', NULL)"
    )
    return HashIndex.open(connection, "items_idx")


def brute_force(index, query):
    """All rows by distance, and by key; those of distance NaN only if the query's own is NaN."""
    rows = index.connection.execute(
        f"SELECT id, embedding {OPERATORS[index.metric]} %s FROM items "
        "WHERE embedding IS NOT NULL".encode(),
        [query],
    ).fetchall()
    (own,) = index.connection.execute(
        f"SELECT %(q)s {OPERATORS[index.metric]} %(q)s".encode(), {"q": query}
    ).fetchone()  # type: ignore[misc]
    return sorted((row for row in rows if math.isnan(own) or not math.isnan(row[1])), key=place)


def place(row):
    return math.isnan(row[1]), 0.0 if math.isnan(row[1]) else row[1], row[0]


def same(found, wanted):
    return [place(row) for row in found] == [place(row) for row in wanted]


@FEW
@given(query=vectors_of_8, k=counts, candidates=counts, effort=counts)
def test_search(fuzzed, query, k, candidates, effort):
    connection, vector = fuzzed.connection, Vector(query)
    sound = (
        (k is not None and k >= 1)
        and (candidates is None or candidates >= 1)
        # Probes are looked at where there are landmarks, or a filter.
        and (fuzzed.access != "lists" or effort is None or 1 <= effort <= 1000)
    )
    wanted = brute_force(fuzzed, vector)
    calls = {}
    for name, call in {
        "typed": "hashindex.search_items_idx(%s, %s, %s, %s)",
        "by name": "hashindex.search('items_idx', %s, %s, %s, %s)",
    }.items():
        found, error = ask(
            connection, f"SELECT id::bigint, distance FROM {call}", [vector, k, candidates, effort]
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
        # On other paths not every code is a candidate.
        exact = fuzzed.access == "scan"
        if exact and max(k, candidates or fuzzed.candidates) >= len(wanted):
            assert same(found, wanted[:k])
    assert len(calls) in (0, 2)
    try:
        hits = fuzzed.search(query, k, candidates=candidates, effort=effort)  # type: ignore[arg-type]
    except HashIndexError:
        # One less than in SQL, for a row that is left out.
        assert (
            not calls
            or MOST in (k, candidates)
            or (effort is not None and effort < 1)
            or effort == MOST
        )
    else:
        assert same(hits, calls["typed"])


@pytest.mark.parametrize("fuzzed", [PATHS[1], PATHS[2]], ids="-".join, indirect=True)
@FEW
@given(query=vectors_of_8, radius=st.one_of(counts, st.integers(0, 12)))
def test_within(fuzzed, query, radius):
    connection, vector = fuzzed.connection, Vector(query)
    sound = radius is not None and 0 <= radius <= 12
    found, error = ask(
        connection,
        "SELECT id::bigint, distance FROM hashindex.within('items_idx', %s, %s)",
        [vector, radius],
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


@pytest.mark.parametrize("fuzzed", [PATHS[1], PATHS[3]], ids="-".join, indirect=True)
@FEW
@given(query=vectors_of_8, k=counts, sample=counts, candidates=counts)
def test_exact_search_and_recall(fuzzed, query, k, sample, candidates):
    connection, vector = fuzzed.connection, Vector(query)
    found, error = ask(
        connection,
        "SELECT id::bigint, distance FROM hashindex.exact_search('items_idx', %s, %s)",
        [vector, k],
    )
    if k is None or k < 1:
        assert error.sqlstate in {"22004", "22023"}
    else:
        assert error is None
        assert same(found, brute_force(fuzzed, vector)[:k])
    # With more rows this would take long.
    sample = sample if sample is None else min(sample, 3)
    found, error = ask(
        connection, "SELECT hashindex.recall('items_idx', %s, %s, %s)", [k, sample, candidates]
    )
    if (
        k is None
        or sample is None
        or not 1 <= k <= 10**6
        or min(sample, 1 if candidates is None else candidates) < 1
    ):
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


@pytest.mark.parametrize("fuzzed", [PATHS[0], PATHS[2], PATHS[4]], ids="-".join, indirect=True)
@FEW
@given(
    where=st.one_of(
        st.dictionaries(st.sampled_from(["category", "id", "other", ""]), values, max_size=2),
        st.fixed_dictionaries({"category": st.sampled_from(["a", "b", "same", None, "%s"])}),
        values,
    ),
    query=vectors_of_8,
)
def test_where_equals(fuzzed, where, query):
    found, error = ask(
        fuzzed.connection,
        "SELECT id::bigint, distance FROM hashindex.search('items_idx', %s, 20, 20, "
        "where_equals => %s)",
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
        assert len(found) == min(20, truth[0])
