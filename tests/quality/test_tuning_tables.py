"""The advisor on tables that are not as their statistics say, or hold odd rows."""

from dataclasses import replace

import numpy as np
import pytest
from fixtures.catalog import contents
from pgvector import Vector
from psycopg import RawCursor

from pg_hashindex import schema
from pg_hashindex.db.connection import connect, create_engine
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.metrics.truth import NearestRows
from pg_hashindex.quality.tuning import Budget, Goal, bench, models, running, tune_table
from pg_hashindex.quality.tuning.models import EncodedSample

pytestmark = pytest.mark.newest

QUICK = Budget(sample=1000, queries=40, minutes=2)
_VECTOR = "ARRAY[random(), random(), random(), random()]::vector"


@pytest.fixture
def coded(monkeypatch):
    """The codes of two models, as tuning estimates them; neither model is built."""
    every, seen = models.of_table, list[EncodedSample]()

    def some(*arguments):
        return [one for one in every(*arguments) if one.name in ("sign 4 bits", "lsh 64 bits")]

    def keep(_, found):
        seen.extend(found)
        return []

    monkeypatch.setattr(running, "of_table", some)
    monkeypatch.setattr(running, "worth_building", keep)
    monkeypatch.setattr(running, "try_pgvector", lambda bench: None)
    return seen


def test_rows_without_a_vector_count_for_nothing(connection, coded):
    connection.execute("CREATE TABLE docs (id int PRIMARY KEY, v vector(4))")
    connection.execute(
        f"INSERT INTO docs SELECT i, CASE WHEN i % 10 = 0 THEN {_VECTOR} END "
        "FROM generate_series(1, 20000) i".encode()
    )
    connection.execute("ANALYZE docs")
    advice = tune_table(connection, "docs", "v", Goal(0.9), QUICK)
    assert (advice.rows, advice.reference_rows) == (2000, 1960)
    assert [one.share for one in coded] == [1, 1]


@pytest.mark.parametrize("partitions", ["", "PARTITION BY HASH (id)"])
def test_statistics_of_a_smaller_table(connection, coded, monkeypatch, partitions):
    monkeypatch.setattr(models, "_REFERENCE_ROWS", 5000)
    connection.execute(f"CREATE TABLE docs (id int PRIMARY KEY, v vector(4)) {partitions}".encode())
    names = ["docs"]
    if partitions:
        names = [f"docs_{part}" for part in range(2)]
        for part, name in enumerate(names):
            connection.execute(
                f"CREATE TABLE {name} PARTITION OF docs "
                f"FOR VALUES WITH (MODULUS 2, REMAINDER {part})".encode()
            )
    for name in names:
        connection.execute(f"ALTER TABLE {name} SET (autovacuum_enabled = off)".encode())
    for first, last in ((1, 12_000), (12_001, 42_000)):
        connection.execute(
            f"INSERT INTO docs SELECT i, {_VECTOR} FROM generate_series({first}, {last}) i".encode()
        )
        if first == 1:
            connection.execute("ANALYZE docs")
    advice = tune_table(connection, "docs", "v", Goal(0.9), QUICK)
    assert advice.rows == pytest.approx(42_000, rel=0.06)
    assert advice.reference_rows == pytest.approx(5000, rel=0.1)
    # One neighbour of ten is expected among an eighth of the rows, and a tenth of the candidates.
    assert coded[0].share == pytest.approx(0.1)


