"""The parts of the benchmarks that compute: what they draw, keep, average and hold against bars."""

import argparse
import json
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture
def semi_supervised(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))

    def module(part: str = "") -> ModuleType:
        return import_module(f"semi_supervised{part}")

    return module


def training(seed: int, score: float, **others: Any) -> dict[str, Any]:
    return {
        "dataset": "mnist", "labels": 50, "method": "itq", "bits": 12, "seed": seed,
        "parameters": {"sizes": [3, 4]}, "labelled_rows": 500, "threads": 1,
        "scores": {"MAP@5000": score}, "train_wall_s": 10.0 * score, "train_cpu_s": 1.0,
        "encode_wall_s": 0.0,
    } | others  # fmt: skip


def mean(method: str, bits: int, score: float | None, **others: Any) -> dict[str, Any]:
    scores = {"error": "NaN"} if score is None else {"scores": {"MAP@5000": score}}
    task = {"dataset": "mnist", "labels": 50, "method": method, "bits": bits}
    return task | scores | {"longest_wall_s": 100.0} | others


def test_labelled_rows_are_so_many_of_each_class_and_fewer_are_among_more(
    semi_supervised: Any,
) -> None:
    some_of_each = semi_supervised("_data").some_of_each
    labels = np.array([2] * 3 + [0] * 100 + [1] * 50)
    few, more = (some_of_each(labels, count, 7) for count in (5, 20))
    assert np.bincount(labels[few]).tolist() == [5, 5, 3]
    assert np.bincount(labels[more]).tolist() == [20, 20, 3]
    assert set(few) <= set(more)
    assert not np.array_equal(more, some_of_each(labels, 20, 8))


def test_packages_are_joined_with_the_words_of_their_names(semi_supervised: Any) -> None:
    data = semi_supervised("_data")
    names = ["libfoo2-dev", "LibFoo-doc", "foo3-x-dev", "dev-tools", "x"]
    graph = data.word_graph(names, most=2, weights="one").toarray()
    # dev has three packages; doc, foo and tools have one; x is too short.
    np.testing.assert_array_equal(graph, [[1], [1], [0], [0], [0]])
    graph = data.word_graph(names).toarray()
    dev, libfoo = np.log(6 / 3), np.log(6 / 2)
    np.testing.assert_allclose(graph, [[dev, libfoo], [0, libfoo], [dev, 0], [dev, 0], [0, 0]])
    both = data.side_by_side(data.word_graph(names), data.word_graph(names, most=2)).toarray()
    np.testing.assert_allclose(both.sum(axis=1), [2, 2, 1, 1, 0])


def test_what_was_trained_with_other_settings_is_not_known(
    semi_supervised: Any, tmp_path: Path
) -> None:
    kept = semi_supervised("_runs")
    first, part = tmp_path / "a.json", kept.part_path(tmp_path / "a.json", 1, 2)
    stale = training(1, 0.1, parameters={"sizes": [5]})
    kept.write(first, {"runs": [training(0, 0.2), stale, training(2, 0.3, method="gone")]})
    kept.write(part, {"runs": [training(0, 0.4)]})
    assert kept.parts_of(first) == [part]
    found = kept.read_runs([first, part, tmp_path / "none"], {("mnist", "itq"): {"sizes": (3, 4)}})
    assert found == {("mnist", 50, "itq", 12, 0): json.loads(json.dumps(training(0, 0.4)))}


def test_means_are_over_seeds(semi_supervised: Any) -> None:
    means = semi_supervised("_runs").means
    runs = [training(0, 0.2), training(1, 0.4), training(0, 0.9, bits=24)]
    twelve, more = means(runs)
    assert (twelve["bits"], twelve["seeds"], more["bits"]) == (12, [0, 1], 24)
    assert twelve["scores"]["MAP@5000"] == 0.3
    assert twelve["standard_deviation"]["MAP@5000"] == 0.1
    assert twelve["longest_wall_s"] == 4.0
    (failed,) = means([training(0, 0.2), {**training(1, 0.2), "error": "NaN"}])
    assert failed["error"] == "NaN"
    assert "scores" not in failed


def test_processes_share_the_work(semi_supervised: Any) -> None:
    plan = semi_supervised().plan
    entrants = semi_supervised("_entrants")

    def places(number: int, parts: int) -> list[Any]:
        return plan(
            argparse.Namespace(
                data=list(entrants.LABELS), labels=None, bits=entrants.BITS, seeds=(0, 1, 2),
                methods=list(entrants.ENTRANTS), part=(number, parts),
            )
        )  # fmt: skip

    # Six methods with their own graph, four of packages at 32 bits.
    assert len(places(1, 1)) == 6 * 3 * 4 * 3 + 4 * 3
    shared = [places(number, 3) for number in (1, 2, 3)]
    assert sorted(place for part in shared for place in part) == sorted(places(1, 1))
    assert max(map(len, shared)) - min(map(len, shared)) <= 6


def test_bars_of_few_labels(semi_supervised: Any) -> None:
    check_bars = semi_supervised("_bars").check_bars
    found = {
        bar["bar"]: bar
        for bar in check_bars(
            [
                mean("bgdh-i", 12, 0.80), mean("dpsh", 12, 0.79), mean("sdh", 12, 0.81),
                mean("bgdh-i", 24, 0.90), mean("dpsh", 24, 0.82), mean("itq", 24, None),
                mean("bgdh-t", 24, 0.95, longest_wall_s=601.0),
            ]
        )
    }  # fmt: skip
    met = {words.removeprefix("mnist 50 a class"): bar["met"] for words, bar in found.items()}
    assert met == {
        " 12 bits: bgdh-i better than dpsh": True,
        " 12 bits: bgdh-i better than sdh": False,
        " 24 bits: bgdh-i better than dpsh": True,
        " 24 bits: bgdh-i better than itq": False,
        " 24 bits: bgdh-t better than dpsh": True,
        " 24 bits: bgdh-t better than itq": False,
        ": bgdh-i above dpsh by 0.03 on average of 12, 24 bits": True,
        ": bgdh-t above dpsh by 0.03 on average of 24 bits": True,
        ": bgdh-i always trained in under 600 s": True,
        ": bgdh-t always trained in under 600 s": False,
    }
    gain = found["mnist 50 a class: bgdh-i above dpsh by 0.03 on average of 12, 24 bits"]
    assert gain["value"] == pytest.approx(0.045)


def test_bars_of_the_graph_of_words(semi_supervised: Any) -> None:
    check_bars = semi_supervised("_bars").check_bars
    task = {"dataset": "packages", "labels": 20}
    methods = {"bgdh-i": 0.5, "bgdh-i-words": 0.6, "bgdh-i-both": 0.4, "bgdh-t-words": 0.9}
    bars = check_bars([mean(method, 32, score, **task) for method, score in methods.items()])
    assert [(bar["value"], bar["met"]) for bar in bars if "better" in bar["bar"]] == [
        ((0.6, 0.5), True),
        ((0.4, 0.5), False),
    ]
