"""Systems that are searched: a column exactly, by an index of pgvector, or by one of pg_hashindex.

Each is a `System`: ``create`` are the statements that make it, ``settings`` the ways to ask it, and
``search`` is the statement that asks it.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, LiteralString

from numpy.typing import NDArray
from psycopg import sql

from ..models.model import OPERATORS as _OF_MODELS
from .sizes import HNSW_DIMENSIONS

#: pgvector's operators by distance: those of models, and one that no model has.
OPERATORS: Mapping[str, str] = {**_OF_MODELS, "l1": "<+>"}
_ORDERS = {operator: metric for metric, operator in OPERATORS.items()} | {"<~>": "hamming"}
#: The setting of each index of pgvector that trades recall for time, and values of it to try.
PARAMETERS = {"hnsw": "ef_search", "ivfflat": "probes"}
#: How graphs of codes are built: they are cheap to build, and this finds more.
GRAPH: LiteralString = " WITH (ef_construction = 128)"
#: Numbers of candidates to try.
CANDIDATES = (20, 50, 100, 200, 400, 800)
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

    def of_pgvector(self, name: str) -> sql.Composable:
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
    """One way to ask a system.

    ``session`` are settings of PostgreSQL, ``candidates`` the rows that are compared exactly, and
    ``effort`` the lists that an index of pg_hashindex reads.
    """

    session: Mapping[str, int | str] = field(default_factory=dict)
    candidates: int = 0
    effort: int | None = None


#: As sessions are, with the defaults of the system.
USUAL = Setting()


@dataclass(frozen=True)
class System(ABC):
    """A way to search a column for the rows nearest to a query by a metric."""

    of: VectorColumn
    metric: str

    def create(self, name: str | None = None, options: LiteralString = "") -> list[sql.Composed]:
        """Return the statements that make it; none where nothing, or a command, does."""
        return []

    def settings(self, n: int) -> list[Setting]:
        """Return settings to try for n answers, the fastest first."""
        return [Setting()]

    @abstractmethod
    def search(
        self, n: int, setting: Setting = USUAL, conditions: Sequence[str | None] = ()
    ) -> sql.Composed:
        """Return the statement that finds the n rows nearest to ``$1``, with their distances."""


class Exact(System):
    """The exact query."""

    def search(  # noqa: D102
        self, n: int, setting: Setting = USUAL, conditions: Sequence[str | None] = ()
    ) -> sql.Composed:
        # "+ 0" hides the order from indexes.
        return self.of.statement(
            "SELECT {key}, ({distance}) OPERATOR(pg_catalog.+) 0 AS distance FROM {table}{where} "
            "ORDER BY distance{ties} LIMIT {n}",
            self.metric,
            n,
            conditions,
        )


@dataclass(frozen=True)
class Vectors(System):
    """An index of pgvector over the column; those over an expression of it are subclasses."""

    method: str = field(default="hnsw", kw_only=True)

    @property
    def type(self) -> str:
        """Type of the index's expression: ``vector``, ``halfvec`` or ``bit``."""
        return self.of.type

    @property
    def operator(self) -> str:
        """Order by the distance between the indexed expression and that of the query."""
        return OPERATORS[self.metric]

    @property
    def reranks(self) -> bool:
        """Whether its candidates have to be compared exactly."""
        return self.type == "bit"

    def expression(self, value: sql.Composable) -> sql.Composable:
        """Return what is indexed of a vector."""
        return value

    def asked(self) -> sql.Composable:
        """Return the same of the query."""
        return sql.SQL("$1").format()

    def create(  # noqa: D102
        self, name: str | None = None, options: LiteralString = ""
    ) -> list[sql.Composed]:
        statement = sql.SQL(
            "CREATE INDEX {name}ON {table} USING {method} ({indexed} {of_class}){options}"
        ).format(
            name=sql.SQL("{} ").format(sql.Identifier(name)) if name else sql.SQL(""),
            table=self.of.table,
            method=sql.SQL(self.method),
            indexed=self.expression(self.of.column),
            of_class=self.of.of_pgvector(f"{self.type}_{_ORDERS[self.operator]}_ops"),
            options=sql.SQL(options),
        )
        return [statement]

    def setting(self, value: int, *, iterative: bool = False) -> Setting:
        """Return the setting with a value of ``hnsw.ef_search`` or ``ivfflat.probes``."""
        session: dict[str, int | str] = {f"{self.method}.{PARAMETERS[self.method]}": value}
        if iterative:
            session[f"{self.method}.iterative_scan"] = "relaxed_order"
        return Setting(session, value)

    def settings(self, n: int) -> list[Setting]:  # noqa: D102
        if self.method == "ivfflat":
            return [self.setting(value) for value in _PROBES]
        # One more than n, for the row that a query was taken from.
        values = [value for value in (*_EF_SEARCH, *[60] * self.reranks) if value > n]
        return [self.setting(value) for value in sorted(values) or [1000]]

    def search(  # noqa: D102
        self, n: int, setting: Setting = USUAL, conditions: Sequence[str | None] = ()
    ) -> sql.Composed:
        text: LiteralString = (
            "SELECT {key}, {distance} AS distance FROM {table}{where} ORDER BY {by} LIMIT {n}"
        )
        if self.reranks:
            text = (
                "SELECT {key_names}, {distance} AS distance FROM (\n"
                "    SELECT {key}{more} FROM {table}{where}\n    ORDER BY {by}\n"
                "    LIMIT {candidates}\n) c ORDER BY {distance} LIMIT {n}"
            )
        by = sql.SQL("{} {} {}").format(
            self.expression(self.of.column), self.of.operator(self.operator), self.asked()
        )
        kept = sql.Literal(max(setting.candidates, n))
        more = self.of.statement("" if self.of.key == sql.SQL("*") else ", {column}", self.metric)
        return self.of.statement(
            text, self.metric, n, conditions, by=by, candidates=kept, more=more
        )


