"""Networks: what they are made of, how rows are known, and models that end in one."""

import json
import sys
import types

import numpy as np
import pytest

import pg_hashindex.models
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers.base import Hasher
from pg_hashindex.models.fingerprints import fingerprints
from pg_hashindex.models.layers import normalize, shift
from pg_hashindex.models.model import Model
from pg_hashindex.models.network import Network, known_rows

N_BITS = 10


@pytest.fixture(scope="module")
def vectors():
    return np.random.default_rng(5).standard_normal((60, 7)).astype(np.float32)


@pytest.fixture(scope="module")
def codes():
    bits = np.random.default_rng(6).random((60, N_BITS)) > 0.5
    return np.packbits(bits, axis=1)


@pytest.fixture(scope="module")
def known(vectors, codes):
    return known_rows(vectors, codes, N_BITS)


def torch_network(**changes):
    given = {
        "kind": "torch",
        "config": {"layers": [4, 2], "dropout": 0.5, "name": "mlp é"},
        "arrays": {
            "b": np.arange(6, dtype=np.float32).reshape(2, 3),
            "a.steps": np.array(3, dtype=np.int64),
            "mask": np.array([True, False, True]),
        },
        "n_bits": 4,
    }
    return Network(**given | changes)


def split_mix(number):
    """SplitMix64, in Python's integers."""
    z = number * 0x9E3779B97F4A7C15 % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return (z ^ (z >> 31)) | 1


def test_fingerprints_are_those_of_the_formula(vectors):
    for row, found in zip(vectors[:5], fingerprints(vectors[:5]), strict=True):
        words = [int(word) for word in row.view(np.uint32)]
        first, second = (
            sum(split_mix(2 * i + which) * word for i, word in enumerate(words)) % 2**64 >> 32
            for which in (1, 2)
        )
        assert int(found) == first << 32 | second


def test_fingerprints_never_change():
    """Stored models hold them."""
    rows = np.array([[0, 0, 0], [1, -2, 0.5]], dtype=np.float32)
    assert fingerprints(rows).tolist() == [0, 14711374538575317075]


def test_fingerprints_tell_rows_of_few_values_apart():
    """The words of 0.0 and 1.0 differ in high bits alone, which a plain sum would lose."""
    every = (np.arange(2**16)[:, None] >> np.arange(16) & 1).astype(np.float32)
    assert len(np.unique(fingerprints(every))) == 2**16
    assert len(np.unique(fingerprints(every * 2.0**100))) == 2**16


def test_equal_vectors_are_known_whatever_their_type(known, vectors):
    for same in (vectors.astype(np.float64), np.asfortranarray(vectors), vectors.tolist()):
        assert known.places(np.array(same))[1].all()
    half = vectors.astype(np.float16)
    halves = known_rows(half, np.zeros((60, 2), np.uint8), N_BITS)
    assert halves.places(half.astype(float))[1].all()
    zeros = np.array([[0.0, -0.0]])
    assert known_rows(zeros, np.zeros((1, 1), np.uint8), 3).places(-zeros)[1].all()


def test_known_rows_have_their_codes_and_others_none(known, vectors, codes):
    order = np.random.default_rng(1).permutation(60)
    bits = np.unpackbits(codes[order], axis=1, count=N_BITS)
    np.testing.assert_array_equal(known.project(vectors[order]), 2.0 * bits - 1)
    assert known.project(vectors).dtype == np.float32
    mixed = vectors[:6].copy()
    mixed[[2, 5], 3] = np.nextafter(mixed[[2, 5], 3], 9, dtype=np.float32)
    assert known.places(mixed)[1].tolist() == [True, True, False, True, True, False]
    assert known.places(np.empty((0, 7)))[1].shape == (0,)
    with pytest.raises(InvalidInputError, match=r"row 2 is not one of the 60 rows .* train it"):
        known.project(mixed)


