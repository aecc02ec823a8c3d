"""The gate of a swap by labels: models that learned from them find fewer of the nearest rows."""

import numpy as np
import pytest
from pgvector import Vector

from pg_hashindex import operations, store
from pg_hashindex.errors import InvalidInputError, LowerRecallError
from pg_hashindex.hashers import ITQ, SDH
from pg_hashindex.index.handle import HashIndex

pytestmark = pytest.mark.newest

RNG = np.random.default_rng(0)
KINDS = RNG.integers(0, 3, 600)
#: The kind is in the first numbers of a row; the others are larger, and say nothing about it.
ROWS = np.hstack(
    [np.eye(3)[KINDS] + 0.3 * RNG.standard_normal((600, 3)), RNG.normal(0, 2, (600, 5))]
)


@pytest.fixture
def index(connection):
    connection.execute(
        "CREATE TABLE things (id bigint PRIMARY KEY, kind text, other integer, embedding vector(8))"
    )
    connection.cursor().executemany(
        "INSERT INTO things VALUES (%s, %s, NULL, %s)",
        [(n, f"kind {KINDS[n]}", Vector(row)) for n, row in enumerate(ROWS)],
    )
    X = ROWS.astype(np.float32)
    for name, hasher in (("near", ITQ(n_bits=8)), ("kinds", SDH(n_bits=8, n_anchors=100))):
        model = hasher.fit(X, KINDS).to_model(name, metric="l2")
        store.save(connection, model)
    found = HashIndex.create_lists(
        connection, "things_idx", table="things", column="embedding", model="near"
    ).configure(candidates=40)
    found.encode()
    return found


def test_labels_decide(index):
    hint = r"recall@10 falls .*kinds:1 learned from labels: .*\(--labels COLUMN\)"
    with pytest.raises(LowerRecallError, match=hint):
        operations.swap(index, "kinds")
    done = operations.swap(index, "kinds", labels="kind")
    assert done.map_after > done.map_before + 0.1
    assert done.after.recall < done.before.recall - 0.01
    assert HashIndex.open(index.connection, "things_idx").model == "kinds"
    operations.prune(index)
    hint = "MAP of labels kind falls from 0.* to 0.*, by more"
    with pytest.raises(LowerRecallError, match=hint):
        operations.swap(index, "near", labels="kind")
    # By recall it is the better one.
    assert operations.swap(index, "near").map_after is None


def test_labels_that_are_none(index):
    with pytest.raises(InvalidInputError, match="other"):
        operations.swap(index, "kinds", labels="other")
    with pytest.raises(InvalidInputError, match="no column"):
        operations.swap(index, "kinds", labels="nothing")
    assert HashIndex.open(index.connection, "things_idx").model == "near"
