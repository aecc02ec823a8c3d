"""Retrieval for a language model with LangChain: find documents, and write the prompt."""

import os

from langchain_core.embeddings import Embeddings
from langchain_core.prompts import PromptTemplate
from langchain_core.runnables import RunnableLambda
from pgvector import Vector

from pg_hashindex import HashIndex, connect, store
from pg_hashindex.contrib.langchain import HashIndexVectorStore

URL = os.environ["PG_HASHINDEX_DATABASE_URL"]
PROMPT = "Answer from these packages alone:\n{context}\n\nWhat else is like {question}?"


class KnownEmbeddings(Embeddings):
    """Stands for your embedding model: knows the packages of the demo by name."""

    def embed_query(self, text: str) -> list[float]:
        with connect(URL) as connection:
            (found,) = connection.execute(
                "SELECT embedding FROM packages WHERE name = %s", [text]
            ).fetchone() or (Vector([0.0] * 384),)
        return list(found.to_list())

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]


HashIndexVectorStore.create_table(URL, 384, table="example_documents")
documents = HashIndexVectorStore(KnownEmbeddings(), URL, table="example_documents")
with connect(URL) as connection:
    connection.execute(
        "INSERT INTO example_documents (id, content, metadata, embedding) "
        "SELECT id::text, name || ': ' || description, jsonb_build_object('section', section), "
        "embedding FROM packages"
    )
model = documents.train_index()

retriever = documents.as_retriever(search_kwargs={"k": 3, "filter": {"section": "web"}})
chain = (
    {
        "context": retriever
        | RunnableLambda(lambda found: "\n".join(f"- {d.page_content}" for d in found)),
        "question": RunnableLambda(lambda question: question),
    }
    | PromptTemplate.from_template(PROMPT)
    # | your language model
)
print(chain.invoke("nginx").to_string())

with connect(URL) as connection:
    HashIndex.open(connection, model.name).drop()
    connection.execute("DROP TABLE example_documents")
    store.drop(connection, f"{model.name}:{model.version}")
documents.close()
