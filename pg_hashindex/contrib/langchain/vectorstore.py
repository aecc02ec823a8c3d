"""A vector store for LangChain: documents in a table, searched by an index of pg_hashindex."""

from __future__ import annotations

import operator
import shlex
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from langchain_core.documents import Document
from langchain_core.runnables import run_in_executor
from langchain_core.vectorstores import VectorStore
from langchain_core.vectorstores.utils import maximal_marginal_relevance
from numpy.typing import ArrayLike

from ... import training
from ...db.connection import outside_transactions
from ...errors import DuplicateNameError, InvalidInputError
from ...index.catalog import Access
from ...index.handle import HashIndex
from ...index.search import Asked
from ...models import store
from ...models.vectors import as_vector
from ...training import sampling
from ...training.sampling import SAMPLE_ROWS
from .connections import Connections, Source
from .documents import COLUMN, DocumentTable, Entry, Row
from .filters import expression_of
from .indexed import IndexedDocuments

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings

    from ...models.model import Metric, Model

__all__ = ["HashIndexVectorStore"]

_TABLE = "langchain_documents"
_MOST_BITS = 256
# Options of searches beside query and k.
_OPTIONS = ("filter", "candidates", "probes")


class HashIndexVectorStore(VectorStore):
    """A vector store for LangChain on a table of documents.

    The table has columns ``id text``, ``content text``, ``metadata jsonb`` and ``embedding
    vector``. Searches go by an index of pg_hashindex once there is one that has encoded every
    document (`train_index` makes it), and compare the query with all documents until then.
    Documents that others write to the table are found too. Asynchronous methods use the database in
    a thread.

    Parameters
    ----------
    embeddings : langchain_core.embeddings.Embeddings
    connection : str, sqlalchemy.Engine or psycopg.Connection
        A URL is made into a pool of connections. A single connection serves one search at a time,
        inside the caller's transaction if there is one.
    table, schema : str
        As they are, without quotes.
    metric : {"cosine", "l2", "ip"}
        The distance of searches and of the index.
    index : str, optional
        The index to search by, where the table has several.
    relevance_score_fn : callable, optional
        From distances to scores from 0 to 1. By default LangChain's own for ``cosine`` and
        ``l2``, and the inner product for ``ip``.

    Raises
    ------
    InvalidInputError
        If the table is missing (see `create_table`), has other columns, or several indexes.
    UnknownIndexError
        If there is no index of that name.
    ConnectionFailedError, MissingExtensionError
    """

    def __init__(
        self,
        embeddings: Embeddings,
        connection: Source,
        *,
        table: str = _TABLE,
        schema: str = "public",
        metric: Metric = "cosine",
        index: str | None = None,
        relevance_score_fn: Callable[[float], float] | None = None,
    ) -> None:
        self._documents = IndexedDocuments(
            Connections.of(connection), table=table, schema=schema, metric=metric, index=index
        )
        self._embeddings = embeddings
        self._score_fn = relevance_score_fn

    @classmethod
    def create_table(
        cls, connection: Source, dimension: int, *, table: str = _TABLE, schema: str = "public"
    ) -> None:
        """Create a table of documents, unless it is there.

        Parameters
        ----------
        connection : str, sqlalchemy.Engine or psycopg.Connection
        dimension : int
            The dimension of the embeddings.
        table, schema : str
            As they are, without quotes.
        """
        with ExitStack() as stack:
            connections = Connections.of(connection)
            if connections is not connection:
                stack.callback(connections.close)
            with connections.lent() as lent:
                DocumentTable.create(lent, schema, table, dimension)

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
        connections = Connections.of(kwargs.pop("connection", None))
        vectors = embedding.embed_documents(list(texts))
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
        connections = Connections.of(kwargs.pop("connection", None))
        vectors = await embedding.aembed_documents(list(texts))
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
        # Without texts, embed one to know the dimension.
        first: Any = vectors[0] if len(vectors) else embeddings.embed_query("dimension")
        named = {name: kwargs[name] for name in ("table", "schema") if name in kwargs}
        cls.create_table(connections, len(first), **named)
        made = cls(embeddings, connections, **kwargs)
        made.add_embeddings(texts, vectors, metadatas, ids=ids)
        return made

    @property
    def embeddings(self) -> Embeddings:
        """The model that embeds texts."""
        return self._embeddings

    def close(self) -> None:
        """Close the connections that were opened for a URL; else do nothing."""
        self._documents.connections.close()

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Embed texts and write them; those whose ids are there already are replaced.

        Parameters
        ----------
        texts : iterable of str
        metadatas : list of dict, optional
            What JSON can hold.
        ids : list of str, optional
            Missing ids are made at random.

        Returns
        -------
        list of str
            The ids.

        Raises
        ------
        InvalidInputError
            If a text, id, vector or metadata cannot be stored; nothing is written then.
        """
        _refuse(kwargs)
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
        **kwargs: Any,
    ) -> list[str]:
        """As `add_texts`, with the embeddings' own asynchronous methods."""
        _refuse(kwargs)
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
        texts = list(texts)
        given = [identifier or str(uuid.uuid4()) for identifier in ids or [None] * len(texts)]
        metadatas = metadatas or [{}] * len(texts)
        for what, values in (("ids", given), ("metadatas", metadatas), ("embeddings", embeddings)):
            if len(values) != len(texts):
                raise InvalidInputError(f"there are {len(texts)} texts and {len(values)} {what}")
        entries = [Entry(*parts) for parts in zip(given, texts, metadatas, embeddings, strict=True)]
        self._documents.write(entries)
        return given

    def delete(self, ids: list[str] | None = None, **kwargs: Any) -> bool:
        """Delete documents by their ids, all of them where ids is None."""
        _refuse(kwargs)
        self._documents.delete(ids)
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return documents in the order of their ids; those that are not there are left out."""
        return [_document_of(row) for row in self._documents.read(ids)]

    def train_index(
        self,
        name: str | None = None,
        *,
        method: str = "itq",
        n_bits: int | None = None,
        rows: int = SAMPLE_ROWS,
        parameters: dict[str, Any] | None = None,
        access: Access = "scan",
        random_state: int = 0,
        force: bool = False,
        progress: bool = False,
    ) -> Model:
        """Train a model on the documents, and index them by it.

        Searches and writers do not wait; every store on this table uses the index as soon as
        all documents are encoded.

        Parameters
        ----------
        name : str, optional
            The name of the index and of the model; by default the table's name with ``_idx``.
        method : str
            A method that learns from vectors only.
        n_bits : int, optional
            By default 256, or the number of dimensions if that is less; ``sign`` takes none.
        rows, parameters, random_state, force, progress
            As `pg_hashindex.training.sampling.sample_table` and `pg_hashindex.training.train`.
        access : {"scan", "lookup", "landmarks", "hnsw"}
            As `pg_hashindex.HashIndex.create`.

        Returns
        -------
        Model
            The saved model; ``training`` has its recall on held-back documents.

        Raises
        ------
        DuplicateNameError
            If the table has an index already; `pg_hashindex.HashIndex.swap` gives it another model.
        InvalidInputError
            If there are too few documents, or the connection is inside a transaction.
        """
        documents = self._documents
        why = "an index is trained and encoded in many transactions"
        with documents.connections.lent() as lent, outside_transactions(lent, why):
            table = documents.table.as_sql(lent)
            index = documents.index(lent)
            if index is not None:
                raise DuplicateNameError(
                    f"table {table} has index {index.name!r} already; train another model for it, "
                    f"and run: pg-hashindex index swap {shlex.quote(index.name)} --model MODEL"
                )
            store.check_may_save(lent)
            name = name or f"{documents.table.name}_idx"
            drawn = sampling.sample_table(
                lent, table, COLUMN, rows=rows, random_state=random_state, progress=progress
            )
            if n_bits is None and method != "sign":
                n_bits = min(_MOST_BITS, drawn.X.shape[1])
            model = training.train(
                drawn.X,
                name,
                method,
                n_bits=n_bits,
                metric=documents.metric,
                random_state=random_state,
                parameters=parameters,
                force=force,
                progress=progress,
            )
            with lent.transaction():
                model = store.save(lent, model)
                made = HashIndex.create(
                    lent,
                    name,
                    table=table,
                    column=COLUMN,
                    model=f"{name}:{model.version}",
                    id_column="id",
                    access=access,
                )
            made.encode(progress=progress)
        return model

    def similarity_search(self, query: str, k: int = 4, **options: Any) -> list[Document]:
        """Return the documents nearest to a text.

        Parameters
        ----------
        query : str
        k : int
        **options
            ``filter``, a dictionary or an SQLAlchemy expression on the table, is applied before the
            k nearest documents are chosen. ``candidates`` and ``probes`` are those of
            `pg_hashindex.HashIndex.search`; without an index they have no effect.

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
        """Return the documents nearest to a text, and their distances as pgvector gives them."""
        vector = self._embeddings.embed_query(query)
        return self.similarity_search_with_score_by_vector(vector, k, **options)

    async def asimilarity_search_with_score(
        self, query: str, k: int = 4, **options: Any
    ) -> list[tuple[Document, float]]:
        """As `similarity_search_with_score`, with the embeddings' own asynchronous methods."""
        vector = await self._embeddings.aembed_query(query)
        return await run_in_executor(
            None, self.similarity_search_with_score_by_vector, vector, k, **options
        )

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
        embedding : list of float
        k : int
        fetch_k : int
            The number of nearest documents to choose from.
        lambda_mult : float
            From 0, for the most diversity, to 1.
        **options
            As `similarity_search`.
        """
        found = self._search(embedding, fetch_k, options, with_embedding=True)
        # In float32, since lengths overflow in half precision.
        near = [
            (row, as_vector(row.embedding).to_numpy())
            for row, _ in found
            if row.embedding is not None
        ]
        vectors: Any = [vector for _, vector in near]
        chosen = maximal_marginal_relevance(np.asarray(embedding), vectors, lambda_mult, k)
        return [_document_of(near[place][0]) for place in chosen]

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
        _refuse(set(options) - set(_OPTIONS))
        try:
            asked = Asked(
                where=expression_of(options.get("filter"), self._documents.table.metadata)
            )
            for name in _OPTIONS[1:]:
                asked[name] = options.get(name)  # type: ignore[literal-required]
            return self._documents.search(embedding, k, asked, with_embedding=with_embedding)
        except RecursionError as error:
            raise InvalidInputError("the filter is nested too deeply") from error


def _document_of(row: Row) -> Document:
    """Return a row as a document of LangChain."""
    return Document(id=row.id, page_content=row.content, metadata=row.metadata)


def _documents(found: list[tuple[Document, float]]) -> list[Document]:
    return [document for document, _ in found]


def _refuse(unknown: Collection[str]) -> None:
    """Refuse unknown options, which would be ignored: a misspelt filter, say."""
    if unknown:
        raise InvalidInputError(
            f"{', '.join(sorted(unknown))} is nothing that a HashIndexVectorStore takes here; "
            f"searches take {', '.join(_OPTIONS)}"
        )
