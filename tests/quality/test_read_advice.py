"""Advice that was printed, read again."""

import json

import pytest

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.quality.tuning import Advice, Goal, Trial, read_advice

TRIALS = [
    Trial("exact", 1.0, 0, 0.0, 1.0, 9.0, 9.5),
    Trial("pgvector", 0.97, 9, 1.0, 0.97, 1.0, 1.5, ef_search=40),
    Trial(
        "codes", 0.96, 9, 1, 0.97, 1.0, 1.5, 0.9, method="itq", bits=64, levels=4, own=True,
        access="landmarks", ranking="asymmetric", candidates=20, probes=3,
    ),
]  # fmt: skip
PRINTED = Advice(
    Goal(0.95, 5, max_bytes=7), '"public"."t"', "v", ["id"], "l2", "i", 300, 290, 280, 10,
    TRIALS, TRIALS[2], "why", ["something"], {},
).as_dict()  # fmt: skip


def read(tmp_path, text):
    path = tmp_path / "tune.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_advice(path)


def test_printed_options_parse(tmp_path):
    found = read(tmp_path, json.dumps(PRINTED | {"applied": None}))
    assert found.trials == TRIALS
    assert found.recommended == TRIALS[2]
    assert found.as_dict() == PRINTED | {"left_out": []}
    assert read(tmp_path, json.dumps(PRINTED | {"recommended": None})).recommended is None


def changed(where, value):
    copy = json.loads(json.dumps(PRINTED))
    place = copy
    *path, last = where.split(".")
    for word in path:
        place = place[int(word) if isinstance(place, list) else word]
    place[int(last) if isinstance(place, list) else last] = value
    return copy


@pytest.mark.parametrize(
    ("printed", "message"),
    [
        ([], "it is not an object"),
        ({}, "it has no 'table'"),
        (changed("table", 3), "'table' of it is '3'"),
        (changed("rows", True), "'rows' of it is 'True'"),
        (changed("metric", "l1"), "'metric' of it is 'l1'"),
        (changed("goal", None), "goal is not an object"),
        (changed("goal.recall", "0.9"), "'recall' of goal is '0.9'"),
        (changed("trials.2.levels", 3), "'levels' of trial 2 is '3'"),
        (changed("trials.2.levels", True), "'levels' of trial 2 is 'True'"),
        (changed("trials", {}), "it has no list of trials"),
        (changed("trials.1", 3), "trial 1 is not an object"),
        (changed("trials.1.kind", ["codes"]), "'kind' of trial 1 is"),
        (changed("trials.0.recall", float("nan")), "'recall' of trial 0 is 'nan'"),
        (changed("trials.0.p50_ms", float("inf")), "'p50_ms' of trial 0 is 'inf'"),
        (changed("trials.0.p95_ms", 10**400), "'p95_ms' of trial 0 is '1000"),
        (changed("trials.2.access", "btree"), "'access' of trial 2 is 'btree'"),
        (changed("recommended.bits", 1.5), "'bits' of recommended is '1.5'"),
    ],
)
def test_anything_else_is_refused(tmp_path, printed, message):
    with pytest.raises(InvalidInputError, match="is not what pg-hashindex tune --json prints") as e:
        read(tmp_path, json.dumps(printed))
    assert message in str(e.value)


@pytest.mark.parametrize("text", ["", "tune", b"\xff\xfe{", "[" * 100_000, "1" * 5000])
def test_no_json(tmp_path, text):
    with pytest.raises(InvalidInputError, match=r"tune\.json is not what"):
        read(tmp_path, text)


def test_no_file(tmp_path):
    for path in (tmp_path / "no.json", tmp_path):
        with pytest.raises(InvalidInputError, match="cannot read"):
            read_advice(path)
