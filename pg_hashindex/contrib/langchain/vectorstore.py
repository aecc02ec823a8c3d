"""A vector store for LangChain: documents in a table, searched by an index of pg_hashindex."""

from __future__ import annotations

import operator
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np
from langchain_core.documents import Document
from langchain_core.runnables import run_in_executor
from langchain_core.vectorstores import VectorStore
from langchain_core.vectorstores.utils import maximal_marginal_relevance
from numpy.typing import ArrayLike

from ...errors import InvalidInputError
from ...index.search import as_count, as_query
from ...models.vectors import as_vector
from ..documents.connections import Connections, Source
from ..documents.filters import expression_of, shallow
from ..documents.indexed import IndexedDocuments, StoreOptions, check_metric
from ..documents.store import DocumentStore, refuse_unknown
from ..documents.table import Entry, Row, as_vectors

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings

    from ...models.model import Metric

# Options of searches beside query and k; of searches by vector and words.
_OPTIONS = ("filter", "candidates", "effort")
_HYBRID_OPTIONS = ("filter", "vector_weight", "depth", "configuration")


class HashIndexVectorStore(DocumentStore, VectorStore):
    """A vector store for LangChain on a table of documents.

    The table has columns ``id text``, ``content text``, ``metadata jsonb`` and ``embedding
    vector``. Searches go by pgvector's index on codes once `train_index` has made it, or by one of
    pg_hashindex that has encoded every document, and compare the query with all until then.
    Documents that others write to the table are found too. Asynchronous methods use the database in
    a thread.

    Parameters
    ----------
    connection
        A URL is made into a pool of connections. A single connection serves one search at a time,
        inside the caller's transaction if there is one.
    table
        As it is, without quotes.
    relevance_score_fn
        From distances to scores from 0 to 1. By default LangChain's own for ``cosine`` and
        ``l2``, and the inner product for ``ip``.
    **options
        ``schema`` of the table; ``metric``, the distance of searches and of the index
        (``"cosine"``, ``"l2"`` or ``"ip"``); ``index``, the one to search by, where the table has
        several. The table belongs to the caller, to the administrator of schema ``hashindex``, or
        to a role with the rights of one of them: its owner can run code as whoever uses it.

    Raises
    ------
    InvalidInputError
        If the table is missing (see `create_table`), has other columns, or several indexes.
    UnknownIndexError
        If there is no index of that name.
    ConnectionFailedError, MissingExtensionError
    """

    _TABLE = "langchain_documents"

    def __init__(
        self,
        embeddings: Embeddings,
        connection: Source,
        *,
        table: str = _TABLE,
        relevance_score_fn: Callable[[float], float] | None = None,
        **options: Unpack[StoreOptions],
    ) -> None:
        self._documents = IndexedDocuments(connection, table, **options)
        self._embeddings = embeddings
        self._score_fn = relevance_score_fn

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Make a store of texts, and its table where that is missing.

        Parameters
        ----------
        texts, embedding, metadatas, ids
            As `add_texts`.
        **kwargs
            ``connection``, and the other parameters of the class.
        """
        connections = _connections_of(kwargs)
        texts = list(texts)
        vectors = embedding.embed_documents(texts)
        return cls._made_of(connections, texts, vectors, embedding, metadatas, ids, **kwargs)

    @classmethod
    async def afrom_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **kwargs: Any,
    ) -> Self:
        """As `from_texts`, with the embeddings' own asynchronous methods."""
        connections = _connections_of(kwargs)
        texts = list(texts)
        vectors = await embedding.aembed_documents(texts)
        return await run_in_executor(
            None, cls._made_of, connections, texts, vectors, embedding, metadatas, ids, **kwargs
        )

    @classmethod
    def _made_of(
        cls,
        connections: Connections,
        texts: list[str],
        vectors: Sequence[ArrayLike],
        embeddings: Embeddings,
        metadatas: list[dict[str, Any]] | None,
        ids: list[str] | None,
        **kwargs: Any,
    ) -> Self:
        entries = _entries(texts, vectors, metadatas, ids)
        if entries:
            dimension = as_vectors(entries).shape[1]
        else:
            dimension = as_query(embeddings.embed_query("dimension"), None).dimensions()
        named = {name: kwargs[name] for name in ("table", "schema") if name in kwargs}
        cls.create_table(connections, dimension, **named)
        made = cls(embeddings, connections, **kwargs)
        made._documents.write(entries)
        return made

    @property
    def embeddings(self) -> Embeddings:
        """The model that embeds texts."""
        return self._embeddings

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Embed texts and write them; those whose ids are there already are replaced.

        Parameters
        ----------
        metadatas
            What JSON can hold.
        ids
            Missing ids are made at random.
        batch_size
            Given by LangChain's `index`; has no effect, since all texts are written or none.

        Returns
        -------
        list of str
            The ids.

        Raises
        ------
        InvalidInputError
            If a text, id, vector or metadata cannot be stored; nothing is written then.
        """
        refuse_unknown(kwargs, ())
        texts = list(texts)
        return self.add_embeddings(
            texts, self._embeddings.embed_documents(texts), metadatas, ids=ids
        )

    async def aadd_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """As `add_texts`, with the embeddings' own asynchronous methods."""
        refuse_unknown(kwargs, ())
        texts = list(texts)
        vectors = await self._embeddings.aembed_documents(texts)
        return await run_in_executor(None, self.add_embeddings, texts, vectors, metadatas, ids=ids)

    def add_embeddings(
        self,
        texts: Iterable[str],
        embeddings: Sequence[ArrayLike],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
    ) -> list[str]:
        """Write texts with given vectors; else as `add_texts`."""
        entries = _entries(list(texts), embeddings, metadatas, ids)
        self._documents.write(entries)
        return [entry.id for entry in entries]

    def delete(self, ids: list[str] | None = None, **kwargs: Any) -> bool:
        """Delete documents by their ids, all of them where ids is None."""
        refuse_unknown(kwargs, ())
        self._documents.delete(ids)
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return documents in the order of their ids; those that are not there are left out."""
        return [_document_of(row) for row in self._documents.read(ids)]

    def similarity_search(self, query: str, k: int = 4, **options: Any) -> list[Document]:
        """Return the documents nearest to a text.

        Parameters
        ----------
        **options
            ``filter``, a dictionary or an SQLAlchemy expression on the table, is applied before the
            k nearest documents are chosen. ``candidates`` and ``effort`` are those of
            `pg_hashindex.HashIndex.search`; without an index they have no effect. With
            ``vector_weight``, 0 to 1, documents are also found by the words of the query, and
            ``depth`` and ``configuration`` are those of `pg_hashindex.HashIndex.hybrid`.

        Raises
        ------
        InvalidInputError
            If the embeddings are of another dimension than the documents', or an option is unknown
            or out of range.
        """
        return _documents(self.similarity_search_with_score(query, k, **options))

    async def asimilarity_search(self, query: str, *args: Any, **options: Any) -> list[Document]:
        """As `similarity_search`, with the embeddings' own asynchronous methods."""
        return _documents(await self.asimilarity_search_with_score(query, *args, **options))

    def similarity_search_with_score(
        self, query: str, k: int = 4, **options: Any
    ) -> list[tuple[Document, float]]:
        """Return the documents nearest to a text, and their distances as pgvector gives them.

        With ``vector_weight``, scores of both lists instead; greater ones are better.
        """
        return self._scored(self._embeddings.embed_query(query), query, k, options)

    async def asimilarity_search_with_score(
        self, query: str, k: int = 4, **options: Any
    ) -> list[tuple[Document, float]]:
        """As `similarity_search_with_score`, with the embeddings' own asynchronous methods."""
        vector = await self._embeddings.aembed_query(query)
        return await run_in_executor(None, self._scored, vector, query, k, options)

    def _scored(
        self, embedding: ArrayLike, words: str, k: int, options: dict[str, Any]
    ) -> list[tuple[Document, float]]:
        if "vector_weight" not in options:
            return self.similarity_search_with_score_by_vector(embedding, k, **options)
        refuse_unknown(options, _HYBRID_OPTIONS)
        asked: dict[str, Any] = {**options}
        with shallow():
            where = expression_of(asked.pop("filter", None), self._documents.table.columns.metadata)
            found = self._documents.hybrid(embedding, words, k, where, **asked)
        return [(_document_of(row), score) for row, score in found]

    def similarity_search_by_vector(
        self, embedding: list[float], k: int = 4, **options: Any
    ) -> list[Document]:
        """Return the documents nearest to a vector."""
        return _documents(self.similarity_search_with_score_by_vector(embedding, k, **options))

    def similarity_search_with_score_by_vector(
        self, embedding: ArrayLike, k: int = 4, **options: Any
    ) -> list[tuple[Document, float]]:
        """Return the documents nearest to a vector, and their distances."""
        found = self._search(embedding, k, options)
        return [(_document_of(row), distance) for row, distance in found]

    def max_marginal_relevance_search(
        self, query: str, *args: Any, **options: Any
    ) -> list[Document]:
        """As `max_marginal_relevance_search_by_vector`, for a text."""
        vector = self._embeddings.embed_query(query)
        return self.max_marginal_relevance_search_by_vector(vector, *args, **options)

    async def amax_marginal_relevance_search(
        self, query: str, *args: Any, **options: Any
    ) -> list[Document]:
        """As `max_marginal_relevance_search`, with the embeddings' own asynchronous methods."""
        vector = await self._embeddings.aembed_query(query)
        return await self.amax_marginal_relevance_search_by_vector(vector, *args, **options)

    def max_marginal_relevance_search_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        **options: Any,
    ) -> list[Document]:
        """Return documents that are near to a vector and unlike each other.

        Parameters
        ----------
        fetch_k
            The number of nearest documents to choose from, at least ``k``.
        lambda_mult
            From 0, for the most diversity, to 1.
        **options
            As `similarity_search`.
        """
        fetch_k = max(as_count("fetch_k", fetch_k), as_count("k", k))
        found = self._search(embedding, fetch_k, options, with_embedding=True)
        # Lengths overflow in half precision, and not in float32.
        near = [
            (row, as_vector(row.embedding).to_numpy())
            for row, _ in found
            if row.embedding is not None
        ]
        vectors: Any = [vector for _, vector in near]
        chosen = maximal_marginal_relevance(np.asarray(embedding), vectors, lambda_mult, k)
        return [_document_of(near[place][0]) for place in chosen]

    def _similarity_search_with_relevance_scores(
        self, *args: Any, **options: Any
    ) -> list[tuple[Document, float]]:
        _refuse_scores(options)
        return super()._similarity_search_with_relevance_scores(*args, **options)

    async def _asimilarity_search_with_relevance_scores(
        self, *args: Any, **options: Any
    ) -> list[tuple[Document, float]]:
        _refuse_scores(options)
        return await super()._asimilarity_search_with_relevance_scores(*args, **options)

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        if self._score_fn is not None:
            return self._score_fn
        by_metric: dict[Metric, Callable[[float], float]] = {
            "cosine": self._cosine_relevance_score_fn,
            "l2": self._euclidean_relevance_score_fn,
            # LangChain's function would score vectors that point away from the query above near
            # ones.
            "ip": operator.neg,
        }
        return by_metric[self._documents.metric]

    def _search(
        self, embedding: ArrayLike, k: int, options: dict[str, Any], *, with_embedding: bool = False
    ) -> list[tuple[Row, float]]:
        refuse_unknown(options, _OPTIONS)
        with shallow():
            where = expression_of(options.get("filter"), self._documents.table.columns.metadata)
            asked: Any = {**options, "where": where}
            asked.pop("filter", None)
            return self._documents.search(embedding, k, asked, with_embedding=with_embedding)


