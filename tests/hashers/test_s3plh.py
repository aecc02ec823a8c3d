import numpy as np
import pytest
import scipy.linalg
from fixtures.clusters import up_to_sign_and_size

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import S3PLH
from pg_hashindex.hashers.supervision.labels import Labels
from pg_hashindex.hashers.supervision.pairs import GivenPairs, LabelPairs
from pg_hashindex.metrics import mean_average_precision, same_label
from pg_hashindex.models import codes


def by_labels(y):
    """Return S of the paper for labels, one or several a row; a row is not a pair with itself."""
    Y = np.eye(y.max() + 1)[y] * (y >= 0)[:, None] if y.ndim == 1 else y
    S = np.where(Y @ Y.T > 0, 1.0, -1.0)
    S[Y.sum(axis=1) == 0] = 0
    S[:, Y.sum(axis=1) == 0] = 0
    np.fill_diagonal(S, 0)
    return S


def with_pairs(S, pairs):
    S = S.copy()
    for i, j, sign in pairs:
        S[i, j] = S[j, i] = sign
    return S


def literal_s3plh(X, S, n_bits, *, eta=0.03, step=4.0, step_by="bit", balance=True):
    """Follow Algorithm 1: the n x n matrix S, updated by equation 10 for each bit."""
    Xl = X - X.mean(axis=0)
    X, known = Xl.copy(), S.any(axis=1)
    neighbours, others = (S > 0).sum(), (S < 0).sum()
    if balance:
        weights = np.where(S > 0, 0.5 / neighbours, 0.5 / others)
    else:
        weights = 1 / (neighbours + others)
    W = []
    for _ in range(n_bits):
        M = Xl.T @ (weights * S) @ Xl + eta * X.T @ X / len(X)
        W.append(np.linalg.eigh(M)[1][:, -1])
        # Not in the paper: instead of a copy of an earlier direction, one orthogonal to them all.
        if (np.abs(np.array(W[:-1]) @ W[-1] if W[1:] else np.zeros(1)) > 0.999).any():
            N = scipy.linalg.null_space(np.array(W[:-1]))
            W[-1] = N @ np.linalg.eigh(N.T @ M @ N)[1][:, -1]
        p = Xl @ W[-1]
        S_tilde = np.outer(p, p)
        longest = (Xl[known] ** 2).sum(axis=1).max()
        unit = {"bit": np.mean(p**2), "rows": longest, "data": 1}[step_by]
        S = S - step / unit * np.where(np.sign(S * S_tilde) < 0, S_tilde, 0)
        X = X - X @ np.outer(W[-1], W[-1])
    return Xl @ np.array(W).T


def assert_agrees(hasher, rows, expected):
    found = hasher.project(rows).astype(np.float64)
    np.testing.assert_allclose(up_to_sign_and_size(found), up_to_sign_and_size(expected), atol=1e-4)


def several_labels(labels):
    """Return labels (n, 5), one to three a row, none for some rows."""
    Y = np.zeros((len(labels), 5), int)
    Y[np.arange(len(labels)), labels % 5] = 1
    Y[labels > 5, 0] = 1
    Y[::3, 2] = 1
    Y[::7] = 0
    return Y


PARAMETERS = [
    {},
    {"balance": False},
    dict(S3PLH.paper_parameters),
    dict(S3PLH.program_parameters),
    {"eta": 1.0, "step": 0.5},
]


@pytest.mark.parametrize("params", PARAMETERS)
def test_agrees_with_the_paper(params, rows, labels):
    y = np.where(np.arange(400) % 4 > 0, labels, -1)
    hasher = S3PLH(n_bits=16, **params).fit(rows, y)
    X = rows.astype(np.float64)
    assert_agrees(hasher, rows, literal_s3plh(X, by_labels(y), 16, **params))


@pytest.mark.parametrize("params", PARAMETERS[:2])
def test_agrees_with_the_paper_on_several_labels(params, rows, labels):
    Y = several_labels(labels)
    hasher = S3PLH(n_bits=10, **params).fit(rows, Y)
    X = rows.astype(np.float64)
    assert_agrees(hasher, rows, literal_s3plh(X, by_labels(Y), 10, **params))


