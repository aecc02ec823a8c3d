import numpy as np
import pytest
import scipy.sparse

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.models.model import Model
from pg_hashindex.models.network import Network

torch = pytest.importorskip("torch")

from pg_hashindex.hashers.deep.export import to_network  # noqa: E402
from pg_hashindex.models import hash_network  # noqa: E402
from pg_hashindex.models.hash_network import Architecture, HashNetwork  # noqa: E402

DIMENSION, BITS, ROWS = 6, 4, 25

ARCHITECTURES = {
    "dpsh": Architecture(DIMENSION, BITS, (7, 5)),
    "inductive": Architecture(DIMENSION, BITS, (7, 5), embedding_size=3, embedding_hidden=(8,)),
    "inductive, xi of one layer": Architecture(DIMENSION, BITS, (7,), embedding_size=3),
    "transductive": Architecture(DIMENSION, BITS, (7,), embedding_size=3, n_embedded=ROWS),
}
SMALL_IMAGES = Architecture(
    64, BITS, (), embedding_size=3, embedding_hidden=(9,), image_shape=(8, 8, 1), input_size=39
)
every_architecture = pytest.mark.parametrize(
    "architecture", [pytest.param(value, id=name) for name, value in ARCHITECTURES.items()]
)


def fresh(architecture, seed):
    return HashNetwork(architecture, torch.Generator().manual_seed(seed))


def build(architecture):
    """Return a network as training may leave it."""
    network = fresh(architecture, 0)
    network.set_statistics(np.linspace(-1, 2, architecture.dimension), 2.5)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        if architecture.n_embedded:
            network.embeddings.weight.normal_(0, 0.3, generator=generator)
        for name, parameter in network.named_parameters():
            # As large as what they are added to; at first they are nearly zero.
            if name.endswith("bias") or name.startswith("head"):
                parameter.normal_(0, 0.3, generator=generator)
    return network


def rows_of(architecture, n=ROWS):
    drawn = np.random.default_rng(1).standard_normal((n, architecture.dimension))
    return drawn.astype(np.float32)


def literal(network, X):
    """Equation (3) by one matrix after another, in float64."""
    a = network.architecture
    arrays = {
        name: value.numpy().astype(np.float64) for name, value in network.state_dict().items()
    }

    def linear(x, name):
        return x @ arrays[f"{name}.weight"].T + arrays[f"{name}.bias"]

    x = (X.astype(np.float64) - np.linspace(-1, 2, a.dimension)) / 2.5
    features = x
    # Each ReLU has a number, too.
    for level in range(len(a.hidden)):
        features = np.maximum(linear(features, f"phi.{2 * level}"), 0)
    if a.embedding_size:
        e = x
        for level in range(len(a.embedding_hidden)):
            e = np.maximum(linear(e, f"xi.{2 * level}"), 0)
        e = linear(e, f"xi.{2 * len(a.embedding_hidden)}")
        if a.n_embedded:
            e = e + arrays["embeddings.weight"]
        features = np.hstack([features, np.maximum(linear(e, "psi"), 0)])
    return linear(features, "head")


@every_architecture
def test_projections_are_those_of_equation_3(architecture):
    network, X = build(architecture), rows_of(architecture)
    expected = literal(network, X)
    found = network(torch.from_numpy(X), torch.arange(ROWS)).detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    # Each bit depends on the row.
    assert (expected.std(axis=0) > 0.01).all()


@every_architecture
def test_blocks_do_not_matter(architecture, monkeypatch):
    network, X = build(architecture), rows_of(architecture)
    whole = network.project(X)
    monkeypatch.setattr(hash_network, "_ROWS", 7)
    np.testing.assert_allclose(network.project(X), whole, rtol=0, atol=1e-6)
    assert network.project(X[:0]).shape == (0, BITS)
    assert network.training


def test_rows_with_embeddings_of_their_own_may_come_in_any_order():
    architecture = ARCHITECTURES["transductive"]
    network, X = build(architecture), rows_of(architecture)
    order = np.random.default_rng(0).permutation(ROWS)[:9]
    found = network(torch.from_numpy(X[order]), torch.from_numpy(order)).detach().numpy()
    np.testing.assert_allclose(found, literal(network, X)[order], rtol=0, atol=1e-5)


