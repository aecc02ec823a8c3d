"""Which table and columns an index is of, after they were renamed: proved by its codes.

Triggers stay with their table, whatever it is called. Which column a renamed one is, no catalog
says: those that could be it by their type are tried on a sample of the codes. A code that is there
is right, so it has to be what the model makes of the column, in the row that has the code's key.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, LiteralString

import numpy as np
from psycopg import RawCursor, sql

from ..errors import InvalidInputError
from ..index.catalog import IndexEntry, Layout
from ..models import codes
from ..models.vectors import as_vector

__all__ = ["Binding", "GoneError", "find_binding"]

_SAMPLE_ROWS = 200
# Others fit by chance, of few codes; those that are the column's may be stale in part.
_FITTING_PART = 0.5

_TABLES: LiteralString = """
    SELECT t.schema_name, t.table_name, t.divided
    FROM hashindex.index i, hashindex._triggered_tables(i) t WHERE i.name = $1
"""

_FITTING: LiteralString = """
    SELECT f.part, f.column_name FROM hashindex.index i, hashindex._fitting_columns(i, {base}) f
    WHERE i.name = $1
"""

# Other indexes' code columns are known.
_COLUMNS: LiteralString = """
    SELECT pg_catalog.array_agg(a.attname::text) FILTER (WHERE NOT a.attisdropped),
           coalesce(pg_catalog.bool_or(a.attisdropped), false),
           ARRAY(SELECT i.code_column FROM hashindex.index i
                 WHERE i.layout = 'column' AND i.name <> $1)
    FROM pg_catalog.pg_attribute a WHERE a.attrelid = {base}::oid AND a.attnum > 0
