"""Searches by pgvector's HNSW over the codes: never fewer answers than there are rows."""

import itertools

import numpy as np
import pytest
from fixtures.code_indexes import counted_reads, fill, save_signs, vectors_of
from numpy.typing import NDArray
from pgvector import Vector

from pg_hashindex.db.connection import Connection
from pg_hashindex.index.handle import HashIndex, Layout, Ranking

RANKINGS: tuple[Ranking, ...] = ("hamming", "asymmetric")


def by_hnsw(index: HashIndex) -> HashIndex:
    index = index.configure(access="hnsw")
    index.encode()
    index = HashIndex.open(index.connection, index.name)
    assert (index.access, index.building) == ("hnsw", None)
    return index


@pytest.mark.newest
def test_equals_a_scan_where_every_row_is_a_candidate(
    index: HashIndex, vectors: NDArray[np.float32]
) -> None:
    cases = list(itertools.product(vectors[:5] + 0.1, RANKINGS, [1, 10, 290, 400]))

    def answers() -> list[object]:
        return [
            index.configure(ranking=ranking).search(q, k, candidates=300) for q, ranking, k in cases
        ]

    scanned = answers()
    index = by_hnsw(index)
    assert answers() == scanned
    with counted_reads(index) as reads:
        # So few rows the planner would rather sort.
        index.connection.execute("SET LOCAL enable_seqscan TO off; DISCARD PLANS")
        assert answers() == scanned
    assert reads.by_index == len(cases)


@pytest.mark.parametrize("layout", ["table", "column"])
def test_a_large_table_is_searched_by_the_graph(connection: Connection, layout: Layout) -> None:
    """In plans for one call and in those kept; and it finds what a scan finds, nearly."""
    rng = np.random.default_rng(2)
    centres = rng.random((50, 64)) < 0.5
    bits = centres[rng.integers(0, 50, 6000)] ^ (rng.random((6000, 64)) < 0.1)
    vectors = vectors_of(bits, rng)
    model = save_signs(connection, 64)
    fill(connection, "things", vectors)
    index = HashIndex.create(
        connection, "i", table="things", column="embedding", model=model.name, layout=layout
    )
    index.encode()
    wanted = {r: [index.configure(ranking=r).search(q, 10) for q in vectors[:10]] for r in RANKINGS}
    index = by_hnsw(index)
    with counted_reads(index) as reads:
        for query in vectors[:10]:
            index.configure(ranking="hamming").search(query, 10, candidates=20)
    assert (reads.by_index, reads.scans) == (10, 0)
    for ranking in RANKINGS:
        with counted_reads(index) as reads:
            # For a thousand of six thousand codes the planner would rather sort them.
            connection.execute("SET LOCAL enable_seqscan TO off; DISCARD PLANS")
            found = [index.configure(ranking=ranking).search(query, 10) for query in vectors[:10]]
        assert (reads.by_index, reads.scans) == (10, 0)
        shared = [set(a) & set(b) for a, b in zip(found, wanted[ranking], strict=True)]
        assert sum(map(len, shared)) >= 95


def test_answers_are_as_many_as_there_are_rows(
    index: HashIndex, vectors: NDArray[np.float32]
) -> None:
    """If the graph ends among rows that are gone, and no vacuum has taken them out of it."""
    connection = index.connection
    index = by_hnsw(index)
    order = [hit.id for hit in index.search(vectors[0], 300, candidates=300)]
    connection.execute("DELETE FROM items WHERE id = ANY (%s)", [order[:200]])
    connection.execute("SET enable_seqscan TO off; SET hnsw.max_scan_tuples TO 1")
    for ranking, k in itertools.product(RANKINGS, [1, 20, 100, 150]):
        hits = index.configure(ranking=ranking).search(vectors[0], k, candidates=k)
        assert len(hits) == min(k, 100)
        assert {hit.id for hit in hits} <= set(order[200:])
    connection.execute("INSERT INTO items VALUES (900, 'a', %s)", [Vector(vectors[0])])
    assert index.search(vectors[0], 1)[0].id == 900
    connection.execute("TRUNCATE items")
    assert index.search(vectors[0], 5) == []


def test_more_candidates_than_pgvector_takes_at_once(
    index: HashIndex, vectors: NDArray[np.float32]
) -> None:
    index = by_hnsw(index)
    hits = index.search(vectors[0], 10, candidates=2**31 - 2)
    assert hits == index.search(vectors[0], 10, candidates=300)


def test_settings_of_the_session_stay(index: HashIndex, vectors: NDArray[np.float32]) -> None:
    index = by_hnsw(index)
    connection = index.connection
    connection.execute("SET hnsw.ef_search TO 77")
    with connection.transaction():
        connection.execute("SET TRANSACTION READ ONLY")
        assert len(index.search(vectors[0], 10)) == 10
        assert connection.execute("SHOW hnsw.ef_search").fetchone() == ("77",)
    assert connection.execute("SHOW hnsw.ef_search").fetchone() == ("77",)
