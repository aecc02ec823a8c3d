"""The shapes of requests and answers."""

import math
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, Field, FiniteFloat, StringConstraints

from .models import DIMENSION, Package

__all__ = ["Filters", "Finding", "Health", "Hit", "NewPackage", "PackageOut", "SearchRequest"]


def _to_unit_length(vector: list[float]) -> list[float]:
    # Cosine distance has no use for the length, and none for a vector without a direction.
    length = math.hypot(*vector)
    if not 0 < length < math.inf:
        raise ValueError(f"a vector of length {length} has no direction")
    return [value / length for value in vector]


Embedding = Annotated[
    list[FiniteFloat],
    Field(min_length=DIMENSION, max_length=DIMENSION),
    AfterValidator(_to_unit_length),
]
# PostgreSQL's text cannot hold the character NUL.
Text = Annotated[str, StringConstraints(min_length=1, max_length=1000, pattern=r"^[^\x00]*$")]


class Filters(BaseModel):
    """Which packages are searched, and how many are wanted."""

    k: Annotated[int, Field(ge=1, le=100)] = 10
    section: Text | None = None
    prefix: Annotated[Text | None, Field(description="of the name")] = None
    tag: Text | None = None
    max_distance: Annotated[FiniteFloat | None, Field(ge=0, description="of the answers")] = None


class SearchRequest(Filters):
    """A search by a vector of the model that made the embeddings."""

    vector: Embedding


class NewPackage(BaseModel):
    """A package as it is written."""

    name: Text
    section: Text
    description: Text
    tags: set[Text] = set()
    embedding: Embedding


class PackageOut(BaseModel):
    """A package as it is shown."""

    id: int
    name: str
    section: str
    description: str
    tags: list[str]

    @classmethod
    def of(cls, package: Package, **more: float) -> Self:
        """Show a package whose tags are loaded."""
        return cls(
            id=package.id,
            name=package.name,
            section=package.section,
            description=package.description,
            tags=[tag.label for tag in package.tags],
            **more,
        )


class Hit(PackageOut):
    """A package that was found."""

    distance: float


class Finding(BaseModel):
    """A finding of a check of the index, with advice."""

    check: str
    status: str
    detail: str | None
    advice: str | None


class Health(BaseModel):
    """The health of the index: ok, warning or broken."""

    status: str
    findings: list[Finding]
