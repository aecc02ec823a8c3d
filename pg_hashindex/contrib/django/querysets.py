"""Searches as querysets."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, cast
from uuid import UUID

from django.core.exceptions import EmptyResultSet, FieldDoesNotExist, FullResultSet
from django.db import models
from django.db.models.expressions import Col
from django.db.models.lookups import Exact
from django.db.models.query import EmptyQuerySet
from django.db.models.sql.constants import INNER
from django.db.models.sql.where import AND
from numpy.typing import ArrayLike
from pgvector import HalfVector, Vector
from pgvector.django import HalfVectorField, VectorField

from ...db.keys import KeyColumns, as_key_columns
from ...errors import InvalidInputError
from ...index.catalog import check_index_name
from ...index.search import as_count, as_optional_count, as_query
from ..sqlalchemy.statements import read_key
from .indexes import HashIndex, refuse_vendor

# The column of a search's answers; of no model.
_DISTANCE: Any = models.FloatField()
_DISTANCE.column = "distance"


class NearestQuerySet(models.QuerySet):  # type: ignore[misc]
    """A queryset that searches: ``objects = NearestQuerySet.as_manager()`` in a model."""

    def nearest(
        self,
        column: str,
        query: ArrayLike | Vector | HalfVector,
        k: int = 10,
        *,
        index: str | None = None,
        key: KeyColumns = None,
        candidates: int | None = None,
        effort: int | None = None,
        all_tenants: bool = False,
    ) -> Self:
        """Return the rows nearest to a query, by an index: the nearest first.

        The filters of the queryset are applied before the k nearest rows are chosen, so there are k
        rows if k match. Filters that are added afterwards are applied to the answers.

        Parameters
        ----------
        column
            The indexed field, a ``VectorField`` or ``HalfVectorField``.
        query : array-like (dimension,), pgvector.Vector or pgvector.HalfVector
        k
            Answers wanted.
        index
            The index; the one that the model declares on the field by default.
        key
            The key field of the index, or several; by default the declared ones, or the primary
            key.
        candidates, effort
            As `pg_hashindex.HashIndex.search`.
        all_tenants
            Search the rows of all tenants, of an index that is declared with tenants. Else a filter
            before names one: ``filter(tenant=value)``.

        Returns
        -------
        django.db.models.QuerySet
            Each row has its ``distance``, as pgvector's operator returns it.

        Raises
        ------
        InvalidInputError
            If an argument cannot be used, the field is not of the model's own table, none or
            several indexes are declared on it, or the queryset is sliced or combined.
        """
        model: Any = self.model._meta.concrete_model
        meta = model._meta
        searched = self._vectors(column)
        declared = self._declared(searched, index)
        name: Any = index if declared is None else declared.name
        # Django's quote_name leaves quotes inside a name as they are.
        check_index_name(name)
        options = declared.options if declared is not None else {}
        key = options.get("key_columns") if key is None else key
        tenant = options.get("tenant")
        keys = list(meta.pk_fields)
        if (names := as_key_columns(key)) is not None:
            keys = [_own_field(meta, one) for one in names]
        search = _Search(
            name=name,
            keys=keys,
            arguments=[
                as_query(query, searched.dimensions).to_text(),
                as_count("k", k),
                as_optional_count("candidates", candidates),
                as_optional_count("effort", effort),
            ],
            filtered=self.query.clone(),
            tenant=None if tenant is None else meta.get_field(tenant).column,
            all_tenants=all_tenants,
        )
        found: Any = self.all()
        search = replace(search, parent_alias=found.query.get_initial_alias())
        alias = found.query.join(search, reuse=set())
        found = found.annotate(distance=Col(alias, _DISTANCE))
        found = found.order_by("distance", *(field.attname for field in keys))
        return cast(Self, found)

    def _vectors(self, column: str) -> Any:
        """Return a field of vectors, or refuse its name, or a queryset that is cut."""
        meta = self.model._meta.concrete_model._meta
        searched = _own_field(meta, column)
        if not isinstance(searched, VectorField | HalfVectorField):
            raise InvalidInputError(
                f"field {column!r} of {meta.label} is a {type(searched).__name__}; a search needs "
                "a VectorField or HalfVectorField"
            )
        if self.query.is_sliced or self.query.combinator:
            raise InvalidInputError(
                "a queryset that is sliced or combined cannot be searched; filter it instead, and "
                "give the number of answers as k"
            )
        return searched

    def _declared(self, field: Any, name: str | None) -> HashIndex | None:
        """Find the declared index; an index given by name need not be declared."""
        meta = self.model._meta.concrete_model._meta
        declared = {each.name: each for each in meta.indexes if isinstance(each, HashIndex)}
        found = {each.name: each for each in declared.values() if each.fields == [field.name]}
        if name is not None:
            if name in declared and name not in found:
                raise InvalidInputError(
                    f"index {name!r} is declared on field {declared[name].fields[0]!r}, and cannot "
                    f"search {field.name!r}"
                )
            return found.get(name)
        if len(found) != 1:
            raise InvalidInputError(
                f"{len(found)} hash indexes are declared on {meta.label}.{field.name}"
                f"{': ' * bool(found)}{', '.join(found)}; name the one to search with index="
            )
        return next(iter(found.values()))

    def __or__(self, other: Any) -> Self:
        """Combine querysets; a search is refused, since its join drops rows of the other one."""
        _refuse_search(self, other)
        return cast(Self, super().__or__(other))

    def __xor__(self, other: Any) -> Self:
        """Combine querysets; a search is refused, as by ``|``."""
        _refuse_search(self, other)
        return cast(Self, super().__xor__(other))


def _refuse_search(*combined: Any) -> None:
    joins = [join for each in combined for join in each.query.alias_map.values()]
    empty = any(isinstance(each, EmptyQuerySet) for each in combined)
    if not empty and any(isinstance(join, _Search) for join in joins):
        raise InvalidInputError(
            "a search cannot be combined by | or ^; combine filters as Q objects before nearest(), "
            "or searches by union()"
        )


def _own_field(meta: Any, name: str) -> Any:
    """Find a field of a model's own table, or refuse its name."""
    try:
        found = meta.get_field(name)
    except FieldDoesNotExist:
        found = None
    if found not in meta.local_concrete_fields:
        raise InvalidInputError(f"{meta.label} has no field {name!r} in its own table")
    return found


