"""The table of the papers' figures, their data files, and the two figures that compare nothing."""

from dataclasses import replace

import numpy as np
import pytest
from fixtures.clusters import clustered

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.papers import Comparison, Split, load_split, load_splits
from pg_hashindex.papers.figures import DATA, FIGURES, Figure, figures_of
from pg_hashindex.papers.pictures import (
    FeatureMap,
    linear_exponential,
    measure_feature_map,
    retrieve,
)

LSH = Comparison({"lsh": "lsh"}, bits=(8,))


def write(folder, name, /, **arrays):
    np.savez(folder / name, allow_pickle=False, **arrays)


@pytest.fixture
def folder(tmp_path):
    """Lay out all data sets, small."""
    X, y = clustered()
    numbers = np.arange(400)
    split = {
        "query": numbers[:40],
        "database": numbers[40:],
        "train": numbers[100:],
        "anchors": np.arange(30),
        "labelled": np.arange(50, 150),
    }
    for name in ("mnist", "usps"):
        write(tmp_path, f"{name}.npz", X=X, y=y)
        write(tmp_path, f"{name}_split.npz", **split)
    write(tmp_path, "sift10k.npz", base=X, neighbours=numbers[[[7, 1], [3, 2]]])
    names = np.array(["libfoo-dev", "libbar", "perl-doc", "x"])[numbers % 4]
    write(tmp_path, "packages.npz", X=X, section=y.astype(str), name=names)
    return tmp_path


def test_each_figure_belongs_to_a_paper_and_a_data_set():
    for name, figure in FIGURES.items():
        assert figure.data in DATA
        assert name in figures_of(figure.paper)
    assert list(figures_of("sgh", ("sgh_usps",))) == ["sgh_usps"]
    with pytest.raises(InvalidInputError, match="'bgdh_50' is not a figure of sgh; these are sgh_"):
        figures_of("sgh", ("sgh_usps", "bgdh_50"))


def test_files_that_serve_as_they_are(folder, tmp_path):
    files = FIGURES["sgh_usps"].files(folder, tmp_path / "nowhere")
    assert files == [folder / "usps.npz", folder / "usps_split.npz"]


def test_queries_of_sift_leave_its_database(folder, tmp_path_factory):
    scratch = tmp_path_factory.mktemp("scratch")
    split = load_split(*FIGURES["sgh_sift10k"].files(folder, scratch))
    X = np.load(folder / "sift10k.npz")["base"]
    np.testing.assert_array_equal(split.queries, X[[7, 3]])
    assert len(split.database) == len(split.train) == 398


def test_sections_are_labels(folder, tmp_path_factory):
    X, y = clustered()
    many = np.resize(np.arange(len(X)), 1_100)
    np.savez(folder / "packages.npz", X=X[many], section=y[many].astype(str), name=many.astype(str))
    scratch = tmp_path_factory.mktemp("scratch")
    split = load_split(*FIGURES["sadih_packages"].files(folder, scratch))
    assert (len(split.queries), len(split.database)) == (1_000, 100)
    assert set(split.labels) == set(y)


@pytest.mark.parametrize(("data", "rows"), [("usps", None), ("mnist", 200)])
def test_splits_are_drawn_from_queries_and_training_rows(folder, tmp_path, data, rows):
    figure = Figure("cghash", "Figure 5", data, replace(LSH, splits=3), rows=rows)
    (path,) = figure.files(folder, tmp_path)
    X, y = clustered()
    # The first 40 rows are the queries, and training rows begin with the 100th.
    kept = np.arange(400) if rows is None else np.r_[:40, 100:260]
    with np.load(path) as found:
        np.testing.assert_array_equal(found["X"], X[kept])
        np.testing.assert_array_equal(found["y"], y[kept])
    name = data if rows is None else f"{data}-200"
    assert figure.command.endswith(f"--data {name}.npz --splits 3 {LSH.options}")
    assert len(list(load_splits(path, splits=3))) == 3


def test_a_quick_run_keeps_few_rows(folder, tmp_path_factory):
    scratch = tmp_path_factory.mktemp("scratch")
    split = load_split(
        *FIGURES["sgh_mnist"].files(folder, scratch, quick=True), labelled="labelled"
    )
    assert (len(split.queries), len(split.database), len(split.train)) == (40, 300, 300)
    assert len(split.labelled) == 100


def test_fewer_rows_are_trained_on_whole(folder, tmp_path_factory):
    figure = Figure("sgh", "Table 1", "mnist", LSH, rows=150)
    split = load_split(
        *figure.files(folder, tmp_path_factory.mktemp("scratch")), labelled="labelled"
    )
    assert (len(split.queries), len(split.database), len(split.train)) == (40, 150, 150)
    np.testing.assert_array_equal(split.train_places, np.arange(150))
    assert len(split.labelled) == 100
    files = "--data mnist-150.npz --split mnist-150_split.npz"
    assert figure.command.endswith(f"{files} --methods lsh --bits 8 -k 100")