@every_architecture
def test_a_seed_gives_the_same_weights(architecture):
    state = torch.get_rng_state()
    one, same, other = (fresh(architecture, seed).state_dict() for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(one[name], same[name]) for name in one)
    drawn = [name for name in one if name.endswith("weight") or name == "head.bias"]
    drawn = [name for name in drawn if not name.startswith("embeddings")]
    assert not any(torch.equal(one[name], other[name]) for name in drawn)


def test_weights_start_of_their_variances():
    network = HashNetwork(
        Architecture(400, 300, (500,), embedding_size=200, embedding_hidden=(300,)),
        torch.Generator().manual_seed(0),
    )
    variances = {
        network.phi[0].weight: 2 / 400,
        network.xi[0].weight: 2 / 400,
        network.xi[2].weight: 1 / 300,
        network.psi.weight: 2 / 200,
        network.head.weight: hash_network._HEAD_DEVIATION**2,
    }
    for weights, variance in variances.items():
        assert weights.var().item() == pytest.approx(variance, rel=0.03)
    assert network.head.bias.std().item() == pytest.approx(hash_network._HEAD_DEVIATION, rel=0.2)
    for layer in (network.phi[0], network.xi[0], network.xi[2], network.psi):
        assert not layer.bias.any()


@pytest.mark.parametrize("name", ["inductive", "transductive"])
def test_psi_begins_from_embeddings_of_unit_variance(name, monkeypatch):
    architecture = ARCHITECTURES[name]
    network, X = build(architecture), rows_of(architecture)
    before = {key: value.clone() for key, value in network.state_dict().items()}

    def embeddings():
        return network.embed(torch.from_numpy(X), torch.arange(ROWS)).detach().numpy()

    expected = before["psi.weight"] / embeddings().std(axis=0).mean()
    network.scale_embeddings(X)
    np.testing.assert_allclose(network.psi.weight.detach(), expected, rtol=1e-5)
    changed = {k for k, value in network.state_dict().items() if not torch.equal(value, before[k])}
    assert changed == {"psi.weight"}
    # Some rows stand for all: here the first, the middle and the last.
    monkeypatch.setattr(hash_network, "_ROWS", 3)
    network.load_state_dict(before)
    network.scale_embeddings(X)
    expected = before["psi.weight"] / embeddings()[[0, 12, 24]].std(axis=0).mean()
    np.testing.assert_allclose(network.psi.weight.detach(), expected, rtol=1e-5)


def test_new_rows_get_the_mean_of_vectors_of_rows():
    """Row 0 those of rows 2 and 3 by weights of 1/4 and 3/4; row 1 that of row 7."""
    architecture = ARCHITECTURES["transductive"]
    network, X = build(architecture), rows_of(architecture)
    shares = np.zeros((2, ROWS))
    shares[0, [2, 3]], shares[1, 7] = (0.25, 0.75), 1
    found = network.place(X[:2], scipy.sparse.csr_array(shares))
    one, same = build(architecture), build(architecture)
    with torch.no_grad():
        own = one.embeddings.weight
        own[:2] = torch.stack([own[2] / 4 + 3 * own[3] / 4, own[7]])
    np.testing.assert_allclose(found, literal(one, X)[:2], rtol=0, atol=1e-5)
    assert torch.equal(network.embeddings.weight, same.embeddings.weight)


def test_equal_embeddings_have_no_size():
    network = build(ARCHITECTURES["transductive"])
    with torch.no_grad():
        network.embeddings.weight.fill_(0.5)
        network.xi[-1].weight.zero_()
    before = network.psi.weight.clone()
    network.scale_embeddings(rows_of(ARCHITECTURES["transductive"]))
    assert torch.equal(network.psi.weight, before)


