import numpy as np
import pytest

torch = pytest.importorskip("torch")

from pg_hashindex.hashers.deep.losses import balanced_loss, dpsh_loss, graph_loss, quantization  # noqa: E402

ROWS, BITS, ETA = 7, 5, 0.1


@pytest.fixture
def u():
    return np.random.default_rng(0).standard_normal((ROWS, BITS))


@pytest.fixture
def similar():
    """Return pairs at random, of no symmetry, with a diagonal that must not count."""
    return np.random.default_rng(1).random((ROWS, ROWS)) < 0.4


def differentiable(u):
    return torch.tensor(u, requires_grad=True)


def ordered_pairs():
    return [(i, j) for i in range(ROWS) for j in range(ROWS) if i != j]


def of_a_pair(u, similar, i, j):
    theta = u[i] @ u[j] / 2
    return -(similar[i, j] * theta - np.log(1 + np.exp(theta)))


def test_values_are_those_of_equation_4(u, similar):
    expected = sum(of_a_pair(u, similar, i, j) for i, j in ordered_pairs())
    found = dpsh_loss(torch.tensor(u), torch.tensor(similar))
    assert found.item() == pytest.approx(expected, rel=1e-12)
    codes = np.where(u > 0, 1, -1)
    assert quantization(torch.tensor(u)).item() == pytest.approx(((codes - u) ** 2).sum())


@pytest.mark.parametrize("loss", [dpsh_loss, balanced_loss])
def test_scaling_theta_is_scaling_both_projections_by_the_root(u, similar, loss):
    scaled = loss(torch.tensor(u), torch.tensor(similar), scale=0.25)
    assert scaled.item() == pytest.approx(loss(torch.tensor(u / 2), torch.tensor(similar)).item())


def test_the_gradient_is_equation_10(u, similar):
    def a(i, j):
        return 1 / (1 + np.exp(-(u[i] @ u[j]) / 2))

    b, s = np.where(u > 0, 1.0, -1.0), similar.astype(float)
    expected = np.zeros_like(u)
    for i, j in ordered_pairs():
        expected[i] += (a(i, j) - s[i, j]) * u[j] / 2
        expected[i] += (a(j, i) - s[j, i]) * u[j] / 2
    expected += 2 * ETA * (u - b)

    given = differentiable(u)
    (dpsh_loss(given, torch.tensor(similar)) + ETA * quantization(given)).backward()
    np.testing.assert_allclose(given.grad.numpy(), expected, rtol=1e-10, atol=1e-12)


def test_a_projection_of_exactly_0_is_drawn_to_its_bit():
    """The bit is 0, which stands for -1."""
    given = torch.tensor([[0.0, 2.0]], requires_grad=True)
    quantization(given).backward()
    assert given.grad.tolist() == [[2, 2]]


@pytest.mark.parametrize("loss", [dpsh_loss, balanced_loss])
def test_projections_far_out_are_no_trouble(loss):
    """Theta is 10,000 or -10,000, of which exp() is infinite or 0 in float32 and float64."""
    far = 2e4**0.5
    u = torch.tensor([[far], [-far], [far]], requires_grad=True)
    # Rows 0 and 1 are labelled similar, and are not; rows 0 and 2 the other way round.
    similar = torch.tensor([[True, True, False], [True, True, False], [False, False, True]])
    found = loss(u, similar)
    assert found.item() == pytest.approx(2e4 + 2e4 if loss is dpsh_loss else 3e4 + 1.5e4)
    found.backward()
    assert torch.isfinite(u.grad).all()
    # Towards each other, and apart.
    assert u.grad[0] == pytest.approx(2 * far if loss is dpsh_loss else 2.25 * far)
    assert u.grad[1] < 0 < u.grad[2]


def test_similar_pairs_weigh_half_of_a_balanced_loss(u, similar):
    pairs = ordered_pairs()
    n_similar = sum(similar[i, j] for i, j in pairs)
    expected = 0.0
    for i, j in pairs:
        alike = n_similar if similar[i, j] else len(pairs) - n_similar
        expected += len(pairs) / 2 / alike * of_a_pair(u, similar, i, j)
    given = differentiable(u)
    found = balanced_loss(given, torch.tensor(similar))
    assert found.item() == pytest.approx(expected, rel=1e-12)
    assert found.item() != pytest.approx(dpsh_loss(given, torch.tensor(similar)).item(), rel=0.01)
    found.backward()
    assert given.grad.abs().min() > 0


@pytest.mark.parametrize("kind", [True, False])
def test_pairs_of_one_kind_have_nothing_to_balance(u, kind):
    # The diagonal makes no second kind of pair.
    similar = torch.full((ROWS, ROWS), kind) ^ torch.eye(ROWS, dtype=torch.bool)
    given = torch.tensor(u)
    assert balanced_loss(given, similar).item() == dpsh_loss(given, similar).item()
    one = balanced_loss(given[:1], torch.tensor([[kind]]))
    assert one.item() == 0


@pytest.mark.parametrize(
    ("kind", "of_one"),
    [
        ("logistic", lambda score, sign: np.log(1 + np.exp(-sign * score))),
        ("square", lambda score, sign: (sign - score) ** 2),
    ],
)
def test_graph_losses_are_those_of_equation_2(kind, of_one):
    scores = np.random.default_rng(2).standard_normal(20)
    signs = np.random.default_rng(3).choice([-1.0, 1.0], 20)
    found = graph_loss(torch.tensor(scores), torch.tensor(signs), kind)
    expected = sum(map(of_one, scores, signs)) / 20
    assert found.item() == pytest.approx(expected, rel=1e-12)


def test_scores_far_out_are_no_trouble():
    scores = torch.tensor([1e4, 1e4, -1e4, -1e4], requires_grad=True)
    found = graph_loss(scores, torch.tensor([1.0, -1, 1, -1]), "logistic")
    found.backward()
    assert found.item() == pytest.approx(5000)
    assert scores.grad.tolist() == [0, 0.25, -0.25, 0]
