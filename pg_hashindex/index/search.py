"""Searches: their arguments, their one statement, and their answers.

`HashIndex` and `AsyncHashIndex` run the same steps (`pg_hashindex.db.statements.Steps`), and differ
only in ``await``. `Searches` has the public methods of both. Each makes a question (`Search`,
`Within` or `Hybrid`: the arguments, no connection) and hands `Searches._search_steps` to its
driver, ``run`` or ``run_async``. These steps yield, in this order, and are sent:

1. statements of `row_steps`, if the index's row of the catalog is not kept or too old
   (`_Question.needs_fresh_row`): the rows of the catalog;
2. `_Question.row_statement`, in a search by a row's key: the key and vector of that row;
   `_Question.at` makes a question with this vector of it;
3. the question's ``statement``, the one round trip of most searches: the rows of the answer, which
   the question's ``hits`` turns into objects.

If a statement fails and the connection is still usable, the steps read the catalog again. If the
index is another one by now (swapped, built again), they begin at 2 with it; if it is the same, the
error goes to the caller, but a table that was emptied and filled meanwhile is searched once more.
"""

import json
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, Self, TypedDict, TypeVar, Unpack, cast

import numpy as np
import psycopg
import sqlalchemy as sa
from numpy.typing import ArrayLike
from pgvector import HalfVector, Vector
from psycopg import sql
from psycopg.pq import TransactionStatus

from ..db.keys import as_text
from ..db.server_errors import translated_errors
from ..db.statements import Statement, Steps, check_text
from ..errors import HashIndexError, InvalidInputError
from ..models.vectors import as_array, as_rows, as_vector
from .catalog import IndexRow, row_steps
from .filter_text import conjuncts, filter_text, tenant_in

# The greatest integer of SQL; less one, for the row itself in a search for its neighbours.
_MOST = 2**31 - 2

# A tenant that was not given. None may be one that the caller failed to find, and is refused.
_NOT_GIVEN = object()

# Answers, or coroutines that return them.
Hits = TypeVar("Hits")
HybridHits = TypeVar("HybridHits")


def _is_outdated(error: HashIndexError) -> bool:
    """Return whether the table was emptied and filled again since the statement's snapshot."""
    return isinstance(error.__cause__, psycopg.errors.SerializationFailure)


class Hit(NamedTuple):
    """One answer: the row's key and its exact distance; for `within`, the distance in bits.

    A key of several columns is a tuple.
    """

    id: Any
    distance: float


class HybridHit(NamedTuple):
    """One answer of a search by vector and words; what did not find the row is None."""

    id: Any
    score: float
    distance: float | None
    word_rank: int | None


class SearchOptions(TypedDict, total=False):
    """The arguments of a search beside its query; see `HashIndex.search`."""

    candidates: int | None
    effort: int | None
    where: sa.ColumnElement[bool] | None
    filter: str | None
    tenant: Any
    all_tenants: bool


class HybridOptions(TypedDict, total=False):
    """The arguments of a search by vector and words; see `HashIndex.hybrid`."""

    filter: str | None
    vector_weight: float
    depth: int | None
    configuration: str | None
    tenant: Any
    all_tenants: bool


# A statement and its parameters.
_Query = tuple[sql.Composed, list[Any]]


@dataclass(frozen=True, kw_only=True)
class _Question:
    """A search's query: a vector, or the key of a row."""

    query: Any = None
    row_id: Any = None
    #: Whether the vector was read from the row, by the statement before the search.
    like: bool = False
    #: The row's key as the table has it.
    key: Any = None

    def needs_fresh_row(self, row: IndexRow) -> bool:
        """Whether to read the index's row again before the search, and not only when it fails.

        An index that was not yet encoded may be by now.
        """
        return self.like or not row.encoded

    def row_statement(self, row: IndexRow) -> _Query:
        """Write the statement that reads the row's key and vector."""
        query = sql.SQL(
            "SELECT {shown}, b.{column} FROM {table} b WHERE ({key}) = ({like})"
        ).format(
            shown=row.key.shown(row.key.parts("b")),
            **row.names,
            like=row.key.from_text(sql.SQL("$1::text")),
        )
        return query, [row.key.written(self.row_id)]

    def at(self, row: IndexRow, found: Sequence[tuple[Any, ...]]) -> Self:
        """Return the same search, with the vector that `row_statement` has read.

        A row that does not exist, or has no vector, is refused.
        """
        if not found or found[0][-1] is None:
            raise InvalidInputError(
                f"{row.qualified_table} has no row with {row.key.name} = {self.row_id} and a vector"
            )
        *key, vector = found[0]
        return replace(self, query=as_vector(vector), key=row.key.read(key))

    def _hits(self, row: IndexRow, found: Sequence[tuple[Any, ...]]) -> list[Hit]:
        """Read the answers, without the row that is searched for itself; its key may be NaN."""
        hits = (Hit(row.key.read(values[:-1]), values[-1]) for values in found)
        return [hit for hit in hits if not self.like or str(hit.id) != str(self.key)]


