"""Indexes on tables that Citus distributes: what is written for them, and what it answers."""

import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fixtures.checks import assert_fresh
from fixtures.citus import distribute_here, say_distributed
from fixtures.filters import look_codes_up
from numpy.typing import NDArray
from pgvector import Vector

from pg_hashindex import store
from pg_hashindex.database import Connection, connect
from pg_hashindex.errors import DatabaseStateError, InvalidInputError
from pg_hashindex.index import HashIndex, Ranking
from pg_hashindex.model import Model
from pg_hashindex.sampling import sample_table

pytestmark = pytest.mark.newest

TURNED = "embedding * '[-1,-1,-1,-1,-1,-1,-1,-1]'"
QUERY = Vector(np.linspace(-1, 1, 8).astype(np.float32))


@pytest.fixture
def spread(index: HashIndex) -> HashIndex:
    """An encoded index, once for each layout, as it is on a distributed table."""
    return distribute_here(index)


def test_without_citus_there_is_nothing_to_distribute(index: HashIndex) -> None:
    assert not index.distributed
    with pytest.raises(
        DatabaseStateError, match=r'index "items_idx" .* Citus is not installed in database'
    ):
        index.distribute()
    with pytest.raises(Exception, match="is not distributed by Citus"):
        encode_in_sql(index)
    assert_fresh(index)


def test_every_write_is_encoded(spread: HashIndex, vectors: NDArray[np.float32]) -> None:
    connection = spread.connection
    connection.execute("INSERT INTO items SELECT id + 1000, category, embedding FROM items")
    with (
        connection.cursor() as cursor,
        cursor.copy("COPY items (id, category, embedding) FROM STDIN") as copy,
    ):
        copy.write_row((5000, "c", str(QUERY.to_list())))
        copy.write_row((5001, "c", None))
    assert_fresh(spread)
    connection.execute(f"UPDATE items SET embedding = {TURNED} WHERE id <= 20".encode())
    connection.execute("UPDATE items SET embedding = NULL WHERE id BETWEEN 30 AND 40")
    connection.execute("UPDATE items SET embedding = %s WHERE id IN (35, 5001)", [QUERY])
    connection.execute("DELETE FROM items WHERE id BETWEEN 50 AND 60 OR id = 5000")
    connection.execute(
        "INSERT INTO items VALUES (1, 'a', %(v)s), (2000, 'b', %(v)s) "
        "ON CONFLICT (id) DO UPDATE SET embedding = excluded.embedding",
        {"v": QUERY},
    )
    assert_fresh(spread)
    row = connection.execute("SELECT count(embedding) FROM items").fetchone()
    assert row == (spread.summary().codes,) == (300 + 300 + 1 - 10 - 11 + 1,)


def test_an_update_of_another_column_encodes_nothing(spread: HashIndex) -> None:
    """Codes that are wrong on purpose must survive."""
    where = "hashindex.items_idx_codes SET code" if spread.layout == "table" else "items SET"
    column = "" if spread.layout == "table" else "items_idx_code"
    spread.connection.execute(f"UPDATE {where} {column} = ~{column or 'code'}".encode())
    spread.connection.execute("UPDATE items SET category = 'x'")
    with pytest.raises(AssertionError, match="stale"):
        assert_fresh(spread)


def test_triggers_of_the_user_that_write_to_the_row(spread: HashIndex) -> None:
    spread.connection.execute(
        "CREATE FUNCTION turn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF pg_trigger_depth() = 1 THEN "
        f"UPDATE items SET embedding = {TURNED} WHERE id = NEW.id; END IF; RETURN NULL; END $$;"
        "CREATE TRIGGER a_turn AFTER INSERT ON items FOR EACH ROW EXECUTE FUNCTION turn()".encode()
    )
    spread.connection.execute("INSERT INTO items SELECT id + 1000, 'd', embedding FROM items")
    assert_fresh(spread)


