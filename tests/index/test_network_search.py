"""Searching an index whose codes only Python can make, from Python and from SQL."""

import numpy as np
import psycopg
import pytest
import sqlalchemy as sa
from fixtures.filters import look_codes_up
from fixtures.indexes import indexed
from fixtures.known import OTHERS, UNKNOWN
from pgvector import Vector

from pg_hashindex import operations, store
from pg_hashindex.errors import DatabaseStateError, InvalidInputError, UnknownIndexError
from pg_hashindex.hashers import LSH
from pg_hashindex.index.handle import HashIndex, list_indexes
from pg_hashindex.index.search import Search
from pg_hashindex.models import codes
from pg_hashindex.models.codes import hamming_distances
from pg_hashindex.models.model import Model
from pg_hashindex.models.network import known_rows
from pg_hashindex.quality.evaluate import evaluate

pytestmark = pytest.mark.newest

N_CODES = UNKNOWN[0] - 1


def by_hand(model, vectors, query, k, candidates, ids=None):
    """Keys of the nearest by vector, of those nearest by code; rows without a code are out."""
    ids = np.arange(1, N_CODES + 1) if ids is None else ids
    rows = vectors[ids - 1]
    hamming = hamming_distances(model.encode(query[None]), model.encode(rows))[0]
    kept = np.lexsort((ids, hamming))[:candidates]
    exact = np.linalg.norm(rows[kept] - query, axis=1)
    return ids[kept[np.lexsort((ids[kept], exact))[:k]]].tolist()


def untied(model, vectors, query, candidates):
    """This many candidates, and those that are as near by code as the last of them."""
    hamming = hamming_distances(model.encode(query[None]), model.encode(vectors[:N_CODES]))[0]
    return int((hamming <= np.sort(hamming)[candidates - 1]).sum())


def bits(model, query):
    return codes.to_postgres(model.encode(query[None]), model.n_bits)[0].to_text()


def test_the_code_is_computed_in_python(encoded, known_model, vectors):
    for query, k, least in zip(OTHERS, (1, 10, 10, 5), (1, 25, 60, N_CODES), strict=False):
        candidates = untied(known_model, vectors, query, least)
        expected = by_hand(known_model, vectors, query, k, candidates)
        found = encoded.search(query, k, candidates=candidates)
        assert [hit.id for hit in found] == expected
        assert found[0].distance == pytest.approx(
            np.linalg.norm(vectors[found[0].id - 1] - query), rel=1e-6
        )
        for call in (
            "search_items_idx(%(v)s, %(k)s, %(n)s, NULL, %(code)s::bit varying)",
            "search_items_idx(%(v)s, %(k)s, %(n)s, query_code => %(code)s::bit(12))",
            "search('items_idx', %(v)s, %(k)s, %(n)s, query_code => %(code)s::bit varying)",
        ):
            rows = encoded.connection.execute(
                f"SELECT id::bigint, distance FROM hashindex.{call}".encode(),
                {"v": Vector(query), "k": k, "n": candidates, "code": bits(known_model, query)},
            ).fetchall()
            assert [row[0] for row in rows] == expected


def test_a_condition_restricts_the_rows(encoded, known_model, vectors):
    """All of a small table that match are compared, with a code or without."""
    category = sa.Table("items", sa.MetaData(), sa.Column("category", sa.Text)).columns["category"]
    ids = np.arange(2, len(vectors) + 1, 3)
    exact = np.linalg.norm(vectors[ids - 1] - OTHERS[0], axis=1)
    expected = ids[np.argsort(exact, kind="stable")[:10]].tolist()
    found = encoded.search(OTHERS[0], 10, candidates=20, where=category == "b")
    assert [hit.id for hit in found] == expected
    rows = encoded.connection.execute(
        "SELECT id::bigint FROM hashindex.search("
        "'items_idx', %s, 10, 20, where_equals => %s, query_code => %s::bit varying)",
        [Vector(OTHERS[0]), '{"category": "b"}', bits(known_model, OTHERS[0])],
    ).fetchall()
    assert [row[0] for row in rows] == expected


def test_neighbours_of_a_row_come_by_its_stored_code(encoded, known_model, vectors, monkeypatch):
    candidates = untied(known_model, vectors, vectors[6], 41)
    expected = by_hand(known_model, vectors, vectors[6], 11, candidates)
    assert expected[0] == 7
    # The row itself is one more.
    found = encoded.search_like(7, 10, candidates=candidates - 1)
    assert [hit.id for hit in found] == expected[1:]
    with monkeypatch.context() as patched:
        patched.setattr(store, "load", lambda *_: pytest.fail("the model was read"))
        again = HashIndex.open(encoded.connection, "items_idx")
        assert again.search_like("7", 10, candidates=candidates - 1) == found
    with pytest.raises(InvalidInputError, match="codes only of the rows that it was trained on"):
        encoded.search_like(UNKNOWN[0])
    with pytest.raises(InvalidInputError, match="no row with id = 5000"):
        encoded.search_like(5000)