@dataclass(frozen=True, kw_only=True)
class Search(_Question):
    """A search for the nearest rows; see `HashIndex.search`."""

    k: int = 10
    candidates: int | None = None
    effort: int | None = None
    where: sa.ColumnElement[bool] | None = None
    filter: str | None = None
    tenant: Any = _NOT_GIVEN
    all_tenants: bool = False

    def statement(self, row: IndexRow) -> _Query:
        """Write the search: a call of the index's own function."""
        named_tenant = _tenant_text(row, self.tenant, self.all_tenants)
        vector, k = as_query(self.query, row.dimension), as_count("k", self.k)
        candidates = as_optional_count("candidates", self.candidates)
        effort = as_optional_count("effort", self.effort)
        if self.like:
            # One more answer and candidate, since the row itself is always found.
            k, candidates = k + 1, None if candidates is None else candidates + 1
        restriction, equalities = self.filter, None
        check_text("filter", restriction)
        if self.where is not None:
            parts = list(conjuncts(self.where))
            tenant = tenant_in(
                parts,
                lambda one: (
                    one.name == row.tenant_column
                    and getattr(one.table, "name", row.table_name) == row.table_name
                ),
            )
            if tenant is not None and tenant.value is not None:
                equalities = json.dumps({row.tenant_column: tenant.value}, default=as_text)
            restriction = filter_text(
                row.connection, self.where, row.table_name, row.qualified_table
            )
            if self.filter is not None:
                restriction = f"({self.filter}\n) AND ({restriction}\n)"
            elif equalities is not None and len(parts) == 1 and named_tenant is None:
                restriction = None
        params: list[Any] = [vector, k, candidates, effort, restriction]
        condition = others = ""
        if self.where is not None and self.filter is not None:
            # Brackets would let "true) OR (true" pass, and cancel `where`.
            params.append(f"SELECT FROM {row.qualified_table} WHERE {self.filter}")
            condition = "(SELECT $5::text FROM hashindex._estimate($6::text))"
        if equalities is not None:
            params.append(equalities)
            others += f", where_equals => ${len(params)}::jsonb"
        if named_tenant is not None:
            params.append(named_tenant)
            others += f", tenant => ${len(params)}::text::{row.tenant_type}"
        if self.all_tenants:
            others += ", all_tenants => true"
        query = _answers(
            row,
            sql.SQL("hashindex.{}($1, $2, $3, $4, {}{})").format(
                sql.Identifier(f"search_{row.name}"),
                sql.SQL(condition or "$5"),
                sql.SQL(others),
            ),
        )
        return query, params

    def hits(self, row: IndexRow, found: Sequence[tuple[Any, ...]]) -> list[Hit]:
        """Read the answers."""
        return self._hits(row, found)[: self.k]


