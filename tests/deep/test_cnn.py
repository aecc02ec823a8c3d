import copy
import functools

import numpy as np
import pytest

from pg_hashindex.errors import InvalidInputError

torch = pytest.importorskip("torch")

from pg_hashindex.models.cnn import CNNF, Pixels  # noqa: E402

GREY = (6, 5, 1)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


@functools.cache
def built(image_shape, **options):
    return CNNF(image_shape, **options).eval()


def small(image_shape=GREY, input_size=39, **options):
    # Copied, since most of the time goes into drawing the weights.
    return copy.deepcopy(built(image_shape, input_size=input_size, **options))


def images(n, image_shape=GREY, seed=0):
    return torch.rand(n, int(np.prod(image_shape)), generator=seeded(seed))


@pytest.fixture(scope="module")
def full_size():
    """Return CNN-F of the size that the paper uses."""
    return CNNF((28, 28, 1))


def test_stages_have_the_shapes_of_the_table(full_size):
    shapes = {}

    def note(name):
        return lambda module, taken, given: shapes.update({name: tuple(given.shape[1:])})

    hooks = [part.register_forward_hook(note(name)) for name, part in full_size.named_children()]
    features = full_size(images(2, (28, 28, 1)))
    for hook in hooks:
        hook.remove()
    assert list(shapes.items()) == [
        ("pixels", (3, 224, 224)),
        ("conv1", (64, 54, 54)),
        ("norm1", (64, 54, 54)),
        ("pool1", (64, 27, 27)),
        ("conv2", (256, 27, 27)),
        ("norm2", (256, 27, 27)),
        ("pool2", (256, 13, 13)),
        ("conv3", (256, 13, 13)),
        ("conv4", (256, 13, 13)),
        ("conv5", (256, 13, 13)),
        ("pool5", (256, 6, 6)),
        ("full6", (4096,)),
        ("full7", (4096,)),
    ]
    assert features.shape == (2, 4096) == (2, full_size.output_dimension)
    assert (features >= 0).all()  # full7 has a ReLU too


def test_it_has_the_parameters_of_the_table(full_size):
    by_hand = (
        64 * (3 * 11 * 11 + 1)
        + 256 * (64 * 5 * 5 + 1)
        + 3 * 256 * (256 * 3 * 3 + 1)
        + 4096 * (256 * 6 * 6 + 1)
        + 4096 * (4096 + 1)
    )
    assert sum(parameter.numel() for parameter in full_size.parameters()) == by_hand == 56_737_536


def test_smaller_inputs_make_full6_smaller():
    assert small(input_size=64).full6.weight.shape == (4096, 256)
    assert small(input_size=39)(images(3)).shape == (3, 4096)
    assert small(input_size=39)(images(0)).shape == (0, 4096)


def test_one_step_lowers_the_pairwise_loss():
    """The loss of DPSH, written out, over all pairs of 32 images of 4 kinds."""
    network = CNNF((28, 28, 1), input_size=64, dropout=0.0)
    labels = torch.arange(32) % 4
    kinds = torch.rand(4, 784, generator=seeded(1))
    X = kinds[labels] + 0.3 * torch.rand(32, 784, generator=seeded(2))
    network.pixels.fit_statistics(X.numpy())
    head = torch.nn.Linear(4096, 12)
    with torch.no_grad():
        head.weight.normal_(0, 0.01, generator=seeded(3))
        head.bias.zero_()
    first, second = torch.triu_indices(32, 32, offset=1)
    s = (labels[first] == labels[second]).float()

    def loss():
        u = head(network(X))
        theta = (u[first] * u[second]).sum(dim=1) / 2
        return -(s * theta - torch.log(1 + torch.exp(theta))).sum()

    optimizer = torch.optim.SGD([*network.parameters(), *head.parameters()], lr=1e-4)
    before = loss()
    before.backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in network.parameters())
    optimizer.step()
    with torch.no_grad():
        assert loss() < before - 1


