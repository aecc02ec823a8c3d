"""Figures of a comparison: what they show, and where they are written."""

import builtins
import sys
from dataclasses import replace

import numpy as np
import pytest

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.papers import Measures, Method, Outcome, Truth, compare, draw_split
from pg_hashindex.papers.plots import draw
from pg_hashindex.quality import plots


@pytest.fixture(scope="module")
def outcomes():
    rng = np.random.default_rng(0)
    labels = rng.integers(4, size=200)
    split = draw_split(rng.standard_normal((200, 8)) + labels[:, None], labels)
    return list(
        compare(
            split,
            [Method("lsh"), Method("pcah"), Method("itq")],
            [4, 8, 16],
            truths=[Truth("label"), Truth("nearest-k", 20)],
            measures=Measures(k=(10, 20)),
        )
    )


def panels(figure):
    return {(axes.get_title(), axes.get_ylabel()): axes for axes in figure.axes if axes.has_data()}


def points(axes):
    return {
        line.get_label(): np.column_stack([line.get_xdata(), line.get_ydata()])
        for line in axes.get_lines()
    }


def test_panels(outcomes):
    drawn = panels(draw(outcomes))
    expected = [("MAP, truth: label", "MAP"), ("3-NN error, truth: label", "3-NN error")]
    expected += [("training, CPU s", "training, CPU s")]
    expected += [("P@20, truth: nearest 20", "P@20"), ("PH2, truth: nearest 20", "PH2")]
    for n_bits in (4, 8, 16):
        expected.append((f"{n_bits} bits, truth: label", "precision"))
        expected.append((f"{n_bits} bits, truth: nearest 20", "recall"))
        expected.append((f"{n_bits} bits, truth: label", "precision@N"))
    assert set(expected) <= set(drawn)
    # 5 and 4 measures and the time against bits, and three curves at three lengths for each truth.
    assert len(drawn) == 5 + 4 + 1 + 2 * 3 * 3


def test_lines_are_the_scores(outcomes):
    drawn = panels(draw(outcomes))
    scores = {(o.method, o.n_bits): o.scores["label"] for o in outcomes if o.error is None}
    against_bits = points(drawn["MAP, truth: label", "MAP"])
    # itq and pcah have no 16 bits of 8 dimensions.
    assert [len(line) for line in against_bits.values()] == [3, 2, 2]
    for n_bits, value in against_bits["itq"]:
        assert value == scores["itq", n_bits].values["MAP"]
    curve = scores["pcah", 8].curve
    over_recall = points(drawn["8 bits, truth: label", "precision"])["pcah"]
    assert np.array_equal(over_recall, np.column_stack([curve.recall, curve.precision]))
    over_rows = points(drawn["8 bits, truth: label", "recall"])["pcah"]
    assert np.array_equal(over_rows, np.column_stack([curve.at, curve.recall]))


def test_each_method_has_a_look_of_its_own(outcomes):
    many = [replace(outcomes[0], method=f"m{number}") for number in range(28)]
    many.append(replace(outcomes[0], method="m0", codes="learned"))
    figure = draw(many)
    lines = panels(figure)["4 bits, truth: label", "recall"].get_lines()
    looks = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in lines}
    assert len(looks) == len(lines) == 29
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert len(legend) == 29
    assert legend[-1] == "m0, learned codes"
    assert len({line.get_color() for line in lines[:7]}) == 7


@pytest.mark.parametrize("name", ["a.png", "a.PDF", "a.svg"])
def test_files(outcomes, name, tmp_path):
    plots.save_figure(draw(outcomes[:2]), tmp_path / name)
    assert (tmp_path / name).stat().st_size > 5_000


def test_refuses(outcomes, tmp_path, monkeypatch):
    (tmp_path / "folder.png").mkdir()
    figure = draw(outcomes)
    for path, message in (
        (tmp_path / "a.xyz", r"a.xyz does not end .* \.pdf, .*\.png"),
        (tmp_path / "a", "does not end"),
        (tmp_path / "none" / "a.png", "no folder .*none"),
        (tmp_path / "folder.png", "it is not a plain file"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            plots.save_figure(figure, path)
    with pytest.raises(InvalidInputError, match="no method has scores"):
        draw([Outcome("itq", 8, 0, error="too long")])
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(InvalidInputError, match="may not write there"):
        plots.check_plot(tmp_path / "a.png")


def test_says_which_extra_is_missing(outcomes, tmp_path, monkeypatch):
    load = builtins.__import__

    def missing(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return load(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    for name in [name for name in sys.modules if name.startswith("matplotlib")]:
        monkeypatch.delitem(sys.modules, name)
    for act in (lambda: plots.check_plot(tmp_path / "a.png"), lambda: draw(outcomes)):
        with pytest.raises(InvalidInputError, match=r"pip install '\.\[plot\]'"):
            act()
