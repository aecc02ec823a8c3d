"""LangChain's own tests of vector stores, without an index, with one, and with a function."""

import numpy as np
import pytest
from fixtures.databases import run_as_admin
from fixtures.indexes import create_index
from langchain_tests.integration_tests import VectorStoreIntegrationTests
from langchain_tests.integration_tests.vectorstores import EMBEDDING_SIZE

from pg_hashindex import connect, store
from pg_hashindex.contrib.langchain import HashIndexVectorStore
from pg_hashindex.hashers import LSH

pytestmark = pytest.mark.newest

TABLES = ("plain", "indexed", "function")


@pytest.fixture(scope="module")
def stores(server, schema_template):
    """Three stores: all tests empty what they find."""
    run_as_admin(server, f"CREATE DATABASE langchain_standard TEMPLATE {schema_template}")
    url = server.uri("langchain_standard")
    embeddings = VectorStoreIntegrationTests.get_embeddings()
    rows = np.random.default_rng(0).standard_normal((200, EMBEDDING_SIZE))
    with connect(url) as connection:
        store.save(connection, LSH(n_bits=8).fit(rows).to_model("lsh", metric="cosine"))
        for table in TABLES:
            HashIndexVectorStore.create_table(connection, EMBEDDING_SIZE, table=table)
        create_index(connection, "indexed_idx", table="indexed")
    made = {table: HashIndexVectorStore(embeddings, url, table=table) for table in TABLES}
    made["function"].add_embeddings(map(str, range(200)), rows)
    made["function"].train_index(force=True)
    yield dict(made)
    for each in made.values():
        each.close()
    run_as_admin(server, "DROP DATABASE langchain_standard WITH (FORCE)")


class TestWithoutAnIndex(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, stores):
        yield stores["plain"]
        stores["plain"].delete()


class TestByAFunction(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, stores):
        stores["function"].delete()
        yield stores["function"]
        stores["function"].delete()


class TestByCodes(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, stores, monkeypatch):
        # Whatever is answered is answered by the index.
        monkeypatch.delattr("pg_hashindex.contrib.documents.table.Exact")
        yield stores["indexed"]
        stores["indexed"].delete()