@dataclass(frozen=True, kw_only=True)
class Within(_Question):
    """A search for every row within a Hamming radius; see `HashIndex.within`."""

    radius: int
    tenant: Any = _NOT_GIVEN
    all_tenants: bool = False

    def statement(self, row: IndexRow) -> _Query:
        """Write the search: a call of ``hashindex.within``."""
        vector = as_query(self.query, row.dimension)
        try:
            bits = operator.index(self.radius)
        except TypeError:
            raise InvalidInputError(f"radius must be an integer, got {self.radius!r}") from None
        # A set of vectors has no codes: SQL names the command that makes some.
        if row.n_bits and not 0 <= bits <= row.n_bits:
            raise InvalidInputError(
                f"radius is {bits}; it must be 0 to {row.n_bits}, the bits of a code"
            )
        params: list[Any] = [vector, bits]
        tenant = _tenant_text(row, self.tenant, self.all_tenants)
        key = row.key.shown_from_text(sql.Identifier("id"))
        found = sql.SQL(
            "SELECT {}, distance FROM hashindex.within($3, $1, $2, tenant => $4, all_tenants => $5)"
        ).format(key)
        return found, [*params, row.name, tenant, self.all_tenants]

    def hits(self, row: IndexRow, found: Sequence[tuple[Any, ...]]) -> list[Hit]:
        """Read the answers."""
        return self._hits(row, found)


@dataclass(frozen=True, kw_only=True)
class Hybrid(_Question):
    """A search by vector and by words; see `HashIndex.hybrid`."""

    words: str
    text_column: str
    k: int = 10
    filter: str | None = None
    vector_weight: float = 0.5
    depth: int | None = None
    configuration: str | None = None
    tenant: Any = _NOT_GIVEN
    all_tenants: bool = False

    def statement(self, row: IndexRow) -> _Query:
        """Write the search: a call of ``hashindex.hybrid``."""
        check_text("words", self.words)
        check_text("text_column", self.text_column)
        check_text("filter", self.filter)
        params: list[Any] = [
            row.name,
            as_query(self.query, row.dimension),
            self.words,
            self.text_column,
            as_count("k", self.k),
            self.filter,
            as_number("vector_weight", self.vector_weight),
            as_optional_count("depth", self.depth),
        ]
        query = "SELECT {}, score, distance, word_rank FROM hashindex.hybrid($1, $2, $3, $4, "
        query += "$5, $6, $7, $8"
        if self.configuration is not None:
            params.append(self.configuration)
            query += f", configuration => ${len(params)}::text::regconfig"
        if (tenant := _tenant_text(row, self.tenant, self.all_tenants)) is not None:
            params.append(tenant)
            query += f", tenant => ${len(params)}"
        if self.all_tenants:
            query += ", all_tenants => true"
        key = row.key.shown_from_text(sql.Identifier("id"))
        return sql.SQL(query + ")").format(key), params

    def hits(self, row: IndexRow, found: Sequence[tuple[Any, ...]]) -> list[HybridHit]:
        """Read the answers."""
        return [HybridHit(row.key.read(values[:-3]), *values[-3:]) for values in found]


def _tenant_text(row: IndexRow, tenant: Any, all_tenants: bool) -> str | None:
    """Return the tenant that a search is given as text; None if it is given none."""
    if row.tenant_column is None and (all_tenants or tenant is not _NOT_GIVEN):
        named = "all_tenants" if tenant is _NOT_GIVEN else f"tenant {tenant!r}"
        raise InvalidInputError(
            f"index {row.name!r} has no tenants; search with a filter instead of {named}"
        )
    if tenant is _NOT_GIVEN:
        return None
    if tenant is None:
        raise InvalidInputError(
            f"tenant is None; name a value of column {row.tenant_column!r}, or search the rows of "
            "all tenants by all_tenants=True"
        )
    return as_text(tenant)


def _answers(row: IndexRow, call: sql.Composed) -> sql.Composed:
    """Write the statement that selects what a search function of the index returns."""
    if row.key.is_read:
        query = sql.SQL("SELECT * FROM ") + call
    else:
        query = sql.SQL("SELECT {}, s.distance FROM {} s({}, distance)").format(
            row.key.shown(row.key.id_parts("s")), call, row.key.ids
        )
    # A statement that was prepared fails once the function returns other types: it is another one.
    types = re.sub(r"[^\w ,.]", "", ", ".join(row.key_types))
    return query + sql.SQL(f" /* {types} */")