def _connections_of(options: dict[str, Any]) -> Connections:
    """Take the connection out of the options of a store, and refuse unknown ones."""
    known = ("connection", "table", "relevance_score_fn", *StoreOptions.__annotations__)
    refuse_unknown(options, known)
    check_metric(options.get("metric", "cosine"))
    return Connections.of(options.pop("connection", None))


def _entries(
    texts: Sequence[str],
    embeddings: Sequence[ArrayLike],
    metadatas: Sequence[dict[str, Any]] | None,
    ids: Sequence[str | None] | None,
) -> list[Entry]:
    """Return documents to be written; those without an id get one."""
    ids = [None] * len(texts) if ids is None else ids
    given = [str(uuid.uuid4()) if identifier is None else identifier for identifier in ids]
    metadatas = [{}] * len(texts) if metadatas is None else metadatas
    for what, values in (("ids", given), ("metadatas", metadatas), ("embeddings", embeddings)):
        if len(values) != len(texts):
            raise InvalidInputError(f"there are {len(texts)} texts and {len(values)} {what}")
    return [Entry(*parts) for parts in zip(given, texts, metadatas, embeddings, strict=True)]


def _document_of(row: Row) -> Document:
    """Return a row as a document of LangChain."""
    return Document(id=row.id, page_content=row.content, metadata=row.metadata)


def _documents(found: list[tuple[Document, float]]) -> list[Document]:
    return [document for document, _ in found]


def _refuse_scores(options: dict[str, Any]) -> None:
    if "vector_weight" in options:
        raise InvalidInputError(
            "a search with vector_weight ranks by places, without relevance scores"
        )