def test_blocks_give_the_same_and_the_first_of_equal_rows_counts(known, vectors, codes):
    def blocks(rows):
        return (rows[start : start + 7] for start in range(0, len(rows), 7))

    assert known_rows(blocks(vectors), codes, N_BITS).checksum == known.checksum
    twice = known_rows(
        blocks(np.concatenate([vectors, vectors])), np.concatenate([codes, codes[::-1]]), N_BITS
    )
    assert twice.checksum == known.checksum


@pytest.mark.parametrize(
    ("rows", "n_codes", "message"),
    [
        (np.ones((3, 2)), 2, "3 rows and 2 codes"),
        ([], 0, "arrays? .* is empty|empty"),
        (np.array([[1.0, np.nan]]), 1, "dimension 1 is nan"),
    ],
)
def test_rows_that_cannot_be_known(rows, n_codes, message):
    with pytest.raises(InvalidInputError, match=message):
        known_rows(rows, np.zeros((n_codes, 1), np.uint8), 8)


FINGERPRINTS = np.array([3, 5, 9], dtype=np.uint64)
CODES = np.zeros((3, 2), np.uint8)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "other"}, "kind 'other' is unknown; known are rows, torch"),
        ({"n_bits": 0}, "n_bits of a network must be 1 to 16000, got 0"),
        ({"n_bits": 16_001}, "got 16001"),
        ({"n_bits": 4.0}, "got 4.0"),
        ({"config": {"x": float("nan")}}, "must be JSON"),
        ({"config": {"x": np.ones(2)}}, "must be JSON"),
        ({"config": {"x": "a\x00"}}, "NUL"),
        ({"arrays": {}}, "got 0"),
        ({"arrays": {"": CODES}}, "cannot name an array"),
        ({"arrays": {"a\n": CODES}}, "cannot name an array"),
        ({"arrays": {3: CODES}}, "cannot name an array"),
        ({"arrays": {"a": np.array([1.0, np.inf])}}, "array 'a' .* not all finite"),
        ({"arrays": {"a": np.empty((2, 0))}}, r"array 'a' .* is empty: \(2, 0\)"),
        ({"arrays": {"a": np.array([{}])}}, "of object, not of numbers"),
        ({"arrays": {"a": np.array(["x"])}}, "not of numbers"),
        ({"arrays": {"a": np.array([1j])}}, "not of numbers"),
        ({"kind": "rows"}, "takes no config"),
        ({"kind": "rows", "config": {}}, "has the arrays codes and fingerprints, got a.steps, b"),
    ],
)
def test_networks_that_may_not_be(changes, message):
    with pytest.raises(InvalidInputError, match=message):
        torch_network(**changes)


@pytest.mark.parametrize(
    ("fingerprints", "codes", "n_bits", "message"),
    [
        (FINGERPRINTS[::-1], CODES, 16, "rising and distinct"),
        (FINGERPRINTS[[0, 0, 1]], CODES, 16, "rising and distinct"),
        (FINGERPRINTS.astype(np.int64), CODES, 16, "must be uint64"),
        (FINGERPRINTS[:, None], CODES, 16, "must be uint64"),
        (FINGERPRINTS, CODES[:2], 16, r"must be uint8 \(3, 2\), got uint8 \(2, 2\)"),
        (FINGERPRINTS, CODES, 17, r"must be uint8 \(3, 3\)"),
        (FINGERPRINTS, CODES.astype(np.int16), 16, "must be uint8"),
        (FINGERPRINTS, CODES + np.uint8(1), 15, "last 1 bits of codes must be 0"),
    ],
)
def test_known_rows_that_may_not_be(fingerprints, codes, n_bits, message):
    with pytest.raises(InvalidInputError, match=message):
        Network("rows", {}, {"fingerprints": fingerprints, "codes": codes}, n_bits)