def test_ctrl_c_while_the_table_is_read(connection, coded, monkeypatch):
    connection.execute("CREATE TABLE docs (id int PRIMARY KEY, v vector(4))")
    connection.execute(
        f"INSERT INTO docs SELECT i, {_VECTOR} FROM generate_series(1, 9000) i".encode()
    )
    before = contents(connection)
    add, blocks = NearestRows.add, list[int]()

    def interrupted(self, rows):
        blocks.append(len(rows))
        # The sample is one block; training ranks 900 of its rows.
        if len(rows) > 1000:
            raise KeyboardInterrupt
        add(self, rows)

    monkeypatch.setattr(NearestRows, "add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tune_table(connection, "docs", "v", Goal(0.9), QUICK)
    assert blocks[-2:] == [1000, 4096]
    assert contents(connection) == before


def test_nothing_is_read_once_the_time_is_up(connection, monkeypatch):
    connection.execute("CREATE TABLE docs (id int PRIMARY KEY, v vector(4))")
    connection.execute(
        f"INSERT INTO docs SELECT i, {_VECTOR} FROM generate_series(1, 2000) i".encode()
    )

    def read(*arguments):
        raise AssertionError

    monkeypatch.setattr(models, "blocks", read)
    advice = tune_table(connection, "docs", "v", Goal(0.9), replace(QUICK, minutes=1e-6))
    assert [one.kind for one in advice.trials] == ["exact"]


def test_times_without_the_way_to_the_server_and_back(connection, monkeypatch):
    """If a scan takes as long as nothing, more rows take no longer."""
    connection.execute("CREATE TABLE docs (id int PRIMARY KEY, v vector(4))")
    connection.execute(
        f"INSERT INTO docs SELECT i, {_VECTOR} FROM generate_series(1, 3000) i".encode()
    )
    every, ask = models.of_table, bench.ask

    def some(*arguments):
        return [one for one in every(*arguments) if one.name == "sign 4 bits"]

    def as_long(*arguments, **more):
        return ask(*arguments, **more)._replace(milliseconds=[5.0])

    monkeypatch.setattr(running, "of_table", some)
    monkeypatch.setattr(bench, "ask", as_long)
    monkeypatch.setattr(running, "_LEAST_FOR_PATHS", 1000)
    advice = tune_table(connection, "docs", "v", Goal(0.9), QUICK)
    scans = [one for one in advice.trials if one.kind == "exact" or one.access == "scan"]
    assert {one.p50_ms for one in scans} == {5.0}
    assert {one.access for one in advice.trials} == {None, "scan", "landmarks"}


def test_without_a_limit_of_time(connection, coded):
    connection.execute("CREATE TABLE docs (id int PRIMARY KEY, v vector(4))")
    connection.execute(
        f"INSERT INTO docs SELECT i, {_VECTOR} FROM generate_series(1, 1500) i".encode()
    )
    advice = tune_table(connection, "docs", "v", Goal(0.9), replace(QUICK, minutes=float("inf")))
    assert advice.reference_rows == 1460


@pytest.mark.parametrize("row", ["[1,2,3,4]", "[0,0,0,0]"])
def test_rows_that_are_all_the_same(connection, row):
    connection.execute("CREATE TABLE docs (id int PRIMARY KEY, v vector(4))")
    connection.execute("INSERT INTO docs SELECT i, %s FROM generate_series(1, 300) i", [row])
    advice = tune_table(connection, "docs", "v", Goal(0.9), replace(QUICK, queries=20), metric="l2")
    assert advice.recommended is not None


def test_unusable_supervision_is_left_out(connection, monkeypatch):
    connection.execute("CREATE TABLE docs (id int PRIMARY KEY, v vector(4))")
    connection.execute(
        f"INSERT INTO docs SELECT i, {_VECTOR} FROM generate_series(1, 300) i".encode()
    )

    def fail(*arguments, **more):
        raise np.linalg.LinAlgError("no convergence")

    monkeypatch.setattr(models, "train", fail)
    advice = tune_table(connection, "docs", "v", Goal(0.9), replace(QUICK, queries=20))
    assert "sign 4 bits: no convergence" in advice.left_out


def test_zeros_are_no_queries_by_cosine(connection, coded):
    connection.execute("CREATE TABLE docs (id int PRIMARY KEY, v vector(4))")
    connection.execute(
        f"INSERT INTO docs SELECT i, CASE WHEN i % 2 = 0 THEN {_VECTOR} ELSE '[0,0,0,0]' END "
        "FROM generate_series(1, 300) i".encode()
    )
    tune = tune_table(connection, "docs", "v", Goal(0.9), QUICK, metric="cosine")
    assert tune.queries == 40, tune.left_out
    assert tune.left_out == []
    assert coded[0].full.recall(300, "hamming") == 1
    zeros = replace(QUICK, queries_from="SELECT '[0,0,0,0]'::vector")
    with pytest.raises(InvalidInputError, match="all queries are vectors of zeros"):
        tune_table(connection, "docs", "v", Goal(0.9), zeros, metric="cosine")
    assert tune_table(connection, "docs", "v", Goal(0.9), zeros, metric="l2").queries == 1


@pytest.mark.parametrize("partitions", ["", "PARTITION BY HASH (id)"])
@pytest.mark.parametrize("kind", ["vector(8)", "vector(2001)", "halfvec(2001)"])
@pytest.mark.parametrize("system", ["pgvector", "binary_quantize", "centred_binary_quantize"])
def test_how_to_have_hnsw(connection, monkeypatch, system, kind, partitions):
    """The recommended statement makes the index, and the recommended query uses it."""
    dimension = int(kind.partition("(")[2][:-1])
    connection.execute(
        f'CREATE TABLE "My Docs" (id int PRIMARY KEY, "a""b" {kind}) {partitions}'.encode()
    )
    if partitions:
        connection.execute(
            'CREATE TABLE part PARTITION OF "My Docs" FOR VALUES WITH (MODULUS 1, REMAINDER 0)'
        )
    connection.execute(
        'INSERT INTO "My Docs" SELECT i, (SELECT array_agg(sin(i * j) + 0.3) '
        "FROM generate_series(1, %s) j)::vector FROM generate_series(1, 60) i",
        [dimension],
    )
    monkeypatch.setattr(running, "of_table", lambda *arguments: [])

    def wanted(trials, goal):
        return next(one for one in trials if one.kind == system), "the test says so"

    monkeypatch.setattr(running, "recommend", wanted)
    budget = replace(QUICK, queries=20)
    advice = tune_table(connection, '"My Docs"', 'a"b', Goal(0.9, k=5), budget, metric="l2")
    assert advice.statements is not None
    create, setting, search = advice.statements.split("; ")
    assert ("CONCURRENTLY" in create) is (not partitions)
    # More than 2000 numbers are indexed in half precision: a column of that as it is.
    if system == "pgvector":
        assert ("halfvec_l2_ops" in create) is (dimension > 2000)
        assert ("::" in create + search) is (kind == "vector(2001)")
    else:
        assert "bit_hamming_ops" in create
        assert ("'[" in create) is ("'[" in search) is (system == "centred_binary_quantize")
    connection.execute(create.encode())
    connection.execute(setting.encode())
    connection.execute("SET enable_seqscan = off; SET enable_sort = off")
    plan = RawCursor(connection).execute(
        f"EXPLAIN {search}".encode(), [Vector(np.ones(dimension, np.float32))]
    )
    assert "Index Scan using" in str(plan.fetchall())


def test_pgvector_outside_the_search_path(empty_url, monkeypatch, tmp_path):
    engine = create_engine(empty_url)
    with connect(empty_url) as before:
        before.execute("CREATE SCHEMA extensions; ALTER EXTENSION vector SET SCHEMA extensions")
    with engine.begin() as upgraded:
        schema.upgrade(upgraded)
    engine.dispose()
    every = models.of_table

    def some(*arguments):
        return [one for one in every(*arguments) if one.name == "sign 4 bits"]

    monkeypatch.setattr(running, "of_table", some)
    with connect(empty_url) as connection:
        for dimension in (4, 2001):
            connection.execute(
                f"CREATE TABLE of_{dimension} (id int PRIMARY KEY, "
                f"v extensions.vector({dimension}))".encode()
            )
            connection.execute(
                f"INSERT INTO of_{dimension} SELECT i, (SELECT array_agg(sin(i * j)) "
                f"FROM generate_series(1, {dimension}) j)::extensions.vector "
                "FROM generate_series(1, 60) i".encode()
            )
            advice = tune_table(
                connection, f"of_{dimension}", "v", Goal(0.9, k=5), replace(QUICK, queries=20)
            )
            kinds = {one.kind for one in advice.trials}
            assert kinds >= {"exact", "pgvector"}, advice.left_out
            assert ("codes" in kinds) is (dimension == 4)
