"""A graph from the database: edges between rows, named by their keys, and objects of any type."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from psycopg import Column, RawCursor, sql
from psycopg.postgres import types

from ..db.caller_queries import columns_of, errors_naming, exact_text, find_query
from ..db.sql_files import query
from ..db.statements import execute
from ..db.table_source import TableSource
from ..errors import InvalidInputError
from ..hashers.supervision.relations import read_graph
from ..models.vectors import SparseRows

# Types that may be compared directly, which is faster than as text.
_COMPARABLE = frozenset(types[name].oid for name in ("int2", "int4", "int8", "uuid"))
_NUMERIC = types["numeric"].oid
_NUMBERS = frozenset(
    types[name].oid for name in ("int2", "int4", "int8", "numeric", "float4", "float8")
)
# Weights that float32 holds. NaN is greater than any number, so it is refused.
_USABLE = sql.SQL("(c >= 1e-37 AND c < 3.4e38)")

_PACKED = query("edges.packed")
_FIRST_BAD = query("edges.first_bad")


@dataclass(frozen=True)
class Edges:
    """The source of edges, two or three columns of a query; made by `find`.

    ``source`` is the table of the rows, with a key; ``relation`` is the query as it stands after
    FROM.
    """

    source: TableSource
    query: str
    relation: sql.Composable
    columns: Sequence[Column]

    @classmethod
    def find(cls, source: TableSource, query: str) -> "Edges":
        """Find the edges and their columns, key, object and perhaps weight, without reading any."""
        relation = find_query(source.connection, "graph", query)
        with errors_naming("graph", source):
            columns = columns_of(source.connection, relation)
        if len(columns) not in (2, 3):
            raise InvalidInputError(
                "the graph must come in 2 columns, key and object, or 3 with a weight, got "
                f"{len(columns)}: {', '.join(column.name for column in columns)}; choose them by a "
                "query"
            )
        if len(columns) == 3 and columns[2].type_code not in _NUMBERS:
            raise InvalidInputError(
                f"the third column of the graph is a weight, so a number; {columns[2].name} is of "
                f"type {columns[2].type_display}"
            )
        return cls(source, query, relation, columns)

    def read(self, keys: Sequence[str]) -> SparseRows:
        """Read the edges of the rows of some keys, as `Key.exact_text` writes them.

        Returns a sparse matrix (len(keys), m) of float32, objects in the order of their values.
        Weights of repeated edges add up. Edges of other rows of the table are left out. A NULL, an
        unknown key or an unusable weight is refused, and a graph without edges.
        """
        with errors_naming("graph", self.source):
            packed = self._query(_PACKED, [list(keys)])
            rows: list[int] = []
            objects: list[bytes] = []
            weights: list[bytes] = []
            for row, of_row, weights_of_row in packed:
                if row < 0:
                    raise self._bad_line()
                rows.append(row)
                objects.append(of_row)
                weights.append(weights_of_row)
            if not rows:
                raise self._no_edges(len(keys))
        counts = np.zeros(len(keys), np.int64)
        counts[rows] = [len(of_row) // 4 for of_row in objects]
        places = np.frombuffer(b"".join(objects), ">i4") - 1
        sizes = np.frombuffer(b"".join(weights), ">f8")
        # This brings numbers into the byte order of the machine.
        arrays = sizes.astype(np.float64), places.astype(np.int32), np.cumsum([0, *counts])
        shape = (len(keys), int(places.max()) + 1)
        return read_graph(scipy.sparse.csr_array(arrays, shape=shape), len(keys))

    def _bad_line(self) -> InvalidInputError:
        found = self._query(_FIRST_BAD).fetchone()
        name = self.source.name
        if found is None:
            # The query gave another answer this time.
            return InvalidInputError(f"the graph names rows that {name} does not have, or NULL")
        number, shown, key, unknown = found
        if None in shown:
            values = ", ".join("NULL" if value is None else value for value in shown)
            return InvalidInputError(f"line {number} of the graph has a NULL: {values}")
        if unknown:
            return InvalidInputError(
                f"the graph names a row with {self.source.known_key.name} = {key}, but {name} has "
                "none; leave such edges out, by a query"
            )
        return InvalidInputError(
            "weights of the graph must be above 0 and within the range of float32; line "
            f"{number}, {shown[0]} and {shown[1]}, has {shown[2]}"
        )

    def _no_edges(self, n_rows: int) -> InvalidInputError:
        found = self._query("SELECT FROM {relation} known LIMIT 1").fetchone()
        if found is None:
            return InvalidInputError(f"there are no edges in {self.query}")
        return InvalidInputError(
            f"none of the edges in {self.query} belongs to one of the {n_rows} rows drawn from "
            f"{self.source.name}; draw more rows, or give edges of rows with a vector"
        )

    def _query(self, template: str, values: Sequence[Any] = ()) -> RawCursor[tuple[Any, ...]]:
        key = self.source.known_key
        names = {
            "relation": self.relation,
            "lines": self._lines(),
            "table": self.source.table,
            "key": key.of("base"),
            "line_key": key.ids_of("line"),
            "drawn_key": key.from_text(sql.Identifier("drawn", "id")),
            "key_text": key.exact_text(key.id_parts("line")),
            "unknown": sql.SQL("{} IS NULL").format(key.parts("base")[0]),
        }
        return execute(self.source.connection, template, values, names=names, binary=True)

    def _lines(self) -> sql.Composable:
        """Return SQL for the lines: key, object, weight, whether they are bad, and their texts."""
        a, b, *_ = self.columns
        key = self.source.known_key.compared(exact_text("a", a))
        # 1.0 and 1 are the same object.
        text = "trim_scale(b)::text" if b.type_code == _NUMERIC else "b::text"
        named = sql.SQL("b" if b.type_code in _COMPARABLE else f'({text}) COLLATE "C"')
        nulls = [sql.SQL("{} IS NULL").format(value) for value in (*key, named)]
        bad: sql.Composable = sql.SQL(" OR ").join(nulls)
        weight: sql.Composable = sql.SQL("1::float8")
        if len(self.columns) == 3:
            bad = sql.SQL("{} OR c IS NULL OR NOT {}").format(bad, _USABLE)
            weight = sql.SQL("CASE WHEN {} THEN c::float8 END").format(_USABLE)
        names = "abc"[: len(self.columns)]
        return sql.SQL(
            "(SELECT {}, {} AS object, {} AS weight, {} AS bad, ARRAY[{}] AS shown "
            "FROM {} known({})) line"
        ).format(
            self.source.known_key.named(key),
            named,
            weight,
            bad,
            sql.SQL(", ").join([sql.SQL(f"{name}::text") for name in names]),
            self.relation,
            sql.SQL(", ").join(map(sql.SQL, names)),
        )
