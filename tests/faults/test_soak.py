"""The soak of benchmarks/reliability.py for a few seconds, and the figures of its page."""

import json
from importlib import import_module
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.mark.slow
def test_a_short_soak(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    soaked = import_module("reliability_soak").soak(6, 2_000)
    assert soaked.client_errors == soaked.reader_errors == soaked.operator_errors == []
    assert soaked.wrong == 0
    assert soaked.codes_lost == 0
    assert soaked.codes_checked > 2_000
    assert soaked.checked > 10
    assert soaked.swaps >= 1
    assert len(soaked.exchange_ms) == soaked.swaps + soaked.rollbacks
    for name in ("search", "insert", "update", "delete"):
        assert soaked.scripts[name]["number"] > 10


def test_the_page_has_the_figures_of_the_committed_run(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    report = import_module("reliability_report")
    figures = json.loads((BENCHMARKS / "results" / "reliability.json").read_text())
    page = report.PAGE.read_text()
    assert page == report.with_tables(page, figures), "run: python benchmarks/reliability.py"
    for mark in report.tables(figures):
        assert f"<!-- {mark} -->" in page
