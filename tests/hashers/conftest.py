"""Rows that hashers learn from."""

import numpy as np
import pytest
from fixtures.clusters import clustered
from numpy.typing import NDArray


@pytest.fixture(scope="session")
def rows() -> NDArray[np.float32]:
    """Return 400 rows of 12 dimensions, correlated, in 8 clusters and off centre."""
    return clustered()[0]


@pytest.fixture(scope="session")
def labels() -> NDArray[np.intp]:
    """Return the cluster of each of the rows."""
    return clustered()[1]
