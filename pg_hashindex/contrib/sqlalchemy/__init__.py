"""SQLAlchemy 2: indexes declared beside tables, and searches as statements."""

from .declared import HashIndex
from .nearest import nearest
from .types import HashCode, encode, project

__all__ = ["HashCode", "HashIndex", "encode", "nearest", "project"]
