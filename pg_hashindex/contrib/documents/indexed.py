"""Documents with their index, if they have one."""

from collections.abc import Sequence
from math import inf
from typing import LiteralString, TypedDict, Unpack

import sqlalchemy as sa
from numpy.typing import ArrayLike
from pgvector import Vector
from psycopg import sql

from ...db.connection import Connection
from ...db.statements import one_row
from ...errors import (
    DatabaseStateError,
    InvalidInputError,
    MissingRightsError,
)
from ...index.catalog import IndexRow, read_row, read_rows
from ...index.handle import HashIndex
from ...index.search import (
    Hit,
    HybridOptions,
    SearchOptions,
    as_count,
    as_number,
    as_optional_count,
)
from ...models.model import Metric
from .connections import Connections, Source
from .table import COLUMN, DocumentTable, Entry, Row

# Lists without triggers are of a table that was dropped; this one has its name, or was restored.
_INDEXES: LiteralString = """
    WHERE i.schema_name = $1 AND i.table_name = $2 AND i.column_name = $3
        AND i.key_columns OPERATOR(pg_catalog.=) '{id}'
        AND (s.encoded IS NULL OR s.state = 'building' OR hashindex._is_bound(i, s) AND EXISTS (
            SELECT FROM hashindex._triggers_of(i) t WHERE t.tgrelid = to_regclass($4)::oid
        ))
    ORDER BY i.name
"""


class StoreOptions(TypedDict, total=False):
    """The options of a vector store; see `pg_hashindex.contrib.langchain.HashIndexVectorStore`."""

    schema: str
    metric: Metric
    index: str | None


def check_metric(metric: str) -> None:
    """Refuse a metric by which no store searches."""
    if metric not in ("cosine", "l2", "ip"):
        raise InvalidInputError(f"metric must be cosine, l2 or ip, got {metric!r}")


