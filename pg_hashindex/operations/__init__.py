"""Maintenance of indexes: check, repair, rebind, swap, near-duplicates, and the page of the doctor.

Each function takes a `HashIndex`, or its row in the catalog. Imports `quality`, `index` and what is
below them. Read `check` first, then `repair`.
"""

from .duplicates import NearDuplicates, near_duplicates
from .health import Finding, Health, check
from .repairs import Orphan, Repaired, drop_orphans, list_orphans, rebind, repair
from .swaps import Swapped, prune, rollback, swap

__all__ = [
    "Finding",
    "Health",
    "NearDuplicates",
    "Orphan",
    "Repaired",
    "Swapped",
    "check",
    "drop_orphans",
    "list_orphans",
    "near_duplicates",
    "prune",
    "rebind",
    "repair",
    "rollback",
    "swap",
]
