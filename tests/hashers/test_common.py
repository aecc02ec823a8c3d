"""Properties that every hasher must have."""

import functools
import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
import tracemalloc
from inspect import getattr_static
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pytest
from fixtures.clusters import clustered
from fixtures.deep import SMALL, methods

from pg_hashindex import hashers
from pg_hashindex.errors import InvalidInputError, NotFittedError
from pg_hashindex.hashers import HASHERS, Hasher, make_hasher
from pg_hashindex.hashers.numerics.rows import RowSource
from pg_hashindex.models import codes
from pg_hashindex.models.model import Model

D = 12
ROWS, LABELS = clustered()
LINE = np.outer(np.arange(400.0), np.ones(D)).astype(np.float32)
# For models whose quality does not matter.
FEW_STEPS = {"cghash": {"n_starts": 1, "max_iter": 2, "n_anchors": 20}, "cosdish": {"n_iter": 1}}
QUICK = SMALL | {"bre": {"n_iter": 3}, "sbre": {"n_iter": 3}, "fasth": {"n_trees": 3}}

learns_from_labels = pytest.mark.parametrize(
    "name", methods(*(name for name, hasher in HASHERS.items() if "labels" in hasher.learns_from))
)
# The base class checks rows, labels and parameters, so one method stands for all in these tests;
# test_only_the_base_class_checks says that none replaces them.
BASE = "pcah"
# These have checks of their own besides.
CHECKS_MORE = (*SMALL, "cghash")
base_and_those_that_check_more = pytest.mark.parametrize("name", methods(BASE, *CHECKS_MORE))
each_hasher = pytest.mark.parametrize("name", methods(*HASHERS))
# The contents of a model, and its fit from parameters, are the same for all of a kind: here
# linear, waves, spheres, anchors, with labels, trees, triplets and networks.
each_kind = pytest.mark.parametrize(
    "name", methods("itq", "sikh", "sph", "sgh", "ksh", "fasth", "cghash", "dpsh")
)

pytestmark = pytest.mark.usefixtures("one_torch_thread")


def make(name, **params):
    return make_hasher(name, **{"n_bits": D, "random_state": 3, **QUICK.get(name, {}), **params})


def fit(hasher, X):
    """Fit with labels, which methods without a use for them ignore."""
    return hasher.fit(X, LABELS)


@functools.cache
def fitted(name, **params):
    """Return a hasher that has learned from the rows, for tests that leave it as it is."""
    return fit(make(name, **params), ROWS)


def in_blocks(X, *ends):
    return lambda: iter(np.split(X, ends))


def assert_near(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-3 * expected.std())


@each_hasher
def test_only_the_base_class_checks(name):
    """So that tests of one method say it for all."""
    hasher = HASHERS[name]
    for what in (
        *("fit", "_fit", "_supervision", "_learn_bits", "check_dimension", "check_names"),
        *("project", "encode", "to_model", "get_params", "set_params", "__repr__"),
    ):
        assert getattr_static(hasher, what) is getattr_static(Hasher, what)
    hints, base = (get_type_hints(each, include_extras=True) for each in (hasher, Hasher))
    if name not in CHECKS_MORE:
        assert hasher.check_parameters is Hasher.check_parameters
        assert hasher.settings is Hasher.settings
        for parameter in ("n_bits", "random_state", "normalize"):
            assert hints[parameter] == base[parameter]


@each_hasher
def test_learns_and_encodes(name, rows):
    hasher = fitted(name)
    projections, encoded = hasher.project(rows), hasher.encode(rows)

    assert projections.shape == (len(rows), D)
    assert projections.dtype == np.float32
    assert encoded.shape == (len(rows), 2)
    assert encoded.dtype == np.uint8
    assert (hasher.dimension_, hasher.n_bits_) == (D, D)
    assert hasher.training_["rows"] == len(rows)
    ones = (projections > 0).mean(axis=0)
    assert (ones > 0.05).all()
    assert (ones < 0.95).all()


@each_kind
def test_bits_are_signs_most_significant_first(name, rows):
    hasher = fitted(name)
    encoded, projections = hasher.encode(rows), hasher.project(rows)
    for row in (0, 1, 399):
        text = "".join(f"{byte:08b}" for byte in encoded[row])
        assert text == "".join("01"[int(value > 0)] for value in projections[row]) + "0000"


