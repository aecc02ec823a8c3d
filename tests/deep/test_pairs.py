"""DPSH and BGDH learn from pairs: a step against the sum written out, and what pairs change."""

import itertools

import numpy as np
import pytest

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import DPSH
from pg_hashindex.hashers.supervision.labels import Labels
from pg_hashindex.hashers.supervision.pairs import GivenPairs

torch = pytest.importorskip("torch")

from pg_hashindex.hashers.deep.learning import Schedule, Trainer  # noqa: E402
from pg_hashindex.hashers.deep.losses import balanced_loss, dpsh_loss, with_quantization  # noqa: E402
from pg_hashindex.models.hash_network import Architecture, HashNetwork  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_torch_thread")

X = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
#: Rows 0 to 3 are labelled; rows 6 and 7 are known by pairs alone.
Y = np.array([0, 0, 1, 1, -1, -1, -1, -1])
#: The second contradicts the labels, and the last repeats the first.
PAIRS = np.array([[0, 6, 1], [1, 0, -1], [7, 6, -1], [6, 0, 1]])
#: Together: s of each known pair.
KNOWN = {(0, 1): 0, (2, 3): 1, (0, 2): 0, (0, 3): 0, (1, 2): 0, (1, 3): 0, (0, 6): 1, (6, 7): 0}
ETA = 0.3


def trainer(loss=dpsh_loss, held_back=()):
    network = HashNetwork(Architecture(4, 3, (5,)), torch.Generator().manual_seed(1))
    with torch.no_grad():
        network.head.weight.mul_(100)
    schedule = Schedule(1, 8, "sgd", 0.5, 3, supervised_steps=1)
    rng = np.random.default_rng(3)
    pairs = GivenPairs.read(PAIRS, None)
    return Trainer(
        network,
        X,
        Labels.read(Y, 8),
        np.array(held_back, np.intp),
        None,
        schedule,
        with_quantization(loss, ETA),
        rng,
        pairs,
    )


def literal(u, known, weight=lambda s: 1.0):
    """Equation 4 over the known pairs, both orders of each, divided by their number."""
    total = 0.0
    for (i, j), s in known.items():
        theta = u[i] @ u[j] / 2
        total += 2 * weight(s) * (np.log1p(np.exp(theta)) - s * theta)
    rows = sorted(set(itertools.chain(*known)))
    total += ETA * sum(((np.where(u[i] > 0, 1, -1) - u[i]) ** 2).sum() for i in rows)
    return total / (2 * len(known))


def test_a_step_sums_over_the_known_pairs():
    one = trainer()
    u = one.network(torch.from_numpy(X)).detach().double().numpy()
    assert one._supervised_step().item() == pytest.approx(literal(u, KNOWN), rel=1e-5)


def test_the_balanced_loss_gives_neighbours_half_of_the_known_pairs():
    """Two of eight pairs are of neighbours: they weigh 2, and the other six 2/3."""
    one = trainer(balanced_loss)
    u = one.network(torch.from_numpy(X)).detach().double().numpy()
    expected = literal(u, KNOWN, lambda s: 2.0 if s else 2 / 3)
    assert one._supervised_step().item() == pytest.approx(expected, rel=1e-5)


def test_labels_that_are_held_back_do_not_count_beside_pairs():
    """Row 0 still has its two given pairs."""
    one = trainer(held_back=(0,))
    u = one.network(torch.from_numpy(X)).detach().double().numpy()
    known = {pair: s for pair, s in KNOWN.items() if 0 not in pair or pair in ((0, 1), (0, 6))}
    assert one._supervised_step().item() == pytest.approx(literal(u, known), rel=1e-5)


def clusters(n=200):
    rng = np.random.default_rng(1)
    classes = np.arange(n) % 4
    centres = 2 * rng.standard_normal((4, 10))
    return centres[classes] + rng.standard_normal((n, 10)), classes


def dpsh(**params):
    given = {"n_bits": 8, "hidden": (16,), "rounds": 20, "learning_rate": 1e-2, "random_state": 0}
    return DPSH(**{**given, "device": "cpu", **params})


def precision(hasher, X, classes):
    """Share of pairs of one class among the pairs with equal codes or one differing bit."""
    codes = hasher.project(X) > 0
    near = (codes[:, None] != codes).sum(axis=2) <= 1
    np.fill_diagonal(near, False)
    return float((classes[:, None] == classes)[near].mean())


def test_pairs_alone_teach_classes():
    """As labels do, from some pairs of 80 rows; chance is 1 in 4."""
    rows, classes = clusters()
    rng = np.random.default_rng(2)
    ends = np.array([pair for pair in rng.integers(80, size=(700, 2)) if pair[0] != pair[1]])
    signs = np.where(classes[ends[:, 0]] == classes[ends[:, 1]], 1, -1)
    pairs = np.column_stack([ends, signs])
    hasher = dpsh().fit(rows, pairs=pairs)
    assert "held-back MAP" not in hasher.training_["losses"]
    assert precision(hasher, rows[80:], classes[80:]) > 0.8
    with_labels = dpsh().fit(rows, np.full(200, -1), pairs=pairs)
    assert np.array_equal(with_labels.project(rows), hasher.project(rows))


def test_pairs_that_say_what_labels_say_change_only_the_batches():
    rows, classes = clusters()
    hasher = dpsh(validation=0.2).fit(rows, classes, pairs=[[0, 4, 1], [0, 1, -1]])
    assert precision(hasher, rows, classes) > 0.8


@pytest.mark.parametrize(
    ("y", "pairs", "message"),
    [
        (None, [[0, 1, 1], [2, 3, 1]], "all 2 pairs are of neighbours, and no labels"),
        ([0, 0, *[-1] * 6], [[0, 3, 1]], "all 1 pairs are of neighbours, and no labels"),
        (None, [[0, 1, 1], [1, 0, -1]], "0 and 1|1 and 0 are given both as neighbours"),
        (None, [[0, 8, 1]], "0 to 7 here; number 0 of them has .0, 8"),
        (None, [[3, 3, 1]], "must name different rows"),
        ([0, *[-1] * 7], None, "all 1 labelled rows have the same label"),
    ],
)
def test_refuses_uninformative_supervision(y, pairs, message):
    with pytest.raises(InvalidInputError, match=message):
        dpsh().fit(X, y, pairs=pairs)