def test_bulk_encoding(index: HashIndex) -> None:
    before = index.summary()
    connection = index.connection
    connection.execute("INSERT INTO items VALUES (999, 'none', NULL)")
    if index.layout == "table":
        connection.execute(
            "DELETE FROM hashindex.items_idx_codes WHERE id <= 100;"
            f"INSERT INTO hashindex.items_idx_codes (id, code) VALUES (-1, {'0' * 12!r})".encode()
        )
    else:
        connection.execute("UPDATE items SET items_idx_code = NULL WHERE id <= 100")
    spread = distribute_here(index)
    assert spread.waiting() == 100
    with pytest.raises(InvalidInputError, match=r"rows_per_second is 5, and .* leave"):
        spread.encode(rows_per_second=5)
    assert spread.encode() == 100
    assert_fresh(spread)
    assert spread.encode() == 0
    # Where rows went, pages stay.
    assert replace(spread.summary(), code_bytes=0) == replace(before, code_bytes=0)
    assert spread.summary().code_bytes >= before.code_bytes > 0


def test_a_writer_beside_the_encoder_has_the_last_word(spread: HashIndex, url: str) -> None:
    stored = "hashindex.items_idx_codes" if spread.layout == "table" else "items"
    if spread.layout == "table":
        spread.connection.execute("DELETE FROM hashindex.items_idx_codes")
    else:
        spread.connection.execute("UPDATE items SET items_idx_code = NULL")
    with connect(url) as writer, ThreadPoolExecutor(1) as threads:
        with writer.transaction():
            writer.execute(f"UPDATE items SET embedding = {TURNED} WHERE id = 150".encode())
            encoder = threads.submit(spread.encode)
            until = time.monotonic() + 30
            while not waits_for_lock(writer, stored):
                assert time.monotonic() < until
                time.sleep(0.01)
        assert encoder.result(30) == 299
    assert_fresh(spread)


def waits_for_lock(connection: Connection, table: str) -> bool:
    row = connection.execute(
        "SELECT count(*) FROM pg_locks w JOIN pg_locks t USING (pid) "
        "WHERE NOT w.granted AND t.relation = %s::regclass AND t.pid <> pg_backend_pid()",
        [table],
    ).fetchone()
    return row is not None and row[0] > 0


def test_samples_are_drawn_row_by_row(index: HashIndex, vectors: NDArray[np.float32]) -> None:
    connection = index.connection
    say_distributed(connection, "items")
    first, second = (sample_table(connection, "items", "embedding", rows=100).X for _ in range(2))
    rows = {row.tobytes() for row in vectors}
    for drawn in (first, second):
        found = {row.tobytes() for row in drawn}
        assert len(found) == 100
        assert found < rows
    # Of a seed the shards know nothing.
    assert not np.array_equal(first, second)


def encode_in_sql(index: HashIndex) -> Any:
    with index.connection.transaction():
        row = index.connection.execute(
            "SELECT hashindex.encode_distributed(%s)", [index.name]
        ).fetchone()
    assert row is not None
    return row[0]


def test_codes_that_a_truncate_leaves_are_found_by_nobody(spread: HashIndex) -> None:
    spread.connection.execute("TRUNCATE items")
    assert spread.search(QUERY, 5) == []
    assert spread.within(QUERY, 12) == []
    assert encode_in_sql(spread) == 0
    assert_fresh(spread)


def by_code(index: HashIndex, where: str = "true") -> list[tuple[int, int, float]]:
    """Rows in the order of their codes: Hamming distance, key and exact distance."""
    rows = index.connection.execute(
        "SELECT bit_count(hashindex.encode('lsh', embedding) # hashindex.encode('lsh', %s)), "
        f"id, embedding <-> %s FROM items WHERE embedding IS NOT NULL AND ({where})".encode(),
        [QUERY, QUERY],
    ).fetchall()
    return sorted(rows)


def nearest(rows: list[tuple[int, int, float]]) -> list[tuple[int, float]]:
    return sorted(((key, exact) for _, key, exact in rows), key=lambda row: (row[1], row[0]))


def test_searches_answer_as_brute_force_does(spread: HashIndex) -> None:
    spread = spread.configure(ranking="hamming")
    rows = by_code(spread)
    for least in (15, 40, 300):
        # As many as are that near by code: which of those at the edge come in is open.
        kept = [row for row in rows if row[0] <= rows[least - 1][0]]
        found = spread.search(QUERY, 10, candidates=len(kept))
        assert [tuple(hit) for hit in found] == nearest(kept)[:10]


