"""Statements that search a column of vectors: exactly, or by an index of pgvector."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import LiteralString

from psycopg import sql

from ..models.model import OPERATORS as _OF_MODELS

#: pgvector's operators by distance: those of models, and one that no model has.
OPERATORS: Mapping[str, str] = {**_OF_MODELS, "l1": "<+>"}
#: The setting of each index of pgvector that trades recall for time, and values of it to try.
PARAMETERS = {"hnsw": "ef_search", "ivfflat": "probes"}
_EF_SEARCH, _PROBES = (40, 100, 200, 400), (1, 3, 10, 32, 100)


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
        Expression of the key in the SELECT list.
    key_names
        The same of a subquery.
    ties
        Order of rows at the same distance, after a comma; any by default.
    """

    schema: str
    table: sql.Composable
    column: sql.Composable
    type: str
    key: sql.Composable
    key_names: sql.Composable
    ties: LiteralString = ""

    @property
    def query(self) -> sql.Composed:
        """The query as a value of the column's type."""
        text = "$1::{schema}.vector" + "::{schema}.halfvec" * (self.type == "halfvec")
        return sql.SQL(text).format(schema=sql.Identifier(self.schema))

    def operator(self, name: str) -> sql.Composed:
        """Return the full name of an operator of pgvector."""
        return sql.SQL("OPERATOR({}.{})").format(sql.Identifier(self.schema), sql.SQL(name))

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
            "ties": sql.SQL(self.ties),
            "distance": sql.SQL("{} {} {}").format(
                self.column, self.operator(OPERATORS[metric]), sql.SQL("$1")
            ),
            "where": sql.SQL(" WHERE " if given else "") + sql.SQL(" AND ").join(given),
            "n": sql.Literal(n),
        }
        return sql.SQL(text).format(**names, **more)


@dataclass(frozen=True)
class Setting:
    """One way to search: settings of PostgreSQL, and how many rows are compared exactly."""

    session: Mapping[str, int | str] = field(default_factory=dict)
    candidates: int = 0


#: As sessions are, with the defaults of the index.
USUAL = Setting()


@dataclass(frozen=True)
class Exact:
    """The exact query by a metric."""

    of: VectorColumn
    metric: str

    def search(self, n: int, conditions: Sequence[str | None] = ()) -> sql.Composed:
        """Return the statement that finds the n rows nearest to ``$1``, with their distances."""
        # "+ 0" hides the order from indexes.
        return self.of.statement(
            "SELECT {key}, ({distance}) OPERATOR(pg_catalog.+) 0 AS distance FROM {table}{where} "
            "ORDER BY distance{ties} LIMIT {n}",
            self.metric,
            n,
            conditions,
        )


@dataclass(frozen=True)
class Existing:
    """An index of pgvector over the column, or over an expression of it.

    Parameters
    ----------
    metric
        That of answers.
    expression
        As SQL writes it; None for the column itself.
    type
        That of the expression: ``vector``, ``halfvec`` or ``bit``.
    operator
        Orders rows by the distance between the expression and that of the query.
    method
        ``hnsw`` or ``ivfflat``.
    """

    of: VectorColumn
    metric: str
    expression: str | None
    type: str
    operator: str
    method: str

    @property
    def reranks(self) -> bool:
        """Whether its candidates have to be compared exactly."""
        return self.type == "bit"

    def setting(self, value: int, *, iterative: bool = False) -> Setting:
        """Return the setting with a value of ``hnsw.ef_search`` or ``ivfflat.probes``."""
        session: dict[str, int | str] = {f"{self.method}.{PARAMETERS[self.method]}": value}
        if iterative:
            session[f"{self.method}.iterative_scan"] = "relaxed_order"
        return Setting(session, value)

    def settings(self, n: int) -> list[Setting]:
        """Return settings to try for n answers, the fastest first."""
        if self.method == "ivfflat":
            return [self.setting(value) for value in _PROBES]
        # One more than n, for the row that a query was taken from.
        values = [value for value in (*_EF_SEARCH, *[60] * self.reranks) if value > n]
        return [self.setting(value) for value in sorted(values) or [1000]]

    def search(
        self, n: int, setting: Setting = USUAL, conditions: Sequence[str | None] = ()
    ) -> sql.Composed:
        """Return the statement that finds the n rows nearest to ``$1``, with their distances."""
        text: LiteralString = (
            "SELECT {key}, {distance} AS distance FROM {table}{where} ORDER BY {by} LIMIT {n}"
        )
        if self.reranks:
            text = (
                "SELECT {key_names}, {distance} AS distance FROM (\n"
                "    SELECT {key}{more} FROM {table}{where}\n    ORDER BY {by}\n"
                "    LIMIT {candidates}\n) c ORDER BY {distance} LIMIT {n}"
            )
        kept = sql.Literal(max(setting.candidates, n))
        more = self.of.statement("" if self.of.key == sql.SQL("*") else ", {column}", self.metric)
        return self.of.statement(
            text, self.metric, n, conditions, by=self._by(), candidates=kept, more=more
        )

    def _by(self) -> sql.Composed:
        indexed: sql.Composable = self.of.column
        query: sql.Composable = self.of.query
        if self.expression is not None:
            indexed = sql.SQL("({})").format(sql.SQL(self.expression))
            # The same expression of the query: the innermost column of that name is meant. It is
            # computed once, in a generic plan too.
            query = sql.SQL("(SELECT {} FROM (SELECT {} AS {}) hashindex_query)").format(
                indexed, query, self.of.column
            )
        return sql.SQL("{} {} {}").format(indexed, self.of.operator(self.operator), query)
