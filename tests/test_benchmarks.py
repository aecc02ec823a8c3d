"""The parts of the benchmarks that compute: what they draw, keep, average and hold against bars."""

import argparse
import itertools
import json
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from pg_hashindex.server import EmbeddedServer

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture
def retrieval(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))

    def module(part: str = "") -> ModuleType:
        return import_module(f"retrieval{part}")

    return module


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
    two, three = np.log(2), np.log(3)
    # dev has three packages, libfoo two; doc, foo and tools have one; x is too short.
    graph = data.word_graph(names, least=2)
    expected = [[three, two], [0, two], [three, 0], [three, 0], [0, 0]]
    np.testing.assert_allclose(graph.toarray(), expected)
    few = data.word_graph(names, least=2, most=2)
    np.testing.assert_allclose(few.toarray(), [[two], [two], [0], [0], [0]])
    np.testing.assert_allclose(
        data.word_graph(names, least=3).toarray()[:, 0], [three, 0, three, three, 0]
    )
    both = data.side_by_side(graph, few).toarray()
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


def drawn(retrieval: Any, n: int = 400, d: int = 16, m: int = 6, metric: str = "l2") -> Any:
    """Vectors of small integers, so that some distances are equal."""
    rng = np.random.default_rng(5)
    rows, queries = (rng.integers(-2, 3, size=(c, d)).astype(np.float32) for c in (n, m))
    return retrieval("_data").Drawn.of("packages", metric, rows, queries, rng)


def test_synthetic_rows_are_between_others(retrieval: Any) -> None:
    data = retrieval("_data")
    own, others = np.eye(4, dtype=np.float32)[:1], np.eye(4, dtype=np.float32)[1:]
    made = data.between(own, others, 200, np.random.default_rng(0))
    steps = [others[j] - others[k] for j, k in itertools.product(range(3), repeat=2)]
    possible = np.array([own[0] + 0.35 * step for step in steps])
    possible /= np.linalg.norm(possible, axis=1, keepdims=True)
    nearest = np.linalg.norm(made[:, None] - possible, axis=2)
    assert nearest.min(axis=1).max() < 1e-6
    # Where j and k are the same, the row is x_i itself.
    assert set(nearest.argmin(axis=1)) == {0, 1, 2, 3, 5, 6, 7}
    np.testing.assert_array_equal(made, data.between(own, others, 200, np.random.default_rng(0)))