@pytest.mark.parametrize("architecture", [ARCHITECTURES["inductive"], SMALL_IMAGES])
def test_a_model_keeps_the_network(architecture):
    network = build(architecture)
    if architecture.image_shape:
        network.phi.pixels.mean.fill_(0.4)
        network.phi.pixels.scale.fill_(0.2)
    X = np.random.default_rng(2).random((5, architecture.dimension), dtype=np.float32)
    # CNN-F sets half of its features to 0 while it trains, and only then.
    assert network.training
    expected = network.project(X)
    assert len(np.unique(expected.round(3), axis=0)) == 5
    kept = to_network(network)
    with torch.no_grad():
        network.head.bias += 1
    model = Model("m", "bgdh", architecture.dimension, (), network=kept)
    again = Model.from_bytes(model.to_bytes())
    assert again.checksum == model.checksum
    np.testing.assert_array_equal(again.project(X), expected)


def test_each_of_two_models_has_its_own_network():
    first, second = build(ARCHITECTURES["inductive"]), build(ARCHITECTURES["dpsh"])
    models = [Model("m", "bgdh", DIMENSION, (), network=to_network(n)) for n in (first, second)]
    rows = rows_of(ARCHITECTURES["dpsh"])
    for _ in range(2):
        for network, model in zip((first, second), models, strict=True):
            np.testing.assert_array_equal(model.project(rows), network.project(rows))


def kept(**changes):
    """Return a network with another configuration, or with other arrays."""
    network = to_network(build(ARCHITECTURES["inductive"]))
    given = {
        "kind": "torch",
        "config": dict(network.config) | changes.get("config", {}),
        "arrays": {
            name: array
            for name, array in (dict(network.arrays) | changes.get("arrays", {})).items()
            if array is not None
        },
        "n_bits": changes.get("n_bits", BITS),
    }
    return Network(**given)


X = np.ones((2, DIMENSION), np.float32)


@pytest.mark.parametrize(
    "config",
    [
        {"loader": "os.system"},
        {"__class__": "os.system"},
        {"hidden": None},
        {"hidden": []},
        {"hidden": [7]},
        {"hidden": [7, 5, 5]},
        {"hidden": [0, 5]},
        {"hidden": [7, -5]},
        {"hidden": [-7, 5]},
        {"hidden": [7.5, 5]},
        {"hidden": [[7], 5]},
        {"hidden": [10**30, 5]},
        {"hidden": [2**40, 2**40]},
        {"dimension": 0},
        {"dimension": -6},
        {"dimension": 5},
        {"n_bits": 5},
        {"embedding_size": 0},
        {"embedding_size": -3},
        {"embedding_size": 2.5},
        {"embedding_hidden": [9]},
        {"embedding_hidden": 8},
        {"n_embedded": 2},
        {"image_shape": [2, 3]},
        {"image_shape": [1, 6, 1], "input_size": 2},
        {"image_shape": [1, 6, 1], "input_size": "64"},
        {"image_shape": "ab1"},
    ],
)
def test_invalid_configurations(config):
    with pytest.raises(InvalidInputError, match="the network of this model cannot be built: ."):
        kept(config=config).project(X)


@pytest.mark.parametrize("name", list(kept().config))
def test_a_configuration_holds_sizes_and_no_names(name):
    for value in ("os.system", {"path": "weights.pt"}, ["os.system"]):
        with pytest.raises(InvalidInputError, match="cannot be built"):
            kept(config={name: value}).project(X)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"psi.bias": None}, "psi.bias"),
        ({"mean": None}, "mean"),
        ({"extra": np.ones(3)}, "extra"),
        # As many numbers in another shape are other weights.
        ({"phi.0.weight": np.ones((6, 7))}, "phi.0.weight"),
        ({"phi.0.weight": np.ones(42)}, "phi.0.weight"),
        ({"scale": np.ones(2)}, "scale"),
    ],
)
def test_arrays_that_do_not_fit(arrays, message):
    with pytest.raises(InvalidInputError, match=f"(?s)cannot be built: .*{message}"):
        kept(arrays=arrays).project(X)


def test_sizes_that_do_not_fit():
    with pytest.raises(InvalidInputError, match="it gives 4 numbers for 5 bits"):
        kept(n_bits=5).project(X)
    with pytest.raises(InvalidInputError, match="takes 6 dimensions, got 3"):
        Model("m", "bgdh", 3, (), network=kept()).encode(np.ones((2, 3)))