def test_the_model_is_read_once(encoded, monkeypatch):
    load_steps, read = store.load_steps, []

    def watched(reference):
        read.append(reference)
        return load_steps(reference)

    monkeypatch.setattr(store, "load_steps", watched)
    index = HashIndex.open(encoded.connection, "items_idx")
    for query in OTHERS[:3]:
        index.search(query)
    assert read == ["known:1"]


def test_a_query_that_the_model_does_not_know(encoded):
    with pytest.raises(
        InvalidInputError,
        match="index 'items_idx' has no code for this query: model 'known' has codes only of",
    ):
        encoded.search(OTHERS[15])


def test_an_index_that_was_made_again_since_it_was_opened(encoded, other, lsh_model, vectors):
    """No code of the old model is compared with codes of the new one."""
    encoded.search(vectors[6])
    rows = vectors[: UNKNOWN[0] - 1]
    network = known_rows(rows, lsh_model.encode(rows[::-1].copy()), 12)
    store.save(other, Model("new", "byhand", 8, (), network=network))
    HashIndex.open(other, "items_idx").drop()
    condition = sa.column("category") == "b"
    for search in (
        lambda: encoded.search(vectors[6]),
        lambda: encoded.search(vectors[6], where=condition),
        lambda: encoded.search_like(7),
    ):
        with pytest.raises(UnknownIndexError, match="index 'items_idx' does not exist"):
            search()
    again = indexed(other, model="new")
    candidates = untied(again.loaded_model, vectors, vectors[6], 30)
    expected = by_hand(again.loaded_model, vectors, vectors[6], 10, candidates)
    for index in (encoded, again):
        found = index.search(vectors[6], candidates=candidates)
        assert [hit.id for hit in found] == expected
        assert index.search_like(7, 9, candidates=candidates - 1) == found[1:]


@pytest.mark.parametrize("method", ["encoded", "at"])
def test_a_model_that_is_swapped_while_python_encodes(
    encoded, other, turned_model, vectors, monkeypatch, method
):
    """The code of the old model is refused, and the search asked once more."""
    expected = encoded.search(vectors[6], 5, candidates=20)
    asked = swap_after(method, encoded, other, monkeypatch)
    if method == "encoded":
        assert encoded.search(vectors[6], 5, candidates=20) == expected
    else:
        assert encoded.search_like(7, 4, candidates=19) == expected[1:]
    assert asked == ["known", "turned"]


def test_a_model_that_is_swapped_while_python_encodes_in_a_transaction(
    encoded, other, turned_model, vectors, monkeypatch
):
    """The refusal ends the transaction; the next one goes by the new model."""
    expected = encoded.search(vectors[6], 5, candidates=20)
    asked = swap_after("encoded", encoded, other, monkeypatch)
    with pytest.raises(DatabaseStateError, match="a model that index .* no longer has") as caught:
        with encoded.connection.transaction():
            encoded.search(vectors[6], 5, candidates=20)
    assert isinstance(caught.value.__cause__, psycopg.Error)
    assert caught.value.__cause__.sqlstate == "42X04"
    with encoded.connection.transaction():
        assert encoded.search(vectors[6], 5, candidates=20) == expected
    assert asked == ["known", "turned"]


@pytest.fixture
def turned_model(connection, lsh_model, vectors):
    """Ranks as the known model does; by its codes nothing is near a code of that model."""
    rows = vectors[: UNKNOWN[0] - 1]
    turned = np.packbits(1 - np.unpackbits(lsh_model.encode(rows), axis=1)[:, :12], axis=1)
    return store.save(
        connection, Model("turned", "byhand", 8, (), network=known_rows(rows, turned, 12))
    )


def swap_after(method, index, other, monkeypatch):
    """Swap the model once a search has its code; return the models that codes are made with."""
    asked = []
    before = getattr(Search, method)

    def and_swap(search, row, *rest):
        made = before(search, row, *rest)
        if row.connection is index.connection:
            asked.append(row.model)
            if len(asked) == 1:
                operations.swap(
                    HashIndex.open(other, "items_idx"), "turned", force=True, queries=20
                )
        return made

    monkeypatch.setattr(Search, method, and_swap)
    return asked


