"""Methods on USPS: as their authors' programs and better, by the protocol of the reference.

The figures named are those of the rows usps11k_q1000_tr10k of reference_scores.csv.
"""

import numpy as np
import pytest

from pg_hashindex.hashers import (
    AGH,
    COSDISH,
    DGH,
    FSDH,
    HASHERS,
    ITQ,
    ITQCCA,
    KSH,
    LSH,
    PCAH,
    S3PLH,
    SADIH,
    SDH,
    SGH,
    SH,
    USPLH,
    CGHash,
    FastH,
)
from pg_hashindex.metrics import mean_average_precision, precision_at_k, precision_within_radius

pytestmark = pytest.mark.slow

#: A method with 32 bits, how many anchors of the protocol it takes, its label MAP, the MAP of the
#: nearest 2 % and label P@100; how near the MAPs must be, and P@100. Some have nothing random.
UNSUPERVISED = [
    (PCAH(n_bits=32), 0, (0.2325, 0.3703, 0.5402), (0.002, 0.005)),
    (SH(n_bits=32), 0, (0.2465, 0.3861, 0.5583), (0.002, 0.005)),
    (ITQ.paper(n_bits=32, random_state=0), 0, (0.3969, 0.5841, 0.7177), (0.02, 0.02)),
    (SGH(n_bits=32, random_state=0), 300, (0.3518, 0.5202, 0.6724), (0.01, 0.02)),
    (AGH(n_bits=32, n_layers=1), 300, (0.3370, 0.3546, 0.6987), (0.002, 0.005)),
]
#: Scores of programs: label MAP, P@100 and PH2, then MAP and P@100 of the nearest 2 %.
PROGRAMS = {
    ("s3plh", 32): (0.5807, 0.7715, 0.7211, 0.2943, 0.4041),
    ("s3plh", 64): (0.6373, 0.8065, 0.2924, 0.2925, 0.4021),
    ("sdh", 32): (0.9582, 0.9564, 0.9514, 0.1232, 0.1393),
    ("sdh", 64): (0.9655, 0.9609, 0.9184, 0.1262, 0.1412),
    ("usplh", 32): (0.2761, 0.5357, 0.5591, 0.3334, 0.4543),
    ("usplh", 64): (0.2687, 0.5392, 0.3949, 0.3609, 0.4908),
}


def label_map(usps, hasher, y=None):
    return mean_average_precision(*usps.codes(hasher, y), usps.by_label())


def anchors_of(usps, count):
    return usps.X[usps.train][usps.anchors[:count]]


@pytest.mark.parametrize(
    ("hasher", "n_anchors", "expected", "near"),
    UNSUPERVISED,
    ids=lambda given: getattr(given, "method", ""),
)
def test_as_the_authors_program(hasher, n_anchors, expected, near, usps):
    if n_anchors:
        hasher = type(hasher)(**hasher.get_params() | {"anchors": anchors_of(usps, n_anchors)})
    found, by_label = usps.codes(hasher), usps.by_label()
    assert mean_average_precision(*found, by_label) == pytest.approx(expected[0], abs=near[0])
    by_distance = mean_average_precision(*found, usps.by_distance())
    assert by_distance == pytest.approx(expected[1], abs=near[0])
    assert precision_at_k(*found, by_label) == pytest.approx(expected[2], abs=near[1])


@pytest.mark.parametrize(("name", "n_bits"), PROGRAMS)
def test_presets_of_programs_score_as_they_do(name, n_bits, usps):
    """Within .01 on each measure."""
    given = {"anchors": anchors_of(usps, 1000)} if name == "sdh" else {}
    hasher = HASHERS[name].program(random_state=0, n_bits=n_bits, **given)
    found = usps.codes(hasher, usps.few_labels() if name == "s3plh" else None)
    by_label, by_distance = usps.by_label(), usps.by_distance()
    measured = (
        mean_average_precision(*found, by_label),
        precision_at_k(*found, by_label),
        precision_within_radius(*found, by_label),
        mean_average_precision(*found, by_distance),
        precision_at_k(*found, by_distance),
    )
    np.testing.assert_allclose(measured, PROGRAMS[name, n_bits], atol=0.01)


def test_anchors_of_k_means_and_two_layers_help_agh(usps):
    """0.40 and 0.53 when this was written; 0.337 with the anchors of the protocol."""
    assert label_map(usps, AGH(n_bits=32, n_layers=1, random_state=0)) > 0.37
    assert label_map(usps, AGH(n_bits=32, random_state=0)) > 0.48