class IndexedDocuments:
    """A table of documents, used on borrowed connections.

    It is searched by the index of a name, or else by the only one of the table, if there is one.
    """

    def __init__(
        self,
        source: Source,
        table: str,
        *,
        schema: str = "public",
        metric: Metric = "cosine",
        index: str | None = None,
    ) -> None:
        check_metric(metric)
        self.connections = connections = Connections.of(source)
        self.metric: Metric = metric
        self._index_name = index
        # The storage of an index that was found to have codes of every document.
        self._complete: int | None = None
        self._sees_catalog = False
        with connections.lent_to_read() as lent:
            found = DocumentTable.find(lent, schema, table)
            if found is None:
                name = sql.Identifier(schema, table).as_string(lent)
                raise InvalidInputError(
                    f"table {name} does not exist; HashIndexVectorStore.create_table makes it"
                )
            self.table = found
            self.index(lent)

    def write(self, entries: Sequence[Entry]) -> None:
        """Write documents, all or none; those whose ids are there already are replaced."""
        with self.connections.lent() as lent:
            self.table.write(lent, entries)

    def delete(self, ids: Sequence[str] | None) -> None:
        """Delete documents; all of them where ids is None."""
        with self.connections.lent() as lent:
            self.table.delete(lent, ids)

    def delete_matching(self, where: sa.ColumnElement[bool] | None) -> None:
        """Delete the documents that match a filter."""
        with self.connections.lent() as lent:
            self.table.delete_matching(lent, where)

    def matching(self, where: sa.ColumnElement[bool] | None) -> list[str]:
        """Return the ids of documents that match a filter."""
        with self.connections.lent_to_read() as lent:
            return self.table.matching(lent, where)

    def read(self, ids: Sequence[str]) -> list[Row]:
        """Read documents in the order of their ids; those that are not there are left out."""
        with self.connections.lent_to_read() as lent:
            return self.table.read(lent, ids)

    def search(
        self, embedding: ArrayLike, k: int, asked: SearchOptions, *, with_embedding: bool = False
    ) -> list[tuple[Row, float]]:
        """Find the documents nearest to a vector, with their distances, nearest first."""
        query, k = self.table.query(embedding), as_count("k", k)
        as_optional_count("candidates", asked.get("candidates"))
        as_optional_count("effort", asked.get("effort"))
        with self.connections.lent_to_read() as lent:
            index = self._usable_index(lent)
            hits = self._nearest(lent, index, query, k, asked)
            distances = {hit.id: hit.distance for hit in hits}
            rows = self.table.read(lent, list(distances), with_embedding=with_embedding)
        return [(row, distances[row.id]) for row in rows]

    def hybrid(
        self,
        embedding: ArrayLike,
        words: str,
        k: int,
        where: sa.ColumnElement[bool] | None,
        **asked: Unpack[HybridOptions],
    ) -> list[tuple[Row, float]]:
        """Find documents near to a vector or holding words, with their scores, the best first.

        Without an index the vector is compared with all documents.
        """
        query, k = self.table.query(embedding), as_count("k", k)
        with self.connections.lent_to_read() as lent:
            index = self._usable_index(lent)
            scores = self._fused(lent, index, query, words, k, where, **asked)
            rows = self.table.read(lent, list(scores))
        return [(row, scores[row.id]) for row in rows]

    def _fused(
        self,
        connection: Connection,
        index: IndexRow | None,
        query: Vector,
        words: str,
        k: int,
        where: sa.ColumnElement[bool] | None,
        **asked: Unpack[HybridOptions],
    ) -> dict[str, float]:
        """Score documents as ``hashindex.hybrid`` does."""
        weight = as_number("vector_weight", asked.get("vector_weight", 0.5))
        depth = as_optional_count("depth", asked.get("depth")) or max(4 * k, 50)
        if not 0 <= weight <= 1:
            raise InvalidInputError(f"vector_weight is {weight}; it must be 0 to 1")
        if depth < k:
            raise InvalidInputError(f"depth is {depth}; it must be k or more, and k is {k}")
        hits = self._nearest(connection, index, query, depth, {"where": where})
        near = {hit.id: (place, hit.distance) for place, hit in enumerate(hits, 1)}
        configuration = asked.get("configuration")
        named = self.table.by_words(connection, words, depth, configuration, where)
        scores = {name: weight / (60 + place) for name, (place, _) in near.items()}
        for place, (name, _) in enumerate(named, 1):
            scores[name] = scores.get(name, 0) + (1 - weight) / (60 + place)
        # Ties go to the nearer one, then by id.
        order = sorted(scores, key=lambda name: (-scores[name], near.get(name, (0, inf))[1], name))
        return {name: scores[name] for name in order[:k] if scores[name]}

    def by_words(
        self,
        words: str,
        k: int,
        where: sa.ColumnElement[bool] | None,
        configuration: str | None = None,
    ) -> list[tuple[Row, float]]:
        """Find the documents that hold words, with their ranks, the best first."""
        k = as_count("k", k)
        with self.connections.lent_to_read() as lent:
            ranks = dict(self.table.by_words(lent, words, k, configuration, where))
            return [(row, ranks[row.id]) for row in self.table.read(lent, list(ranks))]

    def _nearest(
        self,
        connection: Connection,
        index: IndexRow | None,
        query: Vector,
        k: int,
        asked: SearchOptions,
    ) -> list[Hit]:
        """Compare documents with the query: those that an index finds by codes, or all."""
        where = asked.get("where")
        if index is not None:
            # A filter may name no tenant, of an index that has tenants.
            asked = {**index.everywhere, **asked}
            return HashIndex(connection, index.name, index).search(query, k, **asked)
        return self.table.nearest(connection, self.metric, query, k, where)

    def _usable_index(self, connection: Connection) -> IndexRow | None:
        """Return the index if it has codes of every document."""
        index = self.index(connection)
        if index is None or not index.is_lists:
            return index if index is not None and index.encoded else None
        if index.set_id != self._complete:
            try:
                # The caller's transaction survives a refusal.
                with connection.transaction():
                    if index.waiting():
                        return None
            except MissingRightsError:
                # A role that may not read codes gets exact searches anyway.
                return None
            self._complete = index.set_id
        return index

    def index(self, connection: Connection) -> IndexRow | None:
        """Find the index of the documents, if they have one."""
        table = self.table.as_sql(connection)
        found = self._indexes(connection)
        if self._index_name is not None:
            found = [index for index in found if index.name == self._index_name]
            if not found:
                other = read_row(connection, self._index_name)
                self.check_name(connection, other.name)
                raise InvalidInputError(
                    f"index {other.name!r} is of column {other.column_name} of "
                    f"{other.qualified_table} with key {other.key.name}, not of column {COLUMN} "
                    f"of {table} with key id"
                )
        if len(found) > 1:
            raise InvalidInputError(
                f"table {table} has indexes {', '.join(index.name for index in found)}; name the "
                "one to search by with index="
            )
        if found and found[0].metric != self.metric:
            raise InvalidInputError(
                f"index {found[0].name!r} orders by {found[0].metric}, and the store by "
                f"{self.metric}; make the store with metric={found[0].metric!r}"
            )
        return found[0] if found else None

    def check_name(self, connection: Connection, name: str) -> None:
        """Refuse the name of an index whose table was dropped, and is there again."""
        if not self._sees_catalog:
            return
        own = (self.table.schema, self.table.name, COLUMN, ["id"])
        for left in read_rows(connection, "WHERE i.name = $1", [name]):
            if own == (left.schema_name, left.table_name, left.column_name, left.key_columns):
                raise DatabaseStateError(
                    f"index {name!r} is of a table {self.table.as_sql(connection)} that was "
                    "dropped and recreated: have it serve this one with pg-hashindex index "
                    f"repair {name}, or drop it with pg-hashindex index drop {name}"
                )

    def _indexes(self, connection: Connection) -> list[IndexRow]:
        if not self._sees_catalog:
            # The schema may be missing, or not for this role.
            (self._sees_catalog,) = one_row(
                connection,
                "SELECT coalesce(has_schema_privilege(to_regnamespace('hashindex')::oid, 'USAGE'), "
                "false)",
            )
        if not self._sees_catalog:
            return []
        return read_rows(
            connection,
            _INDEXES,
            [self.table.schema, self.table.name, COLUMN, self.table.as_sql(connection)],
        )
