"""An index as what searches it sees: by vectors and by rows, for the nearest or within a radius."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import sqlalchemy as sa
from numpy.typing import ArrayLike
from pgvector import Bit, Vector
from psycopg import RawCursor, sql
from psycopg.pq import TransactionStatus

from . import search, within
from .catalog import IndexEntry, Ranking
from .database import translated_errors
from .errors import HashIndexError, InvalidInputError
from .search import Hit

__all__ = ["SearchableIndex"]


@dataclass(frozen=True)
class SearchableIndex(IndexEntry):
    """An index that can be searched, on the connection that it was opened with.

    A search goes by the model that the index has at that moment, also where it was swapped since
    the index was opened.
    """

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
        return self._ask(
            lambda index: search.search(
                index, query, k, candidates=candidates, probes=probes, ranking=ranking, where=where
            )
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

        def ask(index: SearchableIndex) -> list[Hit]:
            key, vector, code = index._row(row_id)
            # One more of each for the row itself, which would always be found.
            hits = search.search(
                index,
                vector,
                k + 1,
                candidates=more,
                probes=probes,
                ranking=ranking,
                where=where,
                code=code,
            )
            return [hit for hit in hits if hit.id != key][:k]

        return self._ask(ask)

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
        return self._ask(lambda index: within.within(index, query, radius))

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

        def ask(index: SearchableIndex) -> list[Hit]:
            key, vector, code = index._row(row_id)
            hits = within.within(index, vector, radius, code=code)
            return [hit for hit in hits if hit.id != key]

        return self._ask(ask)

    @cached_property
    def _followed(self) -> "SearchableIndex":
        """What the index has become by a swap that a search met; itself before."""
        return self

    def _ask(self, ask: Callable[["SearchableIndex"], list[Hit]]) -> list[Hit]:
        """Ask the index; once more if its model was swapped since it was opened."""
        index = self._followed
        try:
            hits = ask(index)
        except HashIndexError as error:
            if self.connection.info.transaction_status == TransactionStatus.INERROR:
                raise
            try:
                now = index.as_now()
            except HashIndexError:
                # A code from here is of no use to an index that was made anew.
                if index.encoded_in == "python":
                    raise
                raise error from None
            if now is index:
                raise
        else:
            # SQL goes by the model that the index has; a code from here may be another's by now.
            if index.encoded_in == "sql":
                return hits
            now = index.as_now()
            if now is index:
                return hits
        self.__dict__["_followed"] = now
        return ask(now)

    def _row(self, row_id: Any) -> tuple[Any, Vector, Bit | None]:
        """Read a row's key and vector, and its code where searches have to bring that."""
        with translated_errors(self):
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