def test_a_condition_takes_the_current_model(index, other, vectors):
    new = LSH(n_bits=12, random_state=9).fit(vectors).to_model("new")
    store.save(other, new)
    HashIndex.open(other, "items_idx").drop()
    indexed(other, model="new", ranking="hamming")
    look_codes_up(other)
    condition = sa.column("category").is_not(None)
    found = [hit.id for hit in index.search(vectors[6], 10, candidates=20, where=condition)]
    # A third more are looked at, since the filter might not hold for all.
    hamming = hamming_distances(new.encode(vectors[6:7]), new.encode(vectors))[0]
    near = np.flatnonzero(hamming <= np.sort(hamming)[25]) + 1
    assert len(near) < 60
    assert set(found) <= set(near.tolist())


def test_sql_wants_the_code_of_the_query(encoded):
    for call in (
        "search_items_idx(%(v)s, 10, NULL, NULL, %(code)s::bit varying)",
        "search('items_idx', %(v)s, query_code => %(code)s::bit varying)",
    ):
        statement = f"SELECT hashindex.{call}".encode()
        for code in ("", "101", "1" * 13):
            with pytest.raises(
                psycopg.errors.InvalidParameterValue,
                match=f"query_code has {len(code)} bits, the codes of the index have 12",
            ):
                encoded.connection.execute(statement, {"v": Vector(OTHERS[0]), "code": code})
        with pytest.raises(
            psycopg.errors.NullValueNotAllowed, match="its search needs the code of the query"
        ) as caught:
            encoded.connection.execute(statement, {"v": Vector(OTHERS[0]), "code": None})
        assert "HashIndex.search in Python" in str(caught.value.diag.message_hint)


def test_an_index_encoded_in_sql_encodes_its_queries_itself(index, vectors):
    for call in (
        "search_items_idx(%s, 5, query_code => %s::bit varying)",
        "search('items_idx', %s, 5, query_code => %s::bit varying)",
        "within_items_idx(%s, 5, query_code => %s::bit varying)",
    ):
        with pytest.raises(
            psycopg.errors.InvalidParameterValue,
            match="query_code was passed to an index whose model SQL evaluates",
        ):
            index.connection.execute(
                f"SELECT * FROM hashindex.{call}".encode(), [Vector(vectors[3]), "0" * 12]
            )


def test_recall_is_that_of_brute_force(encoded, known_model, vectors):
    """Queries are the rows that have a code; the truth is among all rows."""
    k, asked = 5, [8, 60]
    correct = dict.fromkeys(asked, 0)
    for row in range(N_CODES):
        exact = np.linalg.norm(vectors - vectors[row], axis=1)
        exact[row] = np.inf
        near = np.sort(exact)[k - 1] + 1e-6
        for candidates in asked:
            found = by_hand(known_model, vectors, vectors[row], k + 1, candidates + 1)
            correct[candidates] += sum(exact[key - 1] <= near for key in found if key != row + 1)
    # The choice among equal codes is not defined.
    result = evaluate(encoded, queries=300, k=k, candidates=asked)
    assert result.queries == N_CODES
    for point in result.points:
        expected = correct[point.candidates] / (k * N_CODES)
        assert point.recall == pytest.approx(expected, abs=0.02)
        in_sql = encoded.connection.execute(
            "SELECT hashindex.recall('items_idx', %s, 300, %s)", [k, point.candidates + 1]
        ).fetchone()
        assert in_sql[0] == pytest.approx(expected, abs=0.02)


def test_nothing_to_evaluate_without_codes(queued):
    with pytest.raises(InvalidInputError, match="none with a code to be a query"):
        evaluate(queued, queries=5)
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="fewer than two rows"):
        queued.connection.execute("SELECT hashindex.recall('items_idx')")


def test_search_needs_the_right_to_read_the_table(encoded, other, known_model, vectors):
    encoded.connection.execute("CREATE ROLE network_reader; CREATE ROLE network_writer")
    try:
        encoded.connection.execute(
            "GRANT SELECT ON items TO network_reader; GRANT INSERT ON items TO network_writer;"
            "SELECT hashindex.grant_reader('items_idx', 'network_reader')"
        )
        other.execute("SET ROLE network_reader")
        (index,) = list_indexes(other)
        expected = by_hand(known_model, vectors, OTHERS[0], 3, 30)
        assert [hit.id for hit in index.search(OTHERS[0], 3, candidates=30)] == expected
        assert store.list_models(other)[0].size_bytes > 0
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            other.execute("DELETE FROM hashindex.model_part")
        other.execute("SET ROLE network_writer")
        other.execute("INSERT INTO items VALUES (2000, 'w', %s)", [Vector(OTHERS[1])])
        other.execute("RESET ROLE")
        assert encoded.waiting() == 11
    finally:
        encoded.connection.execute(
            "DROP OWNED BY network_reader, network_writer;"
            "DROP ROLE network_reader; DROP ROLE network_writer"
        )
