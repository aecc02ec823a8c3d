"""LlamaIndex's vector store, beside its own store in memory and numbers made by hand."""

import copy
import importlib
import multiprocessing
import pickle
import sys
import warnings

import numpy as np
import pytest
from fixtures.filters import drop_filtered_search
from llama_index.core import StorageContext, VectorStoreIndex
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.schema import Document, IndexNode, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores import SimpleVectorStore
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)

from pg_hashindex import connect
from pg_hashindex.contrib.documents.connections import Connections
from pg_hashindex.contrib.llama_index import HashIndexVectorStore
from pg_hashindex.errors import InvalidInputError

pytestmark = pytest.mark.newest

ROWS, DIMENSION = 120, 8
VECTORS = np.random.default_rng(5).standard_normal((ROWS, DIMENSION)).astype(np.float32)
QUERY = VECTORS[4].tolist()
IDS = [f"{i:03}" for i in range(ROWS)]
Op = FilterOperator


def metadata_of(i):
    made = {"n": i, "kind": ("Odd %", "even_")[i % 2], "tags": ["all", f"t{i % 3}"]}
    made["even"] = i % 2 == 0
    if i % 4 == 0:
        made |= {"some": None if i % 8 else i / 2, "none": []}
    return made


NODES = [
    TextNode(
        id_=IDS[i],
        text=f"word{i % 5} text of node {i}",
        metadata=metadata_of(i),
        embedding=VECTORS[i].tolist(),
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"doc{i % 10}")},
    )
    for i in range(ROWS)
]


EACH = pytest.mark.parametrize("store", ["compared", "indexed", "function"], indirect=True)


@pytest.fixture
def store(request, url, monkeypatch):
    """120 nodes, without an index.

    By `EACH` also with one, and with pgvector's over the codes of a function.
    """
    HashIndexVectorStore.create_table(url, DIMENSION)
    made = HashIndexVectorStore(url)
    assert made.add(NODES) == IDS
    kind = getattr(request, "param", "compared")
    if kind == "indexed":
        made.train_index(method="lsh", n_bits=16, force=True)
        # Whatever is answered is answered by the index.
        monkeypatch.delattr("pg_hashindex.contrib.documents.table.Exact")
    elif kind == "function":
        made.train_index(force=True)
    yield made
    made.close()


@pytest.fixture(scope="module")
def simple():
    own = SimpleVectorStore()
    own.add(NODES)
    return own


def asked(k=10, **options):
    options.setdefault("query_embedding", QUERY)
    return VectorStoreQuery(similarity_top_k=k, **options)


def filters(*given, **options):
    made = [MetadataFilter(key=key, operator=op, value=value) for key, op, value in given]
    return MetadataFilters(filters=made, **options)


FILTERS = [
    filters(("n", Op.EQ, 7)),
    filters(("n", Op.GT, 30), ("n", Op.LTE, 60)),
    filters(("n", Op.GTE, 110), ("n", Op.LT, 5), condition=FilterCondition.OR),
    filters(("n", Op.LT, 100), ("kind", Op.EQ, "even_"), condition=FilterCondition.NOT),
    filters(("kind", Op.NE, "even_"), ("some", Op.NE, 4.0)),
    filters(("n", Op.IN, [1, 2, 300])),
    filters(("kind", Op.IN, ["even_"])),
    filters(("some", Op.NIN, [4, 8])),
    filters(("tags", Op.CONTAINS, "t2")),
    filters(("tags", Op.ANY, ["t0", "t1"])),
    filters(("tags", Op.ALL, ["all", "t1"])),
    filters(("kind", Op.TEXT_MATCH, "dd %")),
    filters(("kind", Op.TEXT_MATCH, "even%")),
    filters(("kind", Op.TEXT_MATCH_INSENSITIVE, "EVEN_")),
    filters(("some", Op.IS_EMPTY, None)),
    filters(("none", Op.IS_EMPTY, None), ("n", Op.GT, 20)),
    # LlamaIndex's filters take no true and false, and its own store finds them by 1 and 0.
    filters(("even", Op.EQ, 1)),
    filters(("even", Op.NE, 1.0)),
    filters(("even", Op.IN, [0, 7])),
    filters(("even", Op.NIN, [1])),
    filters(),
]


