"""From a table or a file to a fitted model: rows, labels, pairs and graphs, read and fitted.

Imports `hashers`, `models`, `metrics` and `db`. Read `fitting.train` first, then
`sampling.sample_rows`.
"""

from ..models.codes import RowCodes
from .fitting import (
    LEAST_ROWS,
    METHOD,
    check_method_takes,
    default_bits,
    distinct_bits,
    hasher_for,
    held_back,
    train,
)

__all__ = [
    "LEAST_ROWS",
    "METHOD",
    "RowCodes",
    "check_method_takes",
    "default_bits",
    "distinct_bits",
    "hasher_for",
    "held_back",
    "train",
]
