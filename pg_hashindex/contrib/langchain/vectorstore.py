"""The vector store: documents of LangChain's in a table, searched by an index of ours."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

from langchain_core.documents import Document
from langchain_core.runnables import run_in_executor
from numpy.typing import ArrayLike

from ...errors import InvalidInputError
from ...index.catalog import Access
from ...training.sampling import SAMPLE_ROWS
from .connections import Connections, Source
from .documents import DocumentTable
from .entries import Entry
from .indexed import IndexedDocuments
from .searches import DocumentSearches, document_of, refuse

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings

    from ...models.model import Metric, Model

__all__ = ["HashIndexVectorStore"]

_TABLE = "langchain_documents"


class HashIndexVectorStore(DocumentSearches):
    """A vector store of LangChain's on a table of documents.

    The table has columns ``id text``, ``content text``, ``metadata jsonb`` and
    ``embedding vector``. Searches go by an index of pg_hashindex once there is one that has encoded
    every document (`train_index` makes it), and compare the query with all documents until then.
    What others write to the table is found too.

    Parameters
    ----------
    embeddings : langchain_core.embeddings.Embeddings
    connection : str, sqlalchemy.Engine or psycopg.Connection
        A URL, of which a pool of connections is made. One connection serves one search at a time,
        inside a transaction of the caller's where it is in one.
    table, schema : str
        As they are, without quotes.
    metric : {"cosine", "l2", "ip"}
        What documents are near by; that of the index too.
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
            Of the embeddings.
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
        # Of no text at all, one more tells the dimension.
        first: Any = vectors[0] if len(vectors) else embeddings.embed_query("dimension")
        named = {name: kwargs[name] for name in ("table", "schema") if name in kwargs}
        cls.create_table(connections, len(first), **named)
        made = cls(embeddings, connections, **kwargs)
        made.add_embeddings(texts, vectors, metadatas, ids=ids)
        return made

    @property
    def embeddings(self) -> Embeddings:
        """The model that texts are embedded with."""
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
            Random ones where they, or some of them, are missing.

        Returns
        -------
        list of str
            The ids.

        Raises
        ------
        InvalidInputError
            If a text, id, vector or metadata cannot be stored; nothing is written then.
        """
        refuse(kwargs)
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
        refuse(kwargs)
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
        """Write texts whose vectors are known already; else as `add_texts`."""
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
        refuse(kwargs)
        self._documents.delete(ids)
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return documents in the order of their ids; those that are not there are left out."""
        return [document_of(row) for row in self._documents.read(ids)]

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

        Searches and writers go on meanwhile; every store on this table takes the index as soon as
        all documents are encoded.

        Parameters
        ----------
        name : str, optional
            Of the index and of the model; that of the table with ``_idx`` by default.
        method : str
            One that learns from vectors alone.
        n_bits : int, optional
            256 by default, as many as dimensions where those are fewer; ``sign`` takes none.
        rows, parameters, random_state, force, progress
            As `pg_hashindex.training.sampling.sample_table` and `pg_hashindex.training.train`.
        access : {"scan", "lookup", "landmarks", "hnsw"}
            As `pg_hashindex.HashIndex.create`.

        Returns
        -------
        Model
            As it was saved; ``training`` has its recall on documents that were held back.

        Raises
        ------
        DuplicateNameError
            If the table has an index already; `pg_hashindex.HashIndex.swap` gives it another model.
        InvalidInputError
            If there are too few documents, or the connection is inside a transaction.
        """
        return self._documents.train_index(
            name, method, n_bits, rows, parameters, access, random_state, force, progress
        )
