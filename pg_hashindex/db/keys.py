"""The key of a table, of one column or several, as statements write it.

Statements compare keys as lists in brackets, ``({key}) = ({code_key})``, which PostgreSQL takes for
one column too. As text, a key of one column is its value, and a key of several the JSON array of
its values, as in SQL.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from psycopg import sql

from ..errors import InvalidInputError

#: The columns of a key as callers name them; None is the primary key.
KeyColumns: TypeAlias = str | Sequence[str] | None

_COMMA = sql.SQL(", ")

# Types that psycopg reads as values whose text is the key's. Answers have the text of others, such
# as character(5), whose values are padded in some places.
_READ = frozenset(
    {
        "bool", "boolean", "int2", "smallint", "int4", "integer", "int8", "bigint", "oid",
        "float4", "real", "float8", "double precision", "numeric", "text", "varchar",
        "character varying", "name", "uuid", "date", "time", "timetz", "timestamp",
        "timestamptz", "inet", "cidr",
    }
)  # fmt: skip

# An element of the JSON array. One of type jsonb is not unpacked: "a" is its text, not a.
_ELEMENT = "pg_catalog.json_array_element_text({}::pg_catalog.json, {})::{}"
_ELEMENT_AS_JSON = "(pg_catalog.json_array_element({}::pg_catalog.json, {})::text)::{}"


def as_key_columns(given: KeyColumns) -> list[str] | None:
    """Return the columns of a key as a list; None stays."""
    if given is None:
        return None
    return [given] if isinstance(given, str) else list(given)


def name_of_key(columns: Sequence[str]) -> str:
    """Name a key in messages: ``id``, or ``(shop_id, id)``."""
    return columns[0] if len(columns) == 1 else f"({', '.join(columns)})"


def as_text(value: Any) -> str:
    """Write a value of a key or a tenant as PostgreSQL reads it; an Enum as psycopg sends it."""
    if isinstance(value, Enum):
        value = value.value if isinstance(value, str | int) else value.name
    if isinstance(value, bytes | bytearray | memoryview):
        return f"\\x{bytes(value).hex()}"
    return str(value)


def _bare(kind: str) -> str:
    # quote_all_identifiers quotes them.
    return kind.replace('"', "").removeprefix("pg_catalog.")


def _is_read(kind: str) -> bool:
    return _bare(kind) in _READ


def _is_json(kind: str) -> bool:
    return _bare(kind) == "jsonb"


@dataclass(frozen=True)
class Key:
    """The key of a table: the names of its columns, and their types as SQL writes them.

    ``collations`` are needed where keys of other queries are compared with it.
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    collations: tuple[sql.Identifier | None, ...] = ()

    @property
    def name(self) -> str:
        """The key in messages: ``id``, or ``(shop_id, id)``."""
        return name_of_key(self.columns)

    @property
    def type_name(self) -> str:
        """Its types in messages, as `name`."""
        return name_of_key(self.types)

    @property
    def code_columns(self) -> tuple[str, ...]:
        """The columns of the key in tables of codes."""
        if len(self.columns) == 1:
            return ("id",)
        return tuple(f"id_{n}" for n in range(1, 1 + len(self.columns)))

    @property
    def ids(self) -> sql.Composed:
        """The columns of the key in tables of codes, as a list."""
        return _COMMA.join(map(sql.Identifier, self.code_columns))

    def parts(self, *alias: str) -> list[sql.Composable]:
        """Return SQL for each column of the key of a table's row."""
        return [sql.Identifier(*alias, column) for column in self.columns]

    def of(self, *alias: str) -> sql.Composed:
        """Return SQL for the key of a table's row, as a list of columns."""
        return _COMMA.join(self.parts(*alias))

    def ids_of(self, alias: str) -> sql.Composed:
        """Return SQL for the key of a code, as a list of columns."""
        return _COMMA.join(self.id_parts(alias))

    def id_parts(self, alias: str) -> list[sql.Composable]:
        """Return SQL for each column of the key of a code."""
        return [sql.Identifier(alias, column) for column in self.code_columns]

    def as_ids(self, *alias: str) -> sql.Composed:
        """Return SQL that selects the key of a table's row under the names of `ids`."""
        return self.named(self.parts(*alias))

    def named(self, values: Sequence[sql.Composable]) -> sql.Composed:
        """Return SQL that selects the values of a key under the names of `ids`."""
        return _COMMA.join(
            [
                sql.SQL("{} AS {}").format(value, sql.Identifier(name))
                for value, name in zip(values, self.code_columns, strict=True)
            ]
        )

    def text(self, values: sql.Composable) -> sql.Composed:
        """Return SQL for the text of a key, which is given as a list of columns."""
        if len(self.columns) == 1:
            return sql.SQL("{}::text").format(values)
        return sql.SQL("pg_catalog.json_build_array({})::text").format(values)

    def exact_text(self, values: Sequence[sql.Composable]) -> sql.Composed:
        """Return SQL for the text of a key by its values: equal keys have equal texts."""
        # 1.0 and 1 are the same numeric.
        same = [
            sql.SQL("trim_scale({})").format(value) if kind == "numeric" else value
            for value, kind in zip(values, self.types, strict=True)
        ]
        return self.text(_COMMA.join(same))

    def whole(self, values: sql.Composable, kind: sql.Composable) -> sql.Composed:
        """Return SQL for a key, a list of columns, as one value; of a type if it has several."""
        if len(self.columns) == 1:
            return sql.Composed([values])
        return sql.SQL("ROW({})::{}").format(values, kind)

    def from_text(self, text: sql.Composable) -> sql.Composed:
        """Return SQL for the key that a text stands for, as a list of values."""
        return _COMMA.join(self._parts_of_text(text))

    def _parts_of_text(self, text: sql.Composable) -> list[sql.Composed]:
        if len(self.columns) == 1:
            return [sql.SQL("{}::{}").format(text, sql.SQL(self.types[0]))]
        return [
            sql.SQL(_ELEMENT_AS_JSON if _is_json(kind) else _ELEMENT).format(
                text, sql.Literal(place), sql.SQL(kind)
            )
            for place, kind in enumerate(self.types)
        ]

    def shown(self, values: Sequence[sql.Composable]) -> sql.Composed:
        """Return SQL that selects the values of a key as answers have them."""
        shown = [
            value if _is_read(kind) else sql.SQL("{}::text").format(value)
            for value, kind in zip(values, self.types, strict=True)
        ]
        return _COMMA.join(shown)

    def shown_from_text(self, text: sql.Composable) -> sql.Composed:
        """Return SQL that selects the key that a text stands for as answers have it."""
        return self.shown(self._parts_of_text(text))

    @property
    def has_times(self) -> bool:
        """Whether the key may be a time that Python has no value for."""
        return any(_bare(kind).startswith(("date", "time")) for kind in self.types)

    @property
    def is_read(self) -> bool:
        """Whether answers have the values of the key, and no texts."""
        return all(map(_is_read, self.types))

    def compared(self, value: sql.Composable) -> list[sql.Composable]:
        """Return SQL for each value of a key that a caller's query gives, compared as the key is.

        Of a key of one column it gives a value of any type; of several the text.
        """
        value = sql.SQL("({})" if len(self.columns) == 1 else "({})::text").format(value)
        # PostgreSQL cannot compare two columns of different collations.
        return [
            part if collation is None else sql.SQL("({} COLLATE {})").format(part, collation)
            for part, collation in zip(self._parts_of_text(value), self.collations, strict=True)
        ]

    def among(self, key: sql.Composable, texts: sql.Composable) -> sql.Composed:
        """Return the condition that a key, a list of columns, is one of an array of texts."""
        if len(self.columns) == 1:
            return sql.SQL("{} = ANY ({}::{}[])").format(key, texts, sql.SQL(self.types[0]))
        return sql.SQL("({}) IN (SELECT {} FROM pg_catalog.unnest({}) given(id))").format(
            key, self.from_text(sql.SQL("given.id")), texts
        )

    def read(self, values: Sequence[Any]) -> Any:
        """Return a key as answers have it: its value, or a tuple of its values."""
        return values[0] if len(self.columns) == 1 else tuple(values)

    def written(self, row_id: Any) -> str:
        """Return the text of a key that a caller gives: a value, or a tuple of values; or its text.

        Refuses None, and a key that has not as many values as this one has columns.
        """
        if row_id is None:
            raise InvalidInputError(f"the key is None; give one of {self.name}")
        if len(self.columns) == 1:
            return as_text(row_id)
        text, values = row_id, row_id
        if isinstance(row_id, str):
            try:
                values = json.loads(row_id)
            except ValueError:
                values = None
        elif isinstance(row_id, list | tuple):
            text = self._array(row_id)
        if not isinstance(values, list | tuple) or len(values) != len(self.columns):
            raise InvalidInputError(
                f"the key {row_id!r} is not of {len(self.columns)} values, as {self.name} is: give "
                "a tuple, or a JSON array as text"
            )
        return str(text)

    def _array(self, values: Sequence[Any]) -> str:
        """Return the JSON array of the values of a key; a value of type jsonb is its text."""
        texts = (
            as_text(value)
            if _is_json(kind) and value is not None
            else json.dumps(None if value is None else as_text(value))
            for value, kind in zip(values, self.types, strict=False)
        )
        return f"[{', '.join(texts)}]"
