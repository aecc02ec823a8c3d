"""Searching: by a package, or by a vector."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query
from sqlalchemy import ColumnElement
from sqlalchemy.orm import selectinload, undefer

from pg_hashindex.contrib.sqlalchemy import nearest

from .database import Session
from .models import Package, Tag
from .schemas import Filters, Hit, SearchRequest

__all__ = ["router"]

router = APIRouter(tags=["search"])


@router.get("/packages/{package_id}/similar")
async def similar(
    package_id: int, wanted: Annotated[Filters, Query()], session: Session
) -> list[Hit]:
    """Find the packages nearest to one of them."""
    package = await session.get(Package, package_id, options=[undefer(Package.embedding)])
    if package is None:
        raise HTTPException(404, f"there is no package {package_id}")
    return await _find(session, package.embedding, wanted, Package.id != package_id)


@router.post("/search")
async def search(wanted: SearchRequest, session: Session) -> list[Hit]:
    """Find the packages nearest to a vector."""
    return await _find(session, wanted.vector, wanted)


async def _find(
    session: Session, query: Sequence[float], wanted: Filters, *filters: ColumnElement[Any]
) -> list[Hit]:
    statement = nearest(Package, Package.embedding, query, k=wanted.k).where(*filters)
    # Filters and joins restrict what is searched: there are k answers wherever k rows match.
    if wanted.section is not None:
        statement = statement.where(Package.section == wanted.section)
    if wanted.prefix is not None:
        statement = statement.where(Package.name.startswith(wanted.prefix, autoescape=True))
    if wanted.tag is not None:
        statement = statement.join(Package.tags).where(Tag.label == wanted.tag)
    # A condition on the distance restricts the answers.
    if wanted.max_distance is not None:
        statement = statement.where(statement.selected_columns.distance <= wanted.max_distance)
    found = await session.execute(statement.options(selectinload(Package.tags)))
    return [Hit.of(package, distance=distance) for package, distance in found]
