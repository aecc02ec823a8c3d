"""A vector store for LlamaIndex: nodes in a table, searched by an index of pg_hashindex."""

import asyncio
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Unpack

import numpy as np
import sqlalchemy as sa
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.indices.query.embedding_utils import get_top_k_mmr_embeddings
from llama_index.core.schema import BaseComponent, BaseNode, MetadataMode, TextNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)
from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict

from ...errors import InvalidInputError
from ...index.search import SearchOptions, as_count, as_optional_count
from ...models.vectors import as_vector
from ..documents.connections import Connections, Source
from ..documents.filters import expression_of, shallow
from ..documents.indexed import IndexedDocuments, StoreOptions
from ..documents.store import DocumentStore, refuse_unknown
from ..documents.table import Entry, Row, as_ids
from .filters import as_dictionary

# Arguments of a search beside its query, from ``vector_store_kwargs`` of a retriever.
_OPTIONS = {
    VectorStoreQueryMode.DEFAULT: ("candidates", "effort"),
    VectorStoreQueryMode.MMR: ("candidates", "effort", "fetch_k", "mmr_threshold"),
    VectorStoreQueryMode.HYBRID: ("configuration",),
    VectorStoreQueryMode.SPARSE: ("configuration",),
    VectorStoreQueryMode.TEXT_SEARCH: ("configuration",),
}
# Fields of a query that its mode needs.
_NEEDS = {
    VectorStoreQueryMode.DEFAULT: ("query_embedding",),
    VectorStoreQueryMode.MMR: ("query_embedding",),
    VectorStoreQueryMode.HYBRID: ("query_embedding", "query_str"),
    VectorStoreQueryMode.SPARSE: ("query_str",),
    VectorStoreQueryMode.TEXT_SEARCH: ("query_str",),
}

_Where = sa.ColumnElement[bool] | None
_Given = dict[str, Any]
# Rows and their scores, the best first.
_Found = list[tuple[Row, float]]


def _in_thread(method: Callable[..., Any]) -> Any:
    """Return an asynchronous method that runs another one in a thread."""

    @wraps(method)
    async def run(*arguments: Any, **named: Any) -> Any:
        return await asyncio.to_thread(method, *arguments, **named)

    return run