@each_hasher
def test_keeps_near_rows_near(name, rows):
    encoded = fitted(name).encode(rows)
    true = np.linalg.norm(rows[:, None] - rows[None], axis=2)
    hamming = codes.hamming_distances(encoded, encoded)
    assert np.corrcoef(true.ravel(), hamming.ravel())[0, 1] > 0.4


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_takes_every_float(dtype, rows):
    rows = rows.astype(np.float16)
    hasher = fit(make(BASE), rows.astype(dtype))
    expected = fit(make(BASE), rows)
    assert hasher.to_model("m").checksum == expected.to_model("m").checksum
    assert np.array_equal(hasher.encode(rows.astype(dtype)), expected.encode(rows))


@pytest.mark.parametrize("center", [{}, {"normalize": "l2"}], ids=["raw", "normalized"])
def test_blocks_give_the_model_of_the_array(center, rows):
    whole = fit(make(BASE, **center), rows).to_model("m")
    for source in (
        in_blocks(rows, 1, 1, 100, 390),
        in_blocks(rows.astype(np.float64), 200),
        lambda: [rows],
        lambda: (row[None] for row in rows),
    ):
        assert fit(make(BASE, **center), source).to_model("m").checksum == whole.checksum


@each_hasher
def test_models_of_many_blocks_agree_too(name, rows, monkeypatch):
    """Sums over blocks that no longer fit the working size, and values that go to a file."""
    expected = fitted(name)
    monkeypatch.setattr("pg_hashindex.hashers.numerics.rows._BLOCK_VALUES", 70 * D)
    monkeypatch.setattr("pg_hashindex.hashers.numerics.rows._SCRATCH_BYTES", 0)
    for module in pkgutil.iter_modules(hashers.__path__, "pg_hashindex.hashers."):
        if hasattr(importlib.import_module(module.name), "_BLOCK_ROWS"):
            monkeypatch.setattr(f"{module.name}._BLOCK_ROWS", 33)
    whole, blocks = fit(make(name), rows), fit(make(name), in_blocks(rows, 3, 250))
    assert whole.to_model("m").checksum == blocks.to_model("m").checksum
    assert_near(whole.project(rows), expected.project(rows))


@each_hasher
def test_same_seed_same_model(name, rows):
    """Also from rows that may not be written to, and once more by the same hasher."""
    given = rows.copy()
    given.flags.writeable = False
    again = fit(make(name), given)
    assert np.array_equal(given, rows)
    expected = fitted(name).to_model("m").checksum
    assert again.to_model("m").checksum == expected
    assert fit(again, rows) is again
    assert again.to_model("m").checksum == expected


@each_kind
def test_fresh_seed_is_recorded_and_repeats(name, rows):
    hasher = fit(make(name, random_state=None), rows)
    recorded = hasher.to_model("m").parameters
    repeated = fit(make_hasher(name, **recorded), rows)
    assert recorded["random_state"] == hasher.seed_
    assert repeated.to_model("m").checksum == hasher.to_model("m").checksum


@pytest.mark.parametrize("name", ["lsh", "itq", "sgh"])
def test_other_seed_other_model(name, rows):
    checksums = {fit(make(name, random_state=s), rows).to_model("m").checksum for s in range(3)}
    assert len(checksums) == 3


@each_kind
def test_normalized_codes_do_not_see_length(name, rows):
    hasher = fitted(name, normalize="l2")
    lengths = 2.0 ** np.random.default_rng(0).integers(-3, 4, (len(rows), 1))
    scaled = (rows * lengths).astype(np.float32)
    assert hasher.layers_[0].kind == "normalize"
    assert np.array_equal(hasher.encode(scaled), hasher.encode(rows))
    # Learning goes by directions too, not only evaluation.
    again = fit(make(name, normalize="l2"), scaled)
    assert_near(again.project(rows), hasher.project(rows))


@each_hasher
def test_constructor_only_stores(name):
    hasher = make_hasher(name, n_bits=-5, random_state="no", normalize=4)
    assert hasher.get_params()["n_bits"] == -5
    assert set(hasher.get_params()) == set(hasher.parameter_names())
    assert repr(hasher).startswith(f"{type(hasher).__name__}(")
    assert vars(hasher).keys() == hasher.get_params().keys()
    assert {"n_bits", "random_state", "normalize"} <= set(hasher.parameter_names())


