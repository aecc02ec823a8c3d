"""Maintenance of indexes: check, repair, rebind, near-duplicates, and the page of the doctor.

Each function takes a `HashIndex`, or its row in the catalog. Imports `quality`, `index` and what is
below them. Read `check` first, then `repair`.
"""

from .duplicates import NearDuplicates, near_duplicates
from .health import Finding, Health, check
from .repairs import Orphan, Repaired, drop_orphans, list_orphans, rebind, repair

__all__ = [
    "Finding",
    "Health",
    "NearDuplicates",
    "Orphan",
    "Repaired",
    "check",
    "drop_orphans",
    "list_orphans",
    "near_duplicates",
    "rebind",
    "repair",
]
