"""Indexes of halfvec columns in care, and columns that change type or dimension under an index."""

import numpy as np
import psycopg
import pytest
from fixtures.columns import change_vectors
from fixtures.halves import assert_coded, by_hand, make_index, nearest
from fixtures.health import findings, troubles
from pgvector import Vector

from pg_hashindex import operations, store
from pg_hashindex.db.connection import connect
from pg_hashindex.errors import DatabaseStateError, InvalidInputError
from pg_hashindex.hashers import LSH
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.models.model import Model
from pg_hashindex.models.profiles import Profile
from pg_hashindex.training.sampling import sample_table
from pg_hashindex.training.whole_tables import train_on_table

pytestmark = pytest.mark.newest


@pytest.mark.parametrize("kind", ["halfvec(8)", "halfvec", "half_domain"])
def test_rows_to_train_on(connection, halves, whole_rows, kind):
    connection.execute("CREATE DOMAIN half_domain AS halfvec(8)")
    connection.execute(f"ALTER TABLE halves ALTER embedding TYPE {kind}".encode())
    for rows in (1000, 50):
        halved, whole = (
            sample_table(connection, halves, column, rows=rows, labels="part", random_state=4)
            for column in ("embedding", "twin")
        )
        assert halved.X.dtype == np.float32
        assert np.array_equal(halved.X, whole.X)
        assert np.array_equal(halved.y, whole.y)
    trained = [
        train_on_table(connection, halves, column, "whole", "itq", n_bits=4, force=True)
        for column in ("embedding", "twin")
    ]
    assert np.array_equal(trained[0].encode(whole_rows), trained[1].encode(whole_rows))


def test_rows_to_train_on_of_several_dimensions(connection, halves):
    connection.execute("ALTER TABLE halves ALTER embedding TYPE halfvec")
    connection.execute("UPDATE halves SET embedding = '[1,2,3]' WHERE id = 9")
    with pytest.raises(InvalidInputError, match="holds vectors of dimensions 3, 8"):
        sample_table(connection, halves, "embedding")
    # Met while encoding, too: no trigger saw it.
    connection.execute("UPDATE halves SET embedding = twin")
    index = make_index(connection)
    connection.execute("SET session_replication_role = replica")
    connection.execute("INSERT INTO halves VALUES (0, 'a', '[1,2,3]')")
    with pytest.raises(InvalidInputError, match="row 0 .* 3 dimensions"):
        index.encode()


def test_checks_and_repairs(connection, halves, whole_rows):
    model = by_hand("profiled", 1)
    profile = Profile.of(model.project(whole_rows))
    store.save(
        connection, Model(model.name, model.method, model.dimension, model.layers, profile=profile)
    )
    index = make_index(connection, model="profiled")
    for full in (False, True):
        assert troubles(index, full=full) == {}
        assert findings(index, full=full)["projection_drift"].value == 0
    # Renamed, beside another column that it could be by its type.
    connection.execute("ALTER TABLE halves ADD other halfvec(8)")
    connection.execute("UPDATE halves SET other = subvector(embedding || embedding, 2, 8)")
    connection.execute("ALTER TABLE halves DROP twin; ALTER TABLE halves RENAME embedding TO v")
    assert findings(index)["table"].status == "broken"
    assert operations.rebind(index, column="v").done == (
        """bound the index to "public"."halves", column 'v', key 'id'""",
    )
    index = index.open(connection, "idx")
    assert troubles(index) == {}
    connection.execute("UPDATE hashindex.set_1_codes SET code = ~code WHERE id IN (4, 5)")
    assert troubles(index) == {"wrong_codes": "broken"}
    done = operations.repair(index, full=True).done
    assert done == ("removed 2 codes that did not belong to their rows", "encoded 2 rows")
    assert troubles(index, full=True) == {}


def test_a_type_that_changes_under_an_index(connection, other, halves, url, whole_rows):
    index = make_index(connection)
    beside = HashIndex.open(other, "idx")

    def write(session, key):
        vector = whole_rows[key % 7].tolist()
        session.execute(
            "INSERT INTO halves (id, embedding, twin) VALUES (%s, %s::real[], %s::real[])",
            [key, vector, vector],
        )
        session.execute("UPDATE halves SET part = 'x' WHERE id = 2")

    write(connection, 1000)
    write(other, 2000)
    for number, kind in enumerate(("vector(8)", "halfvec", "halfvec(8)", "vector"), 1):
        wanted = index.search(whole_rows[8], 6, candidates=300)
        change_vectors(connection, "halves", kind)
        # With whole numbers nothing else changes.
        for one in (index, beside):
            assert one.search(whole_rows[8], 6, candidates=300) == wanted
            assert len(one.search_like(4, 5)) == 5
        assert troubles(index, full=True) == {}
        with connect(url) as fresh:
            write(fresh, 3000 + number)
        write(connection, 1000 + number)
        write(other, 2000 + number)
        assert_coded(index)


@pytest.mark.parametrize(
    ("change", "dimension"),
    [
        ("halfvec(7) USING subvector(embedding, 1, 7)", 7),
        ("vector(16) USING (embedding || embedding)::vector", 16),
        ("halfvec USING embedding || embedding", 16),
    ],
)
def test_a_dimension_that_changes_under_an_index(connection, halves, url, change, dimension):
    index = make_index(connection)
    change_vectors(connection, "halves", change)
    new = list(range(1, dimension + 1))
    refused = f"the vector has {dimension} dimensions, the model takes 8"
    with connect(url) as writer:
        for statement in (
            "INSERT INTO halves (id, embedding) VALUES (0, %s::real[])",
            "UPDATE halves SET embedding = %s::real[]",
        ):
            with pytest.raises(psycopg.DataError, match=refused):
                writer.execute(statement.encode(), [new])
        # Writes that leave the vector alone continue.
        writer.execute("UPDATE halves SET part = 'x'")
        writer.execute("DELETE FROM halves WHERE id = 1")
    for query, message in (
        (np.ones(8), "different (vector|halfvec) dimensions .* see pg-hashindex index check idx"),
        (np.ones(dimension), f"vectors have {dimension} dimensions, expected 8"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            index.search(query, 3)
    with pytest.raises(psycopg.DataError, match="different (vector|halfvec) dimensions"):
        connection.execute("SELECT * FROM hashindex.search_idx(%s)", [Vector(np.ones(8))])
    with pytest.raises(InvalidInputError, match=f"vectors have {dimension} dimensions"):
        index.search_like(5, 3)
    if "(" in change.split()[0]:
        # Codes alone are not an answer.
        held = f"holds vectors of {dimension} dimensions, the model takes 8"
        with pytest.raises(InvalidInputError, match=f"{held}.*create it again"):
            index.within(np.ones(8), 3)
        assert held in findings(index)["table"].detail
        with pytest.raises(InvalidInputError, match=f"{held}.*create it again"):
            operations.repair(index)
    else:
        assert "wrong_codes" in troubles(index)
        with pytest.raises(InvalidInputError, match=f"{dimension} dimensions, the model takes 8"):
            operations.repair(index, full=True)
    rows = sample_table(connection, halves, "embedding").X
    model = store.save(connection, LSH(n_bits=12, random_state=3).fit(rows).to_model("new"))
    with pytest.raises(
        DatabaseStateError, match=f"vectors of {dimension} .* had 8 .*Drop the index"
    ):
        index.swap(model="new")
    # The advice given everywhere.
    index.drop()
    index = make_index(connection, model=model.name)
    assert index.search(rows[0], 3) == nearest(connection, "l2", Vector(rows[0]), 3)
