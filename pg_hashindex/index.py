"""Indexes: binding a table's vectors to a model, and everything done with such a binding."""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from numpy.typing import ArrayLike
from pgvector import Bit, Vector
from psycopg import RawCursor, sql

from . import encoding, search, within
from .access import build_access
from .catalog import (
    Access,
    IndexEntry,
    IndexSummary,
    Layout,
    ListSummary,
    Ranking,
    read_entries,
)
from .database import Connection, prepare, translated_errors
from .errors import InvalidInputError, UnknownIndexError
from .model import Metric
from .rebalancing import Rebalanced, rebalance
from .search import Hit

__all__ = [
    "Access",
    "HashIndex",
    "IndexSummary",
    "Layout",
    "ListSummary",
    "Ranking",
    "list_indexes",
]

_CONFIGURE = "SELECT hashindex.configure_index(%s, %s, %s, %s, %s)"


@dataclass(frozen=True)
class HashIndex(IndexEntry):
    """An index, on the connection that it was made or opened with.

    Made by `create` or `open`, not by hand.
    """

    @classmethod
    def create(
        cls,
        connection: Connection,
        name: str,
        *,
        table: str,
        column: str,
        model: str,
        id_column: str | None = None,
        metric: Metric | None = None,
        layout: Layout = "table",
        access: Access = "scan",
        ranking: Ranking | None = None,
    ) -> "HashIndex":
        """Create an index: codes, triggers and a search function, in one transaction.

        Rows written from now on are encoded by the triggers; `encode` brings in those that are
        there already. Of a model with a network, which only Python evaluates, `encode` brings in
        those written from now on too: the triggers take away the codes of rows that change.

        Parameters
        ----------
        connection : psycopg.Connection
        name : str
            1 to 40 bytes.
        table : str
            As SQL writes it: ``items``, ``shop.items``, ``"My Items"``.
        column : str
            A column of type ``vector``, by its bare name.
        model : str
            ``name`` or ``name:version``.
        id_column : str, optional
            A unique NOT NULL column; the primary key by default.
        metric : {"l2", "cosine", "ip"}, optional
            The exact distance of answers; the model's by default.
        layout : {"table", "column"}
            Codes in a compact table of their own, or in a new column of the user's table.
        access : {"scan", "lookup", "landmarks", "hnsw"}
            How searches find candidates; any but "scan" is built by `encode`, and used from then
            on. See `configure`.
        ranking : {"hamming", "asymmetric", "weighted"}, optional
            How candidates are ordered; "weighted" where the model's bits have weights,
            "asymmetric" where SQL evaluates the model, else "hamming" by default.

        Returns
        -------
        HashIndex

        Raises
        ------
        DuplicateNameError, InvalidInputError, UnknownModelError, MissingRightsError
            Nothing is changed then.
        """
        with translated_errors():
            prepare(connection)
            with connection.transaction():
                connection.execute(
                    "SELECT hashindex.create_index(%s, %s::regclass, %s, %s, %s, %s, %s)",
                    [name, table, column, model, id_column, metric, layout],
                )
                if access != "scan" or ranking is not None:
                    connection.execute(_CONFIGURE, [name, access, ranking, None, None])
        return cls.open(connection, name)

    @classmethod
    def open(cls, connection: Connection, name: str) -> "HashIndex":
        """Find an index by its name.

        Raises
        ------
        UnknownIndexError
            If there is none.
        """
        found = read_entries(cls, connection, "WHERE i.name = %s", [name])
        if not found:
            raise UnknownIndexError(
                f"index {name!r} does not exist; see those that do with: pg-hashindex index list"
            )
        return found[0]

    def encode(self, *, batch_rows: int | None = None, progress: bool = False) -> int:
        """Encode every row that has a vector but no code; then build the access path asked for.

        Each batch is committed, so a run that was cut off goes on where it stopped; writers go on
        meanwhile. Needs a connection that is not inside a transaction. A model that has codes only
        of the rows that it was trained on leaves the others without; `waiting` counts them.

        Parameters
        ----------
        batch_rows : int, optional
            Rows of a batch, 100,000 at most; 10,000, fewer where vectors are long, by default. Of
            a neural network as many as it encodes in about two seconds.
        progress : bool
            Whether to draw a bar on stderr.

        Returns
        -------
        int
            Codes written.

        Raises
        ------
        InvalidInputError
            If the connection is inside a transaction, or a row has another dimension.
        InUseError
            If another session is encoding this index, or building its access path.
        DatabaseStateError
            If others keep rows locked for a minute, or the index was dropped or made anew since it
            was opened, or configured otherwise while its access path was built.
        """
        written = encoding.encode_missing(self, batch_rows=batch_rows, progress=progress)
        build_access(self, progress=progress)
        return written

    def search(
        self,
        query: ArrayLike | Vector,
        k: int = 10,
        *,
        candidates: int | None = None,
        probes: int | None = None,
        ranking: Ranking | None = None,
        where: sa.ColumnElement[bool] | None = None,
    ) -> list[Hit]:
        """Find the nearest rows: candidates by code, then the exact distance.

        Where the index is encoded in Python, the query's code is computed here; the first search
        reads the model.

        Parameters
        ----------
        query : array-like (dimension,)
        k : int
            Answers wanted.
        candidates : int, optional
            Rows kept by code before the exact order; the index's own number, or k where that is
            more, by default.
        probes : int, optional
            Landmarks whose lists are read, 1 to 1000, where access is by landmarks; the index's
            own number by default. Where they leave fewer than k rows, more are read.
        ranking : {"hamming", "asymmetric", "weighted"}, optional
            The order of candidates; the index's own by default.
        where : sqlalchemy condition, optional
            On columns of the searched table; restricts the candidates, not the answers.

        Returns
        -------
        list of Hit
            ``(id, distance)``, nearest first; distances as pgvector's operator gives them (``ip``:
            the negative inner product).

        Raises
        ------
        InvalidInputError
            If the query, k, candidates or the condition cannot be used, or the model has codes
            only of the rows that it was trained on and the query is none of them.
        DatabaseStateError
            If the query's code is computed here, and the index was dropped or made anew since it
            was opened.
        """
        return search.search(
            self, query, k, candidates=candidates, probes=probes, ranking=ranking, where=where
        )

    def search_like(
        self,
        row_id: Any,
        k: int = 10,
        *,
        candidates: int | None = None,
        probes: int | None = None,
        ranking: Ranking | None = None,
        where: sa.ColumnElement[bool] | None = None,
    ) -> list[Hit]:
        """Find the rows nearest to another row of the table, which is left out itself.

        Parameters
        ----------
        row_id : Any
            The row's key, or its text.
        k, candidates, probes, ranking, where
            As `search`.

        Returns
        -------
        list of Hit

        Raises
        ------
        InvalidInputError
            If there is no such row, or it has no vector; else as `search`, but a row that has a
            code is always known.
        DatabaseStateError
            As `search`, for a row that has no code.
        """
        k = search.as_count("k", k)
        more = None if candidates is None else search.as_count("candidates", candidates) + 1
        key, vector, code = self._row(row_id)
        # One more of each for the row itself, which would always be found.
        hits = search.search(
            self,
            vector,
            k + 1,
            candidates=more,
            probes=probes,
            ranking=ranking,
            where=where,
            code=code,
        )
        return [hit for hit in hits if hit.id != key][:k]

    def within(self, query: ArrayLike | Vector, radius: int) -> list[Hit]:
        """Find every row whose code differs from the query's in no more than radius bits.

        Fast by access path ``lookup``, while the radius is small; a scan of all codes elsewhere.

        Parameters
        ----------
        query : array-like (dimension,)
        radius : int
            0 to the number of bits.

        Returns
        -------
        list of Hit
            ``(id, distance)``, where the distance is the number of bits that differ; the nearest
            first, ties by the key.

        Raises
        ------
        InvalidInputError
            If the query or the radius cannot be used, or the model has codes only of the rows that
            it was trained on and the query is none of them.
        DatabaseStateError
            As `search`.
        """
        return within.within(self, query, radius)

    def within_like(self, row_id: Any, radius: int) -> list[Hit]:
        """Find every row whose code is within a radius of another row's, which is left out itself.

        Parameters
        ----------
        row_id : Any
            The row's key, or its text.
        radius : int
            As `within`.

        Returns
        -------
        list of Hit

        Raises
        ------
        InvalidInputError
            If there is no such row, or it has no vector; else as `search_like`.
        DatabaseStateError
            As `search_like`.
        """
        key, vector, code = self._row(row_id)
        hits = within.within(self, vector, radius, code=code)
        return [hit for hit in hits if hit.id != key]

    def _row(self, row_id: Any) -> tuple[Any, Vector, Bit | None]:
        """Read a row's key and vector, and its code where searches have to bring that."""
        with translated_errors():
            # Raw: to psycopg's other cursors a % in a name is the start of a placeholder.
            row = (
                RawCursor(self.connection)
                .execute(
                    sql.SQL(
                        "SELECT b.{id}, b.{column}, {code}::text FROM {table} b "
                        "WHERE b.{id} = $1::text::{type}"
                    ).format(
                        id=sql.Identifier(self.id_column),
                        column=sql.Identifier(self.column_name),
                        code=self.code_of_row,
                        table=self.table,
                        type=sql.SQL(self.id_type),
                    ),
                    [str(row_id)],
                    binary=self.binary_ids,
                )
                .fetchone()
            )
        if row is None or row[1] is None:
            raise InvalidInputError(
                f"{self.qualified_table} has no row with {self.id_column} = {row_id} and a vector"
            )
        code = None if self.encoded_in == "sql" or row[2] is None else Bit(row[2])
        return row[0], row[1], code

    def configure(
        self,
        *,
        access: Access | None = None,
        ranking: Ranking | None = None,
        candidates: int | None = None,
        probes: int | None = None,
    ) -> "HashIndex":
        """Change how searches go by default; what is None stays as it is.

        Another access path is built by `encode`. Until it is ready, searches go by the one before.

        Parameters
        ----------
        access : {"scan", "lookup", "landmarks", "hnsw"}, optional
            All codes; substrings of codes in b-trees; lists of codes around landmarks (layout
            ``table`` alone); pgvector's HNSW over the codes.
        ranking : {"hamming", "asymmetric", "weighted"}, optional
            The order of candidates: by differing bits; by how far the query's projection is from 0
            at them; by the weights that the model gives its bits.
        candidates : int, optional
            Rows kept by code before the exact order.
        probes : int, optional
            Landmarks whose lists are read, 1 to 1000.

        Returns
        -------
        HashIndex
            The index as it is now.

        Raises
        ------
        InvalidInputError
            If a value is out of range, or the index or its model cannot serve it.
        """
        candidates = None if candidates is None else search.as_count("candidates", candidates)
        probes = None if probes is None else search.as_count("probes", probes)
        with translated_errors():
            with self.connection.transaction():
                self.connection.execute(
                    _CONFIGURE, [self.name, access, ranking, candidates, probes]
                )
            with self.connection.transaction():
                self.connection.execute("SELECT hashindex.drop_unused(%s)", [self.name])
        return self.open(self.connection, self.name)

    def rebalance(self, *, progress: bool = False) -> Rebalanced:
        """Bring the lists of landmarks into good order: no stale entries, none much too long.

        Searches and writers go on meanwhile. A table that has grown or shrunk tenfold is better
        served by new landmarks: configure the access path to scan, and back.

        Parameters
        ----------
        progress : bool
            Whether to draw bars on stderr.

        Returns
        -------
        Rebalanced
            Entries taken out, lists divided, landmarks added.

        Raises
        ------
        InvalidInputError
            If access is not by landmarks, or the connection is inside a transaction.
        InUseError
            If another session is building or rebalancing the access path.
        DatabaseStateError
            If the index was dropped or made anew since it was opened.
        """
        return rebalance(self, progress=progress)

    def drop(self) -> None:
        """Drop the index with its codes and triggers; the table and the model stay."""
        with translated_errors(), self.connection.transaction():
            self.connection.execute("SELECT hashindex.drop_index(%s)", [self.name])


def list_indexes(connection: Connection) -> list[HashIndex]:
    """Return every index, by name."""
    return read_entries(HashIndex, connection, "ORDER BY i.name", [])
