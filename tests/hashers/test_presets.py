"""The preset `paper`: the settings of a method's paper."""

import numpy as np
import pytest

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import HASHERS, S3PLH, make_hasher

PAPERS = [name for name in HASHERS if name != "sign"]


@pytest.mark.parametrize("name", PAPERS)
def test_paper_preset_sets_only_departures(name):
    kind = HASHERS[name]
    departures = kind.paper_parameters
    assert departures is not None
    default, paper = kind().get_params(), kind.paper().get_params()
    assert paper == default | dict(departures)
    # A setting that equals the default is not a departure.
    assert all(default[key] != value for key, value in departures.items())
    kind.paper().check_parameters()


def test_keywords_win_over_the_paper():
    hasher = S3PLH.paper(n_bits=8, step=2.0)
    assert (hasher.n_bits, hasher.step, hasher.step_by, hasher.balance) == (8, 2.0, "data", False)
    assert make_hasher("s3plh", preset="paper", step=2.0, n_bits=8).get_params() == (
        hasher.get_params()
    )
    assert make_hasher("s3plh", preset="default").get_params() == S3PLH().get_params()


def test_models_record_the_settings_of_the_paper():
    X = np.random.default_rng(0).normal(size=(40, 5))
    model = S3PLH.paper(n_bits=3).fit(X, np.arange(40) % 2).to_model("m")
    assert (model.parameters["step_by"], model.parameters["balance"]) == ("data", False)


def test_unusable_presets_are_refused():
    with pytest.raises(InvalidInputError, match="preset 'papers' is unknown; known are default"):
        make_hasher("s3plh", preset="papers")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="sign has no paper"):
        make_hasher("sign", preset="paper")
    with pytest.raises(InvalidInputError, match="no parameter 'stepp'"):
        S3PLH.paper(stepp=1)
