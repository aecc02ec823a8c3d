"""The searches of the vector store."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import numpy as np
from langchain_core.documents import Document
from langchain_core.runnables import run_in_executor
from langchain_core.vectorstores import VectorStore
from langchain_core.vectorstores.utils import maximal_marginal_relevance
from numpy.typing import ArrayLike

from ...errors import InvalidInputError
from ...index.search import Asked
from ...models.vectors import as_vector
from .entries import Row
from .filters import expression_of
from .indexed import IndexedDocuments

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings

    from ...models.model import Metric

__all__ = ["DocumentSearches", "document_of", "refuse"]

#: What searches take beside query and k.
OPTIONS = ("filter", "candidates", "probes")


class DocumentSearches(VectorStore):
    """The half of the vector store that reads.

    The database works in a thread where asynchronous methods wait for it.
    """

    _documents: IndexedDocuments
    _embeddings: Embeddings
    _score_fn: Callable[[float], float] | None

    def similarity_search(self, query: str, k: int = 4, **options: Any) -> list[Document]:
        """Return the documents nearest to a text.

        Parameters
        ----------
        query : str
        k : int
        **options
            ``filter``, a dictionary or an SQLAlchemy expression on the table, restricts the
            documents that are searched, not the answers. ``candidates`` and ``probes`` are those of
            `pg_hashindex.HashIndex.search`; without an index they say nothing.

        Raises
        ------
        InvalidInputError
            If the embeddings are of another dimension than the documents', or an option is unknown
            or out of range.
        """
        return _documents(self.similarity_search_with_score(query, k, **options))

    async def asimilarity_search(self, query: str, k: int = 4, **options: Any) -> list[Document]:
        """As `similarity_search`, with the embeddings' own asynchronous methods."""
        return _documents(await self.asimilarity_search_with_score(query, k, **options))

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
        return [(document_of(row), distance) for row, distance in found]

    def max_marginal_relevance_search(
        self,
        query: str,
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        **options: Any,
    ) -> list[Document]:
        """Return documents that are near to a text and unlike each other.

        Parameters
        ----------
        query : str
        k : int
        fetch_k : int
            How many of the nearest they are chosen from.
        lambda_mult : float
            From 0, for the most diversity, to 1.
        **options
            As `similarity_search`.
        """
        vector = self._embeddings.embed_query(query)
        return self.max_marginal_relevance_search_by_vector(
            vector, k, fetch_k, lambda_mult, **options
        )

    async def amax_marginal_relevance_search(
        self,
        query: str,
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        **options: Any,
    ) -> list[Document]:
        """As `max_marginal_relevance_search`, with the embeddings' own asynchronous methods."""
        vector = await self._embeddings.aembed_query(query)
        return await self.amax_marginal_relevance_search_by_vector(
            vector, k, fetch_k, lambda_mult, **options
        )

    def max_marginal_relevance_search_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        **options: Any,
    ) -> list[Document]:
        """Return documents that are near to a vector and unlike each other."""
        found = self._search(embedding, fetch_k, options, with_embedding=True)
        # As float32: lengths overflow in half precision.
        near = [
            (row, as_vector(row.embedding).to_numpy())
            for row, _ in found
            if row.embedding is not None
        ]
        vectors: Any = [vector for _, vector in near]
        chosen = maximal_marginal_relevance(np.asarray(embedding), vectors, lambda_mult, k)
        return [document_of(near[place][0]) for place in chosen]

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        if self._score_fn is not None:
            return self._score_fn
        by_metric: dict[Metric, Callable[[float], float]] = {
            "cosine": self._cosine_relevance_score_fn,
            "l2": self._euclidean_relevance_score_fn,
            # By LangChain's, what points away from the query would score above what is near it.
            "ip": operator.neg,
        }
        return by_metric[self._documents.metric]

    def _search(
        self, embedding: ArrayLike, k: int, options: dict[str, Any], *, with_embedding: bool = False
    ) -> list[tuple[Row, float]]:
        refuse(set(options) - set(OPTIONS))
        try:
            asked = Asked(
                where=expression_of(options.get("filter"), self._documents.table.metadata)
            )
            for name in OPTIONS[1:]:
                asked[name] = options.get(name)  # type: ignore[literal-required]
            return self._documents.search(embedding, k, asked, with_embedding=with_embedding)
        except RecursionError as error:
            raise InvalidInputError("the filter is nested too deeply") from error


def document_of(row: Row) -> Document:
    """Return a row as LangChain has it."""
    return Document(id=row.id, page_content=row.content, metadata=row.metadata)


def _documents(found: list[tuple[Document, float]]) -> list[Document]:
    return [document for document, _ in found]


def refuse(unknown: Collection[str]) -> None:
    """Refuse what would be ignored: a filter that is spelt wrong, say."""
    if unknown:
        raise InvalidInputError(
            f"{', '.join(sorted(unknown))} is nothing that a HashIndexVectorStore takes here; "
            f"searches take {', '.join(OPTIONS)}"
        )