@EACH
def test_answers_are_those_of_llama_index_s_own_store(store, simple):
    for given in (None, *FILTERS):
        wanted = simple.query(asked(filters=given))
        found = store.query(asked(filters=given), candidates=ROWS)
        assert found.ids == wanted.ids, given
        assert found.similarities == pytest.approx(wanted.similarities, abs=1e-5)
    # Documents that a user may see, when there are none.
    assert store.query(asked(doc_ids=[])).ids == []
    assert store.query(asked(node_ids=[])).ids == store.query(asked()).ids
    found = store.query(asked(node_ids=["003", "004"], filters=FILTERS[9]))
    assert found.ids == simple.query(asked(node_ids=["003", "004"], filters=FILTERS[9])).ids
    assert [node.ref_doc_id for node in store.query(asked(doc_ids=["doc3", "x"])).nodes] == [
        "doc3"
    ] * 10
    nested = MetadataFilters(filters=[FILTERS[0], FILTERS[5]], condition=FilterCondition.OR)
    assert sorted(store.query(asked(filters=nested)).ids) == ["001", "002", "007"]
    for threshold in (0.1, 0.4, 1.0):
        mmr = asked(mode=VectorStoreQueryMode.MMR, k=5)
        wanted = simple.query(mmr, mmr_threshold=threshold)
        found = store.query(mmr, mmr_threshold=threshold, fetch_k=ROWS, candidates=ROWS)
        assert found.ids == wanted.ids
    zeros = VectorStoreQuery([0.0] * DIMENSION, 2, mode=VectorStoreQueryMode.MMR)
    with pytest.raises(InvalidInputError, match="all zeros"):
        store.query(zeros)
    # LlamaIndex chooses by the cosine, which an embedding that failed has none of.
    store.add([TextNode(id_="failed", text="x", embedding=[0.0] * DIMENSION)])
    assert len(store.query(asked(mode=VectorStoreQueryMode.MMR, k=ROWS + 1)).ids) == ROWS


def test_a_filter_on_a_column_of_tenants_takes_the_typed_route(url, simple):
    HashIndexVectorStore.create_table(url, DIMENSION, table="parts")
    with connect(url) as connection:
        connection.execute(
            "ALTER TABLE parts ADD tenant text GENERATED ALWAYS AS (metadata ->> 'kind') STORED"
        )
        made = HashIndexVectorStore(url, table="parts")
        made.add(NODES)
        made.train_index(method="lsh", n_bits=16, force=True, tenant="tenant")
        # Without a filter, documents of all tenants are searched.
        assert made.query(asked(), candidates=ROWS).ids == simple.query(asked()).ids
        drop_filtered_search(connection)
    given = filters(("kind", Op.EQ, "even_"))
    wanted = simple.query(asked(filters=given))
    assert made.query(asked(filters=given), candidates=ROWS).ids == wanted.ids
    made.close()


def test_nodes_come_back_as_they_were(store):
    found = store.get_nodes(["007", "003", "stranger"])
    assert [node.model_dump() for node in found] == [
        {**NODES[i].model_dump(), "embedding": None} for i in (3, 7)
    ]
    changed = IndexNode(id_="003", text="other", index_id="007", embedding=QUERY)
    store.add([changed, TextNode(id_="new", text="it's new", embedding=QUERY)])
    (node,) = store.get_nodes(["003"])
    assert isinstance(node, IndexNode)
    assert (node.index_id, node.text) == ("007", "other")
    assert {node.node_id for node in store.query(asked(3)).nodes} == {"003", "004", "new"}
    assert len(store.get_nodes()) == ROWS + 1
    assert [node.node_id for node in store.get_nodes(filters=FILTERS[5])] == ["001", "002"]
    store.delete("doc1")
    assert len(store.get_nodes()) == ROWS + 1 - 12
    assert store.get_nodes(["001"]) == []
    store.delete_nodes(["002", "004"], FILTERS[5])
    assert [node.node_id for node in store.get_nodes(["002", "004"])] == ["004"]
    store.delete_nodes(filters=filters(("n", Op.GT, 50)))
    store.delete_nodes()
    store.delete_nodes(filters=MetadataFilters(filters=[]))
    assert max(node.metadata.get("n", 0) for node in store.get_nodes()) == 50
    store.clear()
    assert store.get_nodes() == []
    assert store.query(asked()).ids == []


