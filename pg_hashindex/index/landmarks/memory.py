"""How much memory the client may take while it builds landmarks."""

import re

from ...errors import InvalidInputError

#: For landmarks and blocks of rows, unless the caller says otherwise.
DEFAULT_MEMORY = "1GB"
_UNITS = {"kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
# Blocks of rows, in several forms, and the scores of a block.
_BLOCKS = 256 << 20
# The number of a landmark's group, and a 16th of a row that it may move to.
_NUMBERS = 128
# Landmarks are compared in at most this number of dimensions, where a basis keeps the variance.
_COMPARED = 256


def as_bytes(memory: str | int) -> int:
    """Return a size in bytes: a number, or a text with a unit as PostgreSQL writes it, '512MB'."""
    found = re.fullmatch(r"\s*(\d{1,15})\s*(kB|MB|GB|TB)?\s*", str(memory))
    if isinstance(memory, bool) or found is None or not int(found[1]):
        raise InvalidInputError(f"memory is {memory!r}; give a size such as '512MB' or '2GB'")
    return int(found[1]) * _UNITS.get(found[2], 1)


def bytes_of_build(
    n_landmarks: int, dimension: int, compared: int, *, spherical: bool, within: bool = False
) -> int:
    """Return the memory that a process takes for landmarks, the sums of their rows, and a block.

    ``compared`` is the number of dimensions in which landmarks are stored; ``within`` whether they
    are of tenants, whose first rows are held whole.
    """
    # Landmarks as they are stored give those that rows are compared with, beside which are sums.
    sums = (2 if spherical else 4) * dimension
    held = max(sums, 2 * compared, 4 * dimension if within else 0)
    each = _NUMBERS + 4 * min(dimension, _COMPARED) + held
    return -(-(_BLOCKS + n_landmarks * each) // _UNITS["MB"]) * _UNITS["MB"]
