"""Candidates that a table needs, from the rows near some queries and a sample."""

from pathlib import Path

import numpy as np
import pytest

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.metrics.search import candidates_in_table
from pg_hashindex.training import train

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
KINDS = {"signs": None, "one cut": ("thermometer", 1), "three cuts": ("thermometer", 3)}
QUERIES, SAMPLE, NEAR = 400, 5000, 50


def fewest(exact, codes, recall=0.98, k=10):
    """By all rows of a table."""
    before, same = [], []
    for line, own in zip(exact, codes, strict=True):
        true, ordered = np.argpartition(line, k - 1)[:k], np.sort(own)
        before.append(np.searchsorted(ordered, own[true]))
        same.append(np.searchsorted(ordered, own[true], "right") - before[-1])
    n = k
    while np.clip((n - np.array(before)) / np.array(same), 0, 1).mean() < recall:
        n += 1
    return n


def estimate(exact, codes, sample, recall=0.98):
    near = np.argpartition(exact, NEAR, axis=1)[:, :NEAR]
    near = np.take_along_axis(near, np.argsort(np.take_along_axis(exact, near, 1), axis=1), 1)
    return candidates_in_table(
        np.take_along_axis(codes, near, 1), codes[:, sample], exact.shape[1], recall=recall,
        are_near=(sample[None, :, None] == near[:, None, :]).any(axis=2),
    )  # fmt: skip


def hamming(one, other):
    one = 2 * one.astype(np.float32) - 1
    blocks = (2 * other[n : n + 5000].astype(np.float32) - 1 for n in range(0, len(other), 5000))
    products = np.concatenate([one @ block.T for block in blocks], axis=1)
    return np.rint((one.shape[1] - products) / 2).astype(np.int16)


@pytest.mark.parametrize(
    ("name", "metric", "kinds"),
    [("packages", "cosine", ["one cut", "three cuts"]), ("mnist", "l2", ["signs"])],
)
def test_tables_of_60000_rows_from_samples_of_5000(name, metric, kinds):
    if not (DATA / f"{name}.npz").exists():
        pytest.skip("../shared/data is not here")
    X = np.load(DATA / f"{name}.npz")["X"].astype(np.float32)[:60_000]
    X = X[np.random.default_rng(0).permutation(len(X))]
    if metric == "cosine":
        X /= np.linalg.norm(X, axis=1, keepdims=True)
    Q, X = X[:QUERIES], X[QUERIES:]
    exact = -Q @ X.T if metric == "cosine" else (X**2).sum(axis=1) - 2 * Q @ X.T
    sample = np.random.default_rng(1).permutation(len(X))[:SAMPLE]
    for kind in kinds:
        if (trained := KINDS[kind]) is None:
            codes = hamming(Q > 0, X > 0)
        else:
            method, cuts = trained
            model = train(X[sample], "m", method, cuts=cuts, metric=metric)
            codes = hamming(*(np.unpackbits(model.encode(A), axis=1) for A in (Q, X)))
        assert estimate(exact, codes, sample) == pytest.approx(fewest(exact, codes), rel=0.25), kind


def test_a_sample_of_all_rows_gives_what_they_need():
    rng = np.random.default_rng(0)
    X, Q = rng.standard_normal((900, 12)), rng.standard_normal((60, 12))
    exact = ((X[None] - Q[:, None]) ** 2).sum(axis=2)
    codes = hamming(Q > 0, X > 0)
    for recall in (0.5, 0.9, 0.98):
        assert estimate(exact, codes, np.arange(900), recall) == fewest(exact, codes, recall)


def test_refused():
    near, others = np.zeros((3, 5)), np.zeros((3, 20))
    with pytest.raises(InvalidInputError, match="k"):
        candidates_in_table(near, others, 100)
    with pytest.raises(InvalidInputError, match="near rows"):
        candidates_in_table(near, others, 4, k=2)