def single_array(folder):
    np.save(folder / "one.npy", np.eye(3))
    (folder / "one.npy").replace(folder / "usps.npz")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: (f / "usps.npz").unlink(), "usps.npz.*No such file.*; it needs X, y"),
        (
            lambda f: (f / "usps_split.npz").unlink(),
            "usps_split.npz.*No such file.*; it needs query, database, train, anchors",
        ),
        (lambda f: write(f, "usps.npz", X=np.eye(3)), "usps.npz has no array y; it needs X, y"),
        (
            lambda f: (f / "usps.npz").write_text("x"),
            "cannot read arrays from .*usps.npz.*; it needs X, y",
        ),
        (single_array, "usps.npz has no array y; it needs X, y"),
    ],
)
def test_missing_data_is_named(folder, tmp_path, change, message):
    change(folder)
    with pytest.raises(InvalidInputError, match=message):
        FIGURES["sgh_usps"].files(folder, tmp_path)


def test_the_line_meets_the_exponential_at_both_ends():
    np.testing.assert_allclose(linear_exponential(np.array([-1.0, 1.0])), np.exp([-1, 1]))


def split_of(rng, n=60, d=9, labels=None):
    X = rng.normal(size=(n, d))
    numbers = {"query": np.arange(20), "database": np.arange(20, n), "train": np.arange(20, n)}
    return Split.of(X, labels, numbers=numbers)


def test_errors_of_the_feature_map_by_the_definition():
    """Equation 3 written out, with P and Q whole."""
    split = split_of(np.random.default_rng(1))
    found = measure_feature_map(split)
    mean = split.train.mean(axis=0)
    x, y = ((rows - mean) for rows in (split.queries, split.train))
    x, y = (rows / np.linalg.norm(rows, axis=1)[:, None] for rows in (x, y))
    e, rho = np.e, 2.0
    halves = []
    for rows, sign in ((x, 1), (y, -1)):
        decay = np.exp(-(rows**2).sum(axis=1) / rho)[:, None]
        linear = np.sqrt(2 * (e**2 - 1) / (e * rho)) * decay * rows
        constant = np.sqrt((e**2 + 1) / e) * decay
        halves.append(np.hstack([linear, constant, np.full((len(rows), 1), sign)]))
    error = halves[0] @ halves[1].T - (
        2 * np.exp(-((x[:, None] - y[None]) ** 2).sum(axis=2) / rho) - 1
    )
    assert found.values["greatest"] == pytest.approx(np.abs(error).max(), abs=1e-6)
    assert found.values["mean"] == pytest.approx(error.mean(), abs=1e-6)
    assert found.values["deviation"] == pytest.approx(error.std(), abs=1e-6)
    assert found.values["greatest"] <= found.values["bound"] + 1e-6
    assert len(found.similarity) == 20 * 40


def test_a_picture_of_the_feature_map():
    found = FeatureMap({}, np.linspace(-1, 1, 5), np.linspace(-1, 1, 5))
    assert len(found.draw().axes) == 2


def test_answers_are_the_nearest_of_a_few_queries():
    rng = np.random.default_rng(2)
    y = np.resize(np.arange(3), 60)
    X = 8.0 * np.eye(9)[y] + rng.normal(size=(60, 9))
    numbers = {"query": np.arange(20), "database": np.arange(20, 60), "train": np.arange(20, 60)}
    found = retrieve(Split.of(X, y, numbers=numbers), n_queries=2, k=4, n_bits=8)
    np.testing.assert_array_equal(found.queries, X[[0, 1]])
    assert found.answers.shape == (2, 4, 9)
    assert found.values == {"right": 1.0}
    assert len(found.draw().axes) == 10


def test_images_need_labels_and_squares():
    rng = np.random.default_rng(3)
    with pytest.raises(InvalidInputError, match="need a label each"):
        retrieve(split_of(rng))
    labels = np.resize(np.arange(2), 60)
    found = retrieve(split_of(rng, d=8, labels=labels), n_bits=2, k=2)
    with pytest.raises(InvalidInputError, match="8 dimensions are not square"):
        found.draw()


def test_a_quick_run_measures_no_more_rows_than_it_has(folder, monkeypatch):
    """BGDH's tables have MAP within 5,000 rows, a quick run 2,000 rows, a tenth of them queries."""
    asked = []
    monkeypatch.setattr(Comparison, "run", lambda self, *_, **__: asked.append(self) or [])
    FIGURES["bgdh_50"].run(folder, quick=True)
    assert asked[0].measures.top == (1_800,)
    assert FIGURES["bgdh_50"].run(folder) == []
    assert asked[1].measures.top == (5_000,)
