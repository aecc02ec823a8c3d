"""LlamaIndex's filters as the dictionaries of `pg_hashindex.contrib.documents.filters`."""

from typing import Any

from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from ...errors import InvalidInputError

_NAMES = {
    FilterOperator.GT: "$gt",
    FilterOperator.GTE: "$gte",
    FilterOperator.LT: "$lt",
    FilterOperator.LTE: "$lte",
    FilterOperator.CONTAINS: "$contains",
    FilterOperator.TEXT_MATCH: "$text",
    FilterOperator.TEXT_MATCH_INSENSITIVE: "$itext",
}

# Operators on a value, or on any of a list of values.
_EQUAL = {
    FilterOperator.EQ: "$in",
    FilterOperator.NE: "$nin",
    FilterOperator.IN: "$in",
    FilterOperator.NIN: "$nin",
}

_Dictionary = dict[str, Any]
# No metadata matches.
_NONE: _Dictionary = {"id": {"$in": []}}


def as_dictionary(filters: MetadataFilters) -> _Dictionary:
    """Translate filters; an empty dictionary where everything matches."""
    parts = [
        as_dictionary(each) if isinstance(each, MetadataFilters) else _one(each)
        for each in filters.filters
    ]
    if filters.condition == FilterCondition.NOT:
        return _all([{"$not": part} if part else _NONE for part in parts])
    if filters.condition == FilterCondition.OR:
        return {"$or": parts} if parts and all(parts) else {}
    return _all(parts)


def _all(parts: list[_Dictionary]) -> _Dictionary:
    parts = [part for part in parts if part]
    return {"$and": parts} if parts else {}


def _one(given: MetadataFilter) -> _Dictionary:
    key, value = given.key, given.value
    if given.operator in _EQUAL:
        values = [value] if given.operator in (FilterOperator.EQ, FilterOperator.NE) else value
        if isinstance(values, list):
            # LlamaIndex's filters take no true and false; for Python they equal 1 and 0.
            values = [*values, *(bool(each) for each in values if each in (0, 1))]
        return {key: {_EQUAL[given.operator]: values}}
    if given.operator in _NAMES:
        return {key: {_NAMES[given.operator]: value}}
    if given.operator == FilterOperator.IS_EMPTY:
        return {"$or": [{key: None}, {key: ""}, {key: []}]}
    if not isinstance(value, list):
        raise InvalidInputError(f"{given.operator.value} takes a list, got {value!r}")
    parts = [{key: {"$contains": each}} for each in value]
    if given.operator == FilterOperator.ALL:
        return _all(parts)
    return {"$or": parts} if parts else _NONE
