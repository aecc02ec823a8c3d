"""The vector store: what it refuses, and where it has to be careful."""

import asyncio
import base64
import importlib
import json
import sys

import numpy as np
import pytest
import sqlalchemy as sa
from fixtures.databases import run_as_admin
from fixtures.documents import DIMENSION, EMBEDDINGS, IDS, TEXTS, stores
from fixtures.indexes import create_index
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings

from pg_hashindex import HashIndex, connect, store, training
from pg_hashindex.contrib.documents.table import Entry, as_vectors
from pg_hashindex.contrib.langchain import HashIndexVectorStore
from pg_hashindex.errors import (
    ConnectionFailedError,
    DuplicateNameError,
    InvalidInputError,
    MissingExtensionError,
    MissingRightsError,
    MissingSchemaError,
    UnknownIndexError,
)
from pg_hashindex.hashers import LSH

pytestmark = pytest.mark.newest


@pytest.fixture
def make_store(url):
    yield from stores(url)


HOSTILE = "we\"ird'; DROP TABLE x; --%s {0} $1 :x"


@pytest.mark.parametrize("indexed", [False, True])
def test_names_and_values_are_nothing_else(make_store, connection, indexed):
    connection.execute(f'CREATE SCHEMA "{HOSTILE.replace(chr(34), chr(34) * 2)}"'.encode())
    made = make_store(table=HOSTILE, schema=HOSTILE)
    if indexed:
        made.train_index("weird_idx", method="lsh", n_bits=16, force=True)
    document = Document(id=HOSTILE, page_content=HOSTILE, metadata={HOSTILE: HOSTILE, "é\\": "\n"})
    made.add_documents([document])
    assert made.get_by_ids([HOSTILE]) == [document]
    for given in ({HOSTILE: HOSTILE}, {HOSTILE: {"$gte": HOSTILE}}, {HOSTILE: {"$in": [HOSTILE]}}):
        assert made.similarity_search(HOSTILE, 5, filter=given) == [document]
    assert made.max_marginal_relevance_search(HOSTILE, 1) == [document]
    made.delete(each.id for each in [document])
    assert len(made.similarity_search(HOSTILE, 200)) == 120
    assert len(made.max_marginal_relevance_search(HOSTILE, 50)) == 50


UNSTORED = [
    ({"texts": ["a\0"], "ids": ["i"]}, "the text of document 'i' has the character NUL"),
    ({"texts": ["a"], "ids": ["\ud800"]}, "an id has half of a surrogate pair"),
    ({"texts": ["a"], "ids": [7]}, "an id must be text, got 7"),
    ({"texts": [None], "ids": ["i"]}, "the text of document 'i' must be text"),
    ({"metadatas": [{"a": b"b"}]}, "type bytes is not JSON serializable"),
    ({"metadatas": [{"a": float("nan")}]}, "not JSON compliant"),
    ({"metadatas": [{"a": ["\0"]}]}, "has the character NUL"),
    ({"metadatas": [["a"]]}, "must be a dictionary, got \\['a'\\]"),
    ({"metadatas": [{}, {}]}, "there are 1 texts and 2 metadatas"),
    ({"ids": ["a", "b"]}, "there are 1 texts and 2 ids"),
    ({"embeddings": []}, "there are 1 texts and 0 embeddings"),
    ({"embeddings": [[1.0] * 7]}, "the embeddings have 7 dimensions, and vectors of table"),
    ({"embeddings": [[float("inf")] * 8]}, "must be finite"),
    ({"embeddings": ["text"]}, "must be numbers"),
]


def test_documents_that_cannot_be_stored(make_store):
    made = make_store(texts=TEXTS[:3])
    for entry, message in UNSTORED:
        with pytest.raises(InvalidInputError, match=message):
            made.add_embeddings(**{"texts": ["a"], "embeddings": [[1.0] * 8], **entry})
    assert len(made.similarity_search("a", 10)) == 3


GOOD = [[float(n)] * DIMENSION for n in (1, 2, 3)]
BAD = {
    "is empty": [],
    f"has 3 dimensions, not {DIMENSION}": [1.0] * 3,
    f"has {DIMENSION + 1} dimensions, not {DIMENSION}": np.ones(DIMENSION + 1),
    "has nan in dimension 2; numbers must be finite": [1.0, 1.0, float("nan"), *[1.0] * 5],
    "has 1e\\+39 in dimension 0; numbers must be finite": [1e39] * DIMENSION,
    "has None in dimension 0; numbers must be finite": [None] * DIMENSION,
    r"is \['1', '1'.*; vectors must be numbers": ["1"] * DIMENSION,
    "is 'the provider is busy'; vectors must be numbers": "the provider is busy",
    "is 'AACAPwAAAEAA.*; vectors must be numbers": base64.b64encode(
        np.arange(1, DIMENSION + 1, dtype=np.float32)
    ).decode(),
    "is b'A.*; vectors must be numbers": b"AAAAAAAA",
    r"is \[\[1.0, .*; vectors must be numbers": [[1.0] * DIMENSION],
    r"is \[1.0, \[2.0\]\]; vectors must be numbers": [1.0, [2.0]],
    "is 1.0; vectors must be numbers": 1.0,
    r"is \{'embedding': .*; vectors must be numbers": {"embedding": [1.0] * DIMENSION},
}


