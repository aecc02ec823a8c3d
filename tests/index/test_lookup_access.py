"""Rows within a Hamming radius, and searches by look-up: what brute force and a scan give."""

import itertools
from typing import Any

import numpy as np
import psycopg
import pytest
from fixtures.code_indexes import counted_reads, fill, pretend_large, save_signs, vectors_of
from fixtures.items import one_layout
from fixtures.known import OTHERS
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pgvector import Vector
from psycopg import sql

from pg_hashindex.db.connection import Connection
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.index.handle import HashIndex, Layout, Ranking, list_indexes
from pg_hashindex.index.search import Hit
from pg_hashindex.models.codes import hamming_distances
from pg_hashindex.models.model import Model


def value(connection: Connection, expression: str) -> Any:
    row = connection.execute(f"SELECT {expression}".encode()).fetchone()
    assert row is not None
    return row[0]


@pytest.mark.parametrize("width", [1, 2, 7, 10])
def test_masks_are_every_value_with_few_bits(connection: Connection, width: int) -> None:
    for radius in range(width + 1):
        wanted = [v for v in range(2**width) if v.bit_count() <= radius]
        masks = value(connection, f"hashindex._hamming_masks({width}, {radius})")
        assert sorted(masks) == wanted
        assert [mask.bit_count() for mask in masks] == sorted(v.bit_count() for v in wanted)


def test_masks_of_many_bits(connection: Connection) -> None:
    bits = range(30)
    wanted = {
        sum(1 << b for b in chosen) for n in range(4) for chosen in itertools.combinations(bits, n)
    }
    assert set(value(connection, "hashindex._hamming_masks(30, 3)")) == wanted
    sizes = [value(connection, f"cardinality(hashindex._hamming_masks(30, {n}))") for n in range(5)]
    assert sizes == [1, 31, 466, 4526, 31931]


@pytest.mark.newest
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("0, 0", "width is 0; it must be 1 to 30"),
        ("31, 0", "width is 31; it must be 1 to 30"),
        ("8, -1", "radius is -1; it must be 0 to the width"),
        ("8, 9", "radius is 9; it must be 0 to the width"),
        ("30, 8", "radius is 8; it must be 0 to the width, and to 7 where that is above 14"),
    ],
)
@pytest.mark.reads
def test_masks_that_are_refused(connection: Connection, arguments: str, message: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=message):
        value(connection, f"hashindex._hamming_masks({arguments})")


@pytest.mark.newest
@pytest.mark.parametrize(
    ("n_bits", "rows", "chunks"),
    [
        (1, 0, 1),
        (64, 300, 4),  # 16 bits at least, since tables grow
        (128, 1_000_000, 6),  # 19.9 bits a row
        (256, 1 << 32, 9),  # 30 bits at most
        (16_000, 1_000_000, 32),  # each chunk is a b-tree
    ],
)
def test_chunks_have_about_as_many_values_as_there_are_rows(
    connection: Connection, n_bits: int, rows: int, chunks: int
) -> None:
    assert value(connection, f"hashindex._lookup_chunks({n_bits}, {rows})") == chunks
    cut = connection.execute(
        "SELECT chunk, first_bit, width FROM hashindex._code_chunks(%s, %s)", [n_bits, chunks]
    ).fetchall()
    assert [number for number, _, _ in cut] == list(range(1, chunks + 1))
    widths = [width for _, _, width in cut]
    assert sum(widths) == min(n_bits, 30 * chunks)
    assert max(widths) - min(widths) <= 1
    assert max(widths) <= 30
    assert [first for _, first, _ in cut] == [1 + sum(widths[:n]) for n in range(chunks)]


