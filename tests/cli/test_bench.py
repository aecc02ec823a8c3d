"""``pg-hashindex bench hash``: what it prints, and every way to be refused, without a database."""

import functools
import importlib.util
import io
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from fixtures.clusters import clustered
from fixtures.deep import SMALL, needs_torch
from scipy.spatial.distance import cdist

from pg_hashindex.hashers import HASHERS
from pg_hashindex.hashers.cghash import CGHash
from pg_hashindex.hashers.s3plh import S3PLH
from pg_hashindex.metrics import mean_average_precision
from pg_hashindex.papers import Comparison, Method, Truth, compare, draw_split, load_split
from pg_hashindex.papers.figures import FIGURES, Figure


@pytest.fixture
def bench(run):
    return functools.partial(run, "bench", "hash")


@pytest.fixture
def data(tmp_path):
    X, y = clustered()
    np.savez(tmp_path / "data.npz", X=X, y=y)
    return tmp_path / "data.npz"


@pytest.fixture
def unlabelled(tmp_path):
    np.savez(tmp_path / "unlabelled.npz", X=clustered()[0])
    return tmp_path / "unlabelled.npz"


def test_table(bench, data):
    arguments = ("--methods", "lsh, itq", "--bits", "4,12", "--seed", 3)
    printed = bench("--data", data, *arguments, "--top", "50", "-k", "10,100", "--radius", "1")
    assert "40 queries, 360 database rows, 360 training rows, 12 dimensions" in printed.stderr
    assert "itq, 12 bits: trained on 360 rows in" in printed.stderr
    lines = printed.stdout.splitlines()
    assert lines[0] == "Truth: label; ties in row order"
    assert lines[2].split() == [
        *["method", "bits", "codes", "distance", "MAP", "MAP@50", "P@10", "P@100"],
        *["found@10", "found@100", "PH1"],
        *["3-NN", "error"],
    ]
    (outcome,) = compare(
        draw_split(*clustered(), random_state=3),
        [Method("itq")],
        [12],
        truths=[Truth("label")],
        random_state=3,
    )
    values = outcome.scores["label"].values
    row = lines[6].split()
    assert row[:4] == ["itq", "12", "hashed", "hamming"]
    assert row[4] == f"{values['MAP']:.4f}"
    assert row[-1] == f"{values['3-NN error']:.4f}"
    assert any("peak MB" in line for line in lines)


def test_json(bench, data):
    printed = bench(
        "--data", data, "--methods", "sgh,itq", "--bits", "13", "--json", "--ties", "average",
        "--param", "sgh.n_anchors=17", "--truth", "nearest-k", "--truth", "nearest-fraction",
        "--nearest", "9", "--fraction", "0.1",
    )  # fmt: skip
    sgh, itq = json.loads(printed.stdout)
    assert (sgh["method"], sgh["n_bits"], sgh["ties"]) == ("sgh", 13, "average")
    assert sgh["parameters"]["n_anchors"] == 17
    assert list(sgh["scores"]) == ["nearest 9", "nearest 10 %"]
    assert set(itq) == {"method", "n_bits", "seed", "error"}
    assert "13" in itq["error"]


def test_paper_beside_default(bench, data):
    """The paper's settings have a line where they differ, and parameters win over both."""
    arguments = ("--data", data, "--bits", 6, "--preset", "paper", "--json")
    printed = bench(*arguments, "--methods", "s3plh,itq", "--param", "s3plh.step=2")
    outcomes = {outcome["method"]: outcome["parameters"] for outcome in json.loads(printed.stdout)}
    assert list(outcomes) == ["s3plh", "s3plh (paper)", "itq", "itq (paper)"]
    ours, paper = outcomes["s3plh"], outcomes["s3plh (paper)"]
    assert (ours["step"], ours["balance"], paper["step"], paper["balance"]) == (2, True, 2, False)
    assert paper["step_by"] == "rows"


def test_program_beside_default(bench, data):
    arguments = ("--data", data, "--bits", 6, "--preset", "program", "--json")
    printed = bench(*arguments, "--methods", "usplh,itq")
    outcomes = {outcome["method"]: outcome["parameters"] for outcome in json.loads(printed.stdout)}
    assert list(outcomes) == ["usplh", "usplh (program)", "itq"]
    assert outcomes["usplh (program)"]["cut"] == "median"


