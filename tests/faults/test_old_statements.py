"""A statement that began before a switch calls the search function after it."""

import threading

import numpy as np
import psycopg
import pytest
from faults.scenarios import PLAIN, after, change_access, prune, swap
from faults.tables import OTHERS, VECTORS
from fixtures.faults import eventually, record
from pgvector import Vector

from pg_hashindex.db.connection import connect
from pg_hashindex.index import build
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.index.landmarks import building

QUERY = OTHERS[0]
_HELD = 77
_SEARCH = (
    f"WITH held AS MATERIALIZED (SELECT pg_advisory_lock({_HELD})) "
    "SELECT s.distance FROM held, LATERAL hashindex.search_items_idx(%s, 10, 100000, 1000) s"
)
INSERT = "INSERT INTO items VALUES (%s, 'n', %s::real[]::vector)"
_WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


@pytest.fixture
def url(fault_server, installed):
    fault_server.up()
    url = fault_server.database(installed)
    PLAIN(url)
    yield url
    fault_server.drop(url)


@pytest.mark.parametrize(
    ("step", "switch"),
    [
        (change_access("lists"), (building.ListBuild, "_finish")),
        (swap("other"), (build, "_use")),
        (swap("other", "lists"), (build, "_use")),
    ],
    ids=["lists", "swap", "swap-to-landmarks"],
)
def test_it_finds_what_it_sees(url, monkeypatch, step, switch):
    """With rows listed by triggers before it began, and all others after."""
    found = []
    statement = []
    original = getattr(*switch)

    def search():
        with connect(url) as session:
            found.extend(d for (d,) in session.execute(_SEARCH, [Vector(QUERY)]).fetchall())

    with psycopg.connect(url, autocommit=True) as holder:
        holder.execute(f"SELECT pg_advisory_lock({_HELD})".encode())

        def held_up(*arguments):
            if not statement:
                holder.execute("UPDATE items SET embedding = embedding + embedding WHERE id <= 40")
                holder.execute("DELETE FROM items WHERE id BETWEEN 41 AND 80")
                # The nearest ones, which the last keys alone bring codes of.
                for key in (5001, 5002, 5003):
                    holder.execute(INSERT, [key, QUERY.tolist()])
                statement.append(threading.Thread(target=search))
                statement[0].start()
                eventually(lambda: holder.execute(_WAITING).fetchone() == (1,))
            return original(*arguments)

        monkeypatch.setattr(*switch, held_up)
        step(url)
        holder.execute(f"SELECT pg_advisory_unlock({_HELD})".encode())
        statement[0].join()
    now = np.concatenate([2 * VECTORS[:40], VECTORS[80:], [QUERY] * 3]).astype(np.float64)
    wanted = np.sort(np.linalg.norm(now - QUERY, axis=1))[:10]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    record("statements older than a switch", operations=1, faults=1, rows=len(now))


def test_a_snapshot_that_knows_other_codes_of_the_same_name(fault_server, installed):
    """Swapped to and fro, and pruned: names of storage come again."""
    fault_server.up()
    url = fault_server.database(installed)
    after(PLAIN, swap("other"), prune)(url)
    wanted = np.sort(np.linalg.norm(VECTORS.astype(np.float64) - QUERY, axis=1))[:10]
    with connect(url) as session, session.transaction():
        session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        # A snapshot, and no lock that would keep codes from being dropped.
        session.execute("SELECT 1")
        after(swap("lsh"), prune, swap("other"))(url)
        found = HashIndex.open(session, "items_idx").search(QUERY, 10, candidates=10_000)
    np.testing.assert_allclose([hit.distance for hit in found], wanted, rtol=1e-5)
    fault_server.drop(url)