def test_text_that_lower_case_makes_longer_matches_itself(store):
    store.add([TextNode(id_="i", text="-", metadata={"city": "İzmir"}, embedding=QUERY)])
    same = filters(("city", Op.TEXT_MATCH_INSENSITIVE, "İZMIR"))
    assert [node.node_id for node in store.get_nodes(filters=same)] == ["i"]


def test_values_from_python(store):
    """Arrays as queries, generators of nodes, and names of modes."""
    made = (TextNode(id_=name, text=name, embedding=QUERY) for name in "ab")
    assert store.add(made) == ["a", "b"]  # type: ignore[arg-type]
    for mode in ("default", "hybrid", "mmr"):
        query = {"query_embedding": np.array(QUERY), "mode": mode, "query_str": "b"}
        assert "b" in store.query(asked(np.int64(3), **query)).ids  # type: ignore[arg-type]


def test_copies_have_connections_of_their_own(store):
    wanted = store.query(asked()).ids
    copies = [copy.deepcopy(store), pickle.loads(pickle.dumps(store))]
    for each in copies:
        assert each.query(asked()).ids == wanted
        assert each.client is not store.client
        each.close()


def test_a_store_on_a_connection_has_no_copies(url, connection):
    HashIndexVectorStore.create_table(connection, 2)
    store = HashIndexVectorStore(connection)
    for copied in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="on a connection or an engine has no copies"):
            copied(store)


@pytest.mark.parametrize(
    ("message", "given"),
    [
        ("node 'bad' has no embedding", {"embedding": None}),
        (
            "metadata of node 'bad' cannot be stored: .*numpy.int64",
            {"metadata": {"n": np.int64(1)}},
        ),
        ("metadata of node 'bad' cannot be stored: .*utf-8", {"metadata": {"n": b"\xff"}}),
    ],
)
def test_nodes_that_cannot_be_stored_are_refused(url, message, given):
    HashIndexVectorStore.create_table(url, DIMENSION)
    store = HashIndexVectorStore(url)
    bad = TextNode(**{"id_": "bad", "text": "-", "embedding": QUERY, **given})
    with pytest.raises(InvalidInputError, match=message):
        store.add([NODES[0], bad])
    assert store.get_nodes() == []
    store.close()


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
async def test_one_bad_embedding_of_a_batch(url):
    HashIndexVectorStore.create_table(url, DIMENSION)
    made = HashIndexVectorStore(url)
    # Providers set it without pydantic's check.
    bad = TextNode(id_="bad", text="b").model_copy(update={"embedding": [None] * DIMENSION})
    nodes = [NODES[0], bad, NODES[1]]
    refused = pytest.raises(
        InvalidInputError,
        match="embedding 1, of document 'bad', has None in dimension 0.*nothing was written",
    )
    with refused:
        made.add(nodes)
    with refused:
        await made.async_add(nodes)
    assert made.get_nodes([*IDS[:2], "bad"]) == []
    made.close()


async def test_asynchronous_methods(store):
    await store.aclear()
    assert await store.async_add(NODES[:20]) == IDS[:20]
    assert (await store.aquery(asked(1))).ids == ["004"]
    await store.adelete("doc1")
    await store.adelete_nodes(["002"])
    left = [node.node_id for node in await store.aget_nodes(filters=filters(("n", Op.LT, 5)))]
    assert left == ["000", "003", "004"]


def fused(words, share, depth, k):
    """Reciprocal rank fusion, by hand."""
    distances = 1 - VECTORS @ VECTORS[4] / np.linalg.norm(VECTORS, axis=1) / np.linalg.norm(
        VECTORS[4]
    )
    scores = {
        IDS[i]: share / (60 + place) for place, i in enumerate(np.argsort(distances)[:depth], 1)
    }
    for place, name in enumerate(words[:depth], 1):
        scores[name] = scores.get(name, 0) + (1 - share) / (60 + place)
    order = sorted(scores, key=lambda name: (-scores[name], distances[int(name)], name))
    return {name: scores[name] for name in order[:k] if scores[name]}


