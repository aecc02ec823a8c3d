"""Writing packages; PostgreSQL keeps the index up to date."""

from fastapi import APIRouter, HTTPException
from sqlalchemy.orm import selectinload

from .database import Session
from .models import Package, Tag
from .schemas import NewPackage, PackageOut

__all__ = ["router"]

router = APIRouter(prefix="/packages", tags=["packages"])


@router.get("/{package_id}")
async def show(package_id: int, session: Session) -> PackageOut:
    """Show a package."""
    return PackageOut.of(await _get(session, package_id))


@router.post("", status_code=201)
async def create(new: NewPackage, session: Session) -> PackageOut:
    """Add a package; the next search finds it."""
    package = Package()
    _write(package, new)
    session.add(package)
    await session.flush()
    answer = PackageOut.of(package)
    await session.commit()
    return answer


@router.put("/{package_id}")
async def replace(package_id: int, new: NewPackage, session: Session) -> PackageOut:
    """Replace a package."""
    package = await _get(session, package_id, lock=True)
    _write(package, new)
    answer = PackageOut.of(package)
    await session.commit()
    return answer


@router.delete("/{package_id}", status_code=204)
async def delete(package_id: int, session: Session) -> None:
    """Remove a package; no search finds it any more."""
    await session.delete(await _get(session, package_id, lock=True))
    await session.commit()


async def _get(session: Session, package_id: int, *, lock: bool = False) -> Package:
    # With a lock, one of two requests waits, and finds no package that the other has deleted.
    package = await session.get(
        Package, package_id, options=[selectinload(Package.tags)], with_for_update=lock or None
    )
    if package is None:
        raise HTTPException(404, f"there is no package {package_id}")
    return package


def _write(package: Package, new: NewPackage) -> None:
    package.name, package.section, package.description = new.name, new.section, new.description
    package.embedding = new.embedding
    package.tags = [Tag(label=label) for label in sorted(new.tags)]