class Provider(Embeddings):
    """Gives the embeddings that it was given."""

    def __init__(self, embeddings):
        self.given = embeddings

    def embed_documents(self, texts):
        return self.given

    def embed_query(self, text):
        return [1.0] * DIMENSION


def test_bad_embeddings_are_named():
    for problem, embedding in BAD.items():
        ids = ("one", "two", "three")
        entries = [
            Entry(name, "text", {}, given)
            for name, given in zip(ids, (GOOD[0], embedding, GOOD[1]), strict=True)
        ]
        for dimension in (None, DIMENSION):
            with pytest.raises(
                InvalidInputError,
                match=f"embedding 1, of document 'two', {problem}.*; nothing was written",
            ):
                as_vectors(entries, dimension)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_bad_embedding_of_a_batch(url, connection, place):
    """It is named by its place and its document, and nothing is written: no row and no table."""
    provider = Provider([*GOOD[:place], None, *GOOD[place:2]])
    texts, ids = ["a", "b", "c"], ["one", "two", "three"]
    refused = pytest.raises(
        InvalidInputError,
        match=f"embedding {place}, of document '{ids[place]}', is None; nothing was written",
    )
    with refused:
        HashIndexVectorStore.from_texts(texts, provider, ids=ids, connection=url)
    with refused:
        asyncio.run(HashIndexVectorStore.afrom_texts(texts, provider, ids=ids, connection=url))
    named = "SELECT to_regclass('langchain_documents') IS NULL"
    assert connection.execute(named).fetchone() == (True,)
    HashIndexVectorStore.create_table(url, DIMENSION)
    made = HashIndexVectorStore(provider, url)
    with refused:
        made.add_texts(texts, ids=ids)
    with refused:
        asyncio.run(made.aadd_texts(texts, ids=ids))
    with refused:
        made.add_documents(
            [Document(id=i, page_content=text) for i, text in zip(ids, texts, strict=True)]
        )
    with refused:
        made.add_embeddings(texts, provider.given, ids=ids)
    assert connection.execute("SELECT count(*) FROM langchain_documents").fetchone() == (0,)
    made.close()


def test_a_provider_that_gives_fewer_embeddings(url, connection):
    with pytest.raises(InvalidInputError, match="there are 3 texts and 2 embeddings"):
        HashIndexVectorStore.from_texts(["a", "b", "c"], Provider(GOOD[:2]), connection=url)
    named = "SELECT to_regclass('langchain_documents') IS NULL"
    assert connection.execute(named).fetchone() == (True,)


def test_ids_are_no_text(make_store):
    """A text's letters would be ids."""
    made = make_store(texts=[])
    made.add_texts(["a", "b"], ids=["1", "12"])
    for ask in (made.delete, made.get_by_ids):
        with pytest.raises(InvalidInputError, match="ids are a list of text, got '12'"):
            ask("12")  # type: ignore[operator]
    assert len(made.get_by_ids(["1", "12"])) == 2


def test_foreign_metadata_that_is_not_an_object(make_store, connection):
    made = make_store(texts=TEXTS[:3])
    connection.execute("UPDATE langchain_documents SET metadata = '[1]' WHERE id = '001'")
    with pytest.raises(InvalidInputError, match=r"document '001' is \[1\], not an object"):
        made.similarity_search("a", 3)
    connection.execute("UPDATE langchain_documents SET metadata = 'null' WHERE id = '001'")
    assert [document.metadata for document in made.get_by_ids(IDS[:3])] == [{}, {}, {}]


def test_a_backslash_is_no_nul(make_store):
    document = Document(id="i", page_content="\\u0000", metadata={"a": "\\u0000\\", "\\": "\\\\"})
    made = make_store(texts=[])
    made.add_documents([document])
    assert made.get_by_ids(["i"]) == [document]
    assert json.loads(document.model_dump_json())["metadata"] == document.metadata


