"""The vector store while its table, its index and its writers change."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from fixtures.documents import EMBEDDINGS, IDS, TEXTS, VECTORS, stores
from fixtures.faults import eventually
from fixtures.indexes import create_index

from pg_hashindex import HashIndex, connect, operations
from pg_hashindex.contrib.documents import table
from pg_hashindex.contrib.langchain import HashIndexVectorStore
from pg_hashindex.errors import DatabaseStateError, DuplicateNameError, InvalidInputError

pytestmark = pytest.mark.newest


@pytest.fixture
def make_store(url):
    yield from stores(url)


def test_an_index_that_misses_documents_is_not_used(make_store, connection):
    made = make_store()
    model = make_store(table="other").train_index(method="lsh", n_bits=16, force=True)
    index = create_index(connection, "late", table="langchain_documents", model="other_idx")
    whole = made.similarity_search("question", 120, candidates=1)
    assert len(whole) == 120
    index.encode()
    found = made.similarity_search("question", 1, candidates=1)
    query = np.array(EMBEDDINGS.embed_query("question"))
    order = model.order(query[None], "cosine")
    far = order.distances(slice(None), model.encode(VECTORS))[0]
    assert [document.id for document in found] == [IDS[np.argmin(far)]]


def test_a_table_that_was_dropped_and_made_again(make_store, connection):
    """The index of the former table has codes of documents with the same ids."""
    made = make_store()
    made.train_index(method="lsh", n_bits=16, force=True)
    assert len(made.similarity_search("question", 3, candidates=1)) == 3
    connection.execute("DROP TABLE langchain_documents CASCADE")
    again = make_store(texts=TEXTS[60:80])
    for store_ in (made, again):
        assert len(store_.similarity_search("question", 20, candidates=1)) == 20
    named = "'langchain_documents_idx' .* recreated: .*index repair langchain_documents_idx"
    with pytest.raises(DatabaseStateError, match=named):
        again.train_index(method="lsh", n_bits=16, force=True)
    with pytest.raises(DatabaseStateError, match=named):
        make_store(texts=TEXTS[60:80], index="langchain_documents_idx")
    operations.repair(HashIndex.open(connection, "langchain_documents_idx"))
    assert len(again.similarity_search("question", 1, candidates=1)) == 1


def test_a_name_that_postgresql_cuts_off(make_store):
    """The index is of a table of fewer letters."""
    made = make_store(table="t" * 70)
    made.train_index("i", method="lsh", n_bits=16, force=True)
    assert len(made.similarity_search("question", 3, candidates=1)) == 3
    with pytest.raises(DuplicateNameError, match="has index 'i' already"):
        made.train_index("j", method="lsh", n_bits=16, force=True)


def test_indexes_that_come_and_go(make_store, connection):
    """While a store is open: it is swapped, another one comes, both go."""
    made = make_store()
    made.train_index("one", method="lsh", n_bits=16, force=True)
    index = HashIndex.open(connection, "one")

    def answers():
        return len(made.similarity_search("question", 3, candidates=3))

    assert answers() == 3
    other = make_store(table="other").train_index("two", method="lsh", n_bits=32, force=True)
    index.swap(model=f"{other.name}:{other.version}", force=True)
    assert answers() == 3
    made.add_texts(["after the swap"], ids=["swapped"])
    assert made.similarity_search("after the swap", 1)[0].id == "swapped"
    second = create_index(connection, "second", table="langchain_documents", model="one")
    # A write succeeds, whichever way a search would take.
    made.add_texts(["more"], ids=["more"])
    assert made.get_by_ids(["more"])
    with pytest.raises(InvalidInputError, match="has indexes one, second; name the one"):
        answers()
    second.drop()
    assert answers() == 3
    HashIndex.open(connection, "one").drop()
    assert answers() == 3


def test_writers_of_the_same_documents(make_store, connection, monkeypatch):
    """In opposite orders, at once: none waits for another that waits for it."""
    # So that they are written by several statements.
    monkeypatch.setattr(table, "_BATCH_ROWS", 20)
    made = make_store()
    made.train_index(access="scan", method="lsh", n_bits=16, force=True)

    def write(number):
        step = 1 if number % 2 else -1
        texts = [f"writer {number}"] * len(IDS)
        made.add_embeddings(texts, (VECTORS + number)[::step], ids=IDS[::step])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(18)))
    contents = {document.page_content for document in made.get_by_ids(IDS)}
    assert len(contents) == 1
    stale = connection.execute(
        "SELECT count(*) FROM langchain_documents d "
        "JOIN hashindex.set_1_codes c ON c.id = d.id "
        "WHERE c.code <> hashindex.encode('langchain_documents_idx', d.embedding)"
    ).fetchone()
    assert stale == (0,)
    assert HashIndex.open(connection, "langchain_documents_idx").summary().codes == len(IDS)


def test_stores_that_create_their_table_at_the_same_time(url, connection):
    with connect(url) as other, ThreadPoolExecutor(2) as pool:
        with other.transaction():
            HashIndexVectorStore.create_table(other, 8)
            creating = [
                pool.submit(HashIndexVectorStore.create_table, url, dimension)
                for dimension in (8, 9)
            ]
            waiting = "SELECT count(*) = 2 FROM pg_locks WHERE NOT granted"
            eventually(lambda: connection.execute(waiting).fetchone() == (True,))
        assert creating[0].result() is None
        with pytest.raises(InvalidInputError, match="9 dimensions, .* 8"):
            creating[1].result()


def test_a_type_of_the_table_s_name(connection):
    connection.execute("CREATE TYPE langchain_documents AS ENUM ('a')")
    with pytest.raises(DuplicateNameError, match='type "langchain_documents" already exists'):
        HashIndexVectorStore.create_table(connection, 8)