@dataclass(eq=False)
class _Search:
    """The join of a table with the answers of a search, in the form of Django's ``sql.Join``."""

    name: str
    keys: list[Any]
    arguments: list[Any]
    filtered: Any
    tenant: str | None = None
    all_tenants: bool = False
    parent_alias: str = ""
    table_alias: str | None = None
    table_name: str = "hashindex_near"
    join_type: str = INNER
    nullable: bool = False
    filtered_relation: None = None

    def relabeled_clone(self, change_map: Mapping[str | None, str]) -> Self:
        """Return the same with other aliases."""
        parent, alias = self.parent_alias, self.table_alias
        return replace(
            self,
            parent_alias=change_map.get(parent, parent),
            table_alias=change_map.get(alias, alias),
        )

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, list[Any]]:
        """Write the join."""
        refuse_vendor(connection, f"a search by hash index {self.name!r}")
        quote = connection.ops.quote_name
        near = compiler.quote_name_unless_alias(self.table_alias)
        parent = compiler.quote_name_unless_alias(self.parent_alias)
        wanted, several = self._filter(connection), len(self.keys) > 1
        tenant, alone = self._tenant(connection)
        # Another schema may have a table of this name, with an index of its own.
        named = "hashindex._searched_name(%s, %s::regclass, %s::text[])"
        columns = [field.column for field in self.keys]
        searched = [self.name, quote(self.keys[0].model._meta.db_table), columns]
        call = f"hashindex.search({named}, %s, %s, %s, %s, filter => %s, where_equals => %s::jsonb"
        call += ", all_tenants => true)" if self.all_tenants else ")"
        values = [*searched, *self.arguments, None if alone else wanted, tenant]
        names = ["id"]
        if several:
            # The index may have its columns in another order, or under other names.
            names = [f"id_{n}" for n, _ in enumerate(self.keys, 1)]
            call = read_key(["%s"] * len(names), named, call)
            values = [*columns, *searched, *values]
        conditions = []
        for name, field in zip(names, self.keys, strict=True):
            kind = field.rel_db_type(connection)
            conditions.append(f"{parent}.{quote(field.column)} = {near}.{name}::{kind}")
        listed, condition = ", ".join([*names, "distance"]), " AND ".join(conditions)
        return f"{self.join_type} {call} AS {near}({listed}) ON ({condition})", values

    def _tenant(self, connection: Any) -> tuple[str | None, bool]:
        """Return the tenant that the filters ask for as JSON, and whether they ask for no more."""
        query = self.filtered.clone()
        place = (query.get_initial_alias(), self.tenant)
        tables = sum(count > 0 for count in query.alias_refcount.values())
        for part in query.where.children if query.where.connector == AND else ():
            if (
                not query.where.negated
                and isinstance(part, Exact)
                and isinstance(part.lhs, Col)
                and (part.lhs.alias, part.lhs.target.column) == place
                and part.rhs_is_direct_value()
            ):
                compiler = query.get_compiler(connection=connection)
                _, (value,) = part.process_rhs(compiler, connection)
                # Only these mean the same in JSON.
                if isinstance(value, int | str | UUID) and not isinstance(value, bool):
                    found = json.dumps({self.tenant: value}, default=str)
                    return found, len(query.where.children) == tables == 1
        return None, False

    def _filter(self, connection: Any) -> str | None:
        """Write the filters of the queryset as SQL on the searched table."""
        query = self.filtered.clone()
        base = query.get_initial_alias()
        where = query.where
        try:
            if (
                [alias for alias, count in query.alias_refcount.items() if count] == [base]
                and query.group_by is None
                and not (query.extra_tables or where.contains_aggregate)
                and not where.contains_over_clause
            ):
                text, values = query.get_compiler(connection=connection).compile(where)
            else:
                queryset = models.QuerySet(self.keys[0].model, query).order_by()
                inner = queryset.values(*(field.name for field in self.keys)).query
                text, values = inner.get_compiler(connection=connection).as_sql()
                quote = connection.ops.quote_name
                key = ", ".join(f"{quote(base)}.{quote(field.column)}" for field in self.keys)
                text = f"{f'({key})' if len(self.keys) > 1 else key} IN ({text})"
        except EmptyResultSet:
            return "false"
        except FullResultSet:
            return None
        return str(connection.ops.compose_sql(text, values))
