"""The declaration of an index, as text."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self, Unpack

from psycopg import sql

from ...errors import InvalidInputError
from ...index.catalog import check_index_name
from ...index.options import OPTIONS, IndexOptions, checked_options

_REFERENCE = re.compile(r"[^:\x01-\x1f]{1,63}(:[1-9][0-9]{0,8})?")


class DeclaredOptions(IndexOptions, total=False):
    """The options of a declared index; see `HashIndex`."""

    defer: bool


class PlacedOptions(DeclaredOptions, total=False):
    """The same options, with the table's schema."""

    schema: str | None


@dataclass(frozen=True)
class IndexSpec:
    """A declared or an existing index; see `HashIndex`."""

    name: str
    table: str
    column: str
    model: str
    schema: str | None = None
    #: As `checked_options` gives them.
    options: dict[str, Any] = field(default_factory=dict)
    defer: bool = False

    @classmethod
    def declared(
        cls, name: str, table: str, column: str, model: str, **given: Unpack[PlacedOptions]
    ) -> Self:
        """Check a declaration, and return it."""
        check_index_name(name)
        if not isinstance(model, str) or not _REFERENCE.fullmatch(model):
            raise InvalidInputError(
                f"model {model!r} of index {name!r} is not a name or name:version"
            )
        options: dict[str, Any] = {**given}
        placed = {key: options.pop(key) for key in ("schema", "defer") if key in options}
        return cls(name, table, column, model, options=checked_options(name, options), **placed)

    def given(self) -> dict[str, Any]:
        """Return the options, and all else that differs from its default."""
        placed = {"schema": self.schema, "defer": self.defer}
        return self.options | {key: value for key, value in placed.items() if value}

    def with_columns(self, column: Callable[[str], str]) -> Self:
        """Return the declaration with other names of the columns that its options name."""
        renamed = {
            name: [*map(column, value)] if isinstance(value, list) else column(value)
            for name, value in self.options.items()
            if OPTIONS[name].columns
        }
        return replace(self, options=self.options | renamed)

    @property
    def qualified_table(self) -> str:
        """The table as SQL writes it."""
        return qualified(self.schema, self.table)


def qualified(schema: str | None, table: str) -> str:
    """Return a table's name as SQL writes it."""
    names = (table,) if schema is None else (schema, table)
    return sql.Identifier(*names).as_string(None)