"""

_SAMPLE: dict[Layout, LiteralString] = {
    "table": """
        SELECT c.code::text, b.{column} FROM (SELECT id, code FROM {codes} LIMIT $1) c
        JOIN {table} b ON b.{id} = c.id WHERE b.{column} IS NOT NULL
    """,
    "column": """
        SELECT b.{code}::text, b.{column} FROM {table} b
        WHERE b.{code} IS NOT NULL AND b.{column} IS NOT NULL LIMIT $1
    """,
}

_ANY_CODE: LiteralString = "SELECT EXISTS (SELECT 1 FROM {codes} c WHERE c.{code} IS NOT NULL)"

_CODE_TABLE: LiteralString = "SELECT to_regclass({codes_name}) IS NOT NULL"


_PARTS = (("column", "column_name"), ("key", "id_column"), ("codes", "code_column"))


class GoneError(Exception):
    """The table or the vector column of an index does not exist any more."""


@dataclass(frozen=True)
class Binding:
    """What an index is of, by names."""

    schema_name: str
    table_name: str
    column_name: str
    id_column: str
    code_column: str

    @classmethod
    def of(cls, index: IndexEntry) -> "Binding":
        """Return what the catalog says."""
        return cls(
            index.schema_name,
            index.table_name,
            index.column_name,
            index.id_column,
            index.code_column,
        )

    @property
    def table(self) -> sql.Identifier:
        """The table, quoted."""
        return sql.Identifier(self.schema_name, self.table_name)


@dataclass(frozen=True)
class _Asked:
    """What the caller has said of it."""

    table: str | None
    column: str | None
    id_column: str | None
    full: bool


def find_binding(
    index: IndexEntry,
    *,
    table: str | None = None,
    column: str | None = None,
    id_column: str | None = None,
    full: bool = False,
) -> Binding:
    """Find the table and the columns of an index, under whatever names.

    Parameters
    ----------
    index : IndexEntry
    table : str, optional
        As SQL writes it; found by the triggers otherwise.
    column, id_column : str, optional
        Bare names; found by their types and the codes otherwise.
    full : bool
        Whether all codes will be made anew, so that those there need not be of this column.

    Returns
    -------
    Binding

    Raises
    ------
    GoneError
        If the table or the vector column was dropped.
    InvalidInputError
        If none or several fit.
    """
    asked = _Asked(table, column, id_column, full)
    return _Finder(index, asked).run()


class _Finder:
    def __init__(self, index: IndexEntry, asked: _Asked) -> None:
        self.index, self.asked = index, asked
        self.known = Binding.of(index)
        self.has_codes = True

    def run(self) -> Binding:
        bound = self._table()
        names, any_dropped, others = self._row(_COLUMNS, [self.index.name], bound)
        fitting: dict[str, list[str]] = {"vector": [], "key": [], "code": []}
        for part, name in self._rows(_FITTING, [self.index.name], bound):
            if name not in others:
                fitting[part].append(name)

        def could_be(part: str, wanted: str | None, before: str) -> list[str]:
            if wanted is not None:
                return [wanted]
            return [before] if before in names else fitting[part]

        vectors = could_be("vector", self.asked.column, bound.column_name)
        keys = could_be("key", self.asked.id_column, bound.id_column)
        code_columns = [bound.code_column]
        if self.index.layout == "table":
            (self.has_codes,) = self._row(_CODE_TABLE, [], bound)
        else:
            code_columns = could_be("code", None, bound.code_column)
            self.has_codes = bool(code_columns)
            # One that was dropped is made anew, under its name.
            code_columns = code_columns or [bound.code_column]
        table = self._shown(bound)
        if not vectors:
            raise GoneError(f"column {bound.column_name!r} of {table}")
        if not keys:
            raise InvalidInputError(
                f"{table} has no unique NOT NULL column of type {self.index.id_type} that could be "
                f"the key {bound.id_column!r} of index {self.index.name!r}; add the constraint "
                "again, or drop the index"
            )
        found = [
            replace(bound, column_name=vector, id_column=key, code_column=code)
            for vector, key, code in product(vectors, keys, code_columns)
        ]
        asked = (("vector", self.asked.column), ("key", self.asked.id_column))
        # What cannot be it is refused where it is written down.
        unfit = any(name is not None and name not in fitting[part] for part, name in asked)
        if found == [bound] or unfit or (len(found) == 1 and self.asked.full):
            return found[0]
        return self._proved(found, bound, any_dropped)

    def _table(self) -> Binding:
        """Return the binding with the table's name of now."""
        if self.asked.table is not None:
            row = self._cursor(
                "SELECT n.nspname, c.relname FROM pg_catalog.pg_class c "
                "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
                "WHERE c.oid = $1::text::regclass::oid",
                [self.asked.table],
            ).fetchone()
            return replace(self.known, schema_name=row[0], table_name=row[1])
        triggered = self._cursor(_TABLES, [self.index.name]).fetchall()
        tables = [replace(self.known, schema_name=s, table_name=t) for s, t, _ in triggered]
        (exists,) = self._cursor(
            "SELECT to_regclass($1) IS NOT NULL", [self._shown(self.known)]
        ).fetchone()
        if exists and (self.known in tables or not tables):
            return self.known
        shown = ", ".join(map(self._shown, tables))
        if exists:
            raise InvalidInputError(
                f"the triggers of index {self.index.name!r} are on {shown}, but there is a table "
                f"{self._shown(self.known)} too; say which of them is searched, with --table"
            )
        if not tables:
            raise GoneError(f"table {self._shown(self.known)}")
        # A partition that was detached has triggers, too.
        divided = [found for found, row in zip(tables, triggered, strict=True) if row[2]]
        if len(tables) > 1 and len(divided) != 1:
            raise InvalidInputError(
                f"the triggers of index {self.index.name!r} are on several tables, "
                f"{shown}; say which one is searched, with --table"
            )
        return tables[0] if len(tables) == 1 else divided[0]

    def _proved(self, found: Sequence[Binding], bound: Binding, any_dropped: bool) -> Binding:
        table = self._shown(bound)
        if not self.has_codes or not any(self._row(_ANY_CODE, [], one)[0] for one in found):
            # Then there is none that could be wrong.
            if len(found) == 1:
                return found[0]
            raise InvalidInputError(
                f"index {self.index.name!r} has no codes that would tell which columns of {table} "
                f"it is of: {_choices(found, bound)}; say it with --column or --id"
            )
        compared = [self._compare(candidate) for candidate in found]
        fitting = [
            candidate
            for candidate, (rows, equal) in zip(found, compared, strict=True)
            if rows and equal >= _FITTING_PART * rows
        ]
        if len(fitting) == 1:
            return fitting[0]
        choices = _choices(fitting or found, bound)
        if len(fitting) > 1:
            raise InvalidInputError(
                f"the codes of index {self.index.name!r} fit several columns of {table}: "
                f"{choices}; say which, with --column or --id"
            )
        renamed = {candidate.column_name for candidate in found} - {bound.column_name}
        if renamed and self.asked.column is None and any_dropped and all(r for r, _ in compared):
            raise GoneError(f"column {bound.column_name!r} of {table}")
        raise InvalidInputError(
            f"the codes of index {self.index.name!r} are not those of {choices} of {table}; name "
            "its columns with --column and --id, and give --full to have all codes made anew, or "
            "drop the index"
        )

    def _compare(self, candidate: Binding) -> tuple[int, int]:
        """Count codes of a sample, and those that the model gives the candidate's column."""
        rows = self._rows(_SAMPLE[self.index.layout], [_SAMPLE_ROWS], candidate)
        model = self.index.loaded_model
        vectors = [as_vector(row[1]).to_numpy() for row in rows]
        known = [len(vector) == model.dimension for vector in vectors]
        if not any(known):
            return len(rows), 0
        stack = np.stack([vector for vector, fits in zip(vectors, known, strict=True) if fits])
        stored = [row[0] for row, fits in zip(rows, known, strict=True) if fits]
        if model.network is not None:
            seen = model.network.knows(stack)
            stack, stored = stack[seen], [code for code, k in zip(stored, seen, strict=True) if k]
        if not len(stack):
            return len(rows), 0
        fresh = codes.to_postgres(model.encode(stack), model.n_bits)
        equal = sum(code == bit.to_text() for code, bit in zip(stored, fresh, strict=True))
        return len(rows), equal

    def _shown(self, binding: Binding) -> str:
        return binding.table.as_string(self.index.connection)

    def _rows(self, statement: LiteralString, values: list[Any], binding: Binding) -> list[Any]:
        codes_table = binding.table
        if self.index.layout == "table":
            codes_table = self.index.codes
        query = sql.SQL(statement).format(
            base=sql.SQL("{}::regclass").format(sql.Literal(self._shown(binding))),
            table=binding.table,
            column=sql.Identifier(binding.column_name),
            id=sql.Identifier(binding.id_column),
            code=sql.Identifier(binding.code_column),
            codes=codes_table,
            codes_name=sql.Literal(codes_table.as_string(self.index.connection)),
        )
        rows: list[Any] = self._cursor(query, values).fetchall()
        return rows

    def _row(self, statement: LiteralString, values: list[Any], binding: Binding) -> Any:
        return self._rows(statement, values, binding)[0]

    def _cursor(self, query: Any, values: list[Any]) -> Any:
        # Raw: to psycopg's other cursors a % in a name is the start of a placeholder.
        return RawCursor(self.index.connection).execute(query, values or None)


def _choices(found: Sequence[Binding], bound: Binding) -> str:
    """Name the columns that are not as they were."""
    shown = []
    for candidate in found:
        parts = [
            f"{what} {getattr(candidate, name)!r}"
            for what, name in (
                ("column", "column_name"),
                ("key", "id_column"),
                ("codes", "code_column"),
            )
            if getattr(candidate, name) != getattr(bound, name)
        ]
        shown.append(" with ".join(parts) or f"column {candidate.column_name!r}")
    return ", ".join(shown)
