"""Searches: their arguments, their one statement, and their answers.

`HashIndex` and `AsyncHashIndex` run the same statements: one function writes a statement, another
one reads its rows. The two classes differ only in ``await``. A search by a row's key first reads
the row, by a separate statement.
"""

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self, TypedDict

import numpy as np
import psycopg
import sqlalchemy as sa
from numpy.typing import ArrayLike
from pgvector import Bit, HalfVector, Vector
from psycopg import sql
from psycopg.pq import TransactionStatus
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.sql import visitors
from sqlalchemy.sql.compiler import SQLCompiler

from ..errors import InvalidInputError
from ..models import codes
from ..models.model import Model
from ..models.vectors import as_rows, as_vector
from .catalog import IndexRow

__all__ = [
    "Asked",
    "AskedHybrid",
    "Hit",
    "Hybrid",
    "HybridHit",
    "Search",
    "Statement",
    "Within",
    "as_count",
    "as_query",
    "filter_text",
]

# The greatest integer of SQL; less one, for the row itself in a search for its neighbours.
_MOST = 2**31 - 2

_DIALECT = PGDialect_psycopg()  # type: ignore[no-untyped-call]


class Hit(NamedTuple):
    """One answer: the row's key and its exact distance; for `within`, the distance in bits."""

    id: Any
    distance: float


class HybridHit(NamedTuple):
    """One answer of a search by vector and words; what did not find the row is None."""

    id: Any
    score: float
    distance: float | None
    word_rank: int | None


class Asked(TypedDict, total=False):
    """The arguments of a search beside its query; see `HashIndex.search`."""

    candidates: int | None
    probes: int | None
    where: sa.ColumnElement[bool] | None
    filter: str | None


class AskedHybrid(TypedDict, total=False):
    """The arguments of a search by vector and words; see `HashIndex.hybrid`."""

    filter: str | None
    vector_weight: float
    depth: int | None
    configuration: str | None


class _Options(TypedDict):
    prepare: bool | None
    binary: bool


class Statement(NamedTuple):
    """The arguments of ``execute`` of a psycopg.RawCursor: ``execute(*values, **options)``."""

    values: tuple[sql.Composed, Sequence[Any]]
    options: _Options


@dataclass(frozen=True, kw_only=True)
class _Question:
    """A search's query: a vector, or the key of a row."""

    query: Any = None
    row_id: Any = None
    #: Whether the vector was read from the row, by the statement before the search.
    like: bool = False
    #: The row's key as the table has it.
    key: Any = None
    #: The query's code, if Python evaluates the index's model.
    code: Bit | None = None

    def needs_row_of_now(self, row: IndexRow) -> bool:
        """Whether to read the index's row again before the search, and not only when it fails.

        After a swap, a code that Python made by the old model is refused, and that aborts a
        transaction.
        """
        connection = row.connection
        idle = connection.info.transaction_status == TransactionStatus.IDLE
        return self.like or (row.encoded_in == "python" and not (idle and connection.autocommit))

    def row_statement(self, row: IndexRow) -> Statement:
        """Write the statement that reads the row's key, vector and code."""
        query = sql.SQL(
            "SELECT b.{id}, b.{column}, {code}::text FROM {table} b WHERE b.{id} = $1::text::{type}"
        ).format(
            id=sql.Identifier(row.id_column),
            column=sql.Identifier(row.column_name),
            # Not every reader may read codes.
            code=sql.SQL("NULL") if row.encoded_in == "sql" else row.code_of_row,
            table=row.table,
            type=sql.SQL(row.key_type),
        )
        options = _Options(prepare=None, binary=row.binary_ids)
        return Statement((query, [str(self.row_id)]), options)

    def at(self, row: IndexRow, found: Sequence[tuple[Any, ...]]) -> Self:
        """Return the same search, with the vector that `row_statement` has read.

        A row that does not exist, or has no vector, is refused.
        """
        if not found or found[0][1] is None:
            raise InvalidInputError(
                f"{row.qualified_table} has no row with {row.id_column} = {self.row_id} and a "
                "vector"
            )
        key, vector, code = found[0]
        return replace(
            self, query=as_vector(vector), key=key, code=None if code is None else Bit(code)
        )

    def wants_code(self, row: IndexRow) -> bool:
        """Whether `encoded` has to compute the code of the query."""
        return row.encoded_in == "python" and self.code is None

    def encoded(self, row: IndexRow, model: Model) -> Self:
        """Return the same search, with the code of its vector.

        A model that knows only its training rows refuses other queries.
        """
        vector = as_query(self.query, row.dimension).to_numpy()[None]
        if model.network is not None and not model.network.knows(vector).all():
            raise InvalidInputError(
                f"index {row.name!r} has no code for this query: model {row.model!r} has "
                "codes only of the rows that it was trained on, and the query is none of them; "
                "search for the neighbours of a row that has a code, or index with a model that "
                "hashes new vectors"
            )
        return replace(self, code=codes.to_postgres(model.encode(vector), model.n_bits)[0])

    def _code(self, row: IndexRow, params: list[Any]) -> sql.SQL:
        """Write SQL for the query's code, and add its parameters."""
        if row.encoded_in == "sql":
            return sql.SQL("NULL")
        first = len(params) + 1
        params += [row.name, row.model_id, self.code]
        return sql.SQL(f"hashindex._code_by_model(${first}, ${first + 1}, ${first + 2})")


