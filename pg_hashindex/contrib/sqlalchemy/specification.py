"""The declaration of an index, as text, and what makes an index that is there equal to it."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self, Unpack

from psycopg import sql

from ...errors import InvalidInputError
from ...index.catalog import check_index_name
from ...index.options import (
    OPTIONS,
    IndexOptions,
    checked_options,
    options_changed_by,
    same_option,
)

_REFERENCE = re.compile(r"[^:\x01-\x1f]{1,63}(:[1-9][0-9]{0,8})?")

#: The access of an index that pg_hashindex keeps, not pgvector.
LISTS = ("lists", "scan")


class DeclaredOptions(IndexOptions, total=False):
    """The options of a declared index; see `HashIndex`."""

    defer: bool


class PlacedOptions(DeclaredOptions, total=False):
    """The same options, with the table's schema."""

    schema: str | None


@dataclass(frozen=True)
class Create:
    """The index does not exist."""

    spec: "IndexSpec"


@dataclass(frozen=True)
class Drop:
    """The index is another one, as it is here."""

    spec: "IndexSpec"


@dataclass(frozen=True)
class Swap:
    """The index needs another set, with settings, which a set has of its own."""

    options: dict[str, Any]
    #: The same options before, as far as they are known.
    existing: dict[str, Any]


@dataclass(frozen=True)
class Configure:
    """The set of the index needs other settings."""

    options: dict[str, Any]
    existing: dict[str, Any]


Change = Create | Drop | Swap | Configure


@dataclass(frozen=True)
class IndexSpec:
    """A declared or an existing index; see `HashIndex`."""

    name: str
    table: str
    column: str
    #: ``name``, ``name:version``, ``none`` for the vectors themselves; None if it is not stated.
    model: str | None = None
    schema: str | None = None
    #: As `checked_options` gives them.
    options: dict[str, Any] = field(default_factory=dict)
    defer: bool = False

    @classmethod
    def declared(
        cls,
        name: str,
        table: str,
        column: str,
        model: str | None = None,
        **given: Unpack[PlacedOptions],
    ) -> Self:
        """Check a declaration, and return it."""
        check_index_name(name)
        check_model(name, model)
        options: dict[str, Any] = {**given}
        placed = {key: options.pop(key) for key in ("schema", "defer") if key in options}
        return cls(name, table, column, model, options=checked_options(name, options), **placed)

    def given(self) -> dict[str, Any]:
        """Return the options, and all else that differs from its default."""
        placed = {"schema": self.schema, "defer": self.defer}
        return self.options | {key: value for key, value in placed.items() if value}

    @property
    def stated(self) -> dict[str, Any]:
        """The options, with the model if it is stated."""
        return ({} if self.model is None else {"model": self.model}) | self.options

    def changes_from(self, found: "IndexSpec | None") -> list[Change]:
        """Return the changes that make an index what this declaration states.

        What the declaration does not state stays as it is, but for the tenant. A model without a
        version is any version of it.

        Parameters
        ----------
        found
            The index that is there, or the declaration before; None if there is none.
        """
        if found is None:
            return [Create(self)]
        was = {"model": found.model, "store": False, **found.options}
        stated = self.stated
        changed = {key: v for key, v in stated.items() if not same_option(v, was.get(key))}
        # It is not kept.
        changed.pop("reveal_anchors", None)
        if found.model is not None and self.model == found.model.partition(":")[0]:
            changed.pop("model", None)
        set_options, settings = ["model", *of_sets()], of_searches()
        if (
            (self.schema, self.table, self.column) != (found.schema, found.table, found.column)
            or any(key not in (*set_options, *settings) for key in changed)
            or ("tenant" in was and "tenant" not in stated)
        ):
            return [Drop(found), Create(self)]
        swapped = [key for key in set_options if key in changed]
        if not swapped:
            # Without an effort of its own, a set has as much as candidates.
            before = {"effort": was.get("candidates"), **was}
            existing = {key: before[key] for key in changed if before.get(key) is not None}
            return [Configure(changed, existing)] if changed else []
        if "model" in swapped:
            # A column of codes is of its model.
            swapped += ["code_column", "reveal_anchors"]
        kept = [key for key in (*set_options, *settings) if key in (*swapped, *settings)]
        options = {key: stated[key] for key in kept if key in stated}
        existing = {key: was[key] for key in options if was.get(key) is not None}
        if {"store", "code_column"} & {*options}:
            # To leave either, the other or none is named.
            options.setdefault("store", False)
            existing["store"] = was["store"]
            existing |= {key: was[key] for key in ("code_column",) if was.get(key)}
        if "access" in swapped and was.get("access") in LISTS and "effort" in was:
            # Another access path has no effort.
            existing["effort"] = was["effort"]
        return [Swap(options, existing)]

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


def of_sets() -> list[str]:
    """Return the options that another set changes."""
    return options_changed_by("swap")


def of_searches() -> list[str]:
    """Return the options that change without another set."""
    return [name for name in options_changed_by("configure") if name not in of_sets()]


def check_model(index: str, model: object) -> None:
    """Refuse what cannot be the model of an index."""
    if model is not None and (not isinstance(model, str) or not _REFERENCE.fullmatch(model)):
        raise InvalidInputError(
            f"model {model!r} of index {index!r} is not a name or name:version, or none for the "
            "vectors themselves"
        )


def qualified(schema: str | None, table: str) -> str:
    """Return a table's name as SQL writes it."""
    names = (table,) if schema is None else (schema, table)
    return sql.Identifier(*names).as_string(None)
