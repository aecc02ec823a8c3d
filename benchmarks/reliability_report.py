"""The tables of docs/results.md, from results of `reliability.py`."""

from collections.abc import Mapping
from typing import Any

import common
from common import ROOT, table

PAGE = ROOT / "docs" / "results.md"


def tables(report: Mapping[str, Any]) -> dict[str, str]:
    """Return the tables by their marks."""
    return {
        "faults": _faults(report.get("faults", [])),
        "soak": _soak(report["soak"]) if "soak" in report else "Not measured yet.",
    }


def with_tables(text: str, report: Mapping[str, Any]) -> str:
    """Return a page with the tables of a report."""
    found = tables(report).items()
    return common.with_tables(text, {mark: lambda one=one: one for mark, one in found})


def write_page(report: Mapping[str, Any]) -> None:
    """Write the tables into the page, and print them."""
    print(*tables(report).values(), sep="\n\n")
    PAGE.write_text(with_tables(PAGE.read_text(), report))


def _faults(found: list[dict[str, Any]]) -> str:
    names = ("runs", "operations", "faults", "rows", "lost")
    groups: dict[str, list[dict[str, Any]]] = {}
    for line in found:
        cut = line["test"].endswith(" cut off")
        groups.setdefault("commands cut off" if cut else line["test"], []).append(line)
    rows = [
        [test, *(f"{sum(line[name] for line in lines):,}" for name in names)]
        for test, lines in groups.items()
    ]
    sums = [f"{sum(line[name] for line in found):,}" for name in names]
    headings = ["test", "runs", "operations", "faults", "rows checked", "lost"]
    return table(headings, [*rows, ["all", *sums]])


def _soak(found: Mapping[str, Any]) -> str:
    minutes = found["seconds"] / 60
    statements = sum(int(script["number"]) for script in found["scripts"].values())
    errors = [*found["client_errors"], *found["reader_errors"], *found["operator_errors"]]
    exchange = sorted(found["exchange_ms"])
    rows = [
        ["minutes, rows", f"{minutes:.1f}, {found['rows']:,}"],
        ["statements of pgbench", f"{statements:,}"],
        ["swaps, returns, prunes", f"{found['swaps']}, {found['rollbacks']}, {found['prunes']}"],
        ["errors that a client saw", f"{len(errors)}"],
        ["answers held against the exact search", f"{found['checked']:,}"],
        ["wrong answers", f"{found['wrong']}"],
        ["codes checked in the end, lost", f"{found['codes_checked']:,}, {found['codes_lost']}"],
        [
            "exchange, ms: median, longest",
            f"{exchange[len(exchange) // 2]:.1f}, {exchange[-1]:.1f}" if exchange else "",
        ],
    ]
    return table(["soak", ""], rows)
