"""An index moves to the vectors of another embedding model, in a column of their own."""

import numpy as np
import psycopg
import pytest
from fixtures.checks import assert_fresh, former
from pgvector import Vector

from pg_hashindex import operations, store
from pg_hashindex.errors import DatabaseStateError, HashIndexError, InvalidInputError
from pg_hashindex.hashers import LSH
from pg_hashindex.index.handle import HashIndex

WIDE = 20


@pytest.fixture
def wide(index):
    """Other vectors of the rows 1 to 300, in a column that is still empty, and a model of them."""
    rows = np.random.default_rng(8).standard_normal((300, WIDE)).astype(np.float32)
    index.connection.execute(f"ALTER TABLE items ADD COLUMN wide vector({WIDE})".encode())
    store.save(index.connection, LSH(n_bits=24, random_state=5).fit(rows).to_model("wide"))
    return rows


def fill(index, rows):
    with index.connection.cursor() as cursor:
        cursor.executemany(
            "UPDATE items SET wide = %s WHERE id = %s",
            [(Vector(row), i + 1) for i, row in enumerate(rows)],
        )


def nearest(rows, query):
    return (np.argsort(np.linalg.norm(rows - query, axis=1), kind="stable")[:10] + 1).tolist()


def found(index, query):
    return [hit.id for hit in index.search(query, 10, candidates=300)]


@pytest.mark.newest
@pytest.mark.parametrize("access", ["scan"])
def test_searches_move_to_the_other_column_and_back(index, vectors, wide, access):
    fill(index, wide)
    done = index.swap(model="wide", column="wide", access=access, force=True)  # type: ignore[arg-type]
    assert done.former_recall is not None
    assert done.recall is not None
    assert index.row.column_name == "wide"
    assert found(index, wide[3]) == nearest(wide, wide[3])
    with pytest.raises(InvalidInputError, match="8 dimensions"):
        index.search(vectors[3])
    # Both columns are written on, and codes of both follow.
    other = np.full(WIDE, 9, np.float32)
    index.connection.execute(
        "UPDATE items SET wide = %s, embedding = embedding * '[2,2,2,2,2,2,2,2]' WHERE id = 7",
        [Vector(other)],
    )
    assert found(index, other)[0] == 7
    assert_fresh(HashIndex.open(index.connection, index.name))
    assert_fresh(former(index))
    index.rollback()
    assert index.row.column_name == "embedding"
    changed = vectors.copy()
    changed[6] *= 2
    assert found(index, vectors[3]) == nearest(changed, vectors[3])
    index.rollback()
    index.prune()
    assert found(index, other)[0] == 7
    assert operations.check(index).status == "ok"


@pytest.mark.newest
def test_a_renamed_column_while_the_former_codes_are_there(index, wide):
    """The codes beside stay bound to their own column."""
    fill(index, wide)
    index.swap(model="wide", column="wide", force=True)
    index.connection.execute("ALTER TABLE items RENAME wide TO vectors")
    operations.rebind(index, column="vectors")
    assert index.row.column_name == "vectors"
    assert former(index).column_name == "embedding"
    assert found(index, wide[3]) == nearest(wide, wide[3])
    assert_fresh(HashIndex.open(index.connection, index.name))
    assert_fresh(former(index))


@pytest.mark.newest
def test_the_former_column_is_dropped_before_its_codes(index, wide):
    """PostgreSQL refuses; by CASCADE the triggers go too, and writers are left alone."""
    fill(index, wide)
    index.swap(model="wide", column="wide", force=True)
    with pytest.raises(psycopg.errors.DependentObjectsStillExist, match="hashindex_items_idx"):
        index.connection.execute("ALTER TABLE items DROP COLUMN embedding")
    index.connection.execute("ALTER TABLE items DROP COLUMN embedding CASCADE")
    index.connection.execute("UPDATE items SET wide = NULL WHERE id = 2")
    (table,) = [f for f in operations.check(index).findings if f.check == "table"]
    assert (table.status, table.advice) == (
        "broken", "if it was dropped: pg-hashindex index prune items_idx",
    )  # fmt: skip
    assert "writes fail" in table.detail
    with pytest.raises(InvalidInputError, match="index prune items_idx"):
        operations.repair(index)
    index.prune()
    operations.repair(index)
    index.connection.execute("UPDATE items SET category = 'new' WHERE id = 1")
    assert operations.check(index).status == "ok"


@pytest.mark.newest
def test_recall_is_that_of_each_column_by_its_own_vectors(index, wide):
    fill(index, wide)
    done = index.swap(model="wide", column="wide", force=True)
    assert done.recall is not None
    drawn = index.connection.execute(
        "SELECT id FROM items ORDER BY hashtextextended(id::text, 0) LIMIT 100"
    ).fetchall()
    hits = 0
    for (row,) in drawn:
        order = np.argsort(np.linalg.norm(wide - wide[row - 1], axis=1), kind="stable")
        true = [int(key) + 1 for key in order if key != row - 1][:10]
        found = index.search_like(row, 10, candidates=done.candidates)
        hits += len(set(true) & {hit.id for hit in found})
    assert done.recall == pytest.approx(hits / 1000)


def test_a_column_that_lacks_vectors_is_refused(index, vectors, wide):
    fill(index, wide[:297])
    with pytest.raises(DatabaseStateError, match="3 rows of .*items.* have a vector in column"):
        index.swap(model="wide", column="wide")
    assert index.row.column_name == "embedding"
    assert found(index, vectors[3]) == nearest(vectors, vectors[3])
    fill(index, wide)
    # The run goes on where it was cut off, and the triggers have written the last three codes.
    index.swap(model="wide", column="wide", tolerance=1)
    assert found(index, wide[299])[0] == 300


def test_rows_without_the_new_vector_are_left_out_if_forced(index, wide):
    fill(index, wide[:297])
    index.swap(model="wide", column="wide", force=True)
    assert len(index.search(wide[0], 300, candidates=300)) == 297


@pytest.mark.parametrize(
    ("taken", "column", "says"),
    [
        ("wide", None, "index swap --column"),
        ("wide", "embedding", "index swap --column"),
        ("wide", "missing", 'column "missing"'),
        ("wide", "category", "category"),
        ("lsh", "wide", "dimension"),
    ],
)
def test_misfits_are_refused(index, wide, taken, column, says):
    fill(index, wide)
    before = index.row
    with pytest.raises(HashIndexError, match=says):
        index.swap(model=taken, column=column)
    assert index.row == before
    rows = index.connection.execute("SELECT name FROM hashindex.index").fetchall()
    assert rows == [("items_idx",)]


def test_a_swap_that_is_under_way_keeps_its_column(index, wide):
    fill(index, wide)
    index.connection.execute("ALTER TABLE items ADD COLUMN wider vector(20)")
    index.connection.execute(
        "SELECT hashindex._begin_swap('items_idx', 'wide', NULL, NULL, 'wide', NULL, false)"
    )
    with pytest.raises(HashIndexError, match="is being swapped to another set: codes of wide:1"):
        index.swap(model="wide", column="wider")