@each_hasher
def test_model_carries_everything(name, rows):
    hasher = fitted(name, normalize="l2")
    model = hasher.to_model("packages", metric="cosine", training={"rows": 7, "note": "x"})
    assert (model.name, model.method, model.metric) == ("packages", name, "cosine")
    assert (model.dimension, model.n_bits) == (D, D)
    assert model.parameters["n_bits"] == D
    assert model.parameters["normalize"] == "l2"
    assert model.training["rows"] == 7
    assert model.training["note"] == "x"
    assert set(model.parameters) == set(hasher.parameter_names()) - set(hasher.runtime_parameters)
    json.dumps([dict(model.parameters), dict(model.training)], allow_nan=False)
    assert np.array_equal(model.encode(rows), hasher.encode(rows))


@each_kind
def test_model_survives_bytes(name, rows):
    model = fitted(name).to_model("m", metric="ip")
    again = Model.from_bytes(model.to_bytes())
    assert again.checksum == model.checksum
    assert np.array_equal(again.project(rows), model.project(rows))
    for what in ("name", "method", "dimension", "metric", "parameters", "training"):
        assert getattr(again, what) == getattr(model, what)


@base_and_those_that_check_more
def test_numpy_parameters_become_json(name, rows):
    params = {"n_bits": np.int32(D), "random_state": np.int64(3)}
    model = fit(make(name, **params), rows).to_model("m")
    assert json.loads(json.dumps(dict(model.parameters)))["n_bits"] == D
    assert model.checksum == fitted(name).to_model("m").checksum


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("blocks", [False, True])
def test_refuses_non_finite_values(bad, blocks, rows):
    rows = rows.copy()
    rows[250, 4] = bad
    with pytest.raises(InvalidInputError, match=f"row .*dimension 4 is {bad}"):
        fit(make(BASE), in_blocks(rows, 200) if blocks else rows)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.ones(12), r"shape \(12,\)"),
        (np.ones((2, 3, 4)), r"shape \(2, 3, 4\)"),
        (np.ones((5, 0)), "0 dimensions"),
        (np.ones((0, 12)), "no rows"),
        (lambda: iter([]), "no rows"),
        (lambda: [np.ones((0, 12))], "no rows"),
        (np.ones((1, 12)), "2 distinct rows, got 1 sample$"),
        (np.full((50, 12), 0.25), "2 distinct rows, got 50 rows, all equal"),
        (lambda: iter([np.ones((3, 12)), np.ones((4, 12))]), "got 7 rows, all equal"),
        (lambda: iter([np.eye(12), np.eye(13)]), "13 dimensions, expected 12"),
        (iter([np.eye(12)]), "fresh iterator"),
        (np.full((3, 12), 1e300), "1e\\+300"),
        ([["a"] * 12] * 3, "must be numbers"),
        ([[1.0, 2.0], [3.0]], "cannot be read"),
        (np.eye(12) * 1j, "must be numbers"),
        (None, r"shape \(\)"),
    ],
)
def test_refuses_rows(X, message):
    with pytest.raises(InvalidInputError, match=message):
        fit(make(BASE), X)


def test_refuses_rows_of_one_direction(rows):
    multiples = np.outer(np.arange(1, 50), rows[0])
    with pytest.raises(InvalidInputError, match="distinct"):
        fit(make(BASE, normalize="l2"), multiples)


def test_refuses_a_source_that_runs_dry(rows):
    blocks = iter([rows, rows[:1], rows[:2]])
    with pytest.raises(InvalidInputError, match="400 rows at first and 1 when read again"):
        fit(make(BASE), lambda: [next(blocks)])


def test_refuses_a_source_that_grows(rows):
    sizes = iter([100, 400])
    source = RowSource(lambda: [rows[: next(sizes)]])
    with pytest.raises(InvalidInputError, match="100 rows at first and 400 when read again"):
        source.mean()


def test_some_rows_take_no_more_memory_than_all():
    """One row less must not make each pass copy the others, which took 50 MB."""
    X = np.random.default_rng(0).standard_normal((100_000, 128)).astype(np.float32)
    chosen = np.arange(1, len(X))
    source = RowSource(X).restricted_to(chosen)
    tracemalloc.start()
    mean = source.mean()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6
    np.testing.assert_allclose(mean, X[chosen].mean(axis=0, dtype=np.float64), atol=1e-9)


@base_and_those_that_check_more
@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("n_bits", 0),
        ("n_bits", -8),
        ("n_bits", 16_001),
        ("n_bits", 8.0),
        ("n_bits", True),
        ("n_bits", "8"),
        ("random_state", -1),
        ("random_state", 1.5),
        ("random_state", "seed"),
        ("random_state", 2**63),
        ("normalize", "l1"),
        ("normalize", True),
        ("normalize", []),
    ],
)
def test_refuses_parameters(name, parameter, value, rows):
    with pytest.raises(InvalidInputError, match=f"{parameter} must be .*{re.escape(str(value))}"):
        fit(make(name, **{parameter: value}), rows)