def test_split(bench, data, tmp_path):
    numbers = np.arange(400)
    np.savez(tmp_path / "s.npz", query=numbers[:30], database=numbers[30:], train=numbers[-200:])
    printed = bench("--data", data, "--split", tmp_path / "s.npz", "--methods", "lsh", "--bits", 8)
    assert "30 queries, 370 database rows, 200 training rows" in printed.stderr
    for option in ("--queries", "--train-rows"):
        refused = bench("--data", data, "--split", tmp_path / "s.npz", option, 5, code=3)
        assert "give no numbers of them" in refused.stderr


def test_default_methods(bench, data, unlabelled):
    def compared(path, bits, *options):
        printed = bench("--data", path, "--bits", bits, "--train-rows", 200, "--json", *options)
        outcomes = json.loads(printed.stdout)
        assert not [outcome["error"] for outcome in outcomes if "error" in outcome]
        return {outcome["method"] for outcome in outcomes}

    free = {name for name, hasher in HASHERS.items() if not hasher.learns_from}
    assert compared(unlabelled, 12, "--param=bre.n_iter=2") == free
    from_labels = {name for name, hasher in HASHERS.items() if "labels" in hasher.learns_from}
    deep = SMALL if importlib.util.find_spec("torch") else {}
    few = {"bre": {"n_iter": 2}, "sbre": {"n_iter": 2}, "fasth": {"n_trees": 3}}
    few |= {"cghash": {"n_starts": 1, "max_iter": 2, "n_anchors": 20}, **deep}
    small = [
        f"--param={name}.{key}={json.dumps(value)}"
        for name, parameters in few.items()
        for key, value in parameters.items()
    ]
    assert compared(data, 6, *small) == (free | from_labels) - {"sign", "thermometer"} - (
        SMALL.keys() - deep
    )


def test_truth_without_labels(bench, unlabelled):
    printed = bench("--data", unlabelled, "--methods", "lsh", "--bits", 8)
    assert "Truth: nearest 2 %" in printed.stdout
    assert "no labels" in printed.stderr
    refused = bench("--data", unlabelled, "--methods", "lsh", "--truth", "label", code=3)
    assert "there are no labels; take nearest-fraction" in refused.stderr


def test_plot(bench, data, tmp_path):
    for name in ("plot.png", "plot.svg"):
        arguments = ("--methods", "lsh,pcah", "--bits", "4,8", "--plot", tmp_path / name)
        assert f"wrote {tmp_path / name}" in bench("--data", data, *arguments).stderr
        assert (tmp_path / name).stat().st_size > 5_000


def test_a_full_disk_leaves_no_half_picture(bench, data, tmp_path, full_disk):
    arguments = ("--data", data, "--methods", "lsh", "--bits", "4,8", "--plot")
    (tmp_path / "old.png").write_bytes(b"before")
    files = sorted(tmp_path.iterdir())
    for name in ("new.png", "old.png"):
        failed = bench(*arguments, tmp_path / name, code=3)
        assert "Truth: label" in failed.stdout
        assert "No space left on device" in failed.stderr
    assert sorted(tmp_path.iterdir()) == files
    assert (tmp_path / "old.png").read_bytes() == b"before"


def test_seeds(bench, data):
    arguments = ("--data", data, "--methods", "lsh,pcah", "--bits", 8)
    drawn = load_split(data, random_state=5)
    single = [
        next(compare(drawn, [Method("lsh")], [8], truths=[Truth("label")], random_state=seed))
        for seed in (5, 6)
    ]
    maps = [outcome.scores["label"].values["MAP"] for outcome in single]
    lsh, pcah = json.loads(bench(*arguments, "--seed", 5, "--seeds", 2, "--json").stdout)
    assert lsh["scores"]["label"]["MAP"] == pytest.approx(sum(maps) / 2)
    deviation = abs(maps[0] - maps[1]) / 2
    assert lsh["standard_deviation"]["scores"]["label"]["MAP"] == pytest.approx(deviation)
    assert pcah["standard_deviation"]["scores"]["label"]["MAP"] == 0
    assert (lsh["seed"], lsh["seeds"]) == (5, 2)
    line = bench(*arguments, "--seed", 5, "--seeds", 2).stdout.splitlines()[3]
    assert f"{sum(maps) / 2:.4f} ± {deviation:.4f}" in line


