"""The parts of the benchmarks that compute: what they draw, keep, average and compare."""

import argparse
import ast
import itertools
import json
import subprocess
import time
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from fixtures.clusters import clustered
from pg_hashindex.cli.main import main

from pg_hashindex.papers import Method, Split, load_split

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


def parts_of(benchmark, monkeypatch):
    """Return a function that imports a module of a benchmark by the end of its name."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return lambda part="": import_module(f"{benchmark}{part}")


@pytest.fixture
def retrieval(monkeypatch):
    return parts_of("retrieval", monkeypatch)


@pytest.fixture
def papers(monkeypatch):
    return parts_of("papers", monkeypatch)


def test_a_line_of_hashing_agrees_with_the_command(papers, tmp_path):
    """The same split, settings and seeds: the same means and standard deviations in the JSON."""
    module, methods = papers(), papers("_methods")
    X, y = clustered()
    rows = np.arange(40, 400)
    numbers = {"query": np.arange(40), "database": rows, "train": rows[:300]}
    files = tmp_path / "data.npz", tmp_path / "split.npz"
    np.savez(files[0], X=X, y=y)
    np.savez(files[1], **numbers, anchors=np.arange(299, -1, -1), labelled=np.arange(0, 300, 2))
    mine = Method("sgh", {"anchors": "split", "n_anchors": 40, "scale": "unit"}, "mine")
    few = methods.ENTRANTS["s3plh"].method
    split = load_split(*files)
    theirs = dict.fromkeys(module.COMPARED, 0.1)
    ours = [
        next(
            module.Part({"bits": 8}, one, lambda _: split, range(seeds), theirs).lines(module.FIRST)
        )
        for one, seeds in ((mine, 3), (few, 1))
    ]
    common = ["--data", *files[:1], "--split", *files[1:], "--bits", 8, "--json", "-k", "50,100"]
    commands = [
        ["--methods=mine=sgh", "--param=mine.anchors=split", "--param=mine.n_anchors=40",
         "--param=mine.scale=unit", "--seeds=3"],
        ["--methods=s3plh", "--labelled"],
    ]  # fmt: skip
    truths = ["--truth", "label", "--truth", "nearest-fraction"]
    for result, options in zip(ours, commands, strict=True):
        arguments = [str(word) for word in ("bench", "hash", *common, *truths, *options)]
        printed = CliRunner().invoke(main, arguments, catch_exceptions=False)
        (outcome,) = json.loads(printed.stdout)
        assert outcome["seeds"] == result["seeds"]
        spread = outcome["standard_deviation"].get("scores")
        for name, (truth, measure) in module.SCORES.items():
            mean = outcome["scores"][truth.name][measure]
            assert result["scores"][name] == round(mean, 4)
            deviation = spread[truth.name][measure] if spread else 0
            assert result["standard_deviation"][name] == round(deviation, 4)
        for name, value in result["difference"].items():
            assert value == round(result["scores"][name] - 0.1, 4)


def test_a_table_continues_and_replaces_what_is_stale(papers, monkeypatch, tmp_path, capsys):
    """Figures of other settings are measured again, in place."""
    module = papers()
    X, y = clustered()
    numbers = {"query": range(40), "database": range(40, 400), "train": range(40, 400)}
    split = Split.of(X, y, numbers=numbers)

    def parts(quick):
        for name in ("lsh", "pcah"):
            for bits in (4, 8):
                yield module.Part({"method": name, "bits": bits}, Method(name), lambda _: split)

    monkeypatch.setattr(module, "RESULTS", tmp_path)
    monkeypatch.setitem(module.TABLES, "mine", (parts, module.FIRST))
    path = module.run_table("mine", {"bits": ["8"]}, None)
    whole = json.loads(path.read_text())["results"]
    assert [(line["method"], line["bits"]) for line in whole] == [("lsh", 8), ("pcah", 8)]
    stale = [{**whole[0], "settings": {"center": 5}, "scores": {}}, whole[1]]
    path.write_text(json.dumps({"results": stale}))
    capsys.readouterr()
    module.run_table("mine", {}, None)
    lines = json.loads(path.read_text())["results"]
    assert [line["method"] for line in lines] == ["lsh", "pcah", "lsh", "pcah"]
    assert [line["bits"] for line in lines] == [8, 8, 4, 4]
    assert lines[0]["scores"]["MAP_label"] == whole[0]["scores"]["MAP_label"]
    assert lines[1] == whole[1]
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_the_choices_of_defaults_are_those_of_the_measurements(papers):
    """The committed choices follow from the committed scores."""
    module = papers()
    committed = module.read(module.RESULTS / "defaults.json")
    for chosen in committed["chosen"]:
        assert module.choose(chosen["method"], committed["results"]) == chosen


def drawn(retrieval, n=400, d=16, m=6):
    """Vectors of small integers, so that some distances are equal."""
    rng = np.random.default_rng(5)
    rows, queries, fresh = (rng.integers(-2, 3, size=(c, d)).astype(np.float32) for c in (n, m, m))
    return retrieval("_data").DataSet.of("packages", rows, queries, fresh, rng)


def test_synthetic_rows_are_between_others(retrieval):
    data = retrieval("_data")
    own, others = np.eye(4, dtype=np.float32)[:1], np.eye(4, dtype=np.float32)[1:]
    made = data.between(own, others, 200, np.random.default_rng(0))
    steps = [others[j] - others[k] for j, k in itertools.product(range(3), repeat=2)]
    possible = np.array([own[0] + 0.35 * step for step in steps])
    possible /= np.linalg.norm(possible, axis=1, keepdims=True)
    nearest = np.linalg.norm(made[:, None] - possible, axis=2)
    assert nearest.min(axis=1).max() < 1e-6
    # If j and k are the same, the row is x_i itself.
    assert set(nearest.argmin(axis=1)) == {0, 1, 2, 3, 5, 6, 7}
    np.testing.assert_array_equal(made, data.between(own, others, 200, np.random.default_rng(0)))


def test_rows_of_other_dimensions_are_in_clusters_and_their_spectrum_decays(retrieval, tmp_path):
    data = retrieval("_data")
    found = data.draw(tmp_path, "dims-512", 20, 30, 3_000)
    assert [len(X) for X in (found.rows, found.queries, found.fresh)] == [3_000, 20, 30]
    assert np.linalg.norm(found.rows, axis=1) == pytest.approx(1, abs=1e-5)
    spectrum = np.linalg.svd(found.rows - found.rows.mean(axis=0), compute_uv=False) ** 2
    assert spectrum[:50].sum() > 0.6 * spectrum.sum()
    # Six rows of a cluster are nearer to each other than to the rest.
    nearest = np.sort(found.rows[:300] @ found.rows.T, axis=1)[:, ::-1]
    assert np.median(nearest[:, 3]) > np.median(nearest[:, 30]) + 0.1
    np.testing.assert_array_equal(found.rows, data.draw(tmp_path, "dims-512", 20, 30, 3_000).rows)


def test_the_truth_is_that_of_brute_force(retrieval, monkeypatch):
    data = retrieval("_data")
    monkeypatch.setattr(data, "_BLOCK_ROWS", 64)
    found = drawn(retrieval)
    truth = data.Truth(found, 10)
    for share in (100, 10, 50):
        passing = np.flatnonzero(found.buckets[: len(found.rows)] < share)
        wanted = min(10, len(passing))
        answers, short = [], []
        for query, right in zip(
            found.queries.astype(float), truth.exact[share].distances, strict=True
        ):
            X = found.rows[passing].astype(float)
            far = 1 - X @ query / (np.linalg.norm(X, axis=1) * np.linalg.norm(query))
            order = passing[np.argsort(far, kind="stable")]
            limit = np.sort(far)[wanted - 1]
            assert right == pytest.approx(np.sort(far)[:wanted], abs=2e-6)
            # Any row at the limit may be the last.
            tied = passing[np.isclose(far, limit, atol=1e-9)]
            answers.append([*order[: wanted - 1], tied[-1]])
            short.append(
                [*order[:1], *order[:1], *np.flatnonzero(found.buckets[:400] >= share)[:3]]
            )
        assert truth.recall(answers, share) == 1.0
        # A key that comes twice, or does not pass the filter, counts once or not at all.
        assert truth.recall(short, share) == pytest.approx(1 / wanted)


# Benchmarks run on the newest PostgreSQL alone.
@pytest.mark.newest
def test_systems_are_measured_and_leave_nothing_behind(retrieval, server, monkeypatch):
    if server.version != 18:
        pytest.skip("one version of PostgreSQL is enough for a benchmark")
    measures, systems, bench = retrieval("_measures"), retrieval("_systems"), retrieval()
    monkeypatch.setattr(measures, "WARM_UP", 1)
    monkeypatch.setattr(systems, "_CANDIDATES", (400, 50, 10))
    monkeypatch.setattr(systems, "_PROBES", (1, 4, 200))
    monkeypatch.setattr(systems, "_EF_SEARCH", (10, 100))
    found = drawn(retrieval)
    extent = measures.Extent(queries=6, filter_queries=6, single=6, batches=4)
    compared = [systems.Hnsw("hnsw"), systems.Ours("ours", bits=16)]
    with retrieval("_server").database(server, found) as opened:
        with opened.session() as session:
            loaded = session.connection.execute(
                "SELECT id, tenth, half, embedding FROM items ORDER BY id"
            ).fetchall()
        buckets = found.buckets[:400]
        expected = zip(range(400), buckets // 10, buckets // 50, strict=True)
        assert [row[:3] for row in loaded] == [tuple(map(int, row)) for row in expected]
        np.testing.assert_array_equal([row[3].to_numpy() for row in loaded], found.rows)
        wanted = ("build", "search", "filters", "inserts")
        run = bench.Run(opened, extent, compared, wanted, 1)
        parts = dict(run.results())
        assert opened.value("SELECT count(*) FROM items") == 400
        assert opened.value("SELECT to_regclass('items_hnsw')") is None
        assert opened.value("SELECT count(*) FROM hashindex.index") == 0
        assert opened.value("SELECT count(*) FROM hashindex.model") == 0
    assert tuple(parts) == wanted
    (hnsw,), (ours,) = (parts["build"]["systems"][name] for name in ("hnsw", "ours"))
    assert hnsw["bytes"] == hnsw["sizes"]["items_hnsw"] > 400 * 16 * 4
    assert ours["bytes"] == sum(ours["sizes"].values())
    assert {"train", "create"} <= set(ours["steps"])
    taken = sum(ours["steps"][step] for step in ("train", "create"))
    assert ours["seconds"] == pytest.approx(taken, abs=0.1)
    (searched,) = parts["search"]["rounds"]
    shares = parts["filters"]["shares"]
    for point in (*searched.values(), *shares["10"].values(), *shares["50"].values()):
        # All rows are candidates of the last setting.
        assert point["reached"]
        assert 0 < point["p50_ms"] <= point["p95_ms"]
    rates = parts["inserts"]["systems"]
    assert all(rates[name][kind] > 0 for name in rates for kind in ("single", "batches"))
    whole = {"data": "x", "rows": 400, "dimension": 16, "parts": parts}
    text = "\n".join(retrieval("_report").lines(whole))
    compared_figures = [what for what, *_ in retrieval("_report").compare(parts)]
    assert len(compared_figures) == 7
    assert all(what in text for what in compared_figures)


@pytest.mark.newest
@pytest.mark.parametrize("kind", ["vector", "halfvec"])
def test_all_that_pgvector_offers_is_measured_in_a_copy(retrieval, server, monkeypatch, kind):
    if server.version != 18:
        pytest.skip("one version of PostgreSQL is enough for a benchmark")
    data, measures, servers = retrieval("_data"), retrieval("_measures"), retrieval("_server")
    monkeypatch.setattr(measures, "WARM_UP", 1)
    monkeypatch.setattr(data, "MOST_OF_VECTOR", 16 if kind == "vector" else 15)
    systems = retrieval("_systems").compared(kind, 16, bits=16)
    assert ("hnsw-halfvec" in systems) is (kind == "vector")
    found = drawn(retrieval)
    extent = measures.Extent(queries=6, single=6, batches=4)
    truth = data.Truth(found, 10)
    with servers.database(server, found) as opened:
        assert opened.value("SELECT pg_typeof(embedding)::text FROM items LIMIT 1") == kind
        for name, system in systems.items():
            with servers.copied(opened) as copy:
                built = system.build(copy, 0)
                assert (sum(built.sizes.values()) > 0) is (name != "exact")
                searches = measures.Searches(copy, truth, extent)
                point = searches.cheapest([system], 0.9)[name]
                assert point["reached"], name
                if name not in ("exact", "ours"):
                    statement = system.statement(10, measures.setting_of(point))
                    zeros = f"'[{','.join(['1'] * 16)}]'"
                    with copy.session() as session:
                        session.set({"enable_seqscan": "off"})
                        plan = session.connection.execute(
                            f"EXPLAIN {statement.replace('$1', zeros)}".encode()
                        ).fetchall()
                    assert system.index in str(plan), name
                assert measures.inserts(copy, extent)["single"] > 0
                assert not measures.churn(copy, 60)["stopped"]
                assert copy.value("SELECT count(*) FROM items WHERE id % 5 = 0") == 0
        assert opened.value("SELECT count(*) FROM items") == 400


def test_a_series_ends_when_patience_does(retrieval):
    measures = retrieval("_measures")
    keys, milliseconds = measures.answered(lambda _: [(1, 0.0)], [None] * 50, patience=0)
    assert len(keys) == len(milliseconds) == 30
    assert measures.answered(lambda _: [(1, 0.0)], [None] * 50, warm_up=5)[0] == [[1]] * 50


def test_ours_is_compared_with_each_hnsw(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    report = import_module("memory_report")

    def system(size, seconds, cold, steady, rate):
        held = {
            "limit_bytes": 250, "cold_p50_ms": cold, "cold_p95_ms": cold, "steady_p50_ms": steady,
            "steady_p95_ms": steady, "per_second": 1.0, "per_second_of_many": 1.0,
            "setting": "x", "recall": 0.951,
        }  # fmt: skip
        return {
            "build": {"seconds": seconds, "bytes": size},
            "search": {"reached": True, "recall": 0.951},
            "writes": {"single": rate, "batches": rate},
            "memory": {"4": held, "1": held | {"limit_bytes": 1000}},
            "churn": {"delete_s": 1.0, "vacuum_s": 9.0, "stopped": size == 600},
        }

    whole = {
        "data": "x", "rows": 9, "dimension": 4, "type": "vector", "table_bytes": 400,
        "systems": {
            "ours": system(60, 10, 10, 5, 600),
            "hnsw": system(600, 60, 50, 9, 100),
            "hnsw-signs": system(100, 40, 9, 3, 200),
        },
    }  # fmt: skip
    assert [(ratio, note) for *_, ratio, note in report.comparison(whole)] == [
        ("0.20", "does not fit"), ("0.56", "does not fit"), ("6.00", ""), ("6.00", ""),
        ("6.00", ""), ("1.11", "fits"), ("1.67", "fits"), ("4.00", ""), ("3.00", ""), ("3.00", ""),
    ]  # fmt: skip
    text = "\n".join(report.lines(whole))
    assert "> 9.0" in text
    assert "At 1/4 of memory, steady, HNSW, binary_quantize is fastest: 3.0 ms" in text
    whole["systems"]["ours"]["search"]["reached"] = False
    assert "pg_hashindex reaches a recall of 0.951 only" in "\n".join(report.lines(whole))


def test_searches_are_compared_with_hnsw(retrieval):
    def rounds(*pairs):
        return [{"hnsw": {"p50_ms": a}, "ours": {"p50_ms": b}} for a, b in pairs]

    def built(*figures):
        return [{"seconds": seconds, "bytes": size} for seconds, size in figures]

    def filtered(p50, *, reached):
        return {"p50_ms": p50, "reached": reached}

    parts = {
        "search": {"rounds": rounds((2.0, 1.0), (2.0, 3.0), (2.0, 1.8))},
        "build": {"systems": {
            "hnsw": built((100.0, 600)), "ours": built((10.0, 40), (5.0, 40), (20.0, 40)),
        }},
        "filters": {"shares": {
            "10": {"hnsw": filtered(10.0, reached=False), "ours": filtered(1.0, reached=False)},
            "50": {
                "hnsw": filtered(10.0, reached=False), "ours": filtered(15.0, reached=True),
            },
        }},
        "inserts": {"systems": {
            "hnsw": {"single": 100.0, "batches": 100.0},
            "ours": {"single": 499.0, "batches": 1000.0},
        }},
    }  # fmt: skip
    found = list(retrieval("_report").compare(parts))
    assert {what: ratio for what, *_, ratio in found} == {
        "p50 at .95 in memory, ms": 0.9,
        "p50, filter of 10 %, ms": None,
        "p50, filter of 50 %, ms": 1.5,
        "build, s": 10.0,
        "bytes": 15.0,
        "single inserts a second": 4.99,
        "rows by 100 a second": 10.0,
    }
    # Medians of all builds; a recall that ours does not reach has no figure.
    assert found[0] == ("p50 at .95 in memory, ms", 2.0, 1.8, 0.9)
    assert found[1] == ("p50, filter of 10 %, ms", 10.0, None, None)


def test_the_fewest_probes_are_looked_for(retrieval, monkeypatch):
    measures, systems = retrieval("_measures"), retrieval("_systems")
    monkeypatch.setattr(systems, "_CANDIDATES", (100, 50, 20))
    monkeypatch.setattr(systems, "_PROBES", (4, 5, 10, 20, 40))
    # With an effort of 4 there may be fewer rows than 100: then all codes are compared.
    recalls = {
        100: (1.0, 0.9, 0.95, 0.97, 1.0),
        50: (0.8, 0.8, 0.9, 0.94, 0.96),
        20: (0.1, 0.2, 0.3, 0.4, 0.5),
    }

    def point(searches, system, setting):
        place = (4, 5, 10, 20, 40).index(setting.arguments["effort"])
        recall = recalls[setting.arguments["candidates"]][place]
        return {"setting": setting.label, "recall": recall}

    monkeypatch.setattr(measures.Searches, "point", point)
    searches = measures.Searches(argparse.Namespace(drawn=drawn(retrieval)), None, measures.QUICK)
    found, _ = searches.finalists(systems.Ours("ours"), 0.95)
    assert [p["setting"] for p in found] == ["candidates=100 effort=10", "candidates=50 effort=40"]
    (best,), _ = searches.finalists(systems.Ours("ours"), 1.1)
    assert best["recall"] == 1.0


def test_processes_stay_in_the_memory_group(retrieval):
    module = retrieval("_held")
    try:
        group = module.MemoryGroup(64 << 20)
    except module.NoCgroupsError as error:
        pytest.skip(str(error))
    with group.entered():
        inside = subprocess.Popen(["sleep", "60"])
    try:
        assert group.folder.name in Path(f"/proc/{inside.pid}/cgroup").read_text()
        assert group.folder.name not in Path("/proc/self/cgroup").read_text()
    finally:
        inside.kill()
        inside.wait()
    group.close()
    assert not group.folder.exists()


@pytest.fixture
def scale(monkeypatch):
    return parts_of("scale", monkeypatch)


def test_rows_of_blocks_are_made_when_they_are_read(scale, monkeypatch):
    data = scale("_data")
    monkeypatch.setattr(data, "BLOCK", 64)
    others = np.random.default_rng(0).standard_normal((30, 8)).astype(np.float32)
    rows = data.BlockRows(others, 200)
    blocks = [*rows.blocks()]
    assert [(first, len(block)) for first, block in blocks] == [
        (0, 64),
        (64, 64),
        (128, 64),
        (192, 8),
    ]
    whole = np.concatenate([block for _, block in blocks])
    assert np.array_equal(whole, whole.astype(np.float16))
    assert np.linalg.norm(whole, axis=1) == pytest.approx(1, abs=2e-3)
    assert len(np.unique(whole, axis=0)) > 190
    numbers = np.array([[199, 0, 64], [63, 0, 130]])
    np.testing.assert_array_equal(rows[numbers], whole[numbers])
    # With fewer rows the first ones are the same.
    np.testing.assert_array_equal(data.BlockRows(others, 100)[np.arange(100)], whole[:100])


def test_the_truth_of_blocks_is_that_of_brute_force(scale, monkeypatch, tmp_path):
    data = scale("_data")
    monkeypatch.setattr(data, "BLOCK", 64)
    rng = np.random.default_rng(1)
    others, queries = (rng.standard_normal((n, 8)).astype(np.float32) for n in (30, 5))
    rows = data.BlockRows(others, 500)
    drawn = data.HalfDataSet("x", rows, queries, queries, queries, np.zeros(500, np.int32))
    assert drawn.type == "halfvec"
    X = rows[np.arange(500)].astype(float)
    unit = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    far = 1 - unit @ X.T / np.linalg.norm(X, axis=1)
    saved = tmp_path / "truth.npy"
    for _ in range(2):
        truth = data.BlockTruth(drawn, 10, saved)
        assert np.array(truth.exact[100].distances) == pytest.approx(np.sort(far)[:, :10], abs=2e-6)
        right = np.argsort(far, axis=1)[:, :10]
        assert truth.recall(right) == 1
        assert truth.recall(np.where(np.arange(10) < 4, np.argsort(-far)[:, :10], right)) == 0.6
        # The second time nothing is computed.
        monkeypatch.setattr(data, "nearest_by_blocks", None)


@pytest.mark.newest
def test_blocks_are_loaded(scale, retrieval, server, monkeypatch):
    if server.version != 18:
        pytest.skip("one version of PostgreSQL is enough for a benchmark")
    data, servers = scale("_data"), retrieval("_server")
    monkeypatch.setattr(data, "BLOCK", 64)
    rows = data.BlockRows(np.random.default_rng(2).standard_normal((30, 8)).astype(np.float32), 100)
    drawn = data.HalfDataSet("x", rows, *[np.empty((0, 8), np.float32)] * 3, np.zeros(100))
    database = servers.Database(server, "scale_of_blocks", drawn)
    servers.new_database(server, database.name)
    with scale("_watch").Watch(database) as watch:
        data.load_blocks(database)
    with database.session() as session:
        loaded = session.connection.execute("SELECT id, embedding FROM items ORDER BY 1").fetchall()
    assert [key for key, _ in loaded] == list(range(100))
    np.testing.assert_array_equal([v.to_numpy() for _, v in loaded], rows[np.arange(100)])
    assert watch.figures["seconds"] > 0
    assert watch.figures["server_cpu_s"] >= 0


def test_a_part_is_cut_off(scale):
    module = scale()
    with pytest.raises(module.PartCutOffError), module.at_most(0.01):
        time.sleep(5)
    with module.at_most(60):
        pass


def scaled(rows, cpu, hnsw):
    """Return the parts of ``rows``: 800 bytes of table and 200 of index for each."""
    point = {"p50_ms": 4.0, "p95_ms": 8.0, "cpu_ms": cpu / 100, "recall": 0.96, "reached": True}
    return {
        "load": {"seconds": 2, "client_cpu_s": 1, "server_cpu_s": 1, "table_bytes": 800 * rows},
        "build": {
            "seconds": cpu, "client_cpu_s": 0.75 * cpu, "server_cpu_s": 0.25 * cpu,
            "others_cpu_s": 0.0, "bytes": 200 * rows,
            "client_peak_mb": 300 + 180 * rows / 1e6, "server_peak_mb": 4_300,
        },
        "search": {"systems": {"ours": {"0.95": point}}},
        "hnsw": {"build": hnsw},
        "swap": {"exit_code": 2},
    }  # fmt: skip


def test_more_rows_are_extrapolated_and_said_to_be(scale):
    """CPU time grows with the power 1.5 of the rows; HNSW's does so too, within its build."""
    report = scale("_report")
    whole_hnsw = {"finished": True, "seconds": 9, "server_cpu_s": 1_000.0, "server_peak_mb": 8_000}
    # A tenth of four million rows takes as long as the whole of 400,000.
    progress = [
        [t, share, 1_000 * (4 * share) ** 1.5] for t, share in enumerate((0, 0.02, 0.05, 0.1))
    ]
    stopped = {
        "finished": False, "seconds": 9, "server_cpu_s": progress[-1][2], "share": 0.1,
        "progress": progress, "server_peak_mb": 8_000,
    }  # fmt: skip
    sizes = {
        "4000000": {"parts": scaled(4_000_000, 800.0, stopped)},
        "1000000": {"parts": scaled(1_000_000, 100.0, whole_hnsw)},
    }
    whole = {"sizes": sizes}
    assert list(report.parts_by_rows(whole)) == [1_000_000, 4_000_000]
    assert report.hnsw_build_cpu(sizes["4000000"]["parts"], 4_000_000) == pytest.approx(8_000)
    found = {line[0]: line[1:] for line in report.extrapolated(whole)}
    assert found["table, GB"] == ["~8.0", "~24.0", "~80.0"]
    assert found["index, GB"] == ["~2.0", "~6.0", "~20.0"]
    assert found["client's memory, GB"] == ["~2.1", "~5.7", "~18.3"]
    # 100 s times the power 1.5 of 10, 30 and 100.
    assert found["build, CPU hours"] == ["~0.88", "~4.56", "~27.78"]
    assert found["HNSW's build, CPU hours"] == ["~8.8", "~45.6", "~277.8"]
    third = {"sizes": {"10000000": {"parts": scaled(10**7, 3_600.0, whole_hnsw)}, **sizes}}
    assert {line[0]: line[1] for line in report.extrapolated(third)}["build, CPU hours"] == "1.00"
    lines = {line[0]: line[1:] for line in report.table(whole)}
    assert lines["HNSW build: s / CPU s"] == ["9 / 1000", "9 / 253, 10.0 % done"]
    assert lines["bytes a row"] == ["200", "200"]
    assert lines["recall .95: p50 / p95 / CPU, ms"] == ["4.00 / 8.00 / 1.0", "4.00 / 8.00 / 8.0"]
    assert lines["swap: s / CPU s"] == ["refused", "refused"]
    # Nothing is shown of what was not measured at any size.
    assert "vacuum" not in str(lines)


