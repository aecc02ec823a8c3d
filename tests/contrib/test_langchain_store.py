"""The vector store: what is written, found, scored and refused."""

import asyncio

import numpy as np
import psycopg
import pytest
import sqlalchemy as sa
from fixtures.documents import EMBEDDINGS, IDS, TEXTS, VECTORS, stores
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.indexing import InMemoryRecordManager, aindex, index
from langchain_core.vectorstores import InMemoryVectorStore

from pg_hashindex import HashIndex, store
from pg_hashindex.contrib.langchain import HashIndexVectorStore
from pg_hashindex.errors import InvalidInputError

pytestmark = pytest.mark.newest


@pytest.fixture
def make_store(url):
    yield from stores(url)


def distances_to(query, metric):
    if metric == "l2":
        return np.linalg.norm(VECTORS - query, axis=1)
    products = VECTORS @ query
    if metric == "ip":
        return -products
    return 1 - products / np.linalg.norm(VECTORS, axis=1) / np.linalg.norm(query)


@pytest.mark.parametrize("kind", [None, "scan", "hnsw"])
@pytest.mark.parametrize("metric", ["cosine", "l2", "ip"])
def test_scores_are_those_of_all_documents(make_store, metric, kind):
    made = make_store(metric=metric)
    if kind is not None:
        made.train_index(access=kind, method="lsh", n_bits=16, force=True)
    query = np.array(EMBEDDINGS.embed_query("question"))
    wanted = distances_to(query, metric)
    order = np.argsort(wanted)[:7]
    hits = made.similarity_search_with_score("question", 7, candidates=120)
    assert [document.id for document, _ in hits] == [IDS[place] for place in order]
    assert [score for _, score in hits] == pytest.approx(wanted[order].tolist(), abs=1e-5)
    # All rows are asked for, so that some point away from the query.
    scored = made._similarity_search_with_relevance_scores("question", 120, candidates=120)
    relevance = {"cosine": 1 - wanted, "l2": 1 - wanted / np.sqrt(2), "ip": -wanted}[metric]
    expected = relevance[np.argsort(wanted)].tolist()
    assert [score for _, score in scored] == pytest.approx(expected, abs=1e-5)


def test_a_trained_index_is_what_searches_go_by(make_store, connection):
    """Candidates are the nearest by code; a store that was opened before takes it too."""
    made, before = make_store(), make_store()
    model = made.train_index(method="lsh", n_bits=16, force=True, access="scan")
    assert store.load(connection, "langchain_documents_idx").checksum == model.checksum
    assert model.metric == "cosine"
    query = np.array(EMBEDDINGS.embed_query("question"))
    order = model.order(query[None], "cosine")
    far = order.distances(slice(None), model.encode(VECTORS))[0]
    kept = np.argsort(far)[:12]
    nearest = kept[np.argsort(distances_to(query, "cosine")[kept])][:10]
    assert set(nearest) != set(np.argsort(distances_to(query, "cosine"))[:10])
    for each in (made, before, HashIndexVectorStore(EMBEDDINGS, connection)):
        found = each.similarity_search("question", 10, candidates=12)
        assert [document.id for document in found] == [IDS[place] for place in nearest]