def test_splits(bench, data):
    """Each split is drawn and trained with a seed of its own."""
    arguments = ("--data", data, "--methods", "lsh", "--bits", 8, "--json")
    single = [json.loads(bench(*arguments, "--seed", seed).stdout)[0] for seed in (5, 6, 7)]
    printed = bench(*arguments, "--seed", 5, "--splits", 3, "--top", "20,200")
    assert "split 3 of 3" in printed.stderr
    (joined,) = json.loads(printed.stdout)
    assert (joined["splits"], joined["seeds"], joined["seed"]) == (3, 3, 5)
    assert {"MAP", "MAP@20", "MAP@200"} <= set(joined["scores"]["label"])
    for name in ("MAP", "PH2"):
        values = [outcome["scores"]["label"][name] for outcome in single]
        assert joined["scores"]["label"][name] == pytest.approx(np.mean(values))
        found = joined["standard_deviation"]["scores"]["label"][name]
        assert found == pytest.approx(np.std(values))
    assert np.ptp([outcome["scores"]["label"]["MAP"] for outcome in single]) > 0
    refused = bench(*arguments, "--splits", 2, "--seeds", 2, code=3)
    assert_one_error(refused, "give either splits, .* or seeds")


def test_values_chosen_on_splits_are_listed(bench, data):
    tried = ("--methods", "sgh", "--bits", 6, "--splits", 3, "--validate", "sgh.rho=2,2.5,3")
    (joined,) = json.loads(bench("--data", data, *tried, "--json").stdout)
    each = [
        json.loads(bench("--data", data, *tried[:4], *tried[6:], "--seed", n, "--json").stdout)[0]
        for n in range(3)
    ]
    values = [outcome["chosen"]["rho"] for outcome in each]
    assert joined["chosen"]["rho"] == (values[0] if len({*values}) == 1 else values)
    assert joined["parameters"]["rho"] == joined["chosen"]["rho"]
    assert joined["tried"] == [line for outcome in each for line in outcome["tried"]]


@pytest.fixture
def files(tmp_path):
    """The data in MATLAB's and TEXMEX's form, and labels by themselves."""
    X, y = clustered()
    scipy.io.savemat(tmp_path / "d.mat", {"fea": X, "gnd": y[:, None].astype(float)})
    lengths = np.full((len(X), 1), X.shape[1], np.int32).view(np.float32)
    (tmp_path / "d.fvecs").write_bytes(np.hstack([lengths, X.astype(np.float32)]).tobytes())
    np.save(tmp_path / "y.npy", y)
    return tmp_path


def test_files_of_other_kinds(bench, data, files):
    arguments = ("--methods", "lsh,sdh", "--bits", 6, "--param", "sdh.n_anchors=20", "--json")
    expected = bench("--data", data, *arguments).stdout
    for given in (
        ("--data", files / "d.mat", "--labels", "gnd"),
        ("--data", files / "d.mat", "--vectors", "fea", "--labels", files / "y.npy"),
        ("--data", files / "d.fvecs", "--labels", files / "y.npy"),
    ):
        found = bench(*given, *arguments)
        assert "360 training rows, 12 dimensions, labels" in found.stderr
        for one, other in zip(json.loads(found.stdout), json.loads(expected), strict=True):
            assert one["scores"]["label"]["MAP"] == pytest.approx(other["scores"]["label"]["MAP"])
    (files / "cut.fvecs").write_bytes((files / "d.fvecs").read_bytes()[:-7])
    np.save(files / "few.npy", np.arange(9))
    for given, message in (
        (("--data", files / "d.mat", "--labels", "y"), "there is no array 'y' in .*fea, gnd"),
        (("--data", files / "cut.fvecs"), "cut.fvecs is cut off"),
        (("--data", files / "d.fvecs", "--labels", files / "few.npy"), "9 labels for 400 rows"),
        (("--data", files / "d.fvecs", "--labels", "none.mat"), "none.mat.*No such file"),
    ):
        assert_one_error(bench(*given, *arguments, code=3), message)


def test_queries_of_a_file(bench, tmp_path):
    X, _ = clustered()
    for name, rows in (("base.npy", X[40:]), ("query.npy", X[:40])):
        np.save(tmp_path / name, rows)
    arguments = ("--methods", "pcah", "--bits", 6, "--nearest", 9, "--truth", "nearest-k", "--json")
    files = ("--data", tmp_path / "base.npy", "--queries", tmp_path / "query.npy")
    (found,) = json.loads(bench(*files, *arguments).stdout)
    np.savez(tmp_path / "d.npz", X=X)
    rows = np.arange(40, 400)
    np.savez(tmp_path / "s.npz", query=np.arange(40), database=rows, train=rows)
    split = ("--data", tmp_path / "d.npz", "--split", tmp_path / "s.npz")
    (expected,) = json.loads(bench(*split, *arguments).stdout)
    assert found["scores"] == expected["scores"]
    kept = tmp_path / "kept.jsonl"
    bench(*files, *arguments, kept)
    (line,) = map(json.loads, kept.read_text().splitlines())
    assert line["split"] == {"queries": "query.npy", "seed": 0}
    np.save(tmp_path / "query.npy", X[:39])
    assert "known from" not in bench(*files, *arguments, kept).stderr
    refused = bench("--data", tmp_path / "d.npz", "--queries", "many", code=2)
    assert "'many' is not a valid integer" in refused.stderr


