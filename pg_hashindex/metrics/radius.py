"""The measure of hash lookup: every row within a Hamming radius, in no order, so without ties."""

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from ..models.codes import hamming_distances
from .blocks import query_blocks
from .truth import Relevant, check_relevant


def precision_within_radius(
    query_codes: NDArray[np.uint8],
    codes: NDArray[np.uint8],
    relevant: Relevant,
    radius: int = 2,
) -> float:
    """Compute which part of the rows within a Hamming radius is relevant.

    Parameters
    ----------
    query_codes : uint8 (n_queries, width)
    codes : uint8 (n, width)
    relevant : bool (n_queries, n), or RelevantRows

    Returns
    -------
    float
        A query that finds nothing counts 0.
    """
    check_relevant(query_codes, codes, relevant)
    if radius < 0:
        raise InvalidInputError(f"radius must be 0 or more, got {radius}")
    total = 0.0
    for block in query_blocks(len(query_codes), len(codes)):
        within = hamming_distances(query_codes[block], codes) <= radius
        found = np.count_nonzero(within & relevant[block], axis=1)
        total += float((found / np.maximum(np.count_nonzero(within, axis=1), 1)).sum())
    return total / len(query_codes)