class Searches(Generic[Hits, HybridHits]):
    """The searches of `HashIndex`, which return answers, and of `AsyncHashIndex`, to await."""

    # `run` or `run_async`.
    _run: Callable[..., Hits]
    connection: Any
    name: str
    # Searches use this row of the catalog until one of them fails.
    _row: IndexRow | None

    def _row_steps(self) -> Steps[IndexRow]:
        self._row = yield from row_steps(self.connection, self.name)
        return self._row

    def _search_steps(self, asked: Search | Within | Hybrid) -> Steps[Any]:
        """Run the statement of a search; again if the index or its table changed meanwhile."""
        row = self._row
        if row is None or asked.needs_fresh_row(row):
            row = yield from self._row_steps()
        asked_again = False
        while True:
            times = row.key.has_times
            try:
                with translated_errors(row):
                    ready = asked
                    if asked.like:
                        # Not prepared: the column may be given another type.
                        found = Statement(*asked.row_statement(row), binary=True, times=times)
                        ready = asked.at(row, (yield found))
                    query = Statement(*ready.statement(row), binary=True, prepare=True, times=times)
                    return ready.hits(row, (yield query))
            except HashIndexError as error:
                if self.connection.info.transaction_status == TransactionStatus.INERROR:
                    raise
                now = yield from self._row_steps()
                if now == row and (asked_again or not _is_outdated(error)):
                    raise
                row, asked_again = now, now == row

    def search(
        self, query: ArrayLike | Vector, k: int = 10, **options: Unpack[SearchOptions]
    ) -> Hits:
        """Find the nearest rows: candidates by code, then the exact distance.

        Parameters
        ----------
        query : array-like (dimension,)
        k
            Answers wanted.
        candidates : int, optional
            Rows kept by code before the exact order; by default the index's own number, and
            in proportion more for more than ten answers.
        effort : int, optional
            Landmarks whose lists are read, 1 to 1000, if access is by landmarks; the index's own
            number by default. If these lists have fewer than k rows, more are read.
        where : sqlalchemy condition, optional
            A filter on columns of the searched table: only rows that meet it are searched.
        filter : str, optional
            A filter as SQL text, such as ``"section = 'games'"``. It runs unchanged, with the
            caller's rights; pass text from users by ``where``, which quotes it.
        all_tenants : bool, optional
            Search the rows of all tenants, of an index that has tenants.
        tenant : optional
            Only rows of this tenant are searched. An index with tenants wants one, by this argument
            or as ``column == value`` in where, or ``all_tenants``; None is refused.

        Returns
        -------
        list of Hit
            ``(id, distance)``, nearest first; distances as pgvector's operator gives them (``ip``:
            the negative inner product). A key of several columns is a tuple.

        Raises
        ------
        InvalidInputError
            If the query, k, candidates or the filter cannot be used.
        UnknownIndexError
            If the index was dropped.
        """
        asked = Search(query=query, k=k, **options)
        return self._run(self.connection, self._search_steps(asked))

    def search_like(self, row_id: Any, k: int = 10, **options: Unpack[SearchOptions]) -> Hits:
        """Find the rows nearest to another row of the table, which is left out itself.

        Parameters
        ----------
        row_id
            The row's key, or its text; of several columns, a tuple or a JSON array.
        k, candidates, effort, where, filter, tenant, all_tenants
            As `search`.

        Raises
        ------
        InvalidInputError
            If there is no such row, or it has no vector; else as `search`.
        UnknownIndexError
            If the index was dropped.
        """
        asked = Search(like=True, row_id=row_id, k=k, **options)
        return self._run(self.connection, self._search_steps(asked))

    def within(
        self,
        query: ArrayLike | Vector,
        radius: int,
        *,
        tenant: Any = _NOT_GIVEN,
        all_tenants: bool = False,
    ) -> Hits:
        """Find every row whose code differs from the query's in no more than radius bits.

        Compares all codes, which are in lists, or in a column that the index stores or was given.

        Parameters
        ----------
        query : array-like (dimension,)
        radius
            0 to the number of bits.
        tenant : optional
            Only rows of this tenant are searched. An index with tenants wants one, or
            ``all_tenants``; None is refused.
        all_tenants : bool, optional
            Search the rows of all tenants, of an index that has tenants.

        Returns
        -------
        list of Hit
            ``(id, distance)``, nearest first, ties by the key; the distance is the number of
            different bits.

        Raises
        ------
        InvalidInputError
            If the query or the radius cannot be used.
        UnknownIndexError
            If the index was dropped.
        """
        asked = Within(query=query, radius=radius, tenant=tenant, all_tenants=all_tenants)
        return self._run(self.connection, self._search_steps(asked))

    def within_like(
        self, row_id: Any, radius: int, *, tenant: Any = _NOT_GIVEN, all_tenants: bool = False
    ) -> Hits:
        """Find every row whose code is within a radius of another row's, which is left out itself.

        Parameters
        ----------
        row_id
            The row's key, or its text; of several columns, a tuple or a JSON array.
        radius, tenant, all_tenants
            As `within`.

        Raises
        ------
        InvalidInputError
            If there is no such row, or it has no vector; else as `within`.
        UnknownIndexError
            If the index was dropped.
        """
        asked = Within(
            like=True, row_id=row_id, radius=radius, tenant=tenant, all_tenants=all_tenants
        )
        return self._run(self.connection, self._search_steps(asked))

    def hybrid(
        self,
        query: ArrayLike | Vector,
        words: str,
        text_column: str,
        k: int = 10,
        **options: Unpack[HybridOptions],
    ) -> HybridHits:
        """Find rows near to a vector or holding words, by reciprocal rank fusion.

        Each of the two searches returns ``depth`` rows, and a row scores ``weight / (60 + place)``
        in each of them; 60 and the sum are those of Cormack, Clarke and Buettcher (SIGIR 2009).

        Parameters
        ----------
        query : array-like (dimension,)
        words
            Words as people write them for a search engine; ``websearch_to_tsquery`` reads them.
            Without a word that counts, only vectors are searched.
        text_column
            A column of text, or of type ``tsvector``. An index ``USING gin (to_tsvector('english',
            column))``, or on the ``tsvector``, makes it fast.
        k
            Answers wanted.
        filter : str, optional
            As `search`.
        vector_weight : float
            The share of the vectors' places in the score, 0 to 1; the words have the rest.
        depth : int, optional
            Answers that each search returns, at least k; by default 4 k, at least 50.
        configuration : str, optional
            The text search configuration; by default the session's.
        tenant, all_tenants : optional
            As `search`.

        Returns
        -------
        list of HybridHit
            ``(id, score, distance, word_rank)``, best first. ``distance`` is None for rows that
            only the words found, ``word_rank`` for those that only the vector found.

        Raises
        ------
        InvalidInputError
            If an argument cannot be used, or there is no such column of text.
        UnknownIndexError
            If the index was dropped.
        """
        asked = Hybrid(query=query, words=words, text_column=text_column, k=k, **options)
        return cast(HybridHits, self._run(self.connection, self._search_steps(asked)))