@pytest.mark.parametrize("kind", ["ivecs", "npy", "hdf5"])
def test_the_truth_of_a_file(bench, tmp_path, kind):
    """It scores as the same rows by distance do."""
    X, _ = clustered()
    base, queries = X[40:].astype(np.float32), X[:40].astype(np.float32)
    near = np.argsort(cdist(queries, base), axis=1, kind="stable")[:, :20].astype("<i4")
    truth = tmp_path / f"truth.{kind}"
    data, asked = tmp_path / "base.npy", tmp_path / "query.npy"
    np.save(data, base)
    np.save(asked, queries)
    if kind == "hdf5":
        with pytest.importorskip("h5py").File(truth, "w") as file:
            file["train"], file["test"], file["neighbors"] = base, queries, near
        data = asked = truth
    elif kind == "npy":
        np.save(truth, near)
    else:
        truth.write_bytes(np.hstack([np.full((40, 1), 20, "<i4"), near]).tobytes())
    arguments = ("--data", data, "--methods", "pcah", "--bits", 6, "--nearest", 9)
    files = (*arguments, "--queries", asked, "--truth")
    (found,) = json.loads(bench(*files, truth, "--truth", "nearest-k", "--json").stdout)
    scores = found["scores"]
    assert scores[f"first 9 of {truth.name}"] == scores["nearest 9"]
    for given, message in (
        ((*files, truth, "--nearest", 21), "the 20 nearest of 40 queries; wanted are the 21"),
        ((*arguments, "--truth", truth), "is of the queries of a file"),
        ((*files, tmp_path / "none.npy"), "none.npy.*No such file"),
        ((*files, data), "row numbers"),
    ):
        if kind != "hdf5" or given[-1] != data:
            assert_one_error(bench(*given, code=3), message)
    assert "'colour' is neither one of label" in bench(*files, "colour", code=2).stderr
    if kind == "npy":
        np.save(truth, near + 341)
        assert_one_error(bench(*files, truth, code=3), "but the database has 360 rows")


def test_measurements_are_kept_in_a_file(bench, data, tmp_path):
    """Existing figures are not measured again, unless something changes the measurement."""
    kept, link = tmp_path / "kept.jsonl", tmp_path / "link"
    link.symlink_to(tmp_path / "nowhere")
    refused = bench("--data", data, "--methods", "lsh", "--json", link, code=3)
    assert_one_error(refused, "is not a file that")
    assert not (tmp_path / "nowhere").exists()
    arguments = ("--data", data, "--json", kept, "--bits", "4,8", "--methods")
    first = bench(*arguments, "lsh,sgh", "--seeds", 2, "--param", "sgh.n_anchors=20")
    assert "known from" not in first.stderr
    lines = [json.loads(line) for line in kept.read_text().splitlines()]
    assert len(lines) == 2 * 2 * 2
    line = lines[-1]
    assert (line["data"], line["method"], line["n_bits"], line["seed"]) == ("data.npz", "sgh", 8, 1)
    assert line["split"] == {"seed": 0}
    assert line["settings"]["n_anchors"] == 20
    # Defaults too.
    assert line["settings"]["rho"] == HASHERS["sgh"]().rho
    again = bench(*arguments, "lsh,sgh", "--seeds", 2, "--param", "sgh.n_anchors=20")
    assert again.stdout == first.stdout
    assert again.stderr.count("known from") == 8
    assert "trained on" not in again.stderr
    assert len(kept.read_text().splitlines()) == 8
    changes = (
        ("--seed", 1), ("--labelled", 3), ("--top", 5), ("--truth", "nearest-k"),
        ("--queries", 30), ("--param", "itq.n_iter=3"),
    )  # fmt: skip
    for change in ((), *changes):
        methods = "itq,s3plh" if "--labelled" in change else "itq"
        assert "known from" not in bench(*arguments, methods, *change).stderr
    assert bench(*arguments, "itq,lsh").stderr.count("known from") == 4
    X, y = clustered()
    np.savez(data, X=X + 1e-3, y=y)
    assert "known from" not in bench(*arguments, "itq").stderr