def test_codes_beside_those_of_faiss(monkeypatch, tmp_path, capsys):
    """More candidates hold more neighbours, and the file has what is printed."""
    pytest.importorskip("faiss", reason="Faiss is not installed (extra faiss)")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    faiss_codes = import_module("faiss_codes")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1100, 16)) @ rng.standard_normal((16, 24))
    np.savez(tmp_path / "packages.npz", X=X / np.linalg.norm(X, axis=1, keepdims=True))
    ours = ((16, 1, True), (16, 1, False), (8, 3, False))
    monkeypatch.setattr(faiss_codes, "OURS", ours)
    monkeypatch.setattr(faiss_codes, "FAISS", {"ITQ16,LSH": "faiss-itq", "RaBitQ": "faiss-rabitq"})
    output = tmp_path / "out.json"
    given = [
        "x",
        "--data",
        str(tmp_path),
        "--output",
        str(output),
        "--rows",
        "1060",
        "--queries",
        "40",
    ]
    monkeypatch.setattr("sys.argv", given)
    faiss_codes.main()
    found = {line["code"]: line for line in json.loads(output.read_text())["results"]}
    assert capsys.readouterr().out.count("\n") == len(found) == 5
    sizes = {
        "itq, 16 x 1, by Hamming distance": 2,
        "itq, 8 x 3, asymmetric": 3,
        "faiss-itq": 2,
    }
    assert {name: found[name]["bytes"] for name in sizes} == sizes
    for line in found.values():
        recalls = list(line["recall"].values())
        assert recalls == sorted(recalls)
        assert recalls[-1] > 0.6


