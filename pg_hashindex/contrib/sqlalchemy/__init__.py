"""SQLAlchemy 2: indexes declared beside tables, and searches as statements."""

from .declared import HashIndex, declared_on
from .nearest import nearest
from .types import HashCode, encode, project

__all__ = ["HashCode", "HashIndex", "declared_on", "encode", "nearest", "project"]