def test_kept_measurements_tell_anchors_of_the_split_from_drawn_ones(bench, tmp_path):
    X, y = clustered()
    files = tmp_path / "d.npz", tmp_path / "s.npz"
    np.savez(files[0], X=X, y=y)
    rows = np.arange(40, 400)
    np.savez(files[1], query=np.arange(40), database=rows, train=rows, anchors=np.arange(50))
    arguments = ("--data", files[0], "--split", files[1], "--json", tmp_path / "kept.jsonl")
    arguments += ("--methods", "sgh", "--bits", 8, "--param", "sgh.n_anchors=20")
    bench(*arguments)
    of_split = ("--param", "sgh.anchors=split")
    assert "known from" not in bench(*arguments, *of_split).stderr
    for again in ((), of_split):
        assert "known from" in bench(*arguments, *again).stderr


def test_files_of_measurements_that_are_refused(bench, data, tmp_path, monkeypatch):
    kept = tmp_path / "kept.jsonl"
    arguments = ("--data", data, "--json", kept, "--bits", 4, "--methods", "lsh")
    for text, message in (
        ("{}\n", "line 1 of .* is not a measurement of bench hash"),
        ("a,b\n", "cannot read measurements from .*kept.jsonl"),
    ):
        kept.write_text(text)
        assert_one_error(bench(*arguments, code=3), message)
        assert kept.read_text() == text
    kept.unlink()
    for path, message in (
        ("/dev/full", "is not a file"),
        (tmp_path, "is not a file"),
        (tmp_path / "no" / "k.jsonl", "cannot write .*k.jsonl: No such file"),
    ):
        refused = bench(*arguments, "--json", path, code=3)
        assert_one_error(refused, message)
        assert "trained on" not in refused.stderr
    bench(*arguments)
    before = kept.read_bytes()
    opened = Path.open

    class Half(io.FileIO):
        def write(self, content, /):
            return super().write(content[:100])

    monkeypatch.setattr(
        Path,
        "open",
        lambda p, mode="r", **k: Half(p, mode) if "a" in mode else opened(p, mode, **k),
    )
    full = bench(*arguments, "--seed", 1, code=3)
    assert_one_error(full, "cannot write .*kept.jsonl: No space left on device")
    assert kept.read_bytes() == before


def test_protocol_of_few_labels(bench, tmp_path):
    """Labels of some rows, triplets and a graph reach the methods that learn from them."""
    X, y = clustered()
    numbers = {"query": range(40), "database": range(40, 400), "train": range(40, 400)}
    few = np.concatenate([np.flatnonzero(y[40:] == label)[:4] for label in range(8)])
    rng = np.random.default_rng(0)
    triplets = np.array([40 + rng.choice(360, 3, replace=False) for _ in range(300)])
    np.savez(tmp_path / "d.npz", X=X, y=y, triplets=triplets)
    np.savez(tmp_path / "s.npz", **numbers, labelled=few)
    files = ("--data", tmp_path / "d.npz", "--split", tmp_path / "s.npz", "--bits", 6, "--json")
    printed = bench(
        *files, "--labelled", "--triplets", "triplets", "--methods", "s3plh,all=cghash",
        "--validate", "s3plh.eta=0.01,1", "--validate", "s3plh.balance=true,false",
        "--param", "all.C=0.01",
    )  # fmt: skip
    assert "the labels of 32 training rows are known" in printed.stderr
    s3plh, cghash = json.loads(printed.stdout)
    seen = np.full(360, -1)
    seen[few] = y[40:][few]
    eta, balance = s3plh["chosen"]["eta"], s3plh["chosen"]["balance"]
    hashers = (
        S3PLH(n_bits=6, random_state=0, eta=eta, balance=balance).fit(X[40:], seen),
        CGHash(n_bits=6, random_state=0, C=0.01).fit(X[40:], triplets=triplets - 40),
    )
    for outcome, hasher in zip((s3plh, cghash), hashers, strict=True):
        expected = mean_average_precision(
            hasher.encode(X[:40]), hasher.encode(X[40:]), y[:40, None] == y[40:],
            weights=hasher.to_model("m").bit_weights,
        )  # fmt: skip
        assert outcome["scores"]["label"]["MAP"] == pytest.approx(expected)
    assert cghash["method"] == "all"
    tried = [(line["eta"], line["balance"]) for line in s3plh["tried"]]
    assert tried == [(0.01, True), (0.01, False), (1, True), (1, False)]
    table = bench(*files[:-1], "--labelled", 3, "--methods", "s3plh", "--validate", "s3plh.eta=1,2")
    assert "the labels of 24 training rows are known" in table.stderr
    assert re.search(
        r"s3plh +6 +eta = [12] +eta = 1: [01]\.\d{4}; eta = 2: [01]\.\d{4}", table.stdout
    )
    for option in ("--labelled", "--triplets=triplets"):
        assert_one_error(bench(*files, option, "--methods", "lsh", code=3), "has no effect")


