"""Searches of sets of pgvector are never short: k rows come back if k rows match."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pgvector import Vector

ROWS, DIMENSION = 1500, 12

PLACES = {
    "plain": ("", "vector(12)"),
    "halves": ("", "halfvec(12)"),
    "parts": ("PARTITION BY HASH (id)", "vector(12)"),
}
SETS = {
    "codes": "model => 'm'",
    "codes in ivfflat": "model => 'm', access => 'ivfflat'",
    "stored codes": "model => 'm', store => true",
    "vectors": "model => 'none'",
    "vectors in ivfflat": "model => 'none', access => 'ivfflat'",
}
#: A filter, and what it says of a row, by its number.
FILTERS = {
    None: lambda n: n > 0,
    "part = 3": lambda n: n % 20 == 3,
    "part < 8 -- most": lambda n: n % 20 < 8,
    "id > 1400 AND part <> 3": lambda n: (n > 1400) & (n % 20 != 3),
    "false": lambda n: n < 0,
}


@pytest.fixture
def searched(request, connection):
    """A table with an index, half of whose rows were deleted or updated; the rows that are left."""
    kind, metric = request.param
    partitioned, column = PLACES[kind]
    connection.execute(
        f"CREATE TABLE docs (id integer PRIMARY KEY, part integer, v {column}) {partitioned}"
        .encode()
    )  # fmt: skip
    if partitioned:
        for n in range(3):
            values = f"(MODULUS 3, REMAINDER {n})"
            part = f"CREATE TABLE docs_{n} PARTITION OF docs FOR VALUES WITH {values}"
            connection.execute(part.encode())
    rng = np.random.default_rng(5)
    vectors = rng.standard_normal((30, DIMENSION))[rng.integers(30, size=ROWS)]
    vectors = (vectors + 0.5 * rng.standard_normal(vectors.shape)).astype(np.float32)
    with connection.cursor() as cursor, cursor.copy("COPY docs FROM STDIN") as copy:
        for n, vector in enumerate(vectors, 1):
            copy.write_row((n, n % 20, Vector(vector)))
    connection.execute("ANALYZE docs")
    train = "SELECT hashindex.train('m', 'docs', 'v', metric => %s)"
    connection.execute(train, [metric])
    for place, options in enumerate(SETS.values()):
        named = f"'s{place}', 'docs', 'v', metric => '{metric}', {options}"
        connection.execute(f"SELECT hashindex.create_index({named})".encode())
    connection.execute("UPDATE docs SET part = part WHERE id % 3 = 0")
    connection.execute("DELETE FROM docs WHERE id % 3 = 1")
    numbers = np.array([n for n in range(1, ROWS + 1) if n % 3 != 1])
    return connection, vectors, numbers


@pytest.mark.parametrize(
    "searched", [("plain", "cosine"), ("halves", "l2"), ("parts", "ip")], ids=str, indirect=True
)
def test_k_rows_come_back_if_k_rows_match(searched):
    connection, vectors, numbers = searched

    @settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        place=st.integers(0, len(SETS) - 1),
        k=st.one_of(st.integers(1, 60), st.integers(61, 2500)),
        candidates=st.one_of(st.none(), st.integers(1, 80)),
        effort=st.one_of(st.none(), st.integers(1, 50)),
        filter_=st.sampled_from(list(FILTERS)),
        asked=st.integers(0, ROWS - 1),
        how=st.sampled_from(["plain", "prepared", "lateral", "no path", "read only", "text"]),
    )
    def check(place, k, candidates, effort, filter_, asked, how):
        call = f"hashindex.search_s{place}(%s::vector, %s, %s, %s, %s, caller_path => 'public')"
        query = f"SELECT id, distance FROM {call}"
        if how == "lateral":
            query = f"SELECT s.id, s.distance FROM (SELECT 1) x, LATERAL {call} s"
        if how == "text":
            query = (
                f"SELECT id::int, distance FROM hashindex.search('s{place}', %s::vector, %s, %s, "
                "%s, %s, caller_path => 'public')"
            )
        values = [Vector(vectors[asked]), k, candidates, effort, filter_]
        with connection.transaction():
            if how == "no path":
                query = query.replace("::vector", "::public.vector")
                connection.execute("SET LOCAL search_path = ''")
            if how == "read only":
                connection.execute("SET TRANSACTION READ ONLY")
            found = connection.execute(query.encode(), values, prepare=how == "prepared").fetchall()
        matching = numbers[FILTERS[filter_](numbers)]
        assert len(found) == min(k, len(matching))
        assert {n for n, _ in found} <= set(matching.tolist())
        assert len({n for n, _ in found}) == len(found)
        distances = [distance for _, distance in found]
        assert distances == sorted(distances)
        if k >= len(matching):
            assert {n for n, _ in found} == set(matching.tolist())

    check()


@pytest.mark.parametrize("searched", [("plain", "cosine")], ids=str, indirect=True)
def test_under_row_security(searched, as_role):
    connection, vectors, numbers = searched
    connection.execute(
        "ALTER TABLE docs ENABLE ROW LEVEL SECURITY;"
        "CREATE POLICY own ON docs USING (part = current_setting('app.part')::int)"
    )
    reader = as_role("reader")
    connection.execute("GRANT SELECT ON docs TO reader")
    for part in (0, 3, 19):
        reader.execute("SELECT set_config('app.part', %s, false)", [str(part)])
        matching = set(numbers[numbers % 20 == part].tolist())
        for place in range(len(SETS)):
            for k in (1, 20, 200):
                search = f"SELECT id FROM hashindex.search_s{place}(%s, %s)"
                found = reader.execute(search.encode(), [Vector(vectors[7]), k]).fetchall()
                assert len(found) == min(k, len(matching))
                assert {n for (n,) in found} <= matching