@pytest.mark.parametrize("params", PARAMETERS)
def test_agrees_with_the_paper_on_pairs(params, rows, labels):
    rng = np.random.default_rng(5)
    ends = np.array([rng.choice(200, 2, replace=False) for _ in range(300)])
    ends = ends[np.unique(np.sort(ends, axis=1), axis=0, return_index=True)[1]]
    same = labels[ends[:, 0]] == labels[ends[:, 1]]
    pairs = np.column_stack([ends, np.where(same, 1, -1)])
    hasher = S3PLH(n_bits=10, **params).fit(rows, pairs=pairs)
    expected = literal_s3plh(
        rows.astype(np.float64), with_pairs(np.zeros((400, 400)), pairs), 10, **params
    )
    assert_agrees(hasher, rows, expected)
    assert (hasher.n_neighbours_, hasher.n_others_) == (same.sum(), (~same).sum())


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("params", PARAMETERS[:2])
def test_pairs_win_over_labels(params, several, rows, labels):
    y = several_labels(labels) if several else np.where(labels > 1, labels, -1)
    S = by_labels(y)
    rng = np.random.default_rng(5)
    ends = np.unique(np.sort(rng.integers(400, size=(3000, 2)), axis=1), axis=0)
    ends = ends[ends[:, 0] < ends[:, 1]]
    pairs = np.column_stack([ends, rng.choice([1, -1], len(ends))])
    known = S[ends[:, 0], ends[:, 1]]
    assert {-1, 0, 1} <= set(known * pairs[:, 2])
    hasher = S3PLH(n_bits=10, **params).fit(rows, y, pairs=pairs)
    together = with_pairs(S, pairs)
    assert_agrees(hasher, rows, literal_s3plh(rows.astype(np.float64), together, 10, **params))
    counts = np.count_nonzero(together > 0) // 2, np.count_nonzero(together < 0) // 2
    assert (hasher.n_neighbours_, hasher.n_others_) == counts


def test_pairs_that_repeat_the_labels_change_nothing(rows, labels):
    pairs = [[i, j, 1 if labels[i] == labels[j] else -1] for i in range(20) for j in range(i)]
    expected = S3PLH(n_bits=8, random_state=0).fit(rows, labels)
    found = S3PLH(n_bits=8, random_state=0).fit(rows, labels, pairs=pairs)
    assert found.to_model("m").checksum == expected.to_model("m").checksum


def test_pairs_given_twice_count_once(rows):
    pairs = np.array([[0, 1, 1], [2, 3, -1], [4, 9, 1], [7, 5, -1]])
    expected = S3PLH(n_bits=6, random_state=0).fit(rows, pairs=pairs)
    again = np.concatenate([pairs, pairs[:2, [1, 0, 2]]])
    found = S3PLH(n_bits=6, random_state=0).fit(rows, pairs=again)
    assert found.to_model("m").checksum == expected.to_model("m").checksum


def test_pairs_of_one_kind_are_enough(rows):
    bits = S3PLH(n_bits=6).fit(rows, pairs=[[0, 1, 1], [2, 3, 1]]).project(rows) > 0
    assert (bits.mean(axis=0) > 0.05).all()


def right_share(bits, S):
    """Return which part of the known pairs a bit gets right."""
    h = np.where(bits, 1, -1)
    return (S * np.outer(h, h) > 0).sum() / np.count_nonzero(S)


def test_a_bit_corrects_the_errors_of_the_one_before(rows, labels):
    S = by_labels(labels)
    bits, alone = (
        S3PLH(n_bits=2, step=step, balance=False).fit(rows, labels).project(rows) > 0
        for step in (4.0, 1e-9)
    )
    assert np.array_equal(bits[:, 0], alone[:, 0])
    h = np.where(bits[:, 0], 1, -1)
    wrong = np.where(S * np.outer(h, h) < 0, S, 0)
    assert right_share(bits[:, 1], wrong) > right_share(alone[:, 1], wrong) + 0.02


def test_more_bits_tell_more_pairs_apart(rows, labels):
    bits = codes.unpack(S3PLH(n_bits=12).fit(rows, labels).encode(rows), 12)
    scores = [
        mean_average_precision(*2 * [codes.pack(bits[:, :k])], same_label(labels, labels))
        for k in (2, 4, 8, 12)
    ]
    assert (np.diff(scores) > 0).all()
    assert scores[-1] > 0.75


def test_more_bits_than_dimensions(rows, labels):
    bits = (S3PLH(n_bits=40).fit(rows, labels).project(rows) > 0).astype(float)
    assert ((bits.mean(axis=0) > 0.02) & (bits.mean(axis=0) < 0.98)).all()
    assert len(np.unique(bits, axis=1).T) == 40