@needs_torch
@pytest.mark.usefixtures("one_torch_thread")
def test_pairs_and_another_column_for_the_graph(bench, tmp_path):
    X, y = clustered()
    numbers = {"query": range(40), "database": range(40, 400), "train": range(40, 400)}
    rng = np.random.default_rng(0)
    pairs = np.array([40 + rng.choice(360, 2, replace=False) for _ in range(600)])
    pairs = np.column_stack([pairs, np.where(y[pairs[:, 0]] == y[pairs[:, 1]], 1, -1)])
    looks = rng.standard_normal((400, 5)).astype(np.float32)
    np.savez(tmp_path / "d.npz", X=X, y=y, pairs=pairs, looks=looks)
    np.savez(tmp_path / "s.npz", **numbers)
    small = SMALL["bgdh"] | {"device": "cpu", "rounds": 2, "pretrain": 2}
    given = [f"bgdh.{key}={json.dumps(value)}" for key, value in small.items()]
    files = ("--data", tmp_path / "d.npz", "--split", tmp_path / "s.npz", "--bits", 6, "--json")
    learnt = ("--pairs", "pairs", "--graph-features", "looks", "--methods", "s3plh,bgdh")
    words = [word for text in given for word in ("--param", text)]
    outcomes = json.loads(bench(*files, *learnt, *words).stdout)
    named = pairs - [40, 40, 0]
    hashers = (
        S3PLH(n_bits=6, random_state=0).fit(X[40:], pairs=named),
        HASHERS["bgdh"](n_bits=6, random_state=0, **small).fit(
            X[40:], pairs=named, graph_features=looks[40:]
        ),
    )
    for outcome, hasher in zip(outcomes, hashers, strict=True):
        expected = mean_average_precision(
            hasher.encode(X[:40]), hasher.encode(X[40:]), y[:40, None] == y[40:]
        )
        assert outcome["scores"]["label"]["MAP"] == pytest.approx(expected)
    for option in ("--pairs=pairs", "--graph-features=looks"):
        assert_one_error(
            bench(*files, option, "--methods", "lsh", code=3),
            f"{option[2:].partition('=')[0].replace('-', '_')} has no effect",
        )