def tree_network(config=None, n_bits=2, **changes):
    """Two bits of three trees of depth 2."""
    rng = np.random.default_rng(0)
    arrays = {
        "features": rng.integers(4, size=(2, 3, 3)).astype(np.int32),
        "thresholds": rng.standard_normal((2, 3, 3)).astype(np.float32),
        "leaves": rng.standard_normal((2, 3, 4)).astype(np.float32),
    }
    arrays = {name: array for name, array in (arrays | changes).items() if array is not None}
    return Network("trees", {"dimension": 4} if config is None else config, arrays, n_bits)


def test_trees_give_a_number_for_each_bit():
    network = tree_network()
    X = np.random.default_rng(1).standard_normal((20, 4))
    features, thresholds, leaves = (
        network.arrays[name] for name in ("features", "thresholds", "leaves")
    )
    for row, found in zip(X.astype(np.float32), network.project(X), strict=True):
        for bit in range(2):
            total = 0.0
            for tree in range(3):
                first = int(row[features[bit, tree, 0]] > thresholds[bit, tree, 0])
                place = 1 + first
                second = int(row[features[bit, tree, place]] > thresholds[bit, tree, place])
                total += leaves[bit, tree, 2 * first + second]
            assert found[bit] == pytest.approx(total, abs=1e-6)
    spec = json.loads(json.dumps(network.spec()))
    again = Network.from_parts(spec, bytearray().join(network.parts(7)))
    assert again.checksum == network.checksum
    model = Model("m", "fasth", 4, [shift(np.ones(4))], network=network)
    np.testing.assert_array_equal(model.project(X), network.project((X + 1).astype(np.float32)))
    with pytest.raises(InvalidInputError, match="3 dimensions, expected 4"):
        network.project(X[:, :3])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"config": {}}, "config of a network of kind trees is its dimension"),
        ({"config": {"dimension": 0}}, "its dimension, 1 or more"),
        ({"config": {"dimension": True}}, "its dimension, 1 or more"),
        ({"config": {"dimension": 4, "depth": 2}}, "its dimension, 1 or more"),
        ({"config": {"dimension": 3}}, "features of trees must be 0 to 2, got 0 to 3"),
        ({"features": np.full((2, 3, 3), -1, np.int32)}, "must be 0 to 3, got -1 to -1"),
        ({"features": np.zeros((2, 3, 3), np.int64)}, r"features .* int32 .*, got int64"),
        ({"features": np.zeros((2, 3, 2), np.int32)}, r"2\^depth - 1\) .* got \(2, 3, 2\)"),
        ({"features": np.zeros((2, 9), np.int32)}, r"got \(2, 9\)"),
        ({"features": np.zeros((2, 1, 511), np.int32)}, "a depth of 1 to 8"),
        ({"thresholds": np.zeros((2, 3, 4), np.float32)}, r"float32 \(2, 3, 3\), got .* 4\)"),
        ({"leaves": np.zeros((2, 3, 3), np.float32)}, r"float32 \(2, 3, 4\), got .* 3\)"),
        ({"leaves": np.zeros((2, 3, 4))}, "float32 .*, got float64"),
        ({"leaves": np.full((2, 3, 4), np.nan, np.float32)}, "not all finite"),
        ({"leaves": None}, "arrays features, thresholds and leaves, got features, thresholds"),
        ({"n_bits": 3}, "of the trees of 3 bits"),
    ],
)
def test_trees_that_may_not_be(changes, message):
    with pytest.raises(InvalidInputError, match=message):
        tree_network(**changes)


def test_arrays_belong_to_the_network():
    mine, config = np.ones(3, dtype=">f4"), {"deep": [1]}
    network = torch_network(arrays={"a": mine}, config=config)
    mine[0], config["deep"][0] = 7, 7
    assert network.arrays["a"].tolist() == [1, 1, 1]
    assert network.config == {"deep": [1]}
    assert network.arrays["a"].dtype == np.dtype("<f4")
    with pytest.raises(ValueError, match="read-only"):
        network.arrays["a"][0] = 2
    assert mine.flags.writeable


