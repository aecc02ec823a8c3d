"""Filters on the metadata of documents, as dictionaries, translated to SQL."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from ...errors import InvalidInputError
from .table import as_json

#: ``{"key": value}``, ``{"key": {"$operator": value}}``, or any SQLAlchemy expression on the table
#: of documents.
Filter = Mapping[str, Any] | sa.ColumnElement[bool]

_ORDERS = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}
_TEXTS = ("$text", "$itext")
_OF_VALUES = ("$eq", "$ne", "$in", "$nin", *_ORDERS, "$contains", *_TEXTS, "$exists")
_OF_FILTERS = ("$and", "$or", "$not")
# The text of a value that is not text.
_OF_OTHERS = re.compile(r"-?[0-9.]+|true|false|[\[{].*", re.DOTALL)


def expression_of(given: Filter | None, metadata: sa.Column[Any]) -> sa.ColumnElement[bool] | None:
    """Write a filter on a column ``jsonb`` as an expression, with keys and values as parameters."""
    if given is None or isinstance(given, sa.ColumnElement):
        return given
    if not isinstance(given, Mapping):
        raise InvalidInputError(
            f"a filter is a dictionary or an SQLAlchemy expression, got {type(given).__name__}"
        )
    return sa.and_(*_terms(given, metadata)) if given else None


@contextmanager
def shallow() -> Iterator[None]:
    """Refuse a filter that is nested so deeply that Python gives up."""
    try:
        yield
    except RecursionError as error:
        raise InvalidInputError("the filter is nested too deeply") from error


def _terms(given: Mapping[str, Any], metadata: sa.Column[Any]) -> list[sa.ColumnElement[bool]]:
    terms = []
    for key, wanted in given.items():
        if not isinstance(key, str):
            raise InvalidInputError(f"keys of metadata are text; the filter names {key!r}")
        as_json(f"key {key!r} of the filter", key)
        if key.startswith("$"):
            terms.append(_combined(key, wanted, metadata))
        elif isinstance(wanted, Mapping) and any(str(name).startswith("$") for name in wanted):
            terms += [_holds(metadata, key, name, value) for name, value in wanted.items()]
        else:
            terms.append(_equal(metadata, key, wanted))
    return terms


def _combined(name: str, wanted: Any, metadata: sa.Column[Any]) -> sa.ColumnElement[bool]:
    if name not in _OF_FILTERS:
        raise InvalidInputError(
            f"filter operator {name} is unknown; filters are combined by {', '.join(_OF_FILTERS)}, "
            "and other operators stand behind a key: {'year': {'$gte': 2020}}"
        )
    parts = [wanted] if name == "$not" else wanted
    if (
        not isinstance(parts, list | tuple)
        or not parts
        or not all(isinstance(part, Mapping) and part for part in parts)
    ):
        what = "a filter" if name == "$not" else "a list of filters"
        raise InvalidInputError(f"{name} takes {what}, got {wanted!r}")
    terms = [sa.and_(*_terms(part, metadata)) for part in parts]
    if name == "$not":
        return _not(terms[0])
    return sa.and_(*terms) if name == "$and" else sa.or_(*terms)


def _not(filtered: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    # If the metadata is NULL, the filter is NULL too.
    return sa.type_coerce(filtered.is_not(sa.true()), sa.Boolean())


def _holds(metadata: sa.Column[Any], key: str, name: str, wanted: Any) -> sa.ColumnElement[bool]:
    """Write the condition of an operator on the value of a key."""
    if name in ("$in", "$nin"):
        if not isinstance(wanted, list | tuple | set | frozenset):
            raise InvalidInputError(f"{name} takes a list of values, got {wanted!r} for {key!r}")
        found = sa.or_(sa.false(), *(_equal(metadata, key, value) for value in wanted))
        return found if name == "$in" else _not(found)
    if name == "$eq":
        return _equal(metadata, key, wanted)
    if name == "$ne":
        return _not(_equal(metadata, key, wanted))
    if name in _ORDERS:
        return _ordered(metadata, key, name, wanted)
    if name in _TEXTS:
        return _has_text(metadata, key, name, wanted)
    if name == "$contains":
        return metadata.contains({key: [_checked(key, wanted)]})
    if name == "$exists":
        if not isinstance(wanted, bool):
            raise InvalidInputError(f"$exists takes True or False, got {wanted!r} for {key!r}")
        has = metadata.op("?", is_comparison=True)(sa.literal(key, sa.Text()))
        return has if wanted else _not(has)
    raise InvalidInputError(
        f"filter operator {name!r} of {key!r} is unknown; there are {', '.join(_OF_VALUES)}"
    )


def _equal(metadata: sa.Column[Any], key: str, wanted: Any) -> sa.ColumnElement[bool]:
    value = _value(metadata, key)
    if wanted is None:
        return sa.func.coalesce(sa.func.jsonb_typeof(value), "null") == "null"
    _checked(key, wanted)
    if isinstance(wanted, Mapping | list | tuple):
        return value.op("=", is_comparison=True)(sa.literal(wanted, JSONB()))
    # An index USING gin (metadata) serves this form.
    held: sa.ColumnElement[bool] = metadata.contains({key: wanted})
    for column in metadata.table.c:
        if column.info.get("key") != key:
            continue
        if isinstance(wanted, bool) and isinstance(column.type, sa.Integer):
            # A column of integers cannot be generated from true and false.
            return sa.false()
        if _has_type(wanted, column.type):
            # A generated column; text '7' also matches the number 7.
            alone = isinstance(wanted, str) and not _OF_OTHERS.fullmatch(wanted)
            return column == wanted if alone else sa.and_(column == wanted, held)
    return held


def _has_type(wanted: Any, kind: sa.types.TypeEngine[Any]) -> bool:
    if isinstance(kind, sa.Text):
        return isinstance(wanted, str)
    most = 2**63 if isinstance(kind, sa.BigInteger) else 2**31
    return isinstance(wanted, int) and not isinstance(wanted, bool) and -most <= wanted < most


def _ordered(metadata: sa.Column[Any], key: str, name: str, wanted: Any) -> sa.ColumnElement[bool]:
    if isinstance(wanted, bool) or not isinstance(wanted, int | float | str):
        raise InvalidInputError(f"{name} takes a number or text, got {wanted!r} for {key!r}")
    _checked(key, wanted)
    value = _value(metadata, key)
    kind = "string" if isinstance(wanted, str) else "number"
    # Compared as jsonb, since a cast to a number would fail on values of other documents.
    return sa.and_(
        sa.func.jsonb_typeof(value) == kind,
        value.op(_ORDERS[name], is_comparison=True)(sa.literal(wanted, JSONB())),
    )


def _has_text(metadata: sa.Column[Any], key: str, name: str, wanted: Any) -> sa.ColumnElement[bool]:
    if not isinstance(wanted, str):
        raise InvalidInputError(f"{name} takes text, got {wanted!r} for {key!r}")
    _checked(key, wanted)
    text: Any = metadata.op("->>", return_type=sa.Text())(sa.literal(key, sa.Text()))
    part: Any = sa.literal(wanted, sa.Text())
    if name == "$itext":
        text, part = sa.func.lower(text), sa.func.lower(part)
    # LIKE would not do: in it some characters stand for others.
    is_text = sa.func.jsonb_typeof(_value(metadata, key)) == "string"
    return sa.and_(is_text, sa.func.strpos(text, part) > 0)


def _value(metadata: sa.Column[Any], key: str) -> sa.ColumnElement[Any]:
    return metadata.op("->", return_type=JSONB())(sa.literal(key, sa.Text()))


def _checked(key: str, wanted: Any) -> Any:
    as_json(f"the value that the filter has for {key!r}", wanted)
    return wanted
