"""Parameters that methods refuse, in words that say what they take."""

import numpy as np
import pytest

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import make_hasher

NAN = float("nan")
#: Methods, what they are given beside 8 bits, and what they say.
REFUSED = [
    # Out of the range of a parameter, or of another type.
    ("agh", {"n_layers": 0}, "n_layers must be an integer from 1 to 2, got 0"),
    ("agh", {"n_layers": 3}, "n_layers must be an integer from 1 to 2, got 3"),
    ("agh", {"n_layers": "one"}, "n_layers must be"),
    (
        "agh bre cosdish ksh lfh sadih sdh",
        {"n_anchors": 1},
        "n_anchors must be an integer from 2 to 16000, got 1",
    ),
    ("agh sgh", {"n_anchors": 2.5}, "n_anchors must be an integer"),
    ("sgh", {"n_anchors": 0}, "n_anchors must be an integer from 1 to 16000, got 0"),
    ("cghash", {"n_anchors": 0}, "n_anchors must be .*, got 0"),
    ("agh sth", {"n_nearest": 1}, "n_nearest must be an integer from 2 to 16000, got 1"),
    ("agh", {"n_nearest": None}, "n_nearest must be"),
    ("dsh", {"n_nearest": 0}, "n_nearest must be an integer from 1 to 16000, got 0"),
    ("dsh", {"groups": 0.5}, "groups must be a number from 1 to 100, got 0.5"),
    ("bre", {"max_rows": 3}, "max_rows must be an integer from 4 to 10000, got 3"),
    ("sth", {"max_rows": 2}, "max_rows must be an integer from 3 .* got 2"),
    ("cghash fasth sph", {"max_rows": 1}, "max_rows must be an integer from 2 .* got 1"),
    ("ksh", {"max_labelled": 1}, "max_labelled must be an integer from 2 .* got 1"),
    ("s3plh", {"max_label_sets": 1}, "max_label_sets must be an integer from 2 to .*, got 1"),
    ("bre", {"n_pairs": 0}, "n_pairs must be an integer from 1 to 10000, got 0"),
    (
        "bre dgh isohash itq itq-cca ksh",
        {"n_iter": -1},
        "n_iter must be an integer from 0 .* got -1",
    ),
    (
        "cosdish lfh sadih sdh sph",
        {"n_iter": 0},
        "n_iter must be an integer from 1 .* got 0",
    ),
    ("itq itq-cca", {"n_iter": 2.0}, r"n_iter must be an integer .* got 2\.0"),
    ("itq", {"n_iter": None}, "n_iter must be an integer .* None"),
    ("fsdh", {"n_iter": 1.5}, "n_iter must be an integer"),
    ("cghash", {"max_iter": -1}, "max_iter must be .*, got -1"),
    ("cghash", {"n_neighbours": 0}, "n_neighbours must be .*, got 0"),
    ("cghash", {"max_triplets": 0}, "max_triplets must be .*, got 0"),
    ("cghash", {"n_starts": 0}, "n_starts must be .*, got 0"),
    ("cghash", {"n_bits": 4097}, "n_bits must be an integer from 1 to 4096, got 4097"),
    ("cosdish", {"n_samples": 0}, "n_samples must be an integer from 1 .* got 0"),
    ("dgh", {"n_steps": 0}, "n_steps must be"),
    ("fasth", {"n_trees": 0}, "n_trees must be an integer from 1 to 1000, got 0"),
    ("fasth", {"depth": 9}, "depth must be an integer from 1 to 8, got 9"),
    ("fasth", {"n_features": 0}, "n_features must be"),
    ("usplh", {"n_pseudo": 0}, "n_pseudo must be an integer from 1 to .*, got 0"),
    ("usplh", {"n_pseudo": 0.2}, r"n_pseudo must be an integer .*, got 0\.2"),
    ("bre sdh", {"width": 0}, r"width must be a number from 1e-12 to 1e\+12, got 0"),
    ("ksh sdh", {"width": 1e300}, r"width must be a number from 1e-12 to 1e\+12, got 1e\+300"),
    ("ksh", {"width": NAN}, "width must be a number from 1e-12 to 1e.12, got nan"),
    ("sadih sdh", {"width": 1e-300}, r"width must be a number from 1e-12 .* got 1e-300"),
    *(
        ("sikh", {"width": value}, f"width must be a finite number above 0, got {shown}")
        for value, shown in ((0, 0), (-1.5, r"-1\.5"), (NAN, "nan"), ("2", "'2'"), (True, True))
    ),
    ("fsdh", {"penalty": 1e300}, r"penalty must be a number from 1e-12 to 1e\+12, got 1e\+300"),
    ("sdh", {"penalty": 1e-300}, r"penalty must be a number from 1e-12 to 1e\+12, got 1e-300"),
    ("fsdh", {"penalty": 0}, "penalty must be a number from 1e-12 to 1e.12, got 0"),
    ("sdh", {"penalty": np.inf}, "penalty must be a number from 1e-12 to 1e.12, got inf"),
    ("fsdh", {"nu": -1.0}, "nu must be a number from 1e-12 to 1e.12, got -1.0"),
    ("sdh", {"nu": "1"}, "nu must be a number from 1e-12 to 1e.12"),
    ("sdh", {"ridge": -1}, "ridge must be a number from 1e-12 to 1e.12, got -1"),
    ("cosdish", {"ridge": 0}, r"ridge must be a number from 1e-12 to 1e\+12, got 0"),
    *(
        ("itq-cca", {"ridge": value}, f"ridge must be a number from 1e-10 to 1e.12, got {shown}")
        for value, shown in ((1e-12, "1e-12"), (NAN, "nan"), ("1", "'1'"), (1e308, r"1e\+308"))
    ),
    ("lfh", {"beta": 0}, r"beta must be a number from 1e-12 to 1e\+12, got 0"),
    ("sadih", {"beta": -1}, "beta must be a number from 1e-12 to 1e.12, got -1"),
    ("sadih", {"alpha": 0}, "alpha must be a number from 1e-12 to 1e.12, got 0"),
    ("sadih", {"alpha": 1e300}, r"alpha must be a number from 1e-12 to 1e\+12, got 1e\+300"),
    ("sadih", {"gamma": 1e-300}, r"gamma must be a number from 1e-12 to 1e\+12, got 1e-300"),
    ("s3plh ssh", {"eta": 0}, "eta must be a number from 1e-12 to 1e.12, got 0"),
    ("s3plh", {"eta": 1e300}, r"eta must be a number from 1e-12 to 1e\+12, got 1e\+300"),
    ("s3plh", {"step": -1.0}, r"step must be a number from 1e-12 to 1e.12, got -1\.0"),
    ("s3plh", {"step": 1e308}, r"step must be a number from 1e-12 to 1e\+12, got 1e\+308"),
    ("usplh", {"eta": 0}, "eta must be a finite number above 0, got 0"),
    ("usplh", {"decay": 0.0}, r"decay must be a finite number above 0, at most 1, got 0\.0"),
    ("usplh", {"decay": 1.5}, r"decay must be .* at most 1, got 1\.5"),
    ("cghash", {"C": 0}, "C must be .*, got 0"),
    ("dgh", {"rho": -1}, "rho must be a finite number of 0 or more"),
    ("sgh", {"rho": 0}, "rho must be a finite number above 0, got 0"),
    ("sadih", {"balance": 1}, "balance must be True or False, got 1"),
    ("s3plh", {"balance": "yes"}, "balance must be True or False, got 'yes'"),
    ("cghash", {"loss": "squared"}, "loss must be one of .*, got 'squared'"),
    ("fasth", {"loss": "exponential"}, "loss must be one of"),
    ("sadih", {"loss": "l2"}, "loss must be one of .* got 'l2'"),
    ("cghash", {"regularizer": "l2"}, "regularizer must be one of .*, got 'l2'"),
    ("cghash", {"weak": "tree"}, "weak must be one of .*, got 'tree'"),
    ("dgh", {"start": "random"}, "start must be one of"),
    ("fsdh sdh", {"start": None}, "start must be one of .* got None"),
    ("sadih", {"hash_function": None}, "hash_function must be one of .* got None"),
    ("s3plh", {"step_by": "norm"}, "step_by must be one of .*'norm'"),
    ("sgh", {"scale": "max"}, "scale must be one of"),
    ("sign", {"n_bits": None, "center": ["mean"]}, "center must be one of"),
    ("usplh", {"boundary": "mean"}, "boundary must be .*'codes'.*'residual'.* got 'mean'"),
    # Parameters that do not suit the rows.
    ("agh ksh sadih sdh sgh", {"anchors": np.ones((3, 11))}, "11 dimensions, expected 12"),
    ("agh sgh", {"anchors": np.ones((0, 12))}, "anchors has no rows"),
    ("agh sgh", {"anchors": np.full((3, 12), np.nan)}, "is nan"),
    ("ksh sdh", {"anchors": np.ones((1, 12))}, "only 1 distinct anchor"),
    ("agh", {"n_nearest": 6, "anchors": np.eye(12)[:5]}, "n_nearest is 6, .* only 5 anchors"),
    ("agh", {"anchors": np.ones((5, 12))}, "n_bits is 8, which takes 4 eigenvectors, .* only 0 "),
    (
        "agh",
        {"n_bits": 20, "anchors": 5 * np.eye(12)[:10]},
        "takes 10 eigenvectors, .* more anchors",
    ),
    (
        "agh",
        {"n_bits": 10, "n_layers": 1, "n_anchors": 10},
        "takes 10 eigenvectors, but .* of 10 an",
    ),
    ("dgh", {"n_bits": 10, "n_anchors": 10}, "takes 10 eigenvectors, but .* of 10 an"),
    ("cghash", {"C": 10.0}, r"with C = 10 no hash function is worth its price; give a C below \d"),
    (
        "cghash",
        {"C": 1e-12, "regularizer": "l_inf"},
        "C = 1e-12 all bits weigh 0 .* give a greater C",
    ),
    ("itq-cca", {"ridge": 1e12}, r"the ridge, 1e\+12, outweighs .* smaller ridge"),
    ("sdh", {"ridge": 1e10}, r"say nothing about bit 0.* the ridge, 1e\+10, may be too great"),
    ("ksh", {"width": 1e10}, "equally far from the 300 anchors; .* or a width nearer to 1"),
    ("sdh", {"width": 1e10}, "equally far from the 400 anchors; .* or a width nearer to 1"),
    ("sgh", {"rho": 1.5}, r"rho is 1\.5, but must be at least .* 2 here"),
    ("sgh", {"scale": None}, r"rho is 2\.0, but must be .*scale='unit'"),
    (
        "sikh",
        {"width": 1e-4},
        r"width is 0\.0001, but the root mean square distance .* give at least 0\.00",
    ),
    ("sikh", {"width": 1e-44}, "too fine for float32"),
    (
        "sikh",
        {"n_bits": 16, "width": 1e9},
        r"with a width of 1e\+09, 16 of 16 bits .* all of 400 rows .* give a smaller width",
    ),
    (
        "sth",
        {"max_rows": 9},
        "n_bits is 8, but must be at most two less than .* learn from, 9;",
    ),
    ("isohash", {"n_bits": 13}, "at most one bit for each dimension"),
    ("itq", {"n_bits": 16}, "n_bits is 16: ask for at most 12 .*sgh or lsh"),
    ("sign", {"n_bits": 11}, "n_bits must be 12 or left out, got 11"),
    ("sign", {"n_bits": 13}, "n_bits must be 12 or left out, got 13"),
]


@pytest.mark.parametrize(
    ("method", "params", "message"),
    [(method, *refused) for methods, *refused in REFUSED for method in methods.split()],
)
def test_refused(method, params, message, rows, labels):
    hasher = make_hasher(method, **{"n_bits": 8, "random_state": 0} | params)
    with pytest.raises(InvalidInputError, match=message):
        hasher.fit(rows, labels)