@each_hasher
def test_default_number_of_bits(name, rows):
    if name in ("sign", "thermometer") or HASHERS[name].bits_within_dimension:
        n_bits = D
    else:
        n_bits = 256 if HASHERS[name].ranks_by_distance() else 128
        # Fewer than the rows; networks have fewer by default.
        n_bits = {"sth": 198, "dgh": 199, **dict.fromkeys(SMALL, 64)}.get(name, n_bits)
    hasher = make(name, n_bits=None, **FEW_STEPS.get(name, {})).fit(rows[:200], LABELS[:200])
    assert (hasher.n_bits, hasher.n_bits_) == (None, n_bits)
    if name in ("sign", BASE, "sgh", "dpsh"):
        explicit = make(name, n_bits=n_bits).fit(rows[:200], LABELS[:200])
        assert hasher.to_model("m").checksum == explicit.to_model("m").checksum


def test_each_fit_finds_its_own_number_of_bits(rows):
    hasher = make("pcah", n_bits=None)
    assert [hasher.fit(X).n_bits_ for X in (LINE, rows[:, :5], rows)] == [1, 5, D]


@pytest.mark.parametrize(
    ("name", "X", "n_bits"),
    [
        ("pcah", LINE, 1),
        ("ssh", LINE, 1),
        ("usplh", LINE, 1),
        ("s3plh", LINE, 1),
        ("sth", ROWS[np.arange(400) % 20], 18),
        ("dsh", ROWS[np.arange(400) % 4], 6),
        ("agh", ROWS[np.arange(400) % 10], 18),
        ("dgh", ROWS[np.arange(400) % 10], 9),
    ],
)
def test_the_number_of_bits_is_the_most_that_a_method_finds(name, X, n_bits):
    hasher = fit(make(name, n_bits=None), X)
    assert hasher.n_bits_ == n_bits
    model = hasher.to_model("m")
    assert fit(make(name, n_bits=n_bits), X).to_model("m").checksum == model.checksum
    with pytest.raises(InvalidInputError, match="n_bits is 128"):
        fit(make(name, n_bits=128), X)


def test_rows_without_any_bit_are_refused_as_before():
    with pytest.raises(InvalidInputError, match="n_bits is 256, but .* distinct rows .* 2;"):
        make("sth", n_bits=None).fit(np.eye(2))


def test_refuses_before_fit(rows):
    hasher = make(BASE)
    for act in (hasher.project, hasher.encode, hasher.to_model):
        with pytest.raises(NotFittedError, match="call fit first"):
            act(rows if act != hasher.to_model else "m")


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (LABELS[:7], "7 labels for 400 rows"),
        (LABELS - 2, "0 or more, or -1 .* has -2"),
        (LABELS.astype(float), "must be integers, got an array of float64"),
        (np.eye(400, 3, dtype=int) * 2, "must be 0 or 1, but row 0, column 0 is 2"),
        ([[0, 1], [1]], "cannot be read"),
    ],
)
def test_refuses_labels(y, message, rows):
    with pytest.raises(InvalidInputError, match=message):
        make("ksh").fit(rows, y)