@pytest.mark.parametrize("kind", [None, "scan", "hnsw"])
async def test_words_and_vectors(make_store, kind):
    """Reciprocal rank fusion by hand: half of the texts hold the word, and rank alike."""
    made = make_store(metadatas=[{"n": number} for number in range(120)])
    made.add_texts([f"text odd {n}" for n in range(1, 120, 2)], ids=IDS[1::2])
    if kind is not None:
        made.train_index(access=kind, method="lsh", n_bits=16, force=True)
    vectors = VECTORS.copy()
    vectors[1::2] = EMBEDDINGS.embed_documents([f"text odd {n}" for n in range(1, 120, 2)])
    query = np.array(EMBEDDINGS.embed_query("odd"))
    distances = 1 - vectors @ query / np.linalg.norm(vectors, axis=1) / np.linalg.norm(query)
    for weight in (0.0, 0.3, 1.0):
        order = np.argsort(distances)[:50]
        scores = {IDS[i]: weight / (61 + place) for place, i in enumerate(order)}
        for place, name in enumerate(IDS[1::2][:50]):
            scores[name] = scores.get(name, 0) + (1 - weight) / (61 + place)
        wanted = sorted(scores, key=lambda name: (-scores[name], distances[int(name)]))[:6]
        found = made.similarity_search_with_score("odd", 6, vector_weight=weight)
        assert [document.id for document, _ in found] == wanted
        assert [score for _, score in found] == pytest.approx([scores[name] for name in wanted])
        assert await made.asimilarity_search("odd", 6, vector_weight=weight) == [
            document for document, _ in found
        ]
    retriever = made.as_retriever(
        search_kwargs={"k": 3, "vector_weight": 0.0, "configuration": "simple", "depth": 9}
    )
    assert [document.id for document in retriever.invoke("text -odd")] == IDS[:6:2]
    kept = made.similarity_search("odd", 9, vector_weight=0.5, filter={"n": {"$in": [2, 4]}})
    assert {document.id for document in kept} == {"002", "004"}
    for options, message in (
        ({"effort": 3}, "unknown options: effort; known are filter, vector_weight"),
        ({"vector_weight": 1.5}, "vector_weight is 1.5; it must be 0 to 1"),
        ({"depth": 2}, "depth is 2; it must be k or more, and k is 4"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            made.similarity_search("odd", **{"vector_weight": 0.5, **options})
    with pytest.raises(InvalidInputError, match="without relevance scores"):
        made.similarity_search_with_relevance_scores("odd", vector_weight=0.5)
    with pytest.raises(InvalidInputError, match="unknown options: vector_weight"):
        made.similarity_search_by_vector(query.tolist(), vector_weight=0.5)


@pytest.mark.parametrize("indexed", [False, True])
def test_documents_that_are_written_again_are_replaced(make_store, connection, indexed):
    made = make_store()
    if indexed:
        made.train_index(method="lsh", n_bits=16, force=True)
    changed = Document(id="007", page_content="another", metadata={"new": [1, {"a": None}]})
    new = Document(page_content="new")
    ids = made.add_documents([changed, new])
    assert ids[0] == "007"
    assert len(ids[1]) == 36
    assert made.similarity_search_with_score("another", 1)[0] == (changed, pytest.approx(0))
    (found,) = made.get_by_ids([ids[1], ids[1], "stranger"])
    assert (found.page_content, found.metadata) == ("new", {})
    # Within one call the last one counts.
    assert made.add_texts(["first", "last"], ids=["x", "x"]) == ["x", "x"]
    assert made.get_by_ids(["x", "007"]) == [Document(id="x", page_content="last"), changed]
    assert made.similarity_search("text 7", 1)[0].id != "007"
    made.delete(["x", "007"])
    assert made.get_by_ids(["x", "007"]) == []
    if indexed:
        assert HashIndex.open(connection, "langchain_documents_idx").summary().codes == 120
    made.delete()
    assert made.similarity_search("text 7", 5) == []


@pytest.mark.parametrize("lambda_mult", [0.0, 0.3, 0.6])
def test_diverse_documents_are_those_of_langchain_s_own_store(make_store, lambda_mult):
    made = make_store()
    made.train_index(method="lsh", n_bits=16, force=True)
    own = InMemoryVectorStore.from_texts(TEXTS, EMBEDDINGS, ids=IDS)
    asked = {"k": 5, "fetch_k": 30, "lambda_mult": lambda_mult}
    wanted = own.max_marginal_relevance_search("question", **asked)
    found = made.max_marginal_relevance_search("question", **asked, candidates=120)
    assert found == wanted
    assert found != own.similarity_search("question", 5)
    retriever = made.as_retriever(search_type="mmr", search_kwargs={**asked, "candidates": 120})
    assert retriever.invoke("question") == wanted
    assert made.max_marginal_relevance_search("question", filter={"no": 1}) == []


def test_diverse_documents_of_half_precision(url, connection):
    """Their lengths are beyond what float16 can hold."""
    connection.execute(
        "CREATE TABLE halves (id text PRIMARY KEY, content text, metadata jsonb, "
        "embedding halfvec(8))"
    )
    made = HashIndexVectorStore(EMBEDDINGS, connection, table="halves")
    made.add_embeddings(TEXTS, VECTORS * 300, ids=IDS)
    own = InMemoryVectorStore.from_texts(TEXTS, EMBEDDINGS, ids=IDS)
    asked = {"k": 5, "fetch_k": 30, "lambda_mult": 0.3}
    found = made.max_marginal_relevance_search("question", **asked)
    assert found == own.max_marginal_relevance_search("question", **asked)


def test_retrievers(make_store):
    made = make_store(metadatas=[{"n": number} for number in range(120)])
    kept = made.as_retriever(search_kwargs={"k": 200, "filter": {"n": {"$lt": 10}}})
    assert sorted(document.id or "" for document in kept.invoke("question")) == IDS[:10]
    scores = 1 - distances_to(np.array(EMBEDDINGS.embed_query("question")), "cosine")
    best = float(np.sort(scores)[-3])
    near = made.as_retriever(
        search_type="similarity_score_threshold",
        search_kwargs={"k": 10, "score_threshold": best - 1e-4},
    )
    assert [each.id for each in near.invoke("question")] == [
        IDS[place] for place in np.argsort(-scores)[:3]
    ]
    constant = make_store(relevance_score_fn=lambda distance: 0.25)
    assert {score for _, score in constant.similarity_search_with_relevance_scores("q", 3)} == {
        0.25
    }


class Asynchronous(Embeddings):
    """As of a service: only its asynchronous methods may be called in an event loop."""

    def embed_documents(self, texts):
        raise AssertionError("blocks")

    def embed_query(self, text):
        raise AssertionError("blocks")

    async def aembed_documents(self, texts):
        return EMBEDDINGS.embed_documents(texts)

    async def aembed_query(self, text):
        return EMBEDDINGS.embed_query(text)


async def test_asynchronous_methods(url, connection):
    made = await HashIndexVectorStore.afrom_texts(
        TEXTS[:100], Asynchronous(), ids=IDS[:100], connection=url
    )
    await made.aadd_texts(TEXTS[100:], ids=IDS[100:])
    one = HashIndexVectorStore(Asynchronous(), connection)
    own = InMemoryVectorStore.from_texts(TEXTS, EMBEDDINGS, ids=IDS)
    for each in (made, one):
        # More at once than the pool has connections, or one connection serves.
        found = await asyncio.gather(*(each.asimilarity_search(text, 3) for text in TEXTS[:30]))
        assert found == [own.similarity_search(text, 3) for text in TEXTS[:30]]
        diverse = await each.amax_marginal_relevance_search("question", 3)
        assert diverse == own.max_marginal_relevance_search("question", 3)
    made.close()


@pytest.mark.parametrize("how", ["engine", "connection"])
def test_nothing_is_left_open_and_everything_committed(make_store, url, connection, how):
    """On connections that are not in autocommit mode."""
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:", 1))
    own = psycopg.connect(url)
    source = engine if how == "engine" else own
    made = make_store(source=source)
    made.similarity_search("question", 3)
    made.get_by_ids(["001"])
    made.train_index(method="lsh", n_bits=16, force=True)
    made.delete(["001"])
    made.similarity_search("question", 3)
    open_ones = connection.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
        "AND state LIKE 'idle in transaction%'"
    ).fetchone()
    assert open_ones == (0,)
    assert HashIndex.open(connection, "langchain_documents_idx").summary().codes == 119
    own.close()
    engine.dispose()


def test_a_transaction_of_the_caller_s(make_store, connection):
    made = make_store(source=connection)
    with connection.transaction(force_rollback=True):
        made.add_texts(["more"], ids=["more"])
        assert made.similarity_search("more", 1)[0].id == "more"
        with pytest.raises(InvalidInputError, match="outside a transaction"):
            made.train_index(method="lsh", n_bits=16, force=True)
    assert made.get_by_ids(["more"]) == []


async def test_the_indexing_of_langchain(url):
    """Its records of what was written decide what is added, skipped and deleted."""
    records = InMemoryRecordManager("all")
    records.create_schema()
    made = HashIndexVectorStore.from_texts([], EMBEDDINGS, connection=url)
    documents = [Document(f"page {n}", metadata={"source": f"s{n % 3}"}) for n in range(9)]
    how = {"cleanup": "full", "source_id_key": "source", "key_encoder": "sha256"}
    first = index(documents, records, made, **how)
    second = await aindex(documents[:4], records, made, batch_size=2, **how)
    counted = [(each["num_added"], each["num_skipped"]) for each in (first, second)]
    assert (counted, second["num_deleted"]) == ([(9, 0), (0, 4)], 5)
    left = made.similarity_search("page", k=9)
    assert sorted(document.page_content for document in left) == [f"page {n}" for n in range(4)]
    made.close()