@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_the_truth_is_that_of_brute_force(
    retrieval: Any, metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = retrieval("_data")
    monkeypatch.setattr(data, "_BLOCK_ROWS", 64)
    found = drawn(retrieval, metric=metric)
    truth = data.Truth(found, 10)
    for share in (100, 1, 10, 50):
        passing = np.flatnonzero(found.buckets[: len(found.rows)] < share)
        assert truth.wanted[share] == min(10, len(passing))
        answers, short = [], []
        for query, limit in zip(found.queries.astype(float), truth.limits[share], strict=True):
            X = found.rows[passing].astype(float)
            far = np.linalg.norm(X - query, axis=1)
            if metric == "cosine":
                far = 1 - X @ query / (np.linalg.norm(X, axis=1) * np.linalg.norm(query))
            order = passing[np.argsort(far, kind="stable")]
            assert np.sort(far)[truth.wanted[share] - 1] == pytest.approx(limit, abs=1e-12)
            # Of rows at the limit any may be the last.
            tied = passing[np.isclose(far, limit, atol=1e-9)]
            answers.append([*order[: truth.wanted[share] - 1], tied[-1]])
            short.append(
                [*order[:1], *order[:1], *np.flatnonzero(found.buckets[:400] >= share)[:3]]
            )
        assert truth.recall(answers, share) == 1.0
        # A key that comes twice, or does not pass the filter, counts once or not at all.
        assert truth.recall(short, share) == pytest.approx(1 / truth.wanted[share])


def test_systems_are_measured_and_leave_nothing_behind(
    retrieval: Any, server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if server.version != 18:
        pytest.skip("one version of PostgreSQL is enough for a benchmark")
    pytest.importorskip("matplotlib")
    measures, timing = retrieval("_measures"), retrieval("_timing")
    monkeypatch.setattr(timing, "LEAST_TIMED", 10)
    monkeypatch.setattr(timing, "WARM_UP", 1)
    found = drawn(retrieval)
    truth = retrieval("_data").Truth(found, 10)
    wanted = {"exact": 0, "hnsw": 1, "hnsw-binary": 0, "scan": 0}
    systems = [s for s in retrieval("_systems").PGVECTOR if s.name in wanted]
    systems.append(retrieval("_ours").Ours("scan", "lsh", 32, "scan"))
    entries = {}
    with retrieval("_server").database(server, found) as opened:
        loaded = opened.connection.execute(
            "SELECT id, bucket, tenth, half, embedding FROM items ORDER BY id"
        ).fetchall()
        buckets = found.buckets[:400]
        expected = zip(range(400), buckets, buckets // 10, buckets // 50, strict=True)
        assert [row[:4] for row in loaded] == [tuple(map(int, row)) for row in expected]
        np.testing.assert_array_equal([row[4].to_numpy() for row in loaded], found.rows)
        for system in systems:
            extent = measures.Extent(single=6, batches=4, seconds=wanted[system.name])
            entries[system.name] = measures.measure(opened, truth, system, extent)
            assert opened.value("SELECT count(*) FROM items") == 400
            assert opened.value("SELECT to_regclass('items_pgvector')") is None
            assert opened.value("SELECT count(*) FROM hashindex.index") == 0
            assert opened.value("SELECT count(*) FROM hashindex.model") == 0
    assert [entry.get("error") for entry in entries.values()] == [None] * 4
    exact, hnsw, ours = (entries[name] for name in ("exact", "hnsw", "scan"))
    assert [point["recall"] for point in exact["filtered"].values()] == [1.0] * 3
    assert exact["targets"]["0.99"]["recall"] == 1.0
    # Of 400 rows the pages of the catalog are the greater part.
    assert hnsw["bytes"] == hnsw["sizes"]["index"] > 400 * 16 * 4
    assert ours["sizes"]["ours_codes"] > 400 * 4
    assert hnsw["clients"]["queries_a_second"] > 0
    # All rows are candidates of the last setting.
    assert ours["frontier"][-1]["recall"] == 1.0
    assert ours["full_scan"]["bits"] == 32
    assert all(
        entry["inserts"][kind] > 0 for entry in entries.values() for kind in entry["inserts"]
    )

    report = retrieval("_report")
    whole = report.report({("packages", name): entries[name] for name in wanted}, list(wanted))
    assert len(list(report.lines(whole))) == 1 + len(wanted) + 1 + len(whole["bars"]) + 1
    report.save_plot(whole["systems"], tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 10_000


def searched(data: str, system: str, p50: float, **others: Any) -> dict[str, Any]:
    point = {"recall": 0.96, "p50_ms": p50}
    return {
        "data": data, "system": system, "run": "a", "described": {}, "build_s": 5.0, "bytes": 10,
        "targets": {"0.95": point}, "inserts": {"single": 900.0, "batches": 300.0},
        "filtered": {"1": {"recall": 1.0, "p50_ms": 2.0}, "10": {"recall": 0.9, "p50_ms": 2.0}},
    } | others  # fmt: skip


def test_bars_of_searches(retrieval: Any) -> None:
    check_bars = retrieval("_bars").check_bars
    landmarks = {"access": "landmarks", "bits": 256}
    bars = check_bars(
        [
            searched("synthetic-300k", "hnsw", 2.0, build_s=100.0, bytes=150,
                     inserts={"single": 300.0, "batches": 200.0}),
            searched("synthetic-300k", "slow", 9.0, described=landmarks, build_s=1.0),
            searched("synthetic-300k", "fast", 4.0, described=landmarks),
            searched("synthetic-1m", "hnsw", 2.0, targets={"0.95": None}),
            searched("synthetic-1m", "fast", 1.0, described=landmarks, run="b",
                     filtered={"1": {"recall": 1.0, "p50_ms": 0.9}}),
            searched("synthetic-1m", "scan", 1.0, described={"bits": 128},
                     full_scan={"bits": 128, "ratio": 2.5}),
        ]
    )  # fmt: skip
    found = {bar["bar"]: (bar["value"], bar["met"], bar["beyond"], bar["one_run"]) for bar in bars}
    small, large = "synthetic-300k, landmarks", "synthetic-1m, landmarks"
    assert found == {
        f"{small}: p50 at recall 0.95 at most 2.5 times HNSW's": (2.0, True, False, True),
        f"{small}: HNSW's build seconds / ours at least 10": (20.0, True, False, True),
        f"{small}: HNSW's bytes / ours at least 10": (15.0, True, False, True),
        f"{small}: single inserts a second, ours / HNSW's at least 2": (3.0, True, False, True),
        f"{small}: inserts of 100 a second, ours / HNSW's at least 2": (1.5, False, False, True),
        f"{large}: p50 at recall 0.95 at most 2.0 times HNSW's": (None, False, False, False),
        f"{small}, filter of 1 %: recall@10 at least 0.99": (1.0, True, False, True),
        f"{small}, filter of 10 %: recall@10 at least 0.99": (0.9, False, False, True),
        f"{large}, filter of 1 %: recall@10 at least 0.99": (1.0, True, True, False),
        f"{large}, filter of 10 %: recall@10 at least 0.99": (None, False, False, False),
        "synthetic-1m, 128 bits: full scan at most 3 times count(*)": (2.5, True, False, True),
    }


def test_bars_of_recall_are_of_200_candidates_in_asymmetric_order(retrieval: Any) -> None:
    def point(candidates: int, ranking: str, recall: float) -> dict[str, Any]:
        arguments = {"candidates": candidates, "ranking": ranking}
        return {"setting": f"{ranking} {candidates}", "arguments": arguments, "recall": recall}

    points = [
        point(100, "asymmetric", 0.97), point(200, "asymmetric", 0.981),
        point(400, "asymmetric", 0.99), point(200, "hamming", 0.999),
    ]  # fmt: skip
    entry = {"data": "packages", "system": "itq", "described": {"bits": 128}, "frontier": points}
    (bar,) = retrieval("_bars").check_bars([entry, {**entry, "described": {"bits": 256}}])
    assert (bar["value"], bar["met"], bar["beyond"]) == (0.981, True, False)
    assert bar["by"] == "itq asymmetric 200"


def test_what_was_measured_under_the_same_conditions_is_not_measured_again(retrieval: Any) -> None:
    module = retrieval()
    args = argparse.Namespace(
        data=["packages", "sift10k"], systems=["exact", "hnsw", "itq-256-scan"], fresh=False,
        rows=None, queries=1000, extent=retrieval("_measures").Extent(), settings={"jit": "off"},
    )  # fmt: skip
    conditions = module.conditions(args, module.SYSTEMS["hnsw"])
    found = {
        ("packages", "hnsw"): {"conditions": conditions},
        ("sift10k", "hnsw"): {"conditions": conditions | {"queries": 50}},
        ("packages", "exact"): {"conditions": conditions, "error": "no"},
    }

    def names() -> dict[str, list[str]]:
        return {
            data: [s.name for s in systems] for data, systems in module.plan(args, found).items()
        }

    # Codes of 256 bits by ITQ are not for 128 dimensions.
    assert names() == {"packages": ["exact", "itq-256-scan"], "sift10k": ["exact", "hnsw"]}
    args.fresh = True
    assert names()["packages"] == ["exact", "hnsw", "itq-256-scan"]