@pytest.mark.parametrize("size", [1, 7, 35, 1000])
def test_parts_make_the_network_again(known, size):
    for network in (torch_network(), known):
        parts = list(network.parts(size))
        assert {len(part) for part in parts[:-1]} <= {size}
        assert sum(map(len, parts)) == sum(array.nbytes for array in network.arrays.values())
        spec = json.loads(json.dumps(network.spec()))
        again = Network.from_parts(spec, bytearray().join(parts))
        assert again.checksum == network.checksum
        assert again.n_bits == network.n_bits
        for name, array in network.arrays.items():
            assert again.arrays[name].dtype == array.dtype
            np.testing.assert_array_equal(again.arrays[name], array)
            assert not again.arrays[name].flags.writeable


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arrays": 3}, "not a network"),
        ({"arrays": [{"name": "a"}]}, "not a network: KeyError"),
        ({"arrays": [{"name": "a", "dtype": "O", "shape": [1]}]}, "is object"),
        ({"arrays": [{"name": "a", "dtype": "<f4", "shape": [-1]}]}, "is float32"),
        ({"arrays": [{"name": "a", "dtype": "<f4", "shape": [10**18]}]}, "ends beyond its 35"),
        ({"arrays": [{"name": "a", "dtype": "<f4", "shape": ["3"]}]}, "not a network"),
        ({"arrays": [{"name": "a", "dtype": "<f4", "shape": [2]}]}, "of 8 bytes has 35"),
        ({"n_bits": None}, "n_bits"),
    ],
)
def test_parts_that_make_no_network(changes, message):
    network = torch_network()
    with pytest.raises(InvalidInputError, match=message):
        Network.from_parts(network.spec() | changes, bytearray().join(network.parts(1000)))


def test_the_checksum_tells_everything_apart_but_how_numbers_are_written():
    """PostgreSQL gives 2.0 back as such, but 1e22 as an integer, and -0.0 as 0.0."""
    one = torch_network(config={"x": [1e22, -0.0, 2.0, 0.1]})
    assert one.checksum == torch_network(config={"x": [10**22, 0, 2, 0.1]}).checksum
    arrays = torch_network().arrays
    others = [
        torch_network(),
        torch_network(config={}),
        torch_network(config={"x": True}),
        torch_network(n_bits=5),
        torch_network(arrays=dict(arrays) | {"b": arrays["b"].T}),
        torch_network(arrays=dict(arrays) | {"b": arrays["b"] + 1}),
        torch_network(arrays=dict(arrays) | {"b": arrays["b"].view(np.int32)}),
        torch_network(arrays={**arrays, "c": arrays["b"]}),
    ]
    assert len({one.checksum, *(other.checksum for other in others)}) == 1 + len(others)


def test_a_model_of_known_rows(known, vectors, codes):
    model = Model("m", "bgdh", 7, (), network=known)
    assert (model.layers, model.n_bits) == ((), N_BITS)
    assert model.encode(vectors).tobytes() == codes.tobytes()
    assert set(np.unique(model.project(vectors))) == {-1, 1}
    with pytest.raises(InvalidInputError, match="row 8194 is not one of"):
        model.encode(np.concatenate([np.tile(vectors[0], (8194, 1)), np.ones((1, 7))]))
    with pytest.raises(InvalidInputError, match="6 dimensions, expected 7"):
        model.encode(vectors[:, :6])
    with pytest.raises(InvalidInputError, match="1 layers stand before it"):
        Model("m", "bgdh", 7, [normalize()], network=known)
    with pytest.raises(InvalidInputError, match="got 0"):
        Model("m", "bgdh", 7, ())
    with pytest.raises(InvalidInputError, match="its network counted, has 1 to 64 layers, got 65"):
        Model("m", "bgdh", 7, [normalize()] * 64, network=torch_network())


