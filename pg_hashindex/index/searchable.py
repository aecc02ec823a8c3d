"""An index as what searches it sees: by vectors and by rows, for the nearest or within a radius."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload

import sqlalchemy as sa
from numpy.typing import ArrayLike
from pgvector import Vector

from ..db.connection import Connection, prepare, translated_errors
from ..db.steps import run
from . import asking
from .catalog import IndexEntry
from .row import find
from .search import Asked, Hit

if TYPE_CHECKING:
    import pandas

    from .asking import Answers

__all__ = ["SearchableIndex"]


@dataclass(frozen=True)
class SearchableIndex(IndexEntry):
    """An index that can be searched, on the connection that it was opened with.

    A search goes by the model that the index has at that moment, also where it was swapped since
    the index was opened.
    """

    @classmethod
    def open(cls, connection: Connection, name: str) -> Self:
        """Find an index by its name.

        Raises
        ------
        UnknownIndexError
            If there is none.
        """
        with translated_errors():
            prepare(connection)
        return run(connection, find(cls, connection, name))

    @overload
    def search(
        self,
        query: ArrayLike | Vector,
        k: int = 10,
        *,
        as_frame: Literal[False] = False,
        **asked: Unpack[Asked],
    ) -> list[Hit]: ...

    @overload
    def search(
        self,
        query: ArrayLike | Vector,
        k: int = 10,
        *,
        as_frame: Literal[True],
        **asked: Unpack[Asked],
    ) -> pandas.DataFrame: ...

    def search(
        self,
        query: ArrayLike | Vector,
        k: int = 10,
        *,
        candidates: int | None = None,
        probes: int | None = None,
        where: sa.ColumnElement[bool] | None = None,
        filter: str | None = None,  # noqa: A002
        as_frame: bool = False,
    ) -> Answers:
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
        where : sqlalchemy condition, optional
            On columns of the searched table: only rows that it holds for are searched.
        filter : str, optional
            The same as SQL text, such as ``"section = 'games'"``. It is run as it is, with the
            caller's rights: text of users belongs into ``where``, which quotes it.
        as_frame : bool
            Whether to return a frame, which needs the extra ``pandas``.

        Returns
        -------
        list of Hit, or pandas.DataFrame
            ``(id, distance)``, nearest first; distances as pgvector's operator gives them (``ip``:
            the negative inner product). A frame has these as columns, ``id`` as int64 where keys
            are integers, else as objects.

        Raises
        ------
        InvalidInputError
            If the query, k, candidates or the condition cannot be used, or the model has codes
            only of the rows that it was trained on and the query is none of them.
        DatabaseStateError
            If the query's code is computed here, and the index was dropped or made anew since it
            was opened.
        """
        steps = asking.search(
            self,
            query,
            k,
            as_frame,
            candidates=candidates,
            probes=probes,
            where=where,
            filter=filter,
        )
        return run(self.connection, steps)

    @overload
    def search_like(
        self,
        row_id: Any,
        k: int = 10,
        *,
        as_frame: Literal[False] = False,
        **asked: Unpack[Asked],
    ) -> list[Hit]: ...

    @overload
    def search_like(
        self,
        row_id: Any,
        k: int = 10,
        *,
        as_frame: Literal[True],
        **asked: Unpack[Asked],
    ) -> pandas.DataFrame: ...

    def search_like(
        self,
        row_id: Any,
        k: int = 10,
        *,
        candidates: int | None = None,
        probes: int | None = None,
        where: sa.ColumnElement[bool] | None = None,
        filter: str | None = None,  # noqa: A002
        as_frame: bool = False,
    ) -> Answers:
        """Find the rows nearest to another row of the table, which is left out itself.

        Parameters
        ----------
        row_id : Any
            The row's key, or its text.
        k, candidates, probes, where, filter, as_frame
            As `search`.

        Returns
        -------
        list of Hit, or pandas.DataFrame

        Raises
        ------
        InvalidInputError
            If there is no such row, or it has no vector; else as `search`, but a row that has a
            code is always known.
        DatabaseStateError
            As `search`, for a row that has no code.
        """
        steps = asking.search_like(
            self,
            row_id,
            k,
            as_frame,
            candidates=candidates,
            probes=probes,
            where=where,
            filter=filter,
        )
        return run(self.connection, steps)

    @overload
    def within(
        self, query: ArrayLike | Vector, radius: int, *, as_frame: Literal[False] = False
    ) -> list[Hit]: ...

    @overload
    def within(
        self, query: ArrayLike | Vector, radius: int, *, as_frame: Literal[True]
    ) -> pandas.DataFrame: ...

    def within(self, query: ArrayLike | Vector, radius: int, *, as_frame: bool = False) -> Answers:
        """Find every row whose code differs from the query's in no more than radius bits.

        Fast by access path ``lookup``, while the radius is small; a scan of all codes elsewhere.

        Parameters
        ----------
        query : array-like (dimension,)
        radius : int
            0 to the number of bits.
        as_frame : bool
            As `search`.

        Returns
        -------
        list of Hit, or pandas.DataFrame
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
        return run(self.connection, asking.within(self, query, radius, as_frame))

    @overload
    def within_like(
        self, row_id: Any, radius: int, *, as_frame: Literal[False] = False
    ) -> list[Hit]: ...

    @overload
    def within_like(
        self, row_id: Any, radius: int, *, as_frame: Literal[True]
    ) -> pandas.DataFrame: ...

    def within_like(self, row_id: Any, radius: int, *, as_frame: bool = False) -> Answers:
        """Find every row whose code is within a radius of another row's, which is left out itself.

        Parameters
        ----------
        row_id : Any
            The row's key, or its text.
        radius, as_frame
            As `within`.

        Returns
        -------
        list of Hit, or pandas.DataFrame

        Raises
        ------
        InvalidInputError
            If there is no such row, or it has no vector; else as `search_like`.
        DatabaseStateError
            As `search_like`.
        """
        return run(self.connection, asking.within_like(self, row_id, radius, as_frame))