class _Expression(Vectors):
    def asked(self) -> sql.Composable:
        # Computed once, in a generic plan too.
        return sql.SQL("(SELECT {})").format(self.expression(self.of.query))


@dataclass(frozen=True)
class Halves(_Expression):
    """The vectors in half precision."""

    dimension: int
    type = "halfvec"

    def expression(self, value: sql.Composable) -> sql.Composable:  # noqa: D102
        cast = self.of.of_pgvector(self.type), sql.Literal(self.dimension)
        return sql.SQL("({}::{}({}))").format(value, *cast)


@dataclass(frozen=True)
class Signs(_Expression):
    """The signs of the vectors (``binary_quantize``), or of the vectors less a mean."""

    dimension: int
    mean: NDArray[Any] | None = None
    type, operator = "bit", "<~>"

    def expression(self, value: sql.Composable) -> sql.Composable:  # noqa: D102
        if self.mean is not None:
            written = sql.Literal(f"[{','.join(f'{number:.6g}' for number in self.mean)}]")
            minus, kind = self.of.operator("-"), self.of.of_pgvector(self.of.type)
            value = sql.SQL("{} {} {}::{}").format(value, minus, written, kind)
        function = self.of.of_pgvector("binary_quantize")
        return sql.SQL("({}({})::bit({}))").format(function, value, sql.Literal(self.dimension))


@dataclass(frozen=True)
class Code(_Expression):
    """The code of a model whose functions were made; ``function`` is the name as SQL writes it."""

    function: str
    bits: int
    type, operator = "bit", "<~>"

    def expression(self, value: sql.Composable) -> sql.Composable:  # noqa: D102
        text = sql.SQL("({}({})::bit({}))")
        return text.format(sql.SQL(self.function), value, sql.Literal(self.bits))


@dataclass(frozen=True)
class Existing(Vectors):
    """An index of pgvector that is there, over the column or an expression of it (``written``)."""

    written: str | None
    kind: str
    by: str

    @property
    def type(self) -> str:  # noqa: D102
        return self.kind

    @property
    def operator(self) -> str:  # noqa: D102
        return self.by

    def expression(self, value: sql.Composable) -> sql.Composable:  # noqa: D102
        return value if self.written is None else sql.SQL("({})").format(sql.SQL(self.written))

    def asked(self) -> sql.Composable:  # noqa: D102
        if self.written is None:
            return self.of.query
        # The same expression of the query: the innermost column of that name is meant.
        return sql.SQL("(SELECT {} FROM (SELECT {} AS {}) hashindex_query)").format(
            self.expression(self.of.column), self.of.query, self.of.column
        )


@dataclass(frozen=True)
class CodeIndex(System):
    """An index of pg_hashindex, which ``pg-hashindex index create`` makes."""

    name: str

    def settings(self, n: int) -> list[Setting]:  # noqa: D102
        return [Setting(candidates=count) for count in CANDIDATES if count >= n]

    def search(  # noqa: D102
        self, n: int, setting: Setting = USUAL, conditions: Sequence[str | None] = ()
    ) -> sql.Composed:
        given = [f"({one}\n)" for one in conditions if one is not None]
        arguments = [sql.SQL("$1::{}, k => {}").format(self.of.of_pgvector("vector"), n)]
        counts = {"candidates": setting.candidates, "effort": setting.effort}
        for name, count in counts.items():
            if count:
                arguments.append(sql.SQL("{} => {}").format(sql.SQL(name), count))
        function = f"search_{self.name}"
        if given:
            function = "search"
            arguments.insert(0, sql.SQL("{}").format(sql.Literal(self.name)))
            arguments.append(sql.SQL("filter => {}").format(sql.Literal(" AND ".join(given))))
        return sql.SQL("SELECT id, distance FROM hashindex.{}({})").format(
            sql.Identifier(function), sql.SQL(", ").join(arguments)
        )


def over_vectors(
    of: VectorColumn, metric: str, dimension: int, *, half: bool = False, method: str = "hnsw"
) -> Vectors:
    """Index the vectors; as halfvec on request, or if a ``vector`` has too many dimensions."""
    if of.type == "vector" and (half or dimension > HNSW_DIMENSIONS["vector"]):
        return Halves(of, metric, dimension, method=method)
    return Vectors(of, metric, method=method)