def test_searches_answer_as_those_of_a_plain_table(index: HashIndex) -> None:
    def ask(index: HashIndex) -> list[Any]:
        return [
            index.within(QUERY, 4),
            index.search(QUERY, 10, candidates=30),
            index.search_like(7, 10, candidates=30),
        ]

    before = ask(index)
    assert min(map(len, before)) > 3
    assert ask(distribute_here(index)) == before


@pytest.mark.parametrize("ranking", ["hamming", "asymmetric"])
def test_filters_restrict_the_candidates(spread: HashIndex, ranking: Ranking) -> None:
    """A name in them is the table's: codes have an id as well."""
    spread = spread.configure(ranking=ranking)
    look_codes_up(spread.connection)
    condition = "category = 'a' AND id > 20 AND items.id < 280"
    found = [tuple(hit) for hit in spread.search(QUERY, 10, candidates=20, filter=condition)]
    rows = by_code(spread, condition)
    assert len(found) == 10
    assert found == sorted(found, key=lambda row: (row[1], row[0]))
    assert set(found) <= set(nearest(rows))
    if ranking == "hamming":
        # Nothing that is surely among the candidates is left out.
        sure = nearest([row for row in rows if row[0] < rows[19][0]])
        assert sure
        for hit, other in zip(found, sure, strict=False):
            assert hit[1] <= other[1]


# What Citus takes on one shard alone; and what the coordinator does not know.
FORBIDDEN = {"TABLESAMPLE", "OFFSET", "LATERAL", "reltuples"}


def test_nothing_is_sampled_or_looked_up_row_by_row(spread: HashIndex) -> None:
    sources = spread.connection.execute(
        "SELECT prosrc FROM pg_proc WHERE proname ~ '^(candidates|search|within)_items_idx$'"
    ).fetchall()
    assert len(sources) == 3
    for (source,) in sources:
        # The expressions before the last of them read no table.
        _, begin, statements = re.sub(r"\n *BEGIN\n", "\nBEGIN\n", source).rpartition("\nBEGIN\n")
        assert begin
        assert not FORBIDDEN & set(re.findall(r"\w+", statements))


def test_what_distributed_tables_have_not(spread: HashIndex) -> None:
    for refused, message in (
        (lambda: spread.configure(access="lookup"), "has no access path lookup"),
        (lambda: spread.swap("lsh"), "models are not swapped"),
        (lambda: spread.repair(), "index repair does not work on distributed table"),
    ):
        with pytest.raises(DatabaseStateError, match=message):
            refused()
    spread.configure(candidates=77, ranking="hamming")
    assert_fresh(spread)


def test_what_cannot_be_distributed(
    connection: Connection, items: str, model: Model, known_model: Model
) -> None:
    store.save(connection, known_model)
    HashIndex.create(connection, "python", table=items, column="embedding", model="known")
    HashIndex.create(
        connection, "lists", table=items, column="embedding", model="lsh", access="landmarks"
    )
    HashIndex.create(
        connection, "kept", table=items, column="embedding", model="lsh",
        filter_columns=["category"],
    )  # fmt: skip
    HashIndex.create(connection, "swapped", table=items, column="embedding", model="lsh")
    connection.execute("SELECT hashindex.begin_swap('swapped', 'lsh')")
    for name, message in {
        "python": "evaluated in Python",
        "lists": "has the access path landmarks",
        "kept": "keeps filter columns beside its codes",
        "swapped": "has codes of two models",
        "swapped~2": "has codes of two models",
    }.items():
        with pytest.raises(Exception, match=message), connection.transaction():
            connection.execute(
                "SELECT hashindex._check_distributable(hashindex.find_index(%s))", [name]
            )


def test_health_and_drop_know_the_trigger(spread: HashIndex) -> None:
    def status() -> Any:
        return spread.connection.execute(
            "SELECT h.status, h.detail FROM hashindex.index i, hashindex._health_of_triggers(i) h"
        ).fetchone()

    assert status() == ("ok", "all there and enabled")
    name = "0_hashindex_items_idx" if spread.layout == "table" else "zz_hashindex_items_idx"
    spread.connection.execute(f'ALTER TABLE items DISABLE TRIGGER "{name}"'.encode())
    assert status()[0] == "broken"
    spread.drop()
    left = spread.connection.execute(
        "SELECT tgname FROM pg_trigger WHERE tgrelid = 'items'::regclass"
    ).fetchall()
    assert left == []