def test_invalid_store_arguments(make_store, url, connection, empty_url, server):
    def opened(source=url, embeddings=EMBEDDINGS, **kwargs):
        return HashIndexVectorStore(embeddings, source, **kwargs)

    with pytest.raises(InvalidInputError, match='"public"."documents" does not exist; .*create_t'):
        opened(table="documents")
    with pytest.raises(InvalidInputError, match="got int"):
        opened(5)
    with pytest.raises(InvalidInputError, match="driver 'psycopg2'|driver 'pysqlite'"):
        opened(sa.create_engine("sqlite://"))
    with pytest.raises(InvalidInputError, match="metric must be cosine, l2 or ip, got 'l1'"):
        opened(metric="l1")
    connection.execute("CREATE TABLE mine (id bigint PRIMARY KEY, content text)")
    with pytest.raises(InvalidInputError, match="column id .* int8"):
        opened(table="mine")
    connection.execute("ALTER TABLE mine ALTER id TYPE text")
    with pytest.raises(InvalidInputError, match="column metadata of .* is missing"):
        opened(table="mine")
    with pytest.raises(UnknownIndexError, match="stranger"):
        make_store(index="stranger")
    made = make_store()
    made.train_index("first", method="lsh", n_bits=16, force=True)
    with pytest.raises(DuplicateNameError, match="has index 'first' already"):
        made.train_index("second", method="lsh", n_bits=16, force=True)
    with pytest.raises(InvalidInputError, match="'first' .* cosine, .* l2"):
        opened(metric="l2")
    make_store(table="other", texts=TEXTS[:3])
    with pytest.raises(InvalidInputError, match='of "public"."langchain_documents" with key id, '):
        opened(table="other", index="first")
    create_index(connection, "second", table="langchain_documents", model="first")
    with pytest.raises(InvalidInputError, match="has indexes first, second; name the one"):
        opened()
    assert len(opened(connection, index="first").similarity_search("a", 2)) == 2
    with pytest.raises(InvalidInputError, match="5 dimensions, .* 8"):
        opened(connection, DeterministicFakeEmbedding(size=5), index="first").similarity_search("a")
    with pytest.raises(InvalidInputError, match="k is 0"):
        opened(connection, index="first").similarity_search("a", 0)
    run_as_admin(server, "CREATE DATABASE langchain_bare")
    with pytest.raises(MissingExtensionError, match="CREATE EXTENSION vector"):
        opened(server.uri("langchain_bare"))
    run_as_admin(server, "DROP DATABASE langchain_bare WITH (FORCE)")


@pytest.mark.parametrize("wrong", [{"collection_name": "x"}, {"metric": "l1"}])
def test_nothing_is_embedded_for_unknown_options(empty_url, wrong):
    class NeverAsked(Embeddings):
        def embed_documents(self, texts):
            raise AssertionError(texts)

        embed_query = embed_documents

    with pytest.raises(InvalidInputError, match="collection_name|metric must be"):
        HashIndexVectorStore.from_texts(["a"], NeverAsked(), connection=empty_url, **wrong)


def test_without_our_schema_and_with_pgvector_elsewhere(make_store, empty_url):
    with connect(empty_url) as connection:
        connection.execute("CREATE SCHEMA extensions; ALTER EXTENSION vector SET SCHEMA extensions")
    made = make_store(source=empty_url, metric="l2")
    assert made.similarity_search("text 9", 1)[0].id == "009"
    assert made.max_marginal_relevance_search("text 9", 1)[0].id == "009"
    with pytest.raises(MissingSchemaError, match="pg-hashindex schema upgrade"):
        made.train_index(method="lsh", n_bits=16, force=True)


def test_a_role_that_may_not_save_models(make_store, connection, as_role, monkeypatch):
    """It hears so before it trains one."""
    make_store()
    session = as_role("langchain_trainer")
    connection.execute(
        "ALTER TABLE langchain_documents OWNER TO langchain_trainer;"
        "GRANT USAGE ON SCHEMA hashindex TO langchain_trainer;"
        "GRANT SELECT ON ALL TABLES IN SCHEMA hashindex TO langchain_trainer"
    )
    monkeypatch.delattr(training, "train")
    with pytest.raises(MissingRightsError, match="_trainer. does not administer schema"):
        HashIndexVectorStore(EMBEDDINGS, session).train_index(method="lsh", n_bits=16, force=True)


def test_a_pool_that_is_used_up(make_store, url):
    engine = sa.create_engine(
        url.replace("postgresql:", "postgresql+psycopg:", 1),
        pool_size=1,
        max_overflow=0,
        pool_timeout=0.1,
    )
    made = make_store(source=engine)
    with engine.connect(), pytest.raises(ConnectionFailedError, match="no connection of the pool"):
        made.similarity_search("a")
    assert len(made.similarity_search("a", 2)) == 2
    engine.dispose()


def test_nothing_is_embedded_for_a_store_without_a_database():
    class Dear(DeterministicFakeEmbedding):
        def embed_documents(self, texts):
            raise AssertionError("was asked for")

    with pytest.raises(InvalidInputError, match="a psycopg.Connection, got NoneType"):
        HashIndexVectorStore.from_texts(TEXTS, Dear(size=DIMENSION))


