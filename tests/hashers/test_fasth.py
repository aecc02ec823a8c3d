from itertools import product

import numpy as np
import pytest

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import FastH, fasth
from pg_hashindex.hashers.fasth import BitProblem
from pg_hashindex.hashers.supervision.label_sets import LabelSets
from pg_hashindex.hashers.supervision.labels import Labels
from pg_hashindex.models import codes as packed
from pg_hashindex.models.model import Model

N, R = 9, 6
each_loss = pytest.mark.parametrize("loss", ["hinge", "ksh"])


def indicator(several):
    """Give 9 rows one of 4 labels each, or one or two."""
    rng = np.random.default_rng(5)
    y = np.eye(4, dtype=int)[[0, 0, 0, 1, 1, 2, 2, 2, 3]]
    return y | np.eye(4, dtype=int)[rng.integers(4, size=N)] if several else y


def literal_loss(B, y, loss):
    """The loss of bits (n, k) so far, over all pairs of rows."""
    shared = y @ y.T > 0
    total = 0.0
    for i, j in product(range(N), repeat=2):
        distance = np.sum(B[i] != B[j])
        if loss == "hinge":
            value = distance**2 if shared[i, j] else max(R / 2 - distance, 0) ** 2
        else:
            value = ((1 if shared[i, j] else -1) * R - B[i] @ B[j]) ** 2
        total += value / (shared == shared[i, j]).sum()
    return total


@each_loss
@pytest.mark.parametrize("several", [False, True], ids=["single", "several"])
def test_each_bit_has_the_least_loss_of_all(several, loss):
    """No other bits of the rows split a label set better."""
    y = indicator(several)
    sets = LabelSets.of_several(Labels.read(y, N))
    problem = BitProblem(sets, R, loss)
    rng = np.random.default_rng(0)
    B = np.empty((N, 0), int)
    for _ in range(R):
        start = np.where(np.arange(len(sets)) % 2, 1, -1).astype(np.int8)
        found = problem.add(start, rng)[sets.of_row]
        losses = {
            bits: literal_loss(np.column_stack([B, bits]), y, loss)
            for bits in product((-1, 1), repeat=N)
        }
        of_sets = {
            bits: losses[tuple(np.array(bits)[sets.of_row].tolist())]
            for bits in product((-1, 1), repeat=len(sets))
        }
        assert min(losses.values()) == pytest.approx(min(of_sets.values()))
        B = np.column_stack([B, found])
        assert problem.losses[-1] == pytest.approx(literal_loss(B, y, loss))
        assert problem.losses[-1] <= of_sets[tuple(start.tolist())] + 1e-9
        # A bit that is the same for all tells nothing.
        least = min(value for bits, value in of_sets.items() if len(set(bits)) > 1)
        assert problem.losses[-1] == pytest.approx(least)


@each_loss
def test_no_start_is_better_than_what_is_found(loss, monkeypatch):
    """With the start alone, too: flips never raise the loss."""
    monkeypatch.setattr(fasth, "_STARTS", 0)
    y = np.eye(40, dtype=int)[np.random.default_rng(1).integers(40, size=(300, 2))].sum(axis=1) > 0
    sets = LabelSets.of_several(Labels.read(y, 300))
    rng = np.random.default_rng(2)
    for _ in range(3):
        start = np.where(rng.random(len(sets)) < 0.5, 1, -1).astype(np.int8)
        held, found = (BitProblem(sets, 8, loss) for _ in range(2))
        with monkeypatch.context() as patch:
            patch.setattr(fasth, "descend", lambda Q, p, b: b)
            assert np.array_equal(held.add(start, rng), start)
        assert not np.array_equal(found.add(start, rng), start)
        assert found.losses[0] < held.losses[0]