def test_the_module_for_ann_benchmarks_is_what_its_configuration_names():
    """Its own runner needs packages that are not installed here; `run.py` beside it calls that."""
    folder = BENCHMARKS / "ann_benchmarks"
    classes = {
        node.name: {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
        for node in ast.parse((folder / "module.py").read_text()).body
        if isinstance(node, ast.ClassDef)
    }
    configuration = yaml.safe_load((folder / "config.yml").read_text())
    systems = configuration["float"]["any"]
    assert {system["name"] for system in systems} == {
        "pg_hashindex", "pgvector-hnsw", "pgvector-ivfflat", "pgvector-binary_quantize",
    }  # fmt: skip
    for system in systems:
        assert {"build", "set_query_arguments"} <= classes[system["constructor"]]
        assert system["docker_tag"] == "ann-benchmarks-pg_hashindex"
    run = (folder / "run.py").read_text()
    assert all(f'"{system["name"]}"' in run for system in systems)


def commit(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    person = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    for words in (("add", path), (*person, "commit", "--quiet", "--message", text)):
        subprocess.run(["git", *words], cwd=path.parent, check=True)


@pytest.fixture
def figures(monkeypatch, tmp_path):
    """The campaign with one part, a script that keeps its arguments and fails on its first run."""
    module = parts_of("figures", monkeypatch)()
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks/one.py").write_text(
        "import pathlib, sys; kept = pathlib.Path('kept'); first = not kept.exists()\n"
        "kept.write_text(' '.join(sys.argv[1:])); sys.exit(first)"
    )
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "MARKS", tmp_path / "figures.json")
    part = module.Part("one", "one.py WORD", "one", "--again", code=("sets",))
    monkeypatch.setattr(module, "PARTS", [part])
    monkeypatch.setattr(module, "COMMANDS", ("sets", "pages"))
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    for folder in module.COMMANDS:
        commit(tmp_path / folder / "text", "before")
    monkeypatch.setattr(module, "busy_cores", lambda: 0.02)
    monkeypatch.setattr(module, "slowness", lambda: 1.1)
    monkeypatch.setattr("sys.argv", ["figures.py"])
    monkeypatch.setenv("WORD", "value")
    return module