def test_failures_are_lines(bench, data):
    printed = bench("--data", data, "--methods", "itq,lsh", "--bits", "16")
    assert "itq, 16 bits failed: " in printed.stdout
    assert any(line.startswith("lsh") for line in printed.stdout.splitlines())
    printed = bench("--data", data, "--methods", "itq", "--bits", "16", code=3)
    assert "itq, 16 bits failed: " in printed.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--methods", "minhash"], 3, "hasher 'minhash' is unknown; known are sign, lsh"),
        (["--methods", ","], 2, "the list is empty"),
        (["--bits", "16,many"], 2, "'16,many' is not a list of numbers"),
        (["--bits", ""], 2, "the list is empty"),
        (["--bits", "16,0"], 2, "0 is not in 1 to 16000"),
        (["--bits", "16001"], 2, "16001 is not in 1 to 16000"),
        (["-k", "1.5"], 2, "not a list of numbers"),
        (["-k", "361"], 3, "number of rows, 360; got 361"),
        (["--top", "0"], 3, "top must be"),
        (["--neighbours", "0"], 3, "neighbours must be"),
        (["--radius", "-1"], 3, "radius must be"),
        (["--truth", "colour"], 2, "'colour'"),
        (["--ties", "none"], 2, "'none'"),
        (["--truth", "nearest-k", "--nearest", "0"], 3, "k must be .* got 0"),
        (["--truth", "nearest-fraction", "--fraction", "2"], 3, "fraction must be"),
        (["--param", "lsh.n_bits=3"], 3, "n_bits cannot be a parameter of lsh"),
        (["--param", "lsh.preset=paper"], 3, "preset cannot be a parameter of lsh"),
        (["--methods", "a=itq,a=lsh"], 2, "'a' is given twice"),
        (["--param", "lsh.length=3"], 3, "lsh has no parameter 'length'"),
        (["--param", "itq.n_iter=3"], 3, "a parameter is for 'itq', which is not compared"),
        (["--param", "n_iter=3"], 2, "'n_iter=3' is not METHOD.KEY=VALUE"),
        (["--param", "lsh.center"], 2, "is not METHOD.KEY=VALUE"),
        (["--preset", "ours"], 2, "'ours' is not one of 'default', 'paper', 'program'"),
        (["--methods", "lsh,sign", "--preset", "paper"], 3, "sign has no paper"),
        (["--queries", "0"], 3, "queries must be"),
        (["--queries", "400"], 3, "queries must be"),
        (["--train-rows", "1"], 3, "train_rows must be"),
        (["--seed", "-1"], 2, "-1"),
        (["--seeds", "0"], 2, "0 is not in the range x>=1"),
        (["--plot", "plot.png"], 2, "curves over bits, which need two points"),
        (["--labelled"], 3, "there is no array 'labelled'"),
        (["--labelled", "5"], 3, "labelled has no effect"),
        (["--labelled", "0"], 3, "1 or more rows of each class, got 0"),
        (["--graph", "edges"], 3, "there is no array 'edges'"),
        (["--triplets", "mine"], 3, "there is no array 'mine'"),
        (["--validate", "lsh.n_iter=3"], 3, "has 1 values to choose from"),
        (["--validate", "lsh=3,4"], 2, "is not METHOD.KEY=VALUE,"),
        (["--validate", "itq.n_iter=3,4"], 3, "a parameter is for 'itq', which is not compared"),
        (["--validate", "lsh.length=3,4"], 3, "lsh has no parameter 'length'"),
        (["--methods", "a=minhash"], 3, "hasher 'minhash' is unknown"),
        (["--methods", "sgh", "--param", "sgh.anchors=split"], 3, "the split has no 'anchors'"),
        (["--split", "none.npz"], 3, "cannot read arrays from none.npz"),
        (["--plot", "plot.xyz"], 3, "does not end in the name of a format"),
        (["--plot", "no folder/plot.png"], 3, "there is no folder"),
    ],
)
def test_refuses(bench, data, arguments, code, message):
    refused = bench("--data", data, "--methods", "lsh", *arguments, code=code)
    assert_one_error(refused, message)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y": np.arange(30)}, "no array X"),
        ({"X": np.ones(30)}, r"shape \(30,\)"),
        ({"X": np.full((30, 3), np.nan)}, "is nan"),
        ({"X": np.array(["a", "b"])}, "must be numbers"),
        ({"X": np.eye(30), "y": np.zeros(29, int)}, "29 labels for 30 rows"),
        ({"X": np.eye(30), "y": np.zeros(30)}, "labels must be integers"),
        ({"X": np.eye(1)}, "queries must be"),
        (
            {"X": np.eye(30), "y": np.full(30, -1)},
            "none of the 3 queries shares a label with .*0 queries and 0 rows .* nearest-fraction",
        ),
        ({"X": np.eye(30), "y": np.zeros((30, 2), int)}, "shares a label .*0 queries and 0 rows"),
        ({"X": np.eye(30), "y": np.arange(30)}, "shares a label .*3 queries and 27 rows"),
    ],
)
def test_refuses_data(bench, tmp_path, arrays, message):
    np.savez(tmp_path / "data.npz", **arrays)
    refused = bench("--data", tmp_path / "data.npz", "--methods", "lsh", "-k", "1", code=3)
    assert_one_error(refused, message)


def test_refuses_files(bench, tmp_path):
    (tmp_path / "text.npz").write_text("no archive")
    for path in (tmp_path / "none.npz", tmp_path, tmp_path / "text.npz"):
        assert_one_error(bench("--data", path, code=3), f"cannot read arrays from {path}")


def assert_one_error(refused, message):
    (line,) = [line for line in refused.stderr.splitlines() if line.startswith("Error: ")]
    assert re.search(message, line), line
    assert refused.stdout == ""


def test_needs_neither_matplotlib_nor_a_database_server():
    code = "import sys, pg_hashindex.cli.bench; print('matplotlib' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


def test_bits_are_checked_before_anything_is_read(bench, tmp_path):
    refused = bench("--data", tmp_path / "none.npz", "--bits", "0", code=2)
    assert "0 is not in 1 to 16000" in refused.stderr