def test_dgh_is_better_than_eigenvectors(usps):
    """0.53 and 0.39 when this was written."""
    found = label_map(usps, DGH(n_bits=32, random_state=0))
    assert found > max(0.5, label_map(usps, AGH(n_bits=32, n_layers=1)) + 0.08)


def test_usplh(usps):
    """0.3334 by the authors' program."""
    by_distance = usps.by_distance()
    usplh, lsh = (
        mean_average_precision(*usps.codes(kind(n_bits=32, random_state=0)), by_distance)
        for kind in (USPLH, LSH)
    )
    assert usplh > max(0.35, lsh)


@pytest.mark.parametrize(
    ("n_pseudo", "within", "average"), [(500, 0.3949, 0.2687), (2000, 0.31, 0.2687)]
)
def test_precision_of_usplh_falls_slowly_with_bits(n_pseudo, within, average, usps):
    """64 bits; with deflated pairs it was 0.04 within radius 2."""
    settings = {**USPLH.paper_parameters, "n_pseudo": n_pseudo}
    found, by_label = usps.codes(USPLH(n_bits=64, **settings)), usps.by_label()
    assert precision_within_radius(*found, by_label) > within - 0.01
    assert mean_average_precision(*found, by_label) > average - 0.01


@pytest.mark.parametrize(("n_bits", "least"), [(32, 0.58), (64, 0.635)])
def test_s3plh(n_bits, least, usps):
    """0.5807 and 0.6373 by the authors' program."""
    assert label_map(usps, S3PLH(n_bits=n_bits, random_state=0), usps.few_labels()) > least


def test_cosdish(usps):
    """0.7693 by the authors' program."""
    scores = [label_map(usps, COSDISH(n_bits=32, random_state=seed)) for seed in range(3)]
    assert np.mean(scores) > 0.76


def test_itq_cca(usps):
    """The reference has no row of it; the paper finds it far above ITQ: 0.80, and 0.40."""
    assert label_map(usps, ITQCCA(n_bits=32, random_state=0)) > 0.78


def test_ksh(usps):
    """S3PLH has 0.58 there and SDH 0.958."""
    anchors = anchors_of(usps, 300)
    hasher = KSH(n_bits=32, anchors=anchors, max_labelled=2000, normalize="l2", random_state=0)
    assert 0.90 <= label_map(usps, hasher) <= 0.958


def test_sdh_and_fsdh(usps):
    """0.9582 by the authors' program; the paper starts at random. Ours were 0.972 and 0.976."""
    learned = set()
    for kind, start, least in (
        (SDH, "random", 0.965),
        (SDH, "spread", 0.97),
        (FSDH, "random", 0.96),
    ):
        anchors = anchors_of(usps, 1000)
        hasher = kind(n_bits=32, anchors=anchors, start=start, normalize="l2", random_state=0)
        assert label_map(usps, hasher) >= least
        assert 2 <= len(hasher.objective_) <= 5 or start == "spread"
        learned.add(hasher.codes_.tobytes())
    assert len(learned) == 3


@pytest.mark.parametrize("loss", ["l1", "l21"])
def test_sadih_is_above_sdh(loss, usps):
    anchors = anchors_of(usps, 1000)
    hasher = SADIH(n_bits=32, loss=loss, anchors=anchors, normalize="l2", random_state=0)
    assert label_map(usps, hasher) >= 0.97


def test_trees_of_fasth_beat_what_is_linear(usps):
    few = usps._replace(train=usps.train[::4])
    trees = label_map(few, FastH(n_bits=24, random_state=0))
    assert trees > label_map(few, SDH(n_bits=24, n_anchors=None, random_state=0)) + 0.1
    assert trees > label_map(few, ITQ(n_bits=24, random_state=0)) + 0.3


def test_weights_of_cghash_help(usps):
    def precision(found, weights=None):
        return precision_at_k(*found, usps.by_label(), 50, weights=weights)

    hasher = CGHash(n_bits=32, random_state=0)
    found = usps.codes(hasher)
    others = (usps.codes(other) for other in (ITQ(n_bits=32, random_state=0), S3PLH(n_bits=32)))
    best = max(precision(found), *map(precision, others), 0.87)
    assert precision(found, hasher.bit_weights_) > best