@EACH
def test_words_and_vectors(store):
    # All of them rank alike, so the order is that of ids.
    words = [IDS[i] for i in range(ROWS) if i % 5 == 2]
    sparse = asked(7, query_str="word2", mode=VectorStoreQueryMode.SPARSE, query_embedding=None)
    assert store.query(sparse).ids == words[:7]
    assert (
        store.query(
            asked(9, query_str="word2 -nodes", mode=VectorStoreQueryMode.TEXT_SEARCH),
            configuration="simple",
        ).ids
        == words[:9]
    )
    for alpha, share in ((None, 0.5), (0.0, 0.0), (1.0, 1.0), (0.75, 0.75)):
        hybrid = asked(8, query_str="word2", mode=VectorStoreQueryMode.HYBRID, alpha=alpha)
        found = store.query(hybrid)
        wanted = fused(words, share, 50, 8)
        assert found.ids == list(wanted)
        assert found.similarities == pytest.approx(list(wanted.values()))
    best = asked(
        8, query_str="word2", mode=VectorStoreQueryMode.HYBRID, hybrid_top_k=3, sparse_top_k=4
    )
    assert store.query(best).ids == list(fused(words, 0.5, 8, 3))
    kept = filters(("n", Op.LT, 8))
    found = store.query(
        asked(99, query_str="word2", mode=VectorStoreQueryMode.HYBRID, filters=kept)
    )
    assert sorted(found.ids) == IDS[:8]
    assert found.ids[0] == "002" or found.ids[0] == "004"


class Named(BaseEmbedding):
    """The vector of a node whose text is its number."""

    def _get_text_embedding(self, text):
        return VECTORS[int(text.split()[-1])].tolist()

    def _get_query_embedding(self, query):
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query):
        return self._get_text_embedding(query)


async def test_an_index_of_llama_index(url):
    HashIndexVectorStore.create_table(url, DIMENSION, table="texts")
    store = HashIndexVectorStore(url, table="texts", metric="l2")
    documents = [Document(id_=f"d{i}", text=f"about {i}") for i in range(20)]
    context = StorageContext.from_defaults(vector_store=store)
    index = VectorStoreIndex.from_documents(documents, context, embed_model=Named())
    retriever = index.as_retriever(similarity_top_k=2, vector_store_kwargs={"candidates": 20})
    order = np.argsort(((VECTORS[:20] - VECTORS[3]) ** 2).sum(axis=1))[:2]
    for found in (retriever.retrieve("near 3"), await retriever.aretrieve("near 3")):
        assert [hit.node.ref_doc_id for hit in found] == [f"d{i}" for i in order]
        assert found[0].score == 1.0
    index.delete_ref_doc("d3")
    assert retriever.retrieve("near 3")[0].node.ref_doc_id == f"d{order[1]}"
    hybrid = index.as_retriever(vector_store_query_mode="hybrid", similarity_top_k=1, alpha=0.0)
    assert hybrid.retrieve("7")[0].node.ref_doc_id == "d7"
    store.close()


def test_rows_that_others_write_are_nodes(url, connection):
    HashIndexVectorStore.create_table(connection, 2)
    connection.execute(
        "INSERT INTO llama_index_nodes VALUES ('a', 'text', '{\"year\": 1996}', '[1,2]')"
    )
    store = HashIndexVectorStore(connection, metric="ip")
    found = store.query(asked(query_embedding=[1.0, 1.0]))
    assert [(node.node_id, node.text, node.metadata) for node in found.nodes] == [
        ("a", "text", {"year": 1996})
    ]
    assert found.similarities == [3.0]


