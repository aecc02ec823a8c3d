"""The presets `paper` and `program`: the settings of a method's paper and of its program."""

import numpy as np
import pytest

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import HASHERS, ITQ, S3PLH, SDH, make_hasher

PAPERS = [name for name in HASHERS if name not in ("sign", "thermometer")]
PROGRAMS = [name for name in HASHERS if HASHERS[name].program_parameters is not None]


@pytest.mark.parametrize("name", PAPERS)
def test_presets_set_only_departures(name):
    kind = HASHERS[name]
    assert kind.paper_parameters is not None
    for preset in ("paper", "program"):
        departures = {"paper": kind.paper_parameters, "program": kind.program_parameters}[preset]
        if departures is None:
            continue
        default, hasher = kind().get_params(), kind.of_preset(preset)
        assert hasher.get_params() == default | dict(departures)
        # A setting that equals the default is not a departure.
        assert all(default[key] != value for key, value in departures.items())
        hasher.check_parameters()
    # The choices of a paper are parameters.
    for key, values in kind.paper_choices.items():
        for value in values:
            kind.paper(**{key: value}).check_parameters()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_differs_from_the_paper(name):
    kind = HASHERS[name]
    assert kind.program().get_params() != kind.paper().get_params()


def test_keywords_win_over_the_preset():
    hasher = S3PLH.program(n_bits=8, step=2.0)
    assert (hasher.n_bits, hasher.step, hasher.step_by, hasher.balance) == (8, 2.0, "data", False)
    for preset in ("paper", "program"):
        made = make_hasher("s3plh", preset=preset, step=2.0, n_bits=8)
        assert made.get_params() == S3PLH.of_preset(preset, step=2.0, n_bits=8).get_params()
    assert make_hasher("s3plh", preset="default").get_params() == S3PLH().get_params()


def test_models_record_the_settings_of_the_paper():
    X = np.random.default_rng(0).normal(size=(40, 5))
    model = S3PLH.paper(n_bits=3).fit(X, np.arange(40) % 2).to_model("m")
    assert (model.parameters["step_by"], model.parameters["balance"]) == ("rows", False)


def test_unusable_presets_are_refused():
    with pytest.raises(InvalidInputError, match="preset 'papers' is unknown; known are default"):
        make_hasher("s3plh", preset="papers")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="sign has no paper, so it has no preset 'paper'"):
        make_hasher("sign", preset="paper")
    with pytest.raises(InvalidInputError, match="itq has no program that differs from its paper"):
        ITQ.program()
    for make in (S3PLH.paper, S3PLH.program):
        with pytest.raises(InvalidInputError, match="no parameter 'stepp'"):
            make(stepp=1)


@pytest.mark.parametrize("scale", [1.0, 20.0])
def test_sdh_program_has_the_kernel_of_its_program_on_any_rows(scale):
    """exp(-d^2 / (2 0.4^2)) between rows of unit length, whatever the length of the rows."""
    rng = np.random.default_rng(0)
    X, y = scale * rng.normal(size=(80, 6)) + 1, np.arange(80) % 4
    hasher = SDH.program(n_bits=8, anchors=X[:9], random_state=0).fit(X, y)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    distances = ((unit[:, None] - unit[:9]) ** 2).sum(axis=2)
    expected = np.exp(-distances / (2 * 0.4**2))
    kernel = next(layer for layer in hasher.layers_ if layer.kind == "rbf")
    np.testing.assert_allclose(kernel.apply(unit.astype(np.float32)), expected, atol=1e-5)