def as_count(what: str, value: Any) -> int:
    """Check a number of rows, 1 to 2^31 - 2; ``what`` is its name."""
    try:
        count = operator.index(value)
    except TypeError:
        raise InvalidInputError(f"{what} must be an integer, got {value!r}") from None
    if count < 1:
        raise InvalidInputError(f"{what} is {count}; it must be 1 or more")
    if count > _MOST:
        raise InvalidInputError(f"{what} is {count}; it must be {_MOST} or less")
    return count


def as_optional_count(what: str, value: Any) -> int | None:
    """Check a number as `as_count` does; None stays."""
    return None if value is None else as_count(what, value)


def as_number(what: str, value: Any) -> float:
    """Refuse what is not a number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InvalidInputError(f"{what} must be a number, got {value!r}") from None


def as_query(query: ArrayLike | Vector | HalfVector, dimension: int | None) -> Vector:
    """Check that a query is one finite vector, and wrap it for pgvector; None is any dimension."""
    given = query.to_numpy() if isinstance(query, Vector | HalfVector) else query
    array = as_array("queries", given)
    if array.ndim != 1:
        shape = "(dimension,)" if dimension is None else f"({dimension},)"
        raise InvalidInputError(f"a query is one vector {shape}, got shape {array.shape}")
    return Vector(as_rows(array[None, :], dimension)[0].astype(np.float32))