#: The fault, the query and the options. They share a store, which none of them changes.
REFUSED = [
    ("unknown options: filter", {}, {"filter": 1}),
    ("mode svm", {"mode": VectorStoreQueryMode.SVM}, {}),
    ("mode default needs query_embedding", {"query_embedding": None}, {}),
    ("mode hybrid needs query_str", {"mode": VectorStoreQueryMode.HYBRID}, {}),
    (
        "vector_weight is 2",
        {"mode": VectorStoreQueryMode.HYBRID, "query_str": "a", "alpha": 2},
        {},
    ),
    ("have 2 dimensions, and vectors of table .* 8", {"query_embedding": [1.0, 2.0]}, {}),
    ("k is 0", {"k": 0}, {}),
    (r"\$in takes a list of values", {"filters": filters(("n", Op.IN, 1))}, {}),
    ("any takes a list, got 'a'", {"filters": filters(("n", Op.ANY, "a"))}, {}),
    (r"\$text takes text, got 1", {"filters": filters(("n", Op.TEXT_MATCH, 1))}, {}),
    (r"\$gt takes a number or text", {"filters": filters(("n", Op.GT, None))}, {}),
    ("unknown query mode 'best'", {"mode": "best"}, {}),
    ("mode sparse needs query_str", {"mode": "sparse"}, {}),
    ("unknown options: fetch_k; known are candidates, effort", {}, {"fetch_k": 3}),
    (
        "unknown options: candidates; known are configuration",
        {"mode": "hybrid", "query_str": "a"},
        {"candidates": 3},
    ),
    ("fetch_k is -3", {"mode": "mmr"}, {"fetch_k": -3}),
    ("mmr_threshold is 7; it must be 0 to 1", {"mode": "mmr"}, {"mmr_threshold": 7}),
    ("mmr_threshold is nan", {"mode": "mmr", "mmr_threshold": float("nan")}, {}),
    ("candidates must be an integer", {}, {"candidates": "x"}),
    ("surrogates not allowed", {"mode": "sparse", "query_str": "\ud800"}, {}),
    ("cannot contain NUL", {"mode": "hybrid", "query_str": "\0"}, {}),
]


def test_unsupported_queries_are_refused(store):
    for message, given, options in REFUSED:
        with pytest.raises(InvalidInputError, match=message):
            store.query(asked(**given), **options)


def test_ids_are_a_list_of_text(url):
    """None would match nodes of no document, and text count as a list of letters."""
    HashIndexVectorStore.create_table(url, DIMENSION)
    made = HashIndexVectorStore(url)
    loose = [
        TextNode(id_=name, text="word", embedding=vector.tolist())
        for name, vector in zip("12", VECTORS, strict=False)
    ]
    made.add(loose)
    for refused in (
        lambda: made.delete(None),
        lambda: made.delete_nodes("12"),
        lambda: made.get_nodes("12"),
        lambda: made.delete_nodes([1, 2]),
        lambda: made.query(asked(doc_ids=[None])),
        lambda: made.query(asked(node_ids="12")),
    ):
        with pytest.raises(InvalidInputError, match="ids are a list of text"):
            refused()
    assert [node.id_ for node in made.get_nodes()] == ["1", "2"]
    made.close()


def test_vectors_of_zeros_are_no_answers_without_an_index_either(url):
    HashIndexVectorStore.create_table(url, DIMENSION)
    made = HashIndexVectorStore(url)
    zero = TextNode(id_="zero", text="word", embedding=[0.0] * DIMENSION)
    made.add([*NODES[:3], zero])
    assert sorted(made.query(asked()).ids) == IDS[:3]
    assert "zero" in made.query(asked(query_embedding=[0.0] * DIMENSION)).ids
    made.close()


def test_a_forked_child_has_connections_of_its_own(url):
    connections = Connections(url)

    def backend():
        with connections.lent() as connection:
            return connection.info.backend_pid

    parents, context = backend(), multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=lambda: answers.put(backend()))
    with warnings.catch_warnings():
        # Other threads, as of xdist, do nothing here.
        warnings.simplefilter("ignore", DeprecationWarning)
        child.start()
    child.join()
    assert child.exitcode == 0
    assert answers.get() != parents
    assert backend() == parents
    connections.close()


def test_missing_parts(url, monkeypatch):
    with pytest.raises(
        InvalidInputError, match='"llama_index_nodes" does not exist; .*create_table'
    ):
        HashIndexVectorStore(url)
    monkeypatch.delitem(sys.modules, "pg_hashindex.contrib.llama_index")
    monkeypatch.setitem(sys.modules, "llama_index.core", None)
    with pytest.raises(ImportError, match="pip install '\\.\\[llama-index\\]'"):
        importlib.import_module("pg_hashindex.contrib.llama_index")