class HashIndexVectorStore(DocumentStore, BasePydanticVectorStore):
    """A vector store for LlamaIndex on a table of nodes.

    The table has columns ``id text``, ``content text``, ``metadata jsonb`` and ``embedding
    vector``. Searches go by pgvector's index on codes once `train_index` has made it, or by one of
    pg_hashindex that has encoded every node, and compare the query with all until then. Rows that
    others write to the table are found too. Asynchronous methods use the database in a thread.

    Parameters
    ----------
    connection, table, schema, metric, index
        As `pg_hashindex.contrib.langchain.HashIndexVectorStore`.

    Raises
    ------
    InvalidInputError
        If the table is missing (see `create_table`), has other columns, or several indexes.
    UnknownIndexError
        If there is no index of that name.
    ConnectionFailedError, MissingExtensionError
    """

    _TABLE = "llama_index_nodes"

    stores_text: bool = True
    _documents: IndexedDocuments = PrivateAttr()

    def __init__(
        self,
        connection: Source,
        *,
        table: str = "llama_index_nodes",
        **options: Unpack[StoreOptions],
    ) -> None:
        super().__init__(stores_text=True)
        self._documents = IndexedDocuments(connection, table, **options)

    def __getstate__(self) -> Any:
        """Return the state for copies; LlamaIndex's own leaves out what has none."""
        return super(BaseComponent, self).__getstate__()

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the class, as LlamaIndex writes it."""
        return "HashIndexVectorStore"

    @property
    def client(self) -> Connections:
        """The database that lends the connections."""
        return self._documents.connections

    def add(self, nodes: Sequence[BaseNode], **_: Any) -> list[str]:
        """Write nodes with their embeddings; those whose ids are there already are replaced.

        Returns
        -------
        list of str
            The ids.

        Raises
        ------
        InvalidInputError
            If a text, id, vector or metadata cannot be stored; nothing is written then.
        """
        entries = [_entry_of(node) for node in nodes]
        self._documents.write(entries)
        return [entry.id for entry in entries]

    def delete(self, ref_doc_id: str, **_: Any) -> None:
        """Delete the nodes of a document."""
        self._delete(self._where(None, doc_ids=[ref_doc_id]))

    def delete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **_: Any,
    ) -> None:
        """Delete nodes that match all that is given; none if nothing is."""
        # Filters may be an empty list.
        if (where := self._where(filters, node_ids)) is not None:
            self._delete(where)

    def _delete(self, where: _Where) -> None:
        with shallow():
            self._documents.delete_matching(where)

    def clear(self) -> None:
        """Delete all nodes; table and index stay."""
        self._documents.delete(None)

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """Return the nodes that match all that is given, by their ids."""
        with shallow():
            found = self._documents.matching(self._where(filters, node_ids))
        return [_node_of(row) for row in self._documents.read(found)]

    def query(self, query: VectorStoreQuery, **options: Any) -> VectorStoreQueryResult:
        """Return the nodes that a query finds, the best first.

        Parameters
        ----------
        query
            Of mode DEFAULT, MMR, HYBRID (vector and words: ``alpha`` is the share of the vector's
            list, .5 by default), SPARSE or TEXT_SEARCH (words). Filters, node_ids and doc_ids are
            applied before the best nodes are chosen.
        **options
            ``candidates`` and ``effort``, for DEFAULT and MMR: as `pg_hashindex.HashIndex.search`.
            ``configuration``, where words are searched: that of text search. ``fetch_k``: the
            nearest nodes that MMR chooses from, by default 4 k and at least 20. ``mmr_threshold``:
            for MMR, from 0 for the most diversity to 1.

        Raises
        ------
        InvalidInputError
            If the mode or an option is unknown, or something that the mode needs is missing.
        """
        try:
            mode = VectorStoreQueryMode(query.mode)
        except ValueError:
            raise InvalidInputError(f"unknown query mode {query.mode!r}") from None
        if mode not in _OPTIONS:
            raise InvalidInputError(f"a HashIndexVectorStore has no queries of mode {mode.value}")
        refuse_unknown(options, _OPTIONS[mode])
        with shallow():
            # Retrievers give an empty list of nodes where they have none; of documents, callers do.
            where = self._where(query.filters, query.node_ids or None, query.doc_ids)
            found = self._found(mode, query, where, options)
        return VectorStoreQueryResult(
            nodes=[_node_of(row) for row, _ in found],
            similarities=[score for _, score in found],
            ids=[row.id for row, _ in found],
        )

    def _found(
        self, mode: VectorStoreQueryMode, query: VectorStoreQuery, where: _Where, options: _Given
    ) -> _Found:
        for needed in _NEEDS[mode]:
            if getattr(query, needed) is None:
                raise InvalidInputError(f"a query of mode {mode.value} needs {needed}")
        if mode == VectorStoreQueryMode.DEFAULT:
            return self._nearest(query, where, options)
        if mode == VectorStoreQueryMode.MMR:
            return self._diverse(query, where, options)
        if mode == VectorStoreQueryMode.HYBRID:
            return self._hybrid(query, where, options)
        return self._by_words(query, where, options)

    def _by_words(self, query: VectorStoreQuery, where: _Where, options: _Given) -> _Found:
        words: Any = query.query_str
        top = query.sparse_top_k or query.similarity_top_k
        return self._documents.by_words(words, top, where, options.get("configuration"))

    def _hybrid(self, query: VectorStoreQuery, where: _Where, options: _Given) -> _Found:
        vector: Any = query.query_embedding
        words: Any = query.query_str
        k = query.similarity_top_k
        best = query.hybrid_top_k or k
        return self._documents.hybrid(
            vector,
            words,
            best,
            where,
            vector_weight=0.5 if query.alpha is None else query.alpha,
            depth=max(best, k, query.sparse_top_k) if query.sparse_top_k else None,
            configuration=options.get("configuration"),
        )

    def _nearest(self, query: VectorStoreQuery, where: _Where, options: _Given) -> _Found:
        vector: Any = query.query_embedding
        asked = _search_options(where, options)
        found = self._documents.search(vector, query.similarity_top_k, asked)
        return [(row, self._similarity(distance)) for row, distance in found]

    def _diverse(self, query: VectorStoreQuery, where: _Where, options: _Given) -> _Found:
        vector: Any = query.query_embedding
        threshold = query.mmr_threshold
        if threshold is None:
            threshold = options.get("mmr_threshold")
        if threshold is not None and not 0 <= threshold <= 1:
            raise InvalidInputError(f"mmr_threshold is {threshold}; it must be 0 to 1")
        k = as_count("k", query.similarity_top_k)
        fetched = as_optional_count("fetch_k", options.get("fetch_k")) or max(4 * k, 20)
        asked = _search_options(where, options)
        near = self._documents.search(vector, max(fetched, k), asked, with_embedding=True)
        # A vector of zeros has no cosine, by which LlamaIndex chooses.
        if not np.any(vector):
            raise InvalidInputError(
                "the query's vector is all zeros, and MMR chooses by the cosine, which it has not"
            )
        rows = {
            row.id: (row, numbers)
            for row, _ in near
            if any(numbers := as_vector(row.embedding).to_list())  # type: ignore[arg-type]
        }
        scores, chosen = get_top_k_mmr_embeddings(
            vector,
            [numbers for _, numbers in rows.values()],
            similarity_top_k=k,
            embedding_ids=list(rows),
            mmr_threshold=threshold,
        )
        return [(rows[each][0], score) for each, score in zip(chosen, scores, strict=True)]

    def _similarity(self, distance: float) -> float:
        """Return a score that is greater for nearer nodes, at most 1 but for inner products."""
        if self._documents.metric == "l2":
            return 1 / (1 + distance)
        return 1 - distance if self._documents.metric == "cosine" else -distance

    def _where(
        self,
        filters: MetadataFilters | None,
        node_ids: list[str] | None = None,
        doc_ids: list[str] | None = None,
    ) -> _Where:
        """Write filters as an expression; None if there are none."""
        columns = self._documents.table.columns
        parts: list[dict[str, Any]] = [] if filters is None else [as_dictionary(filters)]
        if doc_ids is not None:
            parts.append({"ref_doc_id": {"$in": as_ids(doc_ids)}})
        terms = [expression_of(part, columns.metadata) for part in parts if part]
        if node_ids is not None:
            terms.append(columns.id == sa.any_(sa.cast(as_ids(node_ids), sa.ARRAY(sa.Text()))))
        return sa.and_(*terms) if terms else None  # type: ignore[arg-type]

    async_add = _in_thread(add)
    adelete = _in_thread(delete)
    adelete_nodes = _in_thread(delete_nodes)
    aclear = _in_thread(clear)
    aget_nodes = _in_thread(get_nodes)
    aquery = _in_thread(query)


def _search_options(where: _Where, options: _Given) -> SearchOptions:
    return SearchOptions(
        where=where, candidates=options.get("candidates"), effort=options.get("effort")
    )


def _entry_of(node: BaseNode) -> Entry:
    """Return a node as a row to be written; refuse what LlamaIndex cannot write as JSON."""
    if node.embedding is None:
        raise InvalidInputError(f"node {node.node_id!r} has no embedding")
    try:
        metadata = node_to_metadata_dict(node, remove_text=True)
    # Errors of pydantic are ValueErrors.
    except (ValueError, TypeError) as error:
        raise InvalidInputError(
            f"the metadata of node {node.node_id!r} cannot be stored: {error}"
        ) from None
    text = node.get_content(metadata_mode=MetadataMode.NONE)
    return Entry(node.node_id, text, metadata, node.embedding)


def _node_of(row: Row) -> BaseNode:
    """Return a row as a node; one that others wrote has text and metadata alone."""
    if "_node_content" in row.metadata:
        return metadata_dict_to_node(row.metadata, text=row.content)
    return TextNode(id_=row.id, text=row.content, metadata=row.metadata)
