"""pgvector's own searches of a column: the exact query, and its indexes, built and asked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString, Self

from numpy.typing import NDArray
from psycopg import sql

from ..models import model
from .sizes import HNSW_DIMENSIONS

#: pgvector's operators by distance: those of models, and one that no model has.
OPERATORS: Mapping[str, str] = {**model.OPERATORS, "l1": "<+>"}
_HAMMING = "<~>"


@dataclass(frozen=True)
class VectorColumn:
    """A column of vectors, and statements that order its rows by the distance to ``$1``.

    Parameters
    ----------
    schema
        That of pgvector.
    type
        ``vector`` or ``halfvec``.
    key
        What answers begin with, as the table is asked for it.
    key_names
        The same of a subquery.
    """

    schema: str
    table: sql.Composable
    name: str
    type: str
    key: sql.Composable
    key_names: sql.Composable

    @property
    def column(self) -> sql.Identifier:
        """The column's name, quoted."""
        return sql.Identifier(self.name)

    @property
    def query(self) -> sql.Composed:
        """The query as a value of the column's type."""
        text = "$1::{schema}.vector" + "::{schema}.halfvec" * (self.type == "halfvec")
        return sql.SQL(text).format(schema=sql.Identifier(self.schema))

    def operator(self, name: str) -> sql.Composed:
        """Return the full name of an operator of pgvector."""
        return sql.SQL("OPERATOR({}.{})").format(sql.Identifier(self.schema), sql.SQL(name))

    def of_pgvector(self, name: str) -> sql.Identifier:
        """Return the full name of a type, function or operator class of pgvector."""
        return sql.Identifier(self.schema, name)

    def statement(
        self,
        text: LiteralString,
        metric: str,
        n: int = 0,
        conditions: Sequence[str | None] = (),
        **more: sql.Composable,
    ) -> sql.Composed:
        """Fill a statement in: {table}, {column}, {key}, {distance}, {where}, {n}, and others."""
        given = [sql.SQL("(({}\n))").format(sql.SQL(one)) for one in conditions if one is not None]
        names: dict[str, sql.Composable] = {
            "table": self.table,
            "column": self.column,
            "key": self.key,
            "key_names": self.key_names,
            "distance": sql.SQL("{} {} $1").format(self.column, self.operator(OPERATORS[metric])),
            "where": sql.SQL(" WHERE " if given else "") + sql.SQL(" AND ").join(given),
            "n": sql.Literal(n),
        }
        return sql.SQL(text).format(**names, **more)

    def exact(self, metric: str, n: int, conditions: Sequence[str | None] = ()) -> sql.Composed:
        """Return the exact query: the key of the n nearest rows, and their distances."""
        # "+ 0" hides the order from indexes.
        return self.statement(
            "SELECT {key}, ({distance}) OPERATOR(pg_catalog.+) 0 AS distance FROM {table}{where} "
            "ORDER BY distance LIMIT {n}",
            metric,
            n,
            conditions,
        )


@dataclass(frozen=True)
class PgvectorIndex:
    """An HNSW or IVFFlat index over a column, or over an expression of it.

    Parameters
    ----------
    indexed, code
        What is indexed, and the same of the query.
    operator
        Orders the one by the distance to the other.
    type
        What is indexed: ``vector``, ``halfvec``, or ``bit``, which is re-ranked.
    """

    of: VectorColumn
    metric: str
    indexed: sql.Composable
    code: sql.Composable
    operator: str
    type: str
    method: str = "hnsw"

    @classmethod
    def over_vectors(
        cls,
        of: VectorColumn,
        metric: str,
        dimension: int,
        *,
        half: bool = False,
        method: str = "hnsw",
    ) -> Self:
        """Index the vectors; as halfvec if it is wished, or no index takes so many dimensions."""
        indexed, code, kind = sql.SQL("{}").format(of.column), sql.SQL("$1").format(), of.type
        if kind == "vector" and (half or dimension > HNSW_DIMENSIONS["vector"]):
            kind, d = "halfvec", sql.Literal(dimension)
            indexed = sql.SQL("({}::{}({}))").format(of.column, of.of_pgvector(kind), d)
            code = sql.SQL("$1::{}({})").format(of.of_pgvector(kind), d)
        return cls(of, metric, indexed, code, OPERATORS[metric], kind, method)

    @classmethod
    def over_signs(
        cls, of: VectorColumn, metric: str, dimension: int, mean: NDArray[Any] | None = None
    ) -> Self:
        """Index the signs of the vectors (``binary_quantize``), or of the vectors less a mean."""
        less: sql.Composable = sql.SQL("")
        if mean is not None:
            written = f"[{','.join(f'{number:.6g}' for number in mean)}]"
            less = sql.SQL(" {} {}::{}").format(
                of.operator("-"), sql.Literal(written), of.of_pgvector(of.type)
            )
        indexed, code = (
            sql.SQL("({}({}{})::bit({}))").format(
                of.of_pgvector("binary_quantize"), value, less, sql.Literal(dimension)
            )
            for value in (of.column, of.query)
        )
        return cls(of, metric, indexed, code, _HAMMING, "bit")

    def create(
        self, how: LiteralString = "", name: str | None = None, options: LiteralString = ""
    ) -> sql.Composed:
        """Return the statement that makes the index."""
        return sql.SQL(
            "CREATE INDEX {how}{name}ON {table} USING {method} ({indexed} {of_class}){options}"
        ).format(
            how=sql.SQL(how),
            name=sql.SQL("{} ").format(sql.Identifier(name)) if name else sql.SQL(""),
            table=self.of.table,
            method=sql.SQL(self.method),
            indexed=self.indexed,
            of_class=self.of.of_pgvector(
                f"{self.type}_{'hamming' if self.type == 'bit' else self.metric}_ops"
            ),
            options=sql.SQL(options),
        )

    def search(
        self,
        n: int,
        candidates: int = 0,
        conditions: Sequence[str | None] = (),
        *,
        distances: bool = True,
    ) -> sql.Composed:
        """Return the statement that searches by it, and re-ranks candidates by signs."""
        text: LiteralString = "SELECT {key}{shown} FROM {table}{where} ORDER BY {by} LIMIT {n}"
        if self.type == "bit":
            text = (
                "SELECT {key_names}{shown} FROM (SELECT {key}, {column} FROM {table}{where} "
                "ORDER BY {by} LIMIT {candidates}) c ORDER BY {distance} LIMIT {n}"
            )
        shown = self.of.statement(", {distance} AS distance" if distances else "", self.metric)
        kept = sql.Literal(max(candidates, n))
        return self._statement(text, n, conditions, shown=shown, candidates=kept)

    def scan(self, n: int) -> sql.Composed:
        """Return the statement that finds its n candidates, in their order, without the index."""
        # "+ 0" hides the order from indexes.
        return self._statement(
            "SELECT {key}, {distance} AS distance FROM {table} "
            "ORDER BY ({by}) OPERATOR(pg_catalog.+) 0 LIMIT {n}",
            n,
        )

    def _statement(
        self,
        text: LiteralString,
        n: int,
        conditions: Sequence[str | None] = (),
        **more: sql.Composable,
    ) -> sql.Composed:
        by = sql.SQL("{} {} {}").format(self.indexed, self.of.operator(self.operator), self.code)
        return self.of.statement(text, self.metric, n, conditions, by=by, **more)