def two_classes():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 100)
    X = rng.standard_normal((200, 6)) * [1, 0.9, 0.8, 0.7, 0.6, 0.5]
    X[:, 2] += 30 * y
    return X, y


def test_no_bit_is_a_copy():
    """One bit tells the classes apart, and no pair is left that would ask for another."""
    X, y = two_classes()
    bits = S3PLH(n_bits=6).fit(X, y).project(X) > 0
    assert max(right_share(column, by_labels(y)) for column in bits.T) == 1
    agreement = np.abs(np.corrcoef(bits.T.astype(float)) - np.eye(6)).max()
    assert agreement < 0.9


@pytest.mark.parametrize(
    ("X", "dimension"),
    [(two_classes()[0], 6), (two_classes()[0][:, 2:3], 1), (np.outer(two_classes()[1], [1, 2]), 1)],
    ids=["six", "one", "two places"],
)
def test_refuses_bits_that_could_only_be_copies(X, dimension):
    with pytest.raises(
        InvalidInputError, match=f"n_bits is 64, but after . bits .* dimension {dimension}:"
    ):
        S3PLH(n_bits=64).fit(X, two_classes()[1])


def test_keeps_the_most_frequent_label_sets(rows, labels):
    Y = several_labels(labels)
    sets, sizes = np.unique(Y[Y.any(axis=1)], axis=0, return_counts=True)
    kept = sets[np.argsort(-sizes, kind="stable")[:4]]
    frequent = (Y[:, None] == kept).all(axis=2).any(axis=1)
    assert 0 < frequent.sum() < Y.any(axis=1).sum()
    found = S3PLH(n_bits=8, max_label_sets=4, random_state=0).fit(rows, Y)
    expected = S3PLH(n_bits=8, random_state=0).fit(rows, Y * frequent[:, None])
    assert found.to_model("m").checksum == expected.to_model("m").checksum


def test_max_label_sets_leaves_single_labels_alone(rows, labels):
    found = S3PLH(n_bits=8, max_label_sets=2, random_state=0).fit(rows, labels)
    expected = S3PLH(n_bits=8, random_state=0).fit(rows, labels)
    assert found.to_model("m").checksum == expected.to_model("m").checksum


def test_counts_pairs(labels):
    y = np.where(labels > 1, labels, -1)
    known = LabelPairs.read(np.flatnonzero(y >= 0), Labels.read(y[y >= 0], (y >= 0).sum()), 10)
    S = by_labels(y)
    assert known.n_neighbours == np.count_nonzero(S > 0) // 2
    assert known.n_others == np.count_nonzero(S < 0) // 2
    left, right = np.nonzero(np.triu(np.ones_like(S), 1))
    assert np.array_equal(known.signs(left, right), S[left, right])


def test_refuses_pairs_in_contradiction(rows):
    with pytest.raises(InvalidInputError, match="rows 7 and 3 are given both as neighbours and"):
        S3PLH(n_bits=4).fit(rows, pairs=[[3, 7, 1], [1, 2, 1], [7, 3, -1]])
    assert GivenPairs.read(np.array([[3, 7, 1], [7, 3, 1]]), None) is not None


def test_refuses_rows_alone(rows):
    with pytest.raises(InvalidInputError, match="s3plh learns from labels or pairs; give some"):
        S3PLH(n_bits=8).fit(rows)


def test_labels_that_tell_nothing_beside_pairs(rows):
    """Unlabelled rows add nothing; rows of one class are neighbours, and pairs say who is not."""
    pairs = [[0, 1, 1], [2, 3, -1], [4, 5, -1], [0, 6, 1]]
    alone = S3PLH(n_bits=4).fit(rows, pairs=pairs)
    unlabelled = S3PLH(n_bits=4).fit(rows, np.full(400, -1), pairs=pairs)
    assert np.array_equal(unlabelled.encode(rows), alone.encode(rows))
    one_class = np.where(np.arange(400) < 30, 7, -1)
    hasher = S3PLH(n_bits=4).fit(rows, one_class, pairs=[[2, 3, -1], [50, 60, -1]])
    assert (hasher.n_neighbours_, hasher.n_others_) == (30 * 29 // 2 - 1, 2)
    with pytest.raises(InvalidInputError, match="have the same label"):
        S3PLH(n_bits=4).fit(rows, one_class)
