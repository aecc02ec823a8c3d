"""The declaration of an index, as text."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, TypedDict, get_args

from psycopg import sql

from ...db.keys import KeyColumns, as_key_columns
from ...errors import InvalidInputError
from ...index.catalog import Access, check_index_name
from ...models.model import Metric
from ...models.quantization import Ranking

#: The options that `configure_index` changes in an index; others need another index.
SETTINGS = ("access", "ranking", "candidates", "probes")

_REFERENCE = re.compile(r"[^:\x01-\x1f]{1,63}(:[1-9][0-9]{0,8})?")

_CHOICES: dict[str, Any] = {"metric": Metric, "access": Access, "ranking": Ranking}


class IndexOptions(TypedDict, total=False):
    """The options of a declared index; see `HashIndex`."""

    key: KeyColumns
    metric: Metric | None
    access: Access | None
    ranking: Ranking | None
    candidates: int | None
    probes: int | None
    filter_columns: Sequence[str] | None
    tenant: str | None
    defer: bool
    trust_owner: bool


class PlacedIndexOptions(IndexOptions, total=False):
    """The same options, without the table's schema."""

    schema: str | None


@dataclass(frozen=True)
class IndexSpec:
    """A declared or an existing index; see `HashIndex`."""

    name: str
    table: str
    column: str
    model: str
    schema: str | None = None
    key: KeyColumns = None
    metric: Metric | None = None
    access: Access | None = None
    ranking: Ranking | None = None
    candidates: int | None = None
    probes: int | None = None
    filter_columns: Sequence[str] | None = None
    tenant: str | None = None
    defer: bool = False
    trust_owner: bool = False

    def check(self) -> None:
        """Refuse impossible declarations."""
        check_index_name(self.name)
        if not isinstance(self.model, str) or not _REFERENCE.fullmatch(self.model):
            raise InvalidInputError(
                f"model {self.model!r} of index {self.name!r} is not a name or name:version"
            )
        for argument, choice in _CHOICES.items():
            value = getattr(self, argument)
            if value is not None and value not in get_args(choice):
                raise InvalidInputError(
                    f"{argument} {value!r} of index {self.name!r} is unknown; use one of: "
                    f"{', '.join(get_args(choice))}"
                )
        if not _are_names(self.filter_columns):
            raise InvalidInputError(
                f"filter_columns of index {self.name!r} are a list of names, got "
                f"{self.filter_columns!r}"
            )
        if self.tenant is not None and not isinstance(self.tenant, str):
            raise InvalidInputError(
                f"tenant of index {self.name!r} is the name of a column, got {self.tenant!r}"
            )
        if not isinstance(self.key, str) and not _are_names(self.key):
            raise InvalidInputError(
                f"the key of index {self.name!r} is a name, or a list of names, got {self.key!r}"
            )

    def options(self) -> dict[str, Any]:
        """Return the options that differ from their defaults."""
        return {
            field.name: value
            for field in fields(self)[4:]
            if (value := getattr(self, field.name)) != field.default
        }

    @property
    def key_columns(self) -> list[str] | None:
        """The columns of the key; None is the primary key."""
        return as_key_columns(self.key)

    @property
    def qualified_table(self) -> str:
        """The table as SQL writes it."""
        return qualified(self.schema, self.table)


def _are_names(given: Any) -> bool:
    """Return whether an option is left out, or a list of names."""
    return given is None or (
        isinstance(given, list | tuple) and all(isinstance(name, str) for name in given)
    )


def qualified(schema: str | None, table: str) -> str:
    """Return a table's name as SQL writes it."""
    names = (table,) if schema is None else (schema, table)
    return sql.Identifier(*names).as_string(None)
