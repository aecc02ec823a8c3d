"""Figures of indexes: what they show, whatever names are like."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from xml.etree import ElementTree

import numpy as np
import pytest

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.operations.report.charts import Chart, of_history
from pg_hashindex.quality import plots
from pg_hashindex.quality.evaluate import Evaluation
from pg_hashindex.quality.measuring import Measured, OperatingPoint
from pg_hashindex.quality.plots.distributions import bins_of
from pg_hashindex.quality.recall_history import HistoryPoint
from pg_hashindex.quality.tuning import Tuned

POINTS = [OperatingPoint(50, 0.8, 1.0, 2.0), OperatingPoint(200, 0.9, 2.0, 4.0)]
MEASURED = Evaluation("i", 30, 10, POINTS, 9.0, 9.5)


def lines(panel):
    found = panel.get_lines()  # type: ignore[attr-defined]
    return {line.get_label(): np.asarray(line.get_xydata()).tolist() for line in found}


def tuned(name):
    points = [
        Measured(count, recall, ms, ms, name, "m:1", "scan", "hamming", None, 10, 30, 0)
        for count, recall, ms in ((20, 0.8, 1.0), (50, 0.96, 2.0), (100, 0.95, 3.0))
    ]
    return Tuned(name, 0.95, 10, None, points, points[0], points[1], None, None, 9.0, 9.5)


def history(*points):
    start = datetime(2026, 11, 1, tzinfo=UTC)
    return [
        HistoryPoint(
            start + timedelta(days=day), name, 30, model, "scan", "hamming", 200, None, 10, recall,
            1.0, 2.0,
        )
        for day, name, model, recall in points
    ]  # fmt: skip


def test_recall_and_times():
    recall, times = plots.draw_evaluation(MEASURED, own=200).axes
    assert lines(recall) == {"recall": [[50, 0.8], [200, 0.9]], "the index's own": [[200, 0.9]]}
    assert recall.get_ylabel() == "recall@10"
    found = lines(times)
    assert found["median"] == [[50, 1], [200, 2]]
    assert found["95th percentile"] == [[50, 2], [200, 4]]
    assert [point[1] for point in found["exact search, median"]] == [9, 9]
    (alone,) = plots.draw_recall(MEASURED, own=100).axes
    assert list(lines(alone)) == ["recall"]
    assert [tick.get_text() for tick in alone.get_xticklabels()] == ["50", "200"]


def test_what_tuning_found():
    (panel,) = plots.draw_frontier(tuned("i")).axes
    found = lines(panel)
    assert found["measured"] == [[0.8, 1], [0.96, 2], [0.95, 3]]
    # The last one is slower and finds less.
    assert found["best"] == [[0.8, 1], [0.96, 2]]
    assert found["recommended"] == [[0.96, 2]]
    assert [point[1] for point in found["exact search"]] == [9, 9]


def test_numbers_of_candidates_do_not_stand_on_each_other():
    near = [OperatingPoint(count, 0.9, 1.0, 2.0) for count in (50, 55, 58, 100)]
    (panel,) = plots.draw_times(Evaluation("i", 3, 10, near, 9.0, 9.5)).axes
    assert [tick.get_text() for tick in panel.get_xticklabels()] == ["50", "100"]


def test_history_has_a_line_for_each_set():
    points = history(
        (0, "a", "m:1", 0.9), (1, None, "m:1", 0.7), (2, "a", "m:2", 0.95), (3, "a", "m:2", 0.96)
    )
    (panel,) = plots.draw_history(points, "i").axes
    found = lines(panel)
    day = 20758.0  # 2026-11-01, since 1970
    assert found["set a, 200 candidates, k 10"] == [
        [day, 0.9], [day + 2, 0.95], [day + 3, 0.96],
    ]  # fmt: skip
    assert found["drawn queries, 200 candidates, k 10"] == [[day + 1, 0.7]]
    # The one change of models.
    assert [(note.get_text(), note.xy[0]) for note in panel.texts] == [("m:2", day + 2)]
    (panel,) = plots.draw_history(points[:1]).axes
    assert panel.get_xlim() == (day - 1, day + 1)
    with pytest.raises(InvalidInputError, match="no recall is recorded"):
        plots.draw_history([])


def test_the_page_has_all_times_in_utc():
    """Whatever zone the session is in."""
    (point,) = history((0, "a", "m:1", 0.9))
    there = replace(point, measured_at=point.measured_at.astimezone(timezone(timedelta(hours=-9))))
    assert there.measured_at.day == 31
    (chart,) = of_history([there])
    assert "the last of 2026-11-01" in chart.description
    assert chart.rows[0][0].tzinfo == UTC
    assert chart.figure.axes[0].xaxis.get_major_locator().tz == UTC


def test_of_many_sets_those_with_the_most_points_are_drawn():
    points = history(*((day, f"s{day % 10}", "m:1", 0.9) for day in range(18)))
    (panel,) = plots.draw_history(points).axes
    assert sorted(lines(panel)) == [f"set s{n}, 200 candidates, k 10" for n in range(8)]


@pytest.mark.parametrize(
    ("values", "whole", "counts", "edges"),
    [
        ([1.0, 1.0, 2.0], False, [2, 0, 1], [1.0, 4 / 3, 5 / 3, 2.0]),
        ([5.0], False, [1], [4.5, 5.5]),
        ([3, 3, 3], True, [3], [3, 4]),
        ([0, 1, 1, 2, 2, 2], True, [1, 2, 3], [0, 1, 2, 3]),
    ],
)
def test_bins(values, whole, counts, edges):
    found = bins_of(values, whole=whole)
    assert found[0].tolist() == counts
    assert found[1] == pytest.approx(edges)


def test_bins_hold_everything_and_are_not_too_many():
    # Outliers would make thousands.
    values = np.append(np.random.default_rng(0).normal(size=3000), [900, -900])
    for whole, array in ((False, values), (True, np.rint(values))):
        counts, edges = bins_of(array, whole=whole)
        assert counts.sum() == 3002
        assert len(counts) <= 41
        assert len(edges) == len(counts) + 1
        assert not whole or (edges == np.rint(edges)).all()


def test_histograms():
    (panel,) = plots.draw_query_times([1.0, 1.0, 2.0]).axes
    assert panel.patches[0].get_data().values.tolist() == [2, 0, 1]  # type: ignore[attr-defined]
    assert list(lines(panel)) == ["p50 1 ms", "p95 1.9 ms"]
    (panel,) = plots.draw_list_lengths([1, 2, 300], 200).axes
    assert list(lines(panel)) == ["mean 101", "long: above 200"]
    (panel,) = plots.draw_list_lengths([1, 2, 30], 200).axes
    assert list(lines(panel)) == ["mean 11"]


def test_bits():
    (panel,) = plots.draw_ones([0.25, 0.5, 1.0]).axes
    stairs = panel.patches[0].get_data()  # type: ignore[attr-defined]
    assert (stairs.values.tolist(), stairs.baseline) == ([0.25, 0.5, 1.0], 0.5)
    assert panel.get_xlim() == (-0.5, 2.5)
    correlation = np.array([[1, -0.4, np.nan], [-0.4, 1, np.nan], [np.nan] * 3])
    panel, _ = plots.draw_correlation(correlation).axes
    (image,) = panel.get_images()
    shown = image.get_array()
    assert shown is not None
    # A bit with itself, and one that never changes, say nothing.
    assert np.ma.getmaskarray(shown).tolist() == [[1, 0, 1], [0, 1, 1], [1, 1, 1]]
    assert shown[0, 1] == pytest.approx(-0.4)
    assert image.get_clim() == pytest.approx((-0.4, 0.4))


@pytest.mark.filterwarnings("error")
def test_names_are_no_formulas(tmp_path):
    """And may be of letters that the font does not have."""
    name = "$x_$ 索引 \n" + "n" * 60
    plots.save_figure(plots.draw_frontier(tuned(name)), tmp_path / "a.png")
    evaluation = Evaluation(name, 30, 10, POINTS, 9, 9.5)
    plots.save_figure(plots.draw_evaluation(evaluation, own=50), tmp_path / "b.svg")
    points = history((0, name, name, 0.9), (1, name, "$y_$", 0.9))
    plots.save_figure(plots.draw_history(points, name), tmp_path / "c.pdf")
    assert {path.name for path in tmp_path.iterdir()} == {"a.png", "b.svg", "c.pdf"}
    inside = in_page(plots.draw_history(points, name))
    assert "$x_$ 索引  nnnn" in inside
    assert "$y_$" in inside
    assert "n" * 48 not in inside
    ElementTree.fromstring(inside)


def in_page(figure):
    return Chart("k", "Recall", "It rises.", figure, [], []).svg()


def test_a_figure_in_a_page():
    inside = in_page(plots.draw_recall(MEASURED))
    assert inside == in_page(plots.draw_recall(MEASURED))
    assert inside.startswith('<svg viewBox="0 0 388.8 244.8" width="518" height="326" role="img"')
    assert ">candidates</text>" in inside
    for sign in ("xmlns", "http", "#000000", "DejaVu", "<style", "matplotlib"):
        assert sign not in inside