def made_bits(n_bits: int, rows: int, kind: str, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Codes (rows, n_bits): drawn one by one, around a few of them, or a few of them again."""
    if kind == "uniform" or not rows:
        return rng.random((rows, n_bits)) < 0.5
    centres = rng.random((4, n_bits)) < 0.5
    flipped = rng.random((rows, n_bits)) < (0.08 if kind == "clustered" else 0.0)
    return centres[rng.integers(0, 4, rows)] ^ flipped


def brute_force(
    model: Model, vectors: NDArray[np.float32], query: NDArray[np.float32], radius: int
) -> list[Hit]:
    far = hamming_distances(model.encode(query[None]), model.encode(vectors))[0]
    return [
        Hit(int(row) + 1, int(far[row]))
        for row in np.argsort(far, kind="stable")
        if far[row] <= radius
    ]


@pytest.mark.parametrize("layout", ["table", "column"])
def test_however_the_bits_that_differ_fall_to_the_chunks(
    connection: Connection, layout: Layout
) -> None:
    """Up to four bits in each of three chunks: what a radius of one of them too few would miss."""
    counts = list(itertools.product(range(5), repeat=3))[::-1]
    bits = np.array([np.concatenate([np.arange(16) < count for count in row]) for row in counts])
    vectors = vectors_of(bits, np.random.default_rng(0))
    query = np.full(48, -1, dtype=np.float32)
    model = save_signs(connection, 48)
    fill(connection, "things", vectors)
    index = HashIndex.create(
        connection, "i", table="things", column="embedding", model=model.name, layout=layout
    )
    index.encode()
    # As many as are within each radius, and one less: a tie at the edge goes by the key.
    sizes = [len(brute_force(model, vectors, query, radius)) for radius in range(9)]
    cases = [k for size in sizes for k in (size - 1, size) if k]
    index = index.configure(ranking="hamming")
    code = np.zeros(48, dtype=bool)

    def bits_that_differ() -> list[list[int]]:
        # Which of those at the edge come in is nobody's promise.
        return [
            sorted(
                int((bits[hit.id - 1] != code).sum())
                for hit in index.search(query, k, candidates=k)
            )
            for k in cases
        ]

    scanned = bits_that_differ()
    index = index.configure(access="lookup")
    index.encode()
    assert HashIndex.open(connection, "i").chunks == 3
    pretend_large(index)
    with counted_reads(index) as reads:
        # Chunks that have five values the planner would not look up.
        connection.execute("SET LOCAL enable_seqscan TO off")
        for radius in range(12):
            assert index.within(query, radius) == brute_force(model, vectors, query, radius)
    # Each chunk each time, but one of three with radius 0, and two with 1. PostgreSQL 16 counts
    # each value that is looked up.
    assert reads.by_index >= 33
    assert reads.scans == 0
    with connection.transaction():
        connection.execute("SET LOCAL enable_seqscan TO off")
        assert scanned == bits_that_differ()


@pytest.mark.slow
@pytest.mark.newest
@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
    # An example takes a second: to shrink one that fails would take minutes.
    phases=[Phase.generate],
)
@given(
    n_bits=st.integers(1, 300),
    rows=st.integers(0, 300),
    kind=st.sampled_from(["uniform", "clustered", "repeated"]),
    layout=st.sampled_from(["table", "column"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_equals_brute_force_and_a_scan(
    connection: Connection, n_bits: int, rows: int, kind: str, layout: Layout, seed: int
) -> None:
    """The look-ups themselves run: the codes pass for so many that no scan would pay."""
    rng = np.random.default_rng(seed)
    bits = made_bits(n_bits, rows, kind, rng)
    vectors = vectors_of(bits, rng)
    queries = vectors_of(
        np.concatenate([bits[:2] ^ (rng.random((len(bits[:2]), n_bits)) < 0.03), bits[2:3]])
        if rows
        else np.ones((1, n_bits), dtype=bool),
        rng,
    )
    with connection.transaction():
        for left in list_indexes(connection):
            left.drop()
        connection.execute("DROP TABLE IF EXISTS things; DELETE FROM hashindex.model")
        model = save_signs(connection, n_bits)
        fill(connection, "things", vectors)
    index = HashIndex.create(
        connection, "i", table="things", column="embedding", model=model.name, layout=layout
    )
    index.encode()

    def answers() -> list[Any]:
        rankings: tuple[Ranking, ...] = ("hamming", "asymmetric")
        return [
            ranked.search(query, k, candidates=400)
            for ranked in (index.configure(ranking=ranking) for ranking in rankings)
            for query, k in itertools.product(queries, (1, 10, 400))
        ]

    def within() -> list[Any]:
        return [index.within(query, radius) for query, radius in itertools.product(queries, radii)]

    radii = sorted({0, min(3, n_bits), n_bits // 8, n_bits // 3, n_bits})
    wanted = [brute_force(model, vectors, q, r) for q, r in itertools.product(queries, radii)]
    scanned = answers()
    assert within() == wanted
    index = index.configure(access="lookup")
    index.encode()
    assert (within(), answers()) == (wanted, scanned)
    pretend_large(index)
    with counted_reads(index) as reads:
        # If codes are all alike, the planner prefers to read the table.
        connection.execute("SET LOCAL enable_seqscan TO off")
        assert (within(), answers()) == (wanted, scanned)
    assert reads.by_index > 0 or not rows


@pytest.mark.newest
@pytest.mark.parametrize("layout", ["table", "column"])
def test_the_pool_is_filled_from_look_ups(connection: Connection, layout: Layout) -> None:
    """By every ranking, and without a scan of the codes, which would answer the same."""
    rng = np.random.default_rng(4)
    centres = rng.random((3, 40)) < 0.5
    bits = centres[rng.integers(0, 3, 9000)] ^ (rng.random((9000, 40)) < 0.12)
    vectors = vectors_of(bits, rng)
    model = save_signs(connection, 40, weighted=True)
    fill(connection, "things", vectors)
    index = HashIndex.create(
        connection, "i", table="things", column="embedding", model=model.name, layout=layout
    )
    index.encode()
    query = vectors_of(centres[:1], rng)[0]
    rankings: tuple[Ranking, ...] = ("hamming", "asymmetric", "weighted")
    scanned = [
        index.configure(ranking=ranking).search(query, 150, candidates=150) for ranking in rankings
    ]
    index = index.configure(access="lookup")
    index.encode()
    pretend_large(index)
    for ranking, wanted in zip(rankings, scanned, strict=True):
        with counted_reads(index) as reads:
            found = index.configure(ranking=ranking).search(query, 150, candidates=150)
        assert len(found) == 150
        # Which of those that are equal by code come in is nobody's promise.
        if ranking != "hamming":
            assert len(set(found) & set(wanted)) >= 135
        assert reads.by_index >= 2
        assert reads.scans == 0


@pytest.mark.parametrize("layout", ["table", "column"])
def test_the_plan_is_of_the_b_trees(connection: Connection, layout: Layout) -> None:
    """A large table, at any radius that pays, in plans for one call and in those kept."""
    rng = np.random.default_rng(0)
    bits = rng.random((20_000, 48)) < 0.5
    model = save_signs(connection, 48)
    fill(connection, "things", vectors_of(bits, rng))
    index = HashIndex.create(
        connection,
        "i",
        table="things",
        column="embedding",
        model=model.name,
        layout=layout,
        access="lookup",
    )
    index.encode()
    query = vectors_of(bits[:1], rng)[0]
    for _, (radius, by_index) in itertools.product(range(8), [(0, 1), (2, 3), (5, 3), (20, 0)]):
        with counted_reads(index) as reads:
            hits = index.within(query, radius)
        assert hits[0] == (1, 0)
        assert (reads.by_index > 0, reads.scans == 0) == (by_index > 0, by_index > 0), radius


@pytest.mark.parametrize("access", ["scan", "lookup"])
def test_rows_that_change_or_go(index: HashIndex, access: Any) -> None:
    index = index.configure(access=access)
    index.encode()
    connection = index.connection
    pretend_large(index)
    row = connection.execute("SELECT embedding FROM items WHERE id = 5").fetchone()
    assert row is not None
    query: Vector = row[0]
    assert 5 in {hit.id for hit in index.within(query, 0)}
    connection.execute("INSERT INTO items VALUES (900, 'a', %s)", [query])
    connection.execute("UPDATE items SET embedding = %s WHERE id = 7", [query])
    connection.execute("UPDATE items SET embedding = NULL WHERE id = 5")
    found = {hit.id for hit in index.within(query, 0)}
    assert {900, 7} <= found
    assert 5 not in found
    connection.execute("DELETE FROM items WHERE id IN (7, 900)")
    assert index.within(query, 0) == [hit for hit in index.within(query, 12) if hit.distance == 0]
    assert not {5, 7, 900} & {hit.id for hit in index.within(query, 12)}
    # While no trigger was there to see it.
    connection.execute("ALTER TABLE items DISABLE TRIGGER ALL; DELETE FROM items WHERE id <> 8")
    assert [hit.id for hit in index.within(query, 12)] == [8]
    connection.execute("TRUNCATE items")
    assert index.within(query, 12) == []


@pytest.mark.parametrize("access", ["scan", "lookup"])
def test_rows_that_may_not_be_seen(index: HashIndex, access: Any) -> None:
    index = index.configure(access=access)
    index.encode()
    connection = index.connection
    pretend_large(index)
    visible = [hit for hit in index.within(np.ones(8), 12) if "abc"[(hit.id - 1) % 3] == "b"]
    assert len(visible) == 100
    connection.execute(
        "ALTER TABLE items ENABLE ROW LEVEL SECURITY;"
        "CREATE POLICY own ON items USING (category = 'b');"
        "CREATE ROLE near_reader; GRANT SELECT ON items TO near_reader;"
        "SELECT hashindex.grant_reader('items_idx', 'near_reader', true); SET ROLE near_reader"
    )
    try:
        assert index.within(np.ones(8), 12) == visible
        assert index.within(np.ones(8), 2) == [hit for hit in visible if hit.distance <= 2]
    finally:
        connection.execute("RESET ROLE; DROP OWNED BY near_reader; DROP ROLE near_reader")


def test_like_a_row(index: HashIndex, model: Model, vectors: NDArray[np.float32]) -> None:
    wanted = brute_force(model, vectors, vectors[4], 3)
    assert index.within(vectors[4], 3) == wanted
    assert index.within_like(5, 3) == [hit for hit in wanted if hit.id != 5]
    with pytest.raises(InvalidInputError, match="no row with id = 999"):
        index.within_like(999, 3)


@one_layout
@pytest.mark.newest
@pytest.mark.parametrize("access", ["scan", "lookup"])
@pytest.mark.parametrize("radius", [-1, 13, 2**40, None, 1.5, "3"])
def test_a_radius_that_no_code_can_have(index: HashIndex, access: Any, radius: Any) -> None:
    index = index.configure(access=access)
    index.encode()
    what = f"radius is {radius}; it must be 0 to 12"
    if not isinstance(radius, int):
        what = f"radius must be an integer, got {radius!r}"
    with pytest.raises(InvalidInputError, match=what):
        index.within(np.ones(8), radius)
    if isinstance(radius, int) and radius > 2**31:
        return
    if radius is None or isinstance(radius, int):
        with pytest.raises(
            psycopg.Error, match=f"radius is {radius or 'NULL'}; it must be 0 to 12"
        ):
            index.connection.execute(
                "SELECT * FROM hashindex.within_items_idx('[1,2,3,4,5,6,7,8]', %s)", [radius]
            )


@pytest.mark.newest
@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("within_items_idx(NULL, 3)", "query vector is NULL"),
        ("within_items_idx('[1,2,3]', 3)", "3 dimensions, the model takes 8"),
    ],
)
def test_refused_in_sql(index: HashIndex, call: str, message: str) -> None:
    with pytest.raises(psycopg.Error, match=message):
        index.connection.execute(f"SELECT * FROM hashindex.{call}".encode())


def test_in_a_read_only_transaction_and_under_any_search_path(index: HashIndex) -> None:
    index = index.configure(access="lookup")
    index.encode()
    pretend_large(index)
    before = index.within(np.ones(8), 4)
    with index.connection.transaction():
        index.connection.execute("SET TRANSACTION READ ONLY")
        index.connection.execute("SET LOCAL search_path TO ''")
        assert index.within(np.ones(8), 4) == before


def test_of_an_index_that_python_encodes(encoded: HashIndex, vectors: NDArray[np.float32]) -> None:
    wanted = brute_force(encoded.loaded_model, vectors[:290], vectors[4], 4)
    scanned = encoded.search(vectors[4], 7)
    for access in ("scan", "lookup"):
        index = encoded.configure(access=access)  # type: ignore[arg-type]
        index.encode()
        pretend_large(index)
        assert index.within(vectors[4], 4) == wanted
        assert index.within_like(5, 4) == [hit for hit in wanted if hit.id != 5]
        assert index.search(vectors[4], 7) == scanned
        with pytest.raises(InvalidInputError, match="has no code for this query"):
            index.within(OTHERS[-1], 4)
        with pytest.raises(psycopg.Error, match="query_code has 3 bits"):
            index.connection.execute(
                "SELECT * FROM hashindex.within_items_idx(%s, 4, B'101')", [Vector(vectors[4])]
            )


def test_keys_and_names_of_any_kind(connection: Connection, model: Model) -> None:
    connection.execute(
        'CREATE SCHEMA "My Shop"; CREATE TABLE "My Shop"."All ""Items""" '
        '("The % Key" text PRIMARY KEY, "far" vector(8));'
        'INSERT INTO "My Shop"."All ""Items""" VALUES (\'x\', \'[1,2,3,4,5,6,7,8]\')'
    )
    name = "Distance-1"
    for layout in ("table", "column"):
        index = HashIndex.create(
            connection,
            name,
            table='"My Shop"."All ""Items"""',
            column="far",
            model=model.name,
            layout=layout,  # type: ignore[arg-type]
            access="lookup",
        )
        assert index.encode() == 1
        pretend_large(index)
        assert index.within(np.arange(1, 9), 2) == [("x", 0)]
        assert index.within_like("x", 12) == []
        assert [hit.id for hit in index.search(np.arange(1, 9), 2)] == ["x"]
        row = connection.execute(
            sql.SQL(
                "SELECT pg_typeof(id)::text, pg_typeof(distance)::text "
                "FROM hashindex.{}('[1,2,3,4,5,6,7,8]', 3)"
            ).format(sql.Identifier(f"within_{name}"))
        ).fetchone()
        assert row == ("text", "integer")
        index.drop()