def test_normalization_is_krizhevskys():
    a = 100 * torch.rand(1, 8, 2, 1, generator=seeded(0)).double().numpy()
    expected = np.empty_like(a)
    for i in range(8):
        around = a[:, max(0, i - 2) : i + 3]
        expected[:, i] = a[:, i] / (2 + 1e-4 * (around**2).sum(axis=1)) ** 0.75
    found = small().norm1(torch.from_numpy(a)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_pixels_stand_line_by_line_with_channels_side_by_side():
    row = torch.arange(12.0)[None]
    found = Pixels((2, 2, 3), 2)(row)[0]
    assert found[0].tolist() == [[0, 3], [6, 9]]
    assert found[2].tolist() == [[2, 5], [8, 11]]


def test_images_are_stretched_bilinearly():
    assert Pixels((1, 2, 1), 4)(torch.tensor([[0.0, 1.0]]))[0, 0, 3].tolist() == [0, 0.25, 0.75, 1]
    # Half as wide: a triangle of 2 pixels each side weighs the nearest three as 3, 3 and 1.
    row = torch.tensor([[7.0, 0.0, 7.0, 0.0]])
    assert Pixels((1, 4, 1), 2)(row)[0, 0, 0].tolist() == pytest.approx([4, 3])


@pytest.mark.parametrize("size", [39, 7])
def test_a_constant_image_stays_constant(size):
    found = Pixels((20, 9, 3), size)(torch.tensor([[0.25, 0.5, 0.75] * 180]))
    for channel, value in enumerate((0.25, 0.5, 0.75)):
        np.testing.assert_allclose(found[0, channel], value, rtol=1e-6)


def test_one_channel_is_three_equal_ones():
    X = images(2)
    assert torch.equal(small()(X), small((6, 5, 3))(X.repeat_interleave(3, dim=1)))


def test_mean_and_scale_are_taken_from_rows():
    X = np.random.default_rng(0).random((50, 90)).astype(np.float32)
    network = small((6, 5, 3))
    network.pixels.fit_statistics(X)
    found = network.pixels.mean[:, 2, 2].numpy()
    np.testing.assert_allclose(found, X.reshape(-1, 3).mean(axis=0), rtol=1e-6)
    deviation = np.sqrt(X.reshape(-1, 3).var(axis=0).mean())
    np.testing.assert_allclose(network.pixels.scale.numpy().ravel(), deviation, rtol=1e-6)
    of_units = network(torch.from_numpy(X))
    network.pixels.fit_statistics(X * 255)
    np.testing.assert_allclose(
        network(torch.from_numpy(X * 255)).detach(), of_units.detach(), rtol=1e-3, atol=1e-4
    )


def test_mean_and_scale_are_taken_in_blocks(monkeypatch):
    monkeypatch.setattr("pg_hashindex.models.cnn._BLOCK_PIXELS", 70)
    X = images(9).numpy()
    pixels = Pixels(GREY, 4)
    pixels.fit_statistics(X)
    np.testing.assert_allclose(pixels.mean.numpy(), X.mean(), rtol=1e-6)
    np.testing.assert_allclose(pixels.scale.numpy(), X.std(), rtol=1e-6)
    pixels.fit_statistics(np.full((3, 30), 0.5, dtype=np.float32))
    assert pixels(torch.full((1, 30), 0.5)).abs().max() == 0


def test_a_seed_gives_the_same_weights():
    one, other = small(), small()
    state = torch.get_rng_state()
    for network, seed in ((one, 3), (other, 4)):
        network.reset_parameters(seeded(seed))
    assert not torch.equal(one.conv1.weight, other.conv1.weight)
    other.reset_parameters(seeded(3))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    small()
    assert torch.equal(torch.get_rng_state(), state)


def test_filters_are_normal_and_have_no_mean():
    one = small()
    # He et al.: variance 2 / (64 * 5 * 5).
    assert one.conv2.weight.var().item() == pytest.approx(2 / 1600, rel=0.02)
    assert one.conv2.weight.mean(dim=(1, 2, 3)).abs().max() < 1e-8
    assert one.full7.weight.mean(dim=1).abs().max() < 1e-8
    assert one.conv2.bias.abs().max() == 0


def test_dropout_draws_from_its_generator_while_training():
    network, X = small(dropout=0.25), images(2)
    assert torch.equal(network(X), network(X))
    network.train()
    found = []
    for seed in (5, 5, 6):
        network.generator = seeded(seed)
        found.append(network(X))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    features = network._dropped(torch.ones(10, 4096))
    assert features.unique().tolist() == pytest.approx([0, 4 / 3])
    assert (features == 0).float().mean().item() == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"image_shape": (6, 5)}, r"image_shape \(6, 5\) must be height, width and channels"),
        ({"image_shape": (6, 0, 1)}, r"image_shape \(6, 0, 1\) must be"),
        ({"image_shape": (6, 5, 4)}, "ends in 4 channels; images have 1 or 3"),
        ({"input_size": 38}, "input_size 38 leaves nothing .* at least 39"),
        ({"dropout": 1.0}, r"dropout 1\.0 must be"),
        ({"dropout": -0.1}, r"dropout -0\.1 must be"),
    ],
)
def test_parameters_out_of_range_are_refused(parameters, message):
    with pytest.raises(InvalidInputError, match=message):
        CNNF(**{"image_shape": GREY, "input_size": 39, **parameters})


def test_rows_of_another_shape_are_refused():
    network = small((6, 5, 3))
    fit = network.pixels.fit_statistics
    for refuse in (lambda: network(images(2)), lambda: fit(images(2).numpy())):
        with pytest.raises(InvalidInputError, match=r"\(2, 30\), must be \(n, 90\).*6 x 5 pixels"):
            refuse()
    with pytest.raises(InvalidInputError, match="no rows"):
        network.pixels.fit_statistics(np.empty((0, 90)))