def test_a_model_file_with_a_network(known, vectors):
    torch_model = Model("t", "dpsh", 7, [shift(np.ones(7))], network=torch_network())
    rows_model = Model("r", "bgdh", 7, (), bit_weights=np.arange(10), network=known)
    for model in (torch_model, rows_model):
        again = Model.from_bytes(model.to_bytes())
        assert again.checksum == model.checksum
        assert again.network is not None
        assert again.network.spec() == model.network.spec()
    assert Model.from_bytes(rows_model.to_bytes()).encode(vectors).tobytes() == (
        rows_model.encode(vectors).tobytes()
    )
    checksums = {
        torch_model.checksum,
        rows_model.checksum,
        Model("t", "dpsh", 7, [shift(np.ones(7))]).checksum,
    }
    assert len(checksums) == 3


def test_a_damaged_model_file_with_a_network_is_refused(known):
    model = Model("r", "bgdh", 7, (), network=known)
    data = model.to_bytes()
    refused = 0
    for place in range(0, len(data), 3):
        damaged = bytearray(data)
        damaged[place] ^= 0x10
        try:
            again = Model.from_bytes(bytes(damaged))
        except InvalidInputError:
            refused += 1
        else:
            assert again.checksum == model.checksum
    assert refused > len(data) / 5


def replace_networks(monkeypatch, module):
    monkeypatch.delattr(pg_hashindex.models, "hash_network", raising=False)
    monkeypatch.setitem(sys.modules, "pg_hashindex.models.hash_network", module)
    if module is not None:
        monkeypatch.setattr(pg_hashindex.models, "hash_network", module, raising=False)


def test_a_network_of_torch_comes_after_the_layers(monkeypatch):
    seen = []

    def project(X):
        seen.append((X.dtype, X.shape))
        return np.stack([X.sum(axis=1), -X[:, 0], X[:, 1], X[:, 2]], axis=1)

    module = types.ModuleType("hash_network")
    built = types.SimpleNamespace(project=project)
    module.build = lambda config, arrays, n_bits: built
    replace_networks(monkeypatch, module)
    model = Model("t", "dpsh", 3, [shift(np.array([1, 0, 0]))], network=torch_network())
    X = np.array([[1.0, 2, -3], [-4, -5, 6]])
    np.testing.assert_array_equal(model.project(X), [[1, -2, 2, -3], [-2, 3, -5, 6]])
    np.testing.assert_array_equal(model.encode(X), [[0b10100000], [0b01010000]])
    assert seen[0] == (np.float32, (2, 3))
    assert model.n_bits == 4
    built.project = lambda X: np.full((len(X), 4), np.inf)
    with pytest.raises(InvalidInputError, match="row 0 is too large for this model"):
        model.encode(X)


def test_without_torch_the_error_names_the_extra(monkeypatch):
    replace_networks(monkeypatch, None)
    model = Model("t", "dpsh", 3, (), network=torch_network())
    with pytest.raises(InvalidInputError, match=r"needs torch: pip install '\.\[torch\]'"):
        model.encode(np.ones((1, 3)))


class Memory(Hasher):
    """Gives rows the codes of their signs, and knows no others."""

    method = "memory"

    def __init__(self, *, n_bits=4, random_state=None, normalize=None):
        self.n_bits, self.random_state, self.normalize = n_bits, random_state, normalize

    def _learn(self, rows, given, rng):
        X = np.concatenate([block.copy() for block in rows.blocks()])
        self._known = known_rows(X, np.packbits(X[:, : self.n_bits] > 0, axis=1), self.n_bits)
        return [shift(np.ones(rows.dimension))]

    def _network(self):
        return self._known

    @property
    def transductive(self):
        return True


def test_a_hasher_says_what_follows_its_layers(vectors):
    hasher = Memory(random_state=0).fit(vectors)
    assert hasher.layers_ == []
    assert hasher.n_bits_ == 4
    assert hasher.transductive
    np.testing.assert_array_equal(hasher.encode(vectors), np.packbits(vectors[:, :4] > 0, axis=1))
    model = hasher.to_model("m")
    assert model.network is not None
    assert model.network.kind == "rows"
    with pytest.raises(InvalidInputError, match="row 0 is not one of the 60 rows"):
        hasher.encode(vectors[:1] + 1)
