"""Codes with many ties, in one block of queries and in several."""

import numpy as np
import pytest

from pg_hashindex import metrics
from pg_hashindex.models import codes


@pytest.fixture(params=[1 << 22, 500], ids=["one block", "blocks"])
def data(request, monkeypatch):
    """Yield 25 queries and 300 rows of 10-bit codes."""
    monkeypatch.setattr("pg_hashindex.metrics.blocks._BLOCK_PAIRS", request.param)
    monkeypatch.setattr("pg_hashindex.metrics.truth._BLOCK_VALUES", request.param)
    monkeypatch.setattr("pg_hashindex.models.codes._BLOCK_BITS", request.param)
    rng = np.random.default_rng(1)
    X = rng.integers(-3, 4, (325, 4)).astype(np.float32)
    X[~X.any(axis=1)] = 1
    bits = rng.standard_normal((4, 10))
    encoded = codes.pack(X @ bits > 0)
    labels = rng.integers(0, 5, 325)
    labels[0] = 9
    return {
        "Q": X[:25],
        "X": X[25:],
        "codes": (encoded[:25], encoded[25:]),
        "labels": (labels[:25], labels[25:]),
        "relevant": metrics.same_label(labels[:25], labels[25:]),
        "weights": rng.integers(0, 4, 10) / 8,
    }
