"""Swaps to, from and between models that only Python evaluates."""

import numpy as np
import pytest
from fixtures.checks import assert_fresh
from fixtures.known import OTHERS, UNKNOWN, assert_queued

from pg_hashindex import operations, store
from pg_hashindex.db.connection import connect
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.models.model import Model
from pg_hashindex.models.network import known_rows

pytestmark = pytest.mark.newest

UNKNOWN_KEYS = list(range(UNKNOWN[0], UNKNOWN[1] + 1))


def reopened(index):
    return HashIndex.open(index.connection, index.name)


@pytest.fixture
def reversed_model(connection, vectors, lsh_model):
    """Knows the same rows, and gives them codes whose bits are all the other way round."""
    rows = np.concatenate([vectors[: UNKNOWN[0] - 1], OTHERS[:10]])
    bits = np.unpackbits(lsh_model.encode(rows), axis=1)[:, :12]
    turned = np.packbits(1 - bits, axis=1)
    return store.save(
        connection, Model("reversed", "byhand", 8, (), network=known_rows(rows, turned, 12))
    )


def test_open_handles_use_the_swapped_model(url, encoded, reversed_model):
    with connect(url) as second:
        before = HashIndex.open(second, "items_idx")
        expected = [before.search(query, 5, candidates=20) for query in OTHERS[:10]]
        balls = [before.within(query, 4) for query in OTHERS[:10]]
        # Its model is read, and stays in memory.
        operations.swap(encoded, "reversed", force=True, queries=20)
        # Codes that are turned rank as they did; by the old code for a query nothing would be near.
        assert [before.search(query, 5, candidates=20) for query in OTHERS[:10]] == expected
        assert [before.within(query, 4) for query in OTHERS[:10]] == balls
        assert before.search_like(7, 5, candidates=20) == reopened(encoded).search_like(
            7, 5, candidates=20
        )
    now = reopened(encoded)
    assert now.model == "reversed"
    assert_queued(now, UNKNOWN_KEYS)
    operations.rollback(encoded)
    assert_queued(reopened(encoded), UNKNOWN_KEYS)


def test_from_python_to_sql_and_back(url, encoded, lsh_model, vectors):
    """The search functions take other arguments then."""
    store.save(encoded.connection, lsh_model)
    with connect(url) as second:
        before = HashIndex.open(second, "items_idx")
        before.search(OTHERS[0])
        operations.swap(encoded, "lsh", force=True, queries=20)
        now = reopened(encoded)
        assert now.encoded_in == "sql"
        assert_fresh(now)
        # Every row has a code now, and any query one.
        far = np.linalg.norm(vectors - OTHERS[15], axis=1)
        expected = (np.argsort(far, kind="stable")[:5] + 1).tolist()
        assert [hit.id for hit in before.search(OTHERS[15], 5, candidates=300)] == expected
        by_sql = HashIndex.open(second, "items_idx")
        operations.rollback(encoded)
        assert reopened(encoded).encoded_in == "python"
        assert by_sql.search(OTHERS[0], 5) == before.search(OTHERS[0], 5)
        assert len(by_sql.search(OTHERS[0], 5)) == 5
    operations.prune(encoded)
    assert_queued(reopened(encoded), UNKNOWN_KEYS)
