"""Which columns of a filter an index would find its rows by, where PostgreSQL has none to use."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..db.connection import Connection
from ..db.sql_files import query
from ..db.statements import execute

_COLUMNS = query("doctor.filters")

_LITERAL = re.compile(r"'(?:[^']|'')*'")
_COMPARISON = re.compile(
    r"\(*(?P<column>.+?)\)*(?P<cast>::[a-z ]+)?\)* (?P<operator>=|[<>]=?) (.+)"
)
_CAST = re.compile(r'::"?[a-z_][a-z0-9_ ]*"?(\(\d+(,\d+)?\))?(\[\])?')
# PostgreSQL writes a varchar as text in comparisons; any other cast keeps an index from being used.
_CAST_FREELY = {"character varying": "::text"}


def nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the steps of a plan, as EXPLAIN writes it in JSON."""
    yield plan
    for inner in plan.get("Plans", ()):
        yield from nodes(inner)


def unindexed(connection: Connection, oid: int, plan: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the columns that a b-tree would find the rows of a filter by, equalities first.

    None where the plan uses an index already, or the filter is not a conjunction of comparisons of
    columns with constants. ``plan`` is of an exact search of one table under the filter.
    """
    filters = {n["Filter"] for n in nodes(plan) if n["Node Type"] == "Seq Scan" and "Filter" in n}
    if not filters or any("Index" in n["Node Type"] for n in nodes(plan)):
        return ()
    types = dict(execute(connection, _COLUMNS, [oid]).fetchall())
    # EXPLAIN gives a condition as text alone, and catalogs keep parts only of those of objects.
    # Those of partitions differ in the names of the tables.
    return _columns(_LITERAL.sub("''", min(filters)), types)


def _columns(text: str, types: Mapping[str, str]) -> tuple[str, ...]:
    if re.search(r"\b(OR|NOT|CASE|SubPlan|InitPlan)\b", text):
        return ()
    equal: list[str] = []
    ranges: list[str] = []
    for clause in text.split(" AND "):
        found = _COMPARISON.fullmatch(clause.strip("()") if " " not in clause else clause)
        if found is None:
            continue
        column = found["column"].rpartition(".")[2]
        others = set(re.findall(r'"[^"]+"|[a-z_][a-z0-9_$]*', _CAST.sub("", found[4])))
        cast = found["cast"] or ""
        if (
            column in types
            and not others & {*types}
            and cast in ("", _CAST_FREELY.get(types[column]))
        ):
            (equal if found["operator"] == "=" else ranges).append(column)
    return tuple(dict.fromkeys([*equal, *ranges[:1]]))