@dataclass(frozen=True, kw_only=True)
class Search(_Question):
    """A search for the nearest rows; see `HashIndex.search`."""

    k: int = 10
    candidates: int | None = None
    probes: int | None = None
    where: sa.ColumnElement[bool] | None = None
    filter: str | None = None

    def statement(self, row: IndexRow) -> Statement:
        """Write the search: a call of the index's own function, or of ``hashindex.search``."""
        vector, k = as_query(self.query, row.dimension), as_count("k", self.k)
        candidates = None if self.candidates is None else as_count("candidates", self.candidates)
        probes = None if self.probes is None else as_count("probes", self.probes)
        if self.like:
            # One more answer and candidate, since the row itself is always found.
            k, candidates = k + 1, None if candidates is None else candidates + 1
        restriction = self.filter
        if self.where is not None:
            restriction = filter_text(
                row.connection, self.where, row.table_name, row.qualified_table
            )
            if self.filter is not None:
                restriction = f"({self.filter}\n) AND {restriction}"
        params: list[Any] = [vector, k, candidates, probes]
        if restriction is None:
            query = sql.SQL("SELECT id, distance FROM hashindex.{}($1, $2, $3, $4, {})").format(
                sql.Identifier(f"search_{row.name}"), self._code(row, params)
            )
        else:
            params += [row.name, restriction]
            query = sql.SQL(
                "SELECT id::{}, distance FROM hashindex.search("
                "$5, $1, $2, $3, $4, filter => $6, query_code => {})"
            ).format(sql.SQL(row.key_type), self._code(row, params))
        prepare = True if restriction is None else None
        return Statement((query, params), _Options(prepare=prepare, binary=row.binary_ids))

    def hits(self, found: Sequence[tuple[Any, ...]]) -> list[Hit]:
        """Read the answers."""
        if not self.like:
            return [Hit(*values) for values in found]
        return [Hit(*values) for values in found if values[0] != self.key][: self.k]


@dataclass(frozen=True, kw_only=True)
class Within(_Question):
    """A search for every row within a Hamming radius; see `HashIndex.within`."""

    radius: int

    def statement(self, row: IndexRow) -> Statement:
        """Write the search: a call of the index's own function."""
        vector = as_query(self.query, row.dimension)
        try:
            bits = operator.index(self.radius)
        except TypeError:
            raise InvalidInputError(f"radius must be an integer, got {self.radius!r}") from None
        if not 0 <= bits <= row.n_bits:
            raise InvalidInputError(
                f"radius is {bits}; it must be 0 to {row.n_bits}, the bits of a code"
            )
        params: list[Any] = [vector, bits]
        query = sql.SQL("SELECT id, distance FROM hashindex.{}($1, $2, {})").format(
            sql.Identifier(f"within_{row.name}"), self._code(row, params)
        )
        return Statement((query, params), _Options(prepare=True, binary=row.binary_ids))

    def hits(self, found: Sequence[tuple[Any, ...]]) -> list[Hit]:
        """Read the answers."""
        return [Hit(*values) for values in found if not self.like or values[0] != self.key]


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

    def statement(self, row: IndexRow) -> Statement:
        """Write the search: a call of ``hashindex.hybrid``.

        Raises
        ------
        InvalidInputError
            If the query or a number cannot be used.
        """
        depth = None if self.depth is None else as_count("depth", self.depth)
        params: list[Any] = [
            row.name,
            as_query(self.query, row.dimension),
            self.words,
            self.text_column,
            as_count("k", self.k),
            self.filter,
            float(self.vector_weight),
            depth,
        ]
        query = "SELECT id::{}, score, distance, word_rank FROM hashindex.hybrid($1, $2, $3, $4, "
        query += "$5, $6, $7, $8, query_code => {}"
        code = self._code(row, params)
        if self.configuration is not None:
            params.append(self.configuration)
            query += f", configuration => ${len(params)}::text::regconfig"
        statement = sql.SQL(query + ")").format(sql.SQL(row.key_type), code)
        return Statement((statement, params), _Options(prepare=None, binary=row.binary_ids))

    def hits(self, found: Sequence[tuple[Any, ...]]) -> list[HybridHit]:
        """Read the answers."""
        return [HybridHit(*values) for values in found]


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


def as_query(query: ArrayLike | Vector | HalfVector, dimension: int) -> Vector:
    """Check that a query is one finite vector, and wrap it for pgvector."""
    array = np.asarray(query.to_numpy() if isinstance(query, Vector | HalfVector) else query)
    if array.ndim != 1:
        raise InvalidInputError(f"a query is one vector ({dimension},), got shape {array.shape}")
    return Vector(as_rows(array[None, :], dimension)[0].astype(np.float32))


def filter_text(
    connection: Any, where: sa.ColumnElement[bool], table_name: str, qualified_table: str
) -> str:
    """Write a filter on the searched table as SQL, with its values as psycopg quotes them.

    The table is given by its bare name, and as SQL writes it, for messages. What is no SQLAlchemy
    expression, or names another table, is refused.
    """
    if not isinstance(where, sa.ColumnElement):
        raise InvalidInputError(
            f"where must be an SQLAlchemy expression on {qualified_table}, "
            f"got {type(where).__name__}"
        )
    for element in visitors.iterate(where):
        table = getattr(element, "table", None)
        if isinstance(table, sa.Table) and table.name != table_name:
            raise InvalidInputError(
                f"where names column {element}; only columns of {qualified_table} can "
                "restrict this search"
            )
    statement = where.compile(dialect=_DIALECT)
    assert isinstance(statement, SQLCompiler)  # noqa: S101
    # Lists of IN get their parameters, and the conversion of their values, only here.
    expanded = statement.construct_expanded_state()
    processors = {**statement._bind_processors, **expanded.processors}
    values = {
        name: process(value) if callable(process := processors.get(name)) else value
        for name, value in expanded.parameters.items()
    }
    blocking = isinstance(connection, psycopg.Connection)
    cursor = (psycopg.ClientCursor if blocking else psycopg.AsyncClientCursor)(connection)
    return str(cursor.mogrify(expanded.statement, values))
