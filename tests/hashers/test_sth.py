import numpy as np
import scipy.linalg
import scipy.sparse

from pg_hashindex.hashers import STH
from pg_hashindex.hashers.sth import eigenmap, joined
from pg_hashindex.models import codes

X = np.random.default_rng(5).standard_normal((60, 4)).astype(np.float32)


def literal_weights(n_nearest):
    """Every pair of rows by itself."""
    n = len(X)
    squares = [
        [float(((X[i].astype(float) - X[j]) ** 2).sum()) for j in range(n)] for i in range(n)
    ]
    nearest = [
        sorted(range(n), key=lambda j, i=i: squares[i][j])[1 : n_nearest + 1] for i in range(n)
    ]
    t = sum(squares[i][j] for i in range(n) for j in nearest[i]) / (n * n_nearest)
    W = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            if j in nearest[i] or i in nearest[j]:
                W[i, j] = np.exp(-squares[i][j] / t)
    return W


def test_bits_are_those_of_the_paper_and_new_rows_have_their_regression():
    hasher = STH(n_bits=5, n_nearest=6, ridge=0.01, random_state=0).fit(X)
    W = literal_weights(6)
    values, vectors = scipy.linalg.eigh(np.diag(W.sum(axis=1)) - W, np.diag(W.sum(axis=1)))
    assert abs(values[0]) < 1e-12 < values[1]
    np.testing.assert_allclose(hasher.eigenvalues_, values[1:6], rtol=1e-6)
    bits = codes.unpack(hasher.codes_, 5) > 0
    expected = vectors[:, 1:6] > np.median(vectors[:, 1:6], axis=0)
    same = (bits == expected).mean(axis=0)
    assert np.isin(same, (0, 1)).all()
    assert (bits.sum(axis=0) == 30).all()
    centred = X.astype(float) - X.mean(axis=0, dtype=float)
    covariance = centred.T @ centred / 60
    ridge = 0.01 * np.trace(covariance) / 4 * np.eye(4)
    weights = np.linalg.solve(covariance + ridge, centred.T @ (2.0 * bits - 1) / 60)
    np.testing.assert_allclose(hasher.project(X), centred @ weights, atol=1e-5)


def test_eigenvectors_minimise_the_trace_under_its_conditions():
    W = literal_weights(6)
    D = np.diag(W.sum(axis=1))
    values, Y = eigenmap(scipy.sparse.csr_array(W), 3, np.ones(60) + np.arange(60))
    # Each has the length 1 here, as in the paper.
    np.testing.assert_allclose(Y.T @ D @ Y, np.eye(3), atol=1e-9)
    np.testing.assert_allclose(Y.T @ D @ np.ones(60), 0, atol=1e-9)
    np.testing.assert_allclose(np.trace(Y.T @ (D - W) @ Y), values.sum(), rtol=1e-9)


def test_parts_are_joined_to_the_part_of_the_nearest_mean():
    """On a line: means 1, 11 and 101, so 2 is joined with 10, and 12 with 100."""
    line = np.array([0, 1, 2, 10, 11, 12, 100, 101, 102], np.float32)[:, None]
    W = scipy.linalg.block_diag(*[np.ones((3, 3)) - np.eye(3)] * 3)
    found = joined(scipy.sparse.csr_array(W), line).toarray()
    lines, columns = np.nonzero(found != W)
    assert list(zip(lines, columns, strict=True)) == [(2, 3), (3, 2), (5, 6), (6, 5)]
    np.testing.assert_allclose(found[lines, columns], np.exp(-1))


def test_far_groups_differ_in_the_first_bit():
    groups = np.vstack([X - 1000, X + 1000])
    first = codes.unpack(STH(n_bits=1, n_nearest=5, random_state=0).fit(groups).codes_, 1)[:, 0]
    assert first[:60].std() == first[60:].std() == 0
    assert first[0] != first[60]


def test_few_far_rows_leave_the_first_bit_to_the_others():
    """Weights of edges to rows far away are all but 0, so rounding decided how they were cut."""
    many = np.random.default_rng(0).standard_normal((1000, 4)).astype(np.float32)
    rows = np.vstack([many, many[:5] / 10 + 300])
    hasher = STH(n_bits=1, random_state=0).fit(rows)
    assert hasher.eigenvalues_[0] > 1e-9
    again = STH(n_bits=1, random_state=1).fit(rows)
    first, other = (codes.unpack(h.codes_, 1)[:, 0] for h in (hasher, again))
    assert np.isin((first == other).mean(), (0, 1))


def test_no_bit_is_constant_however_many_there_are():
    W = scipy.sparse.csr_array(literal_weights(6))
    D = np.diag(W.sum(axis=1))
    values, Y = eigenmap(W, 58, np.ones(60) + np.arange(60))
    np.testing.assert_allclose(values, scipy.linalg.eigh(D - W.toarray(), D)[0][1:59], atol=1e-9)
    np.testing.assert_allclose(Y.T @ D @ np.ones(60), 0, atol=1e-9)


def test_equal_rows_count_once():
    once = STH(n_bits=4, n_nearest=6, random_state=0).fit(X)
    order = np.r_[np.arange(60)[::-1], np.repeat(7, 20)]
    again = STH(n_bits=4, n_nearest=6, random_state=0).fit(X[order])
    np.testing.assert_allclose(again.eigenvalues_, once.eigenvalues_, rtol=1e-9)
    bits, expected = (codes.unpack(hasher.codes_, 4) for hasher in (again, once))
    assert np.isin((bits == expected[order]).mean(axis=0), (0, 1)).all()
    assert len(STH(n_bits=4, max_rows=30, random_state=0).fit(X).codes_) == 30


def test_anchors_make_kernel_functions(rows):
    kinds = [layer.kind for layer in STH(n_bits=4, n_anchors=20).fit(rows).layers_]
    assert kinds == ["rbf", "shift", "affine"]
    assert [layer.kind for layer in STH(n_bits=4).fit(rows).layers_] == ["affine"]
