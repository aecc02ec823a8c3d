"""SQLAlchemy 2: indexes declared beside tables, and searches as statements."""

from .declared import HashIndex
from .nearest import nearest, nearest_by_code
from .types import HashCode, code, encode, project

__all__ = ["HashCode", "HashIndex", "code", "encode", "nearest", "nearest_by_code", "project"]
