"""From a table or a file to a fitted model: rows, labels, pairs and graphs, read and fitted.

Imports `hashers`, `models`, `metrics` and `db`. Read `fitting.train` first, then
`sampling.sample_rows`.
"""

from .fitting import (
    METHOD,
    RowCodes,
    check_method_takes,
    default_bits,
    distinct_bits,
    hasher_for,
    held_back,
    train,
)

__all__ = [
    "METHOD",
    "RowCodes",
    "check_method_takes",
    "default_bits",
    "distinct_bits",
    "hasher_for",
    "held_back",
    "train",
]
