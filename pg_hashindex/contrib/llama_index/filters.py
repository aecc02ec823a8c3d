"""LlamaIndex's filters as SQL."""

from typing import Any

import sqlalchemy as sa
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)
from sqlalchemy.dialects.postgresql import JSONB

from ...errors import InvalidInputError
from ..documents.filters import expression_of

# Operators that the dictionaries of `expression_of` have too.
_NAMES = {
    FilterOperator.GT: "$gt",
    FilterOperator.GTE: "$gte",
    FilterOperator.LT: "$lt",
    FilterOperator.LTE: "$lte",
    FilterOperator.CONTAINS: "$contains",
}

# Operators on a value, or on any of a list of values.
_EQUAL = {
    FilterOperator.EQ: "$in",
    FilterOperator.NE: "$nin",
    FilterOperator.IN: "$in",
    FilterOperator.NIN: "$nin",
}


def filtered(
    columns: Any,
    filters: MetadataFilters | None,
    node_ids: list[str] | None = None,
    doc_ids: list[str] | None = None,
) -> sa.ColumnElement[bool] | None:
    """Write filters on the columns id and metadata as an expression; None if there are none.

    With ``node_ids`` only these nodes match, with ``doc_ids`` only nodes of these documents.
    """
    terms = [] if filters is None else [_combined(columns.metadata, filters)]
    if node_ids is not None:
        terms.append(columns.id == sa.any_(sa.cast(node_ids, sa.ARRAY(sa.Text()))))
    if doc_ids is not None:
        terms.append(_term(columns.metadata, {"ref_doc_id": {"$in": doc_ids}}))
    return sa.and_(*terms) if terms else None


def _combined(metadata: sa.Column[Any], filters: MetadataFilters) -> sa.ColumnElement[bool]:
    terms = [
        _combined(metadata, each) if isinstance(each, MetadataFilters) else _one(metadata, each)
        for each in filters.filters
    ]
    if filters.condition == FilterCondition.OR:
        return sa.or_(*terms) if terms else sa.true()
    if filters.condition == FilterCondition.NOT:
        return sa.and_(sa.true(), *(term.is_not(sa.true()) for term in terms))
    return sa.and_(sa.true(), *terms)


def _one(metadata: sa.Column[Any], given: MetadataFilter) -> sa.ColumnElement[bool]:
    key, value = given.key, given.value
    if given.operator in _EQUAL:
        values = [value] if given.operator in (FilterOperator.EQ, FilterOperator.NE) else value
        if isinstance(values, list):
            # LlamaIndex's filters take no true and false; for Python they equal 1 and 0.
            values = [*values, *(bool(each) for each in values if each in (0, 1))]
        return _term(metadata, {key: {_EQUAL[given.operator]: values}})
    if given.operator in _NAMES:
        return _term(metadata, {key: {_NAMES[given.operator]: value}})
    if given.operator == FilterOperator.IS_EMPTY:
        return _term(metadata, {"$or": [{key: None}, {key: ""}, {key: []}]})
    if given.operator in (FilterOperator.ANY, FilterOperator.ALL):
        if not isinstance(value, list):
            raise InvalidInputError(f"{given.operator.value} takes a list, got {value!r}")
        terms = [_term(metadata, {key: {"$contains": each}}) for each in value]
        if given.operator == FilterOperator.ALL:
            return sa.and_(sa.true(), *terms)
        return sa.or_(sa.false(), *terms)
    if not isinstance(value, str):
        raise InvalidInputError(f"{given.operator.value} takes text, got {value!r}")
    found = metadata.op("->", return_type=JSONB())(sa.literal(key, sa.Text()))
    text: Any = metadata.op("->>", return_type=sa.Text())(sa.literal(key, sa.Text()))
    part: Any = sa.literal(value, sa.Text())
    if given.operator == FilterOperator.TEXT_MATCH_INSENSITIVE:
        text, part = sa.func.lower(text), sa.func.lower(part)
    # LIKE would not do: in it some characters stand for others.
    return sa.and_(sa.func.jsonb_typeof(found) == "string", sa.func.strpos(text, part) > 0)


def _term(metadata: sa.Column[Any], given: dict[str, Any]) -> sa.ColumnElement[bool]:
    found = expression_of(given, metadata)
    assert found is not None  # noqa: S101
    return found
