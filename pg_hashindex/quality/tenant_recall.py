"""Tenants of an index by size, and the recall of searches within some of them."""

from dataclasses import dataclass
from typing import Any, LiteralString, TypeAlias, Unpack

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from ..db.server_errors import translated_errors
from ..db.statements import execute
from ..index.catalog import HasRow, IndexRow
from ..index.search import Search, SearchOptions

Distances: TypeAlias = NDArray[np.float64]

_TENANTS: LiteralString = "SELECT tenant, codes, landmarks FROM hashindex.tenants($1)"

_ROWS: LiteralString = """
    SELECT b.{column} FROM {table} b WHERE b.{tenant} = $1::text::{type} AND b.{column} IS NOT NULL
    ORDER BY pg_catalog.hashtextextended({key_text}, 0) LIMIT $2
"""


# Tenants that are measured, of the largest.
_LARGEST = 10


@dataclass(frozen=True)
class Tenant:
    """A tenant of an index.

    Attributes
    ----------
    tenant
        Its value as text; None for rows without one.
    landmarks
        0 for a small tenant, all of whose codes are ranked.
    recall
        recall@10 of searches within it for some of its rows; None where none was measured.
    """

    tenant: str | None
    codes: int
    landmarks: int
    recall: float | None = None


def tenants(index: HasRow, *, most: int | None = None) -> list[Tenant]:
    """Return the tenants of an index with their codes and landmarks, largest first."""
    row = index.row
    with translated_errors(row):
        found = execute(row.connection, _TENANTS, [row.name]).fetchall()
    return [Tenant(*values) for values in found[:most]]


def measure_by_size(index: HasRow) -> list[Tenant]:
    """Measure the recall within the largest tenants, the median one and the smallest."""
    found = tenants(index)
    places = {*range(min(_LARGEST, len(found))), len(found) // 2, len(found) - 1}
    return [measure(index, found[p]) for p in sorted(places) if 0 <= p < len(found)]


def measure(index: HasRow, tenant: Tenant, *, queries: int = 20, k: int = 10) -> Tenant:
    """Measure the recall within a tenant, with some of its rows as queries.

    The true neighbours are found by the same search with all lists and all codes.
    """
    row = index.row
    if tenant.tenant is None or tenant.codes < 2 or row.encoded_in != "sql":
        return tenant
    names = row.names | {
        "tenant": sql.Identifier(row.tenant_column or ""),
        "type": sql.SQL(row.tenant_type or ""),
    }
    with translated_errors(row):
        rows = execute(
            row.connection, sql.SQL(_ROWS).format(**names), [tenant.tenant, queries]
        ).fetchall()
        found, wanted = 0, 0
        for (vector,) in rows:
            name = tenant.tenant
            exact = _distances(row, vector, k, tenant=name, candidates=tenant.codes, probes=1000)
            near = _distances(row, vector, k, tenant=name)
            wanted += len(exact)
            # Ties count.
            found += int((near <= exact.max()).sum()) if len(exact) else 0
    return Tenant(tenant.tenant, tenant.codes, tenant.landmarks, found / max(1, wanted))


def _distances(row: IndexRow, vector: Any, k: int, **options: Unpack[SearchOptions]) -> Distances:
    search = Search(query=vector, k=k, **options)
    found = execute(row.connection, *search.statement(row), binary=True).fetchall()
    return np.array([values[-1] for values in found], np.float64)