@pytest.fixture
def papers(tmp_path):
    """Lay out a folder with a small USPS."""
    X, y = (np.resize(rows, (1200, *rows.shape[1:])) for rows in clustered())
    numbers = np.arange(1200)
    np.savez(tmp_path / "usps.npz", X=X, y=y)
    np.savez(
        tmp_path / "usps_split.npz", query=numbers[:30], database=numbers[30:],
        train=numbers[30:], anchors=numbers[:60], labelled=numbers[:200],
    )  # fmt: skip
    return tmp_path


def test_a_paper_runs_by_one_command(run, papers):
    figures = ("--figure", "sgh_map_usps", "--figure", "sgh_usps")
    output = papers / "new" / "results"
    output.mkdir(parents=True)
    # A full run has measured this so far.
    (output / "sgh_usps.jsonl").write_text("kept")
    printed = run(
        "bench", "paper", "sgh", "--data", papers, *figures, "--quick", "--output", output
    )
    assert "sgh_usps: Table 1" in printed.stderr
    assert "pg-hashindex bench hash --data" in printed.stderr
    assert "greatest" in printed.stdout
    assert "us a row" in printed.stdout
    outcomes = json.loads((output / "sgh_usps-quick.json").read_text())["outcomes"]
    lines = {(one["method"], one["n_bits"]) for one in outcomes}
    assert {("sgh", 32), ("lsh", 512), ("agh-1", 32)} <= lines
    assert {one["seed"] for one in outcomes} == {0}
    error = json.loads((output / "sgh_map_usps-quick.json").read_text())
    assert error.keys() >= {"greatest", "bound"}
    for name in ("sgh_usps", "sgh_map_usps"):
        assert (output / f"{name}-quick.png").read_bytes().startswith(b"\x89PNG")
    assert (output / "sgh_usps.jsonl").read_text() == "kept"


def test_a_paper_continues_where_it_was_stopped(run, papers, monkeypatch):
    two = Comparison({"lsh": "lsh", "pcah": "pcah"}, bits=(4, 8), splits=2)
    figure = Figure("sgh", "Table 1", "usps", two)
    monkeypatch.setitem(FIGURES, "sgh_usps", figure)
    output = papers / "results"
    blocked = output / "sgh_usps.png"
    blocked.mkdir(parents=True)
    words = ("bench", "paper", "sgh", "--data", papers, "--figure", "sgh_usps", "--output", output)
    stopped = run(*words, code=None)
    assert stopped.stderr.count("trained on") == 8
    assert len((output / "sgh_usps.jsonl").read_text().splitlines()) == 8
    blocked.rmdir()
    assert "trained on" not in run(*words).stderr
    outcomes = json.loads((output / "sgh_usps.json").read_text())["outcomes"]
    assert [(one["method"], one["n_bits"], one["splits"]) for one in outcomes] == [
        (method, bits, 2) for method in ("lsh", "pcah") for bits in (4, 8)
    ]
    # The figure is whole, so the next run measures again.
    assert not (output / "sgh_usps.jsonl").exists()


def test_a_paper_is_refused_before_any_work(run, papers, tmp_path):
    refused = run("bench", "paper", "sgh", "--data", papers, code=3)
    assert "No such file" in refused.stderr
    assert "it needs X, y" in refused.stderr
    assert "trained on" not in refused.stderr
    refused = run("bench", "paper", "bgdh", "--data", papers, "--figure", "sgh_usps", code=3)
    assert "'sgh_usps' is not a figure of bgdh; these are bgdh_500" in refused.stderr
    assert "'itq' is not one of" in run("bench", "paper", "itq", code=2).stderr
    (tmp_path / "file").write_text("")
    figure = ("--data", papers, "--figure", "sgh_map_usps", "--output", tmp_path / "file")
    assert "is a file" in run("bench", "paper", "sgh", *figure, code=2).stderr


@pytest.mark.parametrize("figure", [name for name, f in FIGURES.items() if f.command])
def test_the_command_of_a_figure_asks_for_the_same(run, monkeypatch, figure):
    asked = []
    monkeypatch.setattr(Comparison, "run", lambda self, *_, **__: asked.append(self) or [])
    run(*FIGURES[figure].command.split()[1:], code=3)
    (found,) = asked
    rows = {name: value for name, value in found.rows.items() if value is not None}
    numbers = {"bits": tuple(found.bits), "truths": tuple(found.truths), "rows": rows}
    assert replace(found, **numbers) == FIGURES[figure].compared
