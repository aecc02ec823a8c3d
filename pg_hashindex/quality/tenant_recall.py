"""Tenants of an index by size, and the recall of searches within some of them."""

from dataclasses import dataclass, replace
from typing import LiteralString

from ..db.server_errors import translated_errors
from ..db.statements import execute
from ..errors import InvalidInputError
from ..index.catalog import HasRow
from .measuring import Measuring
from .queries import draw

_TENANTS: LiteralString = "SELECT tenant, codes, landmarks FROM hashindex.tenants($1)"

# Tenants that are measured, of the largest; queries within each, and answers compared.
_LARGEST = 10
_QUERIES, _K = 20, 10


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
    """Measure the recall within the largest tenants, the median one and the smallest, if any."""
    found = [] if index.row.tenant_column is None else tenants(index)
    places = {*range(min(_LARGEST, len(found))), len(found) // 2, len(found) - 1}
    return [measure(index, found[p]) for p in sorted(places) if 0 <= p < len(found)]


def measure(index: HasRow, tenant: Tenant) -> Tenant:
    """Measure the recall within a tenant, with some of its rows as queries."""
    row = index.row
    if tenant.tenant is None or tenant.codes < 2:
        return tenant
    try:
        measuring = Measuring(row, draw(row, _QUERIES, tenant=tenant.tenant), _K)
        _, (measured,) = measuring.run("measuring", [row.candidates_for(_K)])
    except InvalidInputError:
        # Fewer than two of its rows can be compared: vectors of zeros have no distance by cosine.
        return tenant
    return replace(tenant, recall=measured.recall)
