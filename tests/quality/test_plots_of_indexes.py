"""Figures of indexes: what they show, whatever names are like."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from xml.etree import ElementTree

import numpy as np
import pytest

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.operations.page import _Chart, _history
from pg_hashindex.quality import plots
from pg_hashindex.quality.measuring import Measured
from pg_hashindex.quality.recall_history import HistoryPoint
from pg_hashindex.quality.tuning import Tuned

POINTS = [
    plots.SearchPoint("i", "50 candidates", 0.8, 1.0, 2.0, current=False),
    plots.SearchPoint("i", "200 candidates", 0.9, 2.0, 4.0, current=True),
    plots.SearchPoint("other", "ef_search 40", 0.7, 3.0, 4.0, current=False),
]


def lines(panel):
    found = panel.get_lines()  # type: ignore[attr-defined]
    return {line.get_label(): np.asarray(line.get_xydata()).tolist() for line in found}


def tuned(name):
    points = [
        Measured(count, recall, ms, ms, name, "m:1", "scan", None, 10, 30, recall)
        for count, recall, ms in ((20, 0.8, 1.0), (50, 0.96, 2.0), (100, 0.95, 3.0))
    ]
    return Tuned(name, 0.95, 10, None, points, points[0], points[1], None, None, 9.0, 9.5)


def history(*points):
    start = datetime(2026, 11, 1, tzinfo=UTC)
    return [
        HistoryPoint(
            start + timedelta(days=day), seed, 30, model, "scan", 200, None, 10, recall,
            1.0, 2.0,
        )
        for day, seed, model, recall in points
    ]  # fmt: skip


def test_indexes_have_a_line_each():
    (panel,) = plots.draw_indexes(POINTS, 9.0, 10, "items, 300 rows").axes
    found = lines(panel)
    assert found["i"] == [[0.8, 1], [0.9, 2]]
    assert found["other"] == [[0.7, 3]]
    _, _, ring, exact = panel.get_lines()
    assert np.asarray(ring.get_xydata()).tolist() == [[0.9, 2]]
    assert {y for _, y in exact.get_xydata()} == {9}  # type: ignore[union-attr]
    assert (panel.get_xlabel(), panel.get_title()) == ("recall@10", "items, 300 rows")


def test_what_tuning_found():
    (panel,) = plots.draw_frontier(tuned("i")).axes
    found = lines(panel)
    assert found["measured"] == [[0.8, 1], [0.96, 2], [0.95, 3]]
    # The last one is slower, of lower recall.
    assert found["best"] == [[0.8, 1], [0.96, 2]]
    assert found["recommended"] == [[0.96, 2]]
    assert [point[1] for point in found["exact search"]] == [9, 9]


def test_history_has_a_line_for_the_same_queries():
    points = history(
        (0, 7, "m:1", 0.9), (1, None, "m:1", 0.7), (2, 7, "m:2", 0.95), (3, 7, "m:2", 0.96)
    )
    points.append(replace(points[-1], queries=29))
    (panel,) = plots.draw_history(points, "i").axes
    found = lines(panel)
    day = 20758.0  # 2026-11-01, since 1970
    assert found["30 rows of seed 7, 200 candidates, k 10"] == [
        [day, 0.9], [day + 2, 0.95], [day + 3, 0.96],
    ]  # fmt: skip
    assert found["30 other queries, 200 candidates, k 10"] == [[day + 1, 0.7]]
    assert found["29 rows of seed 7, 200 candidates, k 10"] == [[day + 3, 0.96]]
    # The one change of models.
    assert [(note.get_text(), note.xy[0]) for note in panel.texts] == [("m:2", day + 2)]
    (panel,) = plots.draw_history(points[:1]).axes
    assert panel.get_xlim() == (day - 1, day + 1)
    with pytest.raises(InvalidInputError, match="no recall is saved"):
        plots.draw_history([])


def test_the_page_has_all_times_in_utc():
    """Whatever zone the session is in."""
    (point,) = history((0, 0, "m:1", 0.9))
    there = replace(point, measured_at=point.measured_at.astimezone(timezone(timedelta(hours=-9))))
    assert there.measured_at.day == 31
    chart = _history([there], 1)
    assert "the last of 2026-11-01" in chart.description
    assert chart.rows[0][0].tzinfo == UTC
    assert chart.figure.axes[0].xaxis.get_major_locator().tz == UTC


def test_of_many_lines_those_with_the_most_points_are_drawn():
    points = history(*((day, day % 10, "m:1", 0.9) for day in range(18)))
    (panel,) = plots.draw_history(points).axes
    assert sorted(lines(panel)) == [f"30 rows of seed {n}, 200 candidates, k 10" for n in range(8)]


def test_bits():
    (panel,) = plots.draw_ones([0.25, 0.5, 1.0]).axes
    stairs = panel.patches[0].get_data()  # type: ignore[attr-defined]
    assert (stairs.values.tolist(), stairs.baseline) == ([0.25, 0.5, 1.0], 0.5)
    assert panel.get_xlim() == (-0.5, 2.5)


@pytest.mark.filterwarnings("error")
def test_names_are_no_formulas(tmp_path):
    """And may be of letters that the font does not have."""
    name = "$x_$ 索引 \n" + "n" * 60
    plots.save_figure(plots.draw_frontier(tuned(name)), tmp_path / "a.png")
    named = [point._replace(name=name) for point in POINTS]
    plots.save_figure(plots.draw_indexes(named, 9.0, 10, name), tmp_path / "b.svg")
    points = history((0, 0, name, 0.9), (1, 0, "$y_$", 0.9))
    plots.save_figure(plots.draw_history(points, name), tmp_path / "c.pdf")
    assert {path.name for path in tmp_path.iterdir()} == {"a.png", "b.svg", "c.pdf"}
    inside = in_page(plots.draw_history(points, name))
    assert "$x_$ 索引  nnnn" in inside
    assert "$y_$" in inside
    assert "n" * 48 not in inside
    ElementTree.fromstring(inside)


def in_page(figure):
    return _Chart("k", "Recall", "It rises.", figure, [], []).svg()


def test_a_figure_in_a_page():
    inside = in_page(plots.draw_indexes(POINTS, 9.0, 10))
    assert inside == in_page(plots.draw_indexes(POINTS, 9.0, 10))
    assert inside.startswith('<svg viewBox="0 0 540 324" width="720" height="432" role="img"')
    assert ">recall@10</text>" in inside
    for sign in ("xmlns", "http", "#000000", "DejaVu", "<style", "matplotlib"):
        assert sign not in inside
