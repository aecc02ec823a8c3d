"""Rows that hashers learn from."""

import numpy as np
import pytest
from numpy.typing import NDArray


@pytest.fixture(scope="session")
def rows() -> NDArray[np.float32]:
    """Return 400 rows of 12 dimensions, correlated, in clusters and off centre."""
    rng = np.random.default_rng(7)
    clusters = 3 * rng.standard_normal((8, 12))
    spread = rng.standard_normal((400, 12)) @ rng.standard_normal((12, 12)) / 3
    return (clusters[rng.integers(8, size=400)] + spread + 5).astype(np.float32)
