"""The page of an index: one file of HTML, readable without a network."""

import shlex
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..health import Health
from . import charts
from .charts import Chart
from .facts import facts, key_figures
from .gathering import Lists, Measurement, Missing, Report
from .markup import Markup, element, table
from .style import STYLE

__all__ = ["page"]

# Nothing is loaded from anywhere, and nothing runs.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


class _Section(NamedTuple):
    key: str
    name: str
    parts: Iterable[Markup]


def page(report: Report) -> str:
    """Return the page of an index.

    Parameters
    ----------
    report : Report

    Returns
    -------
    str
        HTML that is well-formed XML too.

    Raises
    ------
    InvalidInputError
        If matplotlib is missing.
    """
    title = f"Index {report.index.name}"
    sections = list(_sections(report))
    links = (element("a", section.name, href=f"#{section.key}") for section in sections)
    head = element(
        "head",
        Markup('<meta charset="utf-8"/>'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}"/>'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1"/>'),
        element("title", title),
        element("style", Markup(STYLE)),
    )
    body = element(
        "body",
        element(
            "header",
            element("h1", title),
            element("p", f"{report.made_at:%Y-%m-%d %H:%M} UTC · {report.versions}"),
            element("nav", *links),
            key_figures(report),
        ),
        element("main", *map(_as_html, sections)),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _as_html(section: _Section) -> Markup:
    heading = element("h2", section.name)
    return element("section", heading, *section.parts, id=section.key)


def _sections(report: Report) -> Iterator[_Section]:
    yield _Section("check", "Check", _check(report.health))
    yield _Section("facts", "The index", [facts(report)])
    yield _Section("search", "Recall and time", _search(report.measurement))
    yield _Section("tune", "What tuning found", _tune(report))
    yield _Section("bits", "Bits of the codes", _bits(report))
    if report.lists is not None or "landmarks" in (report.index.access, report.index.building):
        yield _Section("lists", "Lists of landmarks", _lists(report))
    yield _Section("recorded", "Recall over time", _history(report))


def _check(health: Health | Missing) -> Iterator[Markup]:
    if isinstance(health, Missing):
        yield _missing(health)
        return
    rows = [
        [finding.check, _status(finding.status), finding.value, finding.detail, finding.advice]
        for finding in health.findings
    ]
    yield table(["check", "status", "value", "what was found", "what to do"], rows)


def _status(status: str) -> Markup:
    return element("span", status, class_=f"status {status}")


def _search(measured: Measurement | Missing) -> Iterator[Markup]:
    if isinstance(measured, Missing):
        yield _missing(measured)
        return
    found = measured.evaluation
    asked = "drawn from the table" if found.query_set is None else f"saved as {found.query_set}"
    words = f"{found.queries} queries, {asked}, by the index's own access path and ranking."
    if found.skipped:
        words += f" {found.skipped} more were left out: the model has no code for them."
    yield element("p", words)
    yield _grid(charts.of_measurement(measured))


def _tune(report: Report) -> Iterator[Markup]:
    advice = report.advice
    if advice is None:
        yield element("p", "Nothing that was tuned was given. To see here what other settings do:")
        name = shlex.quote(report.index.name)
        yield _commands(
            f"pg-hashindex tune {name} --recall 0.95 --json > tune.json",
            f"pg-hashindex report {name} --tune tune.json --html report.html",
        )
        return
    word = "Recommended: " if advice.recommended is not None else ""
    yield element("p", f"{word}{advice.reason}.")
    yield _grid(charts.of_advice(advice))


def _bits(report: Report) -> Iterator[Markup]:
    if isinstance(report.bits, Missing):
        yield _missing(report.bits)
    elif report.bits is None:
        yield element("p", "There are no codes yet.")
    else:
        yield _grid(charts.of_bits(report.bits))


def _lists(report: Report) -> Iterator[Markup]:
    lists: Lists | Missing | None = report.lists
    if isinstance(lists, Missing):
        yield _missing(lists)
        return
    if lists is None:
        yield element("p", "The landmarks are not built yet. To build them:")
        yield _commands(f"pg-hashindex index encode {shlex.quote(report.index.name)}")
        return
    told = lists.summary
    unlisted = f", {told.unlisted:,} of them in no list" if told.unlisted else ""
    yield element(
        "p",
        f"{told.landmarks:,} landmarks, trained when the table had {told.trained_rows:,} rows; "
        f"{told.codes:,} codes{unlisted}.",
    )
    yield _grid(charts.of_lists(lists))


def _history(report: Report) -> Iterator[Markup]:
    if isinstance(report.history, Missing):
        yield _missing(report.history)
        return
    if not report.history:
        yield element("p", "No recall is recorded yet. To record that of the same queries:")
        name = shlex.quote(report.index.name)
        yield _commands(
            f"pg-hashindex evaluate {name} --save nightly",
            f"pg-hashindex evaluate {name} --set nightly",
        )
        return
    yield _grid(charts.of_history(report.history))


def _grid(shown: Iterable[Chart]) -> Markup:
    return element("div", *(chart.as_html() for chart in shown), class_="charts")


def _commands(*lines: str) -> Markup:
    return element("pre", "\n".join(lines))


def _missing(what: Missing) -> Markup:
    return element("p", f"Not known: {what.reason}", class_="missing")
