"""Hashers as transformers of scikit-learn."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from pg_hashindex import hashers
from pg_hashindex.errors import InvalidInputError, NotFittedError
from pg_hashindex.hashers import HASHERS, ITQ, make_hasher
from pg_hashindex.metrics import recall_at_k, recall_scorer

PLAIN = [name for name in HASHERS if not HASHERS[name].learns_from]


@pytest.mark.parametrize("name", PLAIN)
def test_every_check_of_scikit_learn_passes(name):
    rounds = {"n_iter": 1} if name == "bre" else {}  # a hundred would take minutes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcomes = check_estimator(make_hasher(name, random_state=0, **rounds), on_fail=None)
    failed = [x for x in outcomes if x["status"] not in ("passed", "skipped")]
    assert failed == []
    assert sum(x["status"] == "passed" for x in outcomes) > 35


@pytest.mark.parametrize("name", ["itq", "sgh"])
def test_transform_returns_the_bits_as_signs(rows, name):
    hasher = make_hasher(name, n_bits=9, random_state=0)
    signs = hasher.fit_transform(rows)
    assert signs.dtype == np.float32
    assert signs.shape == (len(rows), 9)
    assert np.array_equal(np.packbits(signs > 0, axis=1), hasher.encode(rows))
    assert set(np.unique(signs)) == {-1.0, 1.0}


def test_supervised_hashers_stand_in_pipelines(rows):
    labels = (rows[:, 0] > 0).astype(np.int64)
    hasher = make_hasher("itq-cca", n_bits=2, random_state=0)
    pipeline = make_pipeline(StandardScaler(), hasher, LogisticRegression()).fit(rows, labels)
    assert pipeline.score(rows, labels) > 0.8


def test_the_module_lists_its_classes():
    assert {hasher.__name__ for hasher in HASHERS.values()} <= {*dir(hashers)}


def test_cghash_says_how_many_steps_it_took(rows):
    labels = (rows[:, 0] > 0).astype(np.int64)
    assert hashers.CGHash(n_bits=3, random_state=0).fit(rows, labels).n_iter_ == 3


def test_grid_search_finds_the_bits_of_the_best_recall(rows):
    scorer = recall_scorer(candidates=20, k=5)
    search = GridSearchCV(ITQ(random_state=0), {"n_bits": [2, 10]}, scoring=scorer, cv=2)
    search.fit(rows)
    assert search.best_params_ == {"n_bits": 10}
    scores = search.cv_results_["mean_test_score"]
    assert 0 < scores[0] < scores[1] <= 1


def test_the_scorer_is_the_recall_of_held_back_rows(rows):
    hasher = ITQ(n_bits=8, random_state=0).fit(rows)
    n, codes = len(rows) // 5, hasher.encode(rows)
    expected = recall_at_k(rows[:n], rows[n:], codes[:n], codes[n:], candidates=20, k=5)
    assert recall_scorer(candidates=20, k=5)(hasher, rows) == expected
    assert recall_scorer(candidates=20, k=5)(make_pipeline(hasher), rows) == expected


def test_parameters_are_set_by_name():
    hasher = ITQ(n_bits=8, random_state=0)
    assert hasher.set_params(n_bits=16) is hasher
    assert hasher.n_bits == 16
    assert clone(hasher).get_params() == hasher.get_params(deep=False)
    with pytest.raises(InvalidInputError, match="itq has no parameter 'bits'; it accepts n_bits"):
        hasher.set_params(n_bits=4, bits=8)
    assert hasher.n_bits == 16


def test_refuses_to_transform(rows):
    hasher = ITQ(n_bits=4, random_state=0)
    with pytest.raises(NotFittedError, match="call fit first"):
        hasher.transform(rows)
    hasher.fit(rows)
    with pytest.raises(InvalidInputError, match="has 3 features, but ITQ is expecting 12 features"):
        hasher.transform(rows[:, :3])


@pytest.fixture(scope="module")
def rows():
    """400 rows of 12 dimensions in ten groups."""
    rng = np.random.default_rng(7)
    centres = 2 * rng.standard_normal((10, 12))
    return (centres[rng.integers(0, 10, 400)] + rng.standard_normal((400, 12))).astype(np.float32)