def test_a_role_that_may_not_create_a_table(make_store, connection, as_role):
    make_store()
    session = as_role("langchain_writer")
    with pytest.raises(MissingRightsError):
        make_store(source=session, table="own")
    with pytest.raises(MissingRightsError):
        make_store(source=session)
    connection.execute("GRANT SELECT, INSERT, UPDATE ON langchain_documents TO langchain_writer")
    assert len(make_store(source=session).similarity_search("question", 200)) == 120


def test_dimensions_of_tables_that_are_refused(url):
    HashIndexVectorStore.create_table(url, 8)
    HashIndexVectorStore.create_table(url, 8)
    with pytest.raises(InvalidInputError, match="9 dimensions, .* 8"):
        HashIndexVectorStore.create_table(url, 9)
    for dimension in (0, 16001, 2**40, "8"):
        with pytest.raises(InvalidInputError, match="dimension"):
            HashIndexVectorStore.create_table(url, dimension)


def test_a_role_that_may_not_read_codes(make_store, as_role):
    """It searches too, by exact distance."""
    make_store().train_index(method="lsh", n_bits=16, force=True)
    session = as_role("langchain_reader")
    with connect(session.info.dsn.replace("langchain_reader", "postgres")) as owner:
        owner.execute("GRANT SELECT ON langchain_documents TO langchain_reader")
        reader = HashIndexVectorStore(EMBEDDINGS, session)
        whole = reader.similarity_search("question", 120, candidates=1)
        assert len(whole) == 120
        with session.transaction():
            assert len(reader.similarity_search("question", 120, candidates=1)) == 120
        HashIndex.open(owner, "langchain_documents_idx").grant("langchain_reader")
        assert len(reader.similarity_search("question", 1, candidates=1)) == 1


def test_lists_of_another_length(make_store):
    made = make_store()
    for options in ({"ids": []}, {"metadatas": []}, {"ids": ["only"]}):
        with pytest.raises(InvalidInputError, match="there are 2 texts and"):
            made.add_texts(["a", "b"], **options)


def test_too_few_documents_are_not_trained_on(make_store):
    made = make_store()
    with pytest.raises(InvalidInputError, match="120 rows are too few"):
        made.train_index()
    assert made.train_index(force=True).n_projections == DIMENSION


def test_a_name_that_is_taken_is_refused_before_training(make_store, monkeypatch):
    make_store(table="first").train_index("taken", method="lsh", n_bits=16, force=True)
    made = make_store()
    monkeypatch.delattr(training, "train")
    with pytest.raises(DuplicateNameError, match='\'taken\' exists already, of "public"."first"'):
        made.train_index("taken", method="lsh", n_bits=16, force=True)


def test_half_precision_and_columns_of_the_user_s_own(url, connection):
    connection.execute(
        "CREATE TABLE mine (n int DEFAULT 5, id varchar(9) PRIMARY KEY, embedding halfvec(8), "
        "metadata jsonb, content text)"
    )
    connection.execute("INSERT INTO mine (id) VALUES ('empty')")
    made = HashIndexVectorStore(EMBEDDINGS, connection, table="mine")
    made.add_texts(TEXTS, ids=IDS)
    assert [each.id for each in made.similarity_search("text 9", 200)][:1] == ["009"]
    assert made.max_marginal_relevance_search("text 9", 1)[0].id == "009"
    assert made.get_by_ids(["empty"]) == [Document(id="empty", page_content="")]
    made.train_index(method="lsh", n_bits=16, force=True)
    assert made.similarity_search("text 9", 1)[0].id == "009"


def test_an_index_by_another_key(url, connection):
    """Its answers are not ids of documents."""
    HashIndexVectorStore.create_table(connection, DIMENSION)
    connection.execute("ALTER TABLE langchain_documents ADD n bigserial UNIQUE")
    store.save(connection, LSH(n_bits=8).fit(np.eye(8)).to_model("m", metric="cosine"))
    create_index(connection, "by_n", table="langchain_documents", model="m", key_columns="n")
    made = HashIndexVectorStore(EMBEDDINGS, connection)
    made.add_texts(["a"], ids=["x"])
    assert [document.id for document in made.similarity_search("a")] == ["x"]
    with pytest.raises(InvalidInputError, match="with key n, not of column embedding of"):
        HashIndexVectorStore(EMBEDDINGS, connection, index="by_n")


def test_without_langchain(monkeypatch):
    monkeypatch.delitem(sys.modules, "pg_hashindex.contrib.langchain")
    monkeypatch.setitem(sys.modules, "langchain_core", None)
    with pytest.raises(ImportError, match="pip install '\\.\\[langchain\\]'"):
        importlib.import_module("pg_hashindex.contrib.langchain")