@learns_from_labels
def test_refuses_labels_of_less_than_two_classes(name, rows):
    for y, message in (
        (None, "learns from .*labels.*; give some"),
        (np.full(400, -1), "none of the 400 rows has a label"),
        (np.zeros((400, 3), int), "none of the 400 rows has a label"),
        (np.full(400, 3), "400 labelled rows have the same label"),
        (np.where(LABELS == 2, 5, -1), "labelled rows have the same label"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            make(name).fit(rows, y)


def test_takes_labels_in_either_shape(rows):
    """Whatever numbers the classes have, and with columns for classes that no row has."""
    expected = fitted("ksh").to_model("m").checksum
    indicator = np.zeros((400, 11), bool)
    indicator[np.arange(400), LABELS] = True
    for y in (LABELS.astype(np.uint8), 7 * LABELS + 3, indicator, indicator.astype(int).tolist()):
        assert make("ksh").fit(rows, y).to_model("m").checksum == expected


@learns_from_labels
def test_learns_from_some_labels(name, rows):
    y = np.where(np.arange(400) % 3 > 0, LABELS, -1)
    hasher = make(name).fit(rows, y)
    encoded = hasher.encode(rows)
    distances = codes.hamming_distances(encoded, encoded)
    same = LABELS[:, None] == LABELS
    assert distances[same].mean() < distances[~same].mean() - 2


@pytest.mark.parametrize("name", ["cosdish", "lfh"])
def test_takes_fewer_rows_than_bits(name, rows):
    assert make(name, n_bits=20).fit(rows[:9], np.arange(9) % 3).encode(rows[:9]).shape == (9, 3)


@each_hasher
def test_refuses_supervision_of_other_kinds(name, rows):
    for what, given in (
        ("pairs", [[0, 1, 1]]),
        ("triplets", [[0, 1, 1]]),
        ("graph", np.eye(len(rows))),
    ):
        if not HASHERS[name].takes(what):
            with pytest.raises(InvalidInputError, match=f"{name} does not learn from .*{what}"):
                make(name).fit(rows, LABELS, **{what: given})


@each_kind
def test_failed_fit_leaves_the_earlier_one(name, rows):
    hasher = fit(make(name), rows)
    before = hasher.encode(rows)
    with pytest.raises(InvalidInputError):
        fit(hasher, np.full((5, 3), np.nan))
    assert np.array_equal(hasher.encode(rows), before)
    learned = vars(hasher).copy()

    def fail(*ignored):
        raise KeyboardInterrupt

    # After all of the method's own attributes have been set.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(hasher), "_summary", fail)
        with pytest.raises(KeyboardInterrupt):
            hasher.fit(rows[:300] + 1, LABELS[:300])
    assert vars(hasher) == learned
    assert np.array_equal(hasher.encode(rows), before)


def test_refuses_queries(rows):
    hasher = fitted(BASE)
    for act in (hasher.project, hasher.encode):
        with pytest.raises(InvalidInputError, match="11 dimensions, expected 12"):
            act(rows[:, :11])
        with pytest.raises(InvalidInputError, match="is nan"):
            act(np.full((1, D), np.nan))
        with pytest.raises(InvalidInputError, match=r"\(12,\)"):
            act(rows[0])
        assert len(act(rows[:0])) == 0


def test_registry_names_every_method():
    names = (
        "sign lsh thermometer sikh pcah sh itq isohash sph dsh sth bre itq-cca usplh ssh s3plh "
        "sgh agh dgh sbre ksh sdh fsdh sadih lfh cosdish fasth cghash dpsh bgdh deep-dsh "
        "dhn ssdh"
    )
    assert list(HASHERS) == names.split()
    for name, hasher in HASHERS.items():
        assert isinstance(make_hasher(name), hasher)
        assert issubclass(hasher, Hasher)
        assert hasher.method == name
        assert hasher.__doc__


def test_make_hasher_says_what_there_is():
    with pytest.raises(InvalidInputError, match="'minhash' is unknown; known are sign, lsh"):
        make_hasher("minhash")
    with pytest.raises(InvalidInputError, match="no parameter 'bits'; it accepts n_bits, .*n_iter"):
        make_hasher("itq", bits=32)


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
import numpy as np
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import BGDH, DPSH, HASHERS, DeepDSH
from pg_hashindex.models.network import Network
from pg_hashindex.cli import main
assert {"dpsh", "bgdh", "deep-dsh"} <= set(HASHERS)
X = np.random.default_rng(0).standard_normal((50, 4))
kinds = DPSH(n_bits=4), BGDH(n_bits=4), BGDH(n_bits=4, variant="transductive"), DeepDSH(n_bits=4)
for hasher in kinds:
    hasher.check_parameters()
    try:
        hasher.fit(X, np.arange(50) % 2)
    except InvalidInputError as error:
        print(error)
try:
    Network("torch", {}, {"w": X}, 4).project(X)
except InvalidInputError as error:
    print(error)
main(["model", "train", "--help"])
"""


def test_torch_is_needed_to_train_and_not_before():
    """Also where it is broken: nothing but training, and encoding by a network, imports it."""
    environment = {name: value for name, value in os.environ.items() if "HASHINDEX" not in name}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT_TORCH],
        capture_output=True, text=True, check=True, env=environment, cwd=Path(__file__).parent,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    trains = (
        "this method trains a neural network, which needs torch: pip install '.[torch]' in the "
        "checkout"
    )
    assert lines[:4] == [trains] * 4
    assert lines[4] == (
        "this model is a neural network, which needs torch: pip install '.[torch]' in the checkout"
    )
    assert "bgdh" in done.stdout.split("Usage: ")[1]