def test_no_bit_is_the_same_for_all_sets(monkeypatch):
    """Though that would be the least loss where every two sets share a label."""
    y = np.array([[1, 1, 0], [1, 0, 1], [0, 1, 1]])
    sets = LabelSets.of_several(Labels.read(y, 3))
    problem = BitProblem(sets, 4, "hinge")
    assert np.ptp(problem.add(np.array([1, -1, 1], np.int8), np.random.default_rng(0)))


@each_loss
def test_codes_keep_classes_apart(loss, rows):
    y = np.arange(400) % 8
    hasher = FastH(n_bits=16, loss=loss, n_trees=2, random_state=0).fit(rows, y)
    bits = packed.unpack(hasher.codes_, 16)
    codewords = bits[:8]
    assert (bits == codewords[y]).all()
    distances = (codewords[:, None] != codewords).sum(axis=2)[~np.eye(8, dtype=bool)]
    # 8 codewords of 16 bits can all be 8 apart, as rows of a Hadamard matrix.
    assert distances.min() >= 6
    if loss == "hinge":
        assert hasher.losses_[-1] < 0.5
    assert hasher.training_["loss"]["last"] == hasher.losses_[-1]


def test_many_trees_without_error(rows):
    """Their votes would make the weights of all rows 0."""
    y = np.arange(400) % 2
    X = rows * np.float32(0.01) + (20 * y[:, None] - 10).astype(np.float32)
    hasher = FastH(n_bits=2, n_trees=400, random_state=0).fit(X, y)
    assert np.isfinite(hasher.losses_).all()
    assert (packed.unpack(hasher.encode(X), 2) == packed.unpack(hasher.codes_, 2)).all()


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    y = np.arange(600) % 4
    X = (rng.standard_normal((4, 8))[y] + 0.5 * rng.standard_normal((600, 8))).astype(np.float32)
    return FastH(n_bits=10, n_trees=8, random_state=1).fit(X[:400], y[:400]), X, y


def test_trees_learn_the_codes(fitted):
    hasher, X, y = fitted
    given, learned = (packed.unpack(codes, 10) for codes in (hasher.encode(X[:400]), hasher.codes_))
    np.testing.assert_allclose((given != learned).mean(axis=0), hasher.errors_)
    assert hasher.errors_.mean() == hasher.training_["error"] < 0.05
    new = packed.unpack(hasher.encode(X[400:]), 10)
    assert (new == learned[y[400:] % 4]).mean() > 0.85


def test_model_ends_in_trees_and_survives_bytes(fitted):
    hasher, X, _ = fitted
    model = hasher.to_model("m")
    assert (model.layers, model.network.kind) == ((), "trees")
    assert model.network.config == {"dimension": 8}
    assert model.network.arrays["leaves"].shape == (10, 8, 16)
    again = Model.from_bytes(model.to_bytes())
    assert again.checksum == model.checksum
    np.testing.assert_array_equal(again.encode(X), hasher.encode(X))
    with pytest.raises(InvalidInputError, match="7 dimensions, expected 8"):
        model.network.project(X[:, :7])


def test_only_some_rows_are_learned_from(rows):
    y = np.where(np.arange(400) % 4, np.arange(400) % 3, -1)
    hasher = FastH(n_bits=4, n_trees=2, max_rows=100, random_state=0).fit(rows, y)
    assert len(hasher.codes_) == 100
    assert len(FastH(n_bits=4, n_trees=2, random_state=0).fit(rows, y).codes_) == 300


def test_refuses_what_trees_cannot_tell(rows, monkeypatch):
    X = np.zeros((400, 3))
    X[0] = 1
    with pytest.raises(InvalidInputError, match="say nothing about bit 0"):
        FastH(n_bits=4, n_trees=2, random_state=0).fit(X, np.arange(400) >= 300)
    monkeypatch.setattr(fasth, "_MOST_SETS", 3)
    with pytest.raises(InvalidInputError, match="at most 3 different sets of labels, got 4"):
        FastH(n_bits=4, random_state=0).fit(rows, np.arange(400) % 4)
