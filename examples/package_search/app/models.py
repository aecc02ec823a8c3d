"""The tables, and the index for searches."""

from pgvector.sqlalchemy import VECTOR
from sqlalchemy import BigInteger, ForeignKey, Identity
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from pg_hashindex.contrib.sqlalchemy import HashIndex

__all__ = ["DIMENSION", "INDEX", "Base", "Package", "Tag"]

DIMENSION = 384
INDEX = "packages_idx"


class Base(DeclarativeBase):
    """The tables of the app."""


class Package(Base):
    """A package and what its description means."""

    __tablename__ = "packages"
    __table_args__ = (HashIndex(INDEX, "embedding", model="packages_576"),)

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    section: Mapped[str] = mapped_column(index=True)
    description: Mapped[str]
    # Not loaded for answers, since it has 1.5 kB a row.
    embedding: Mapped[list[float]] = mapped_column(VECTOR(DIMENSION), deferred=True)

    tags: Mapped[list["Tag"]] = relationship(
        cascade="all, delete-orphan", passive_deletes=True, order_by="Tag.label"
    )


class Tag(Base):
    """A word that several packages have in common."""

    __tablename__ = "tags"

    package_id: Mapped[int] = mapped_column(
        ForeignKey("packages.id", ondelete="CASCADE"), primary_key=True
    )
    label: Mapped[str] = mapped_column(primary_key=True, index=True)
