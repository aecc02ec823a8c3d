"""LangChain: what a store finds by an index that pgvector keeps."""

import numpy as np
import pytest
from fixtures.documents import DIMENSION, EMBEDDINGS, IDS, TEXTS, VECTORS, stores

from pg_hashindex import store
from pg_hashindex.contrib.langchain import HashIndexVectorStore
from pg_hashindex.errors import DuplicateNameError, HashIndexError

pytestmark = pytest.mark.newest

NAME = "langchain_documents_idx"


@pytest.fixture
def make_store(url):
    yield from stores(url)


def scans(connection):
    """Searches by the index so far, those of this session too."""
    connection.execute("SELECT pg_stat_force_next_flush()")
    (count,) = connection.execute(
        "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = %s", [f"{NAME}_hnsw"]
    ).fetchone()
    return count


def nearest(made, k=3, **options):
    return [document.id for document in made.similarity_search("question", k, **options)]


def test_searches_go_by_the_index(make_store, connection, monkeypatch):
    """Candidates are the nearest by code; no trigger, other index or setting is left."""
    make_store()
    made = HashIndexVectorStore(EMBEDDINGS, connection)
    model = made.train_index(force=True)
    assert (model.method, model.metric) == ("thermometer", "cosine")
    assert model.n_bits in range(DIMENSION, 8 * DIMENSION + 1, DIMENSION)
    assert store.load(connection, NAME).checksum == model.checksum
    triggers = "SELECT FROM pg_trigger WHERE tgrelid = 'langchain_documents'::regclass"
    assert connection.execute(triggers.encode()).fetchall() == []
    connection.execute("SET enable_seqscan = off")
    before = scans(connection)
    query = np.array(EMBEDDINGS.embed_query("question"), dtype=np.float32)
    bits = [
        np.unpackbits(codes, axis=1).astype(int)
        for codes in (model.encode(VECTORS), model.encode(query[None]))
    ]
    by_code = (bits[0] != bits[1]).sum(axis=1)
    cosine = 1 - VECTORS @ query / np.linalg.norm(VECTORS, axis=1) / np.linalg.norm(query)
    monkeypatch.delattr("pg_hashindex.contrib.documents.table.Exact")
    with connection.transaction():
        found = nearest(made, 3, candidates=8)
        assert connection.execute("SHOW hnsw.ef_search").fetchone() == ("40",)
    kept = [place for place in range(120) if by_code[place] <= np.sort(by_code)[7]]
    assert {IDS.index(name) for name in found} <= set(kept)
    # Any at the eighth distance may be candidates.
    sure = [place for place in kept if by_code[place] < np.sort(by_code)[7]]
    assert cosine[IDS.index(found[0])] <= min(cosine[sure])
    assert scans(connection) == before + 1
    # Written documents are found, deleted ones are not.
    made.add_texts(["question"], ids=["new"])
    assert nearest(made, 1) == ["new"]
    made.delete(["new"])
    assert "new" not in nearest(made, 3)


def test_few_answers_are_completed(make_store, connection):
    """Fewer than k candidates: all documents are compared."""
    made = make_store(metadatas=[{"n": number} for number in range(120)])
    made.train_index(force=True)
    made.delete(IDS[:118])
    assert sorted(nearest(made, 5)) == IDS[118:]
    assert nearest(made, 5, filter={"n": 119}) == ["119"]


def test_halves_of_any_dimension_and_metric(make_store, connection, url):
    connection.execute(
        "CREATE TABLE halves (id text PRIMARY KEY, content text, metadata jsonb, "
        f"embedding halfvec({DIMENSION}))"
    )
    made = HashIndexVectorStore(EMBEDDINGS, url, table="halves", metric="l2")
    made.add_embeddings(TEXTS, VECTORS, ids=IDS)
    made.train_index("by_code", force=True)
    distances = np.linalg.norm(VECTORS - np.array(EMBEDDINGS.embed_query("question")), axis=1)
    assert nearest(made, 5, candidates=120) == [IDS[i] for i in np.argsort(distances)[:5]]
    # Rows without a vector are no answers, whatever the plan.
    made.delete(IDS[3:])
    connection.execute("INSERT INTO halves SELECT n::text FROM generate_series(1000, 1300) n")
    assert len(nearest(made, 5)) == 3
    made.close()
    for given, message in (
        ({"metric": "cosine"}, "'by_code' orders by l2, and the store by cosine"),
        ({"metric": "l2", "index": "other"}, "'other'|does not exist"),
    ):
        with pytest.raises(Exception, match=message):
            HashIndexVectorStore(EMBEDDINGS, url, table="halves", **given)


def test_what_cannot_be_trained(make_store, connection):
    made = make_store()
    with pytest.raises(HashIndexError, match="access 'graph' of index .* is unknown"):
        made.train_index(force=True, access="graph")
    assert store.list_models(connection) == []
    made.train_index(force=True)
    with pytest.raises(DuplicateNameError, match=f"has index '{NAME}' already"):
        made.train_index(force=True)
    # As a build that was cut off leaves it: all documents are ranked.
    connection.execute(
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = %s::regclass", [f"{NAME}_hnsw"]
    )
    before = scans(connection)
    assert len(nearest(made, 5)) == 5
    assert scans(connection) == before