def test_a_part_that_did_not_end_goes_on_and_one_that_did_is_kept(figures, tmp_path, monkeypatch):
    with pytest.raises(SystemExit, match="did not end: one"):
        figures.main()
    assert (tmp_path / "kept").read_text() == "value --again"
    figures.main()
    assert (tmp_path / "kept").read_text() == "value"
    mark = json.loads(figures.MARKS.read_text())["one"]
    assert mark["ended"]
    assert mark["machine"]["cpus"]
    (tmp_path / "kept").unlink()
    figures.main()
    # It measures no pages.
    (tmp_path / "pages/text").write_text("after")
    with pytest.raises(SystemExit, match="commit these changes first"):
        figures.main()
    commit(tmp_path / "pages/text", "after")
    figures.main()
    assert not (tmp_path / "kept").exists()
    commit(tmp_path / "sets/text", "after")
    with pytest.raises(SystemExit, match="did not end: one"):
        figures.main()
    assert (tmp_path / "kept").read_text() == "value --again"


def test_a_busy_machine_measures_nothing_unless_forced_to(figures, monkeypatch):
    monkeypatch.setattr(figures, "busy_cores", lambda: 0.4)
    with pytest.raises(SystemExit, match=r"0\.40 of a core"):
        figures.main()
    assert not figures.MARKS.exists()
    monkeypatch.setattr("sys.argv", ["figures.py", "--anyway"])
    with pytest.raises(SystemExit, match="did not end"):
        figures.main()
    assert json.loads(figures.MARKS.read_text())["one"]["others"] == 0.4


def test_a_slow_machine_measures_nothing_unless_forced_to(figures, monkeypatch):
    monkeypatch.setattr(figures, "slowness", lambda: 2.5)
    with pytest.raises(SystemExit, match=r"2\.5 times as long"):
        figures.main()
    assert not figures.MARKS.exists()
    monkeypatch.setattr("sys.argv", ["figures.py", "--anyway"])
    with pytest.raises(SystemExit, match="did not end"):
        figures.main()
    assert json.loads(figures.MARKS.read_text())["one"]["slowness"] == 2.5


def test_a_part_that_lacks_a_cluster_is_left_out(figures, monkeypatch, capsys):
    monkeypatch.delenv("WORD")
    figures.main()
    assert "one: left out, since WORD is not set" in capsys.readouterr().out
    assert not figures.MARKS.exists()


def test_busy_cores_are_those_of_all_processes(monkeypatch):
    figures = parts_of("figures", monkeypatch)()
    spinning = subprocess.Popen(["python3", "-c", "while True: pass"])
    try:
        assert figures.busy_cores(1.0) > 0.3
    finally:
        spinning.kill()
        spinning.wait()


def test_each_committed_result_is_of_a_part_of_the_campaign(monkeypatch):
    figures = parts_of("figures", monkeypatch)()
    names = (path.relative_to(figures.RESULTS) for path in figures.RESULTS.rglob("*.json"))
    committed = {str(name.with_suffix("")) for name in names} - {figures.MARKS.stem}
    assert committed <= {part.file for part in figures.PARTS}


def test_the_figures_of_a_table_are_of_one_code(monkeypatch):
    """Once a part is measured, all parts of its table are, by one code, on one machine."""
    figures = parts_of("figures", monkeypatch)()
    tables = parts_of("tables", monkeypatch)()
    marks = json.loads(figures.MARKS.read_text()) if figures.MARKS.exists() else {}
    read = tables.read
    for name, table in tables.TABLES.items():
        files = set()
        monkeypatch.setattr(tables, "read", lambda file, files=files: files.add(file) or read(file))
        table()
        parts = [part.name for part in figures.PARTS if part.file in files and not part.missing]
        found = [marks.get(part, {}) for part in parts]
        made = {(str(mark.get("code")), str(mark.get("machine"))) for mark in found}
        assert len(made) <= 1, (name, parts)
