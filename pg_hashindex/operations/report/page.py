"""The pages of an index and of a table: files of HTML that load nothing from the network."""

import shlex
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unicodedata import category

from ...models.whole_files import write_whole
from ...quality.doctor_findings import Diagnosis
from ...quality.plots.figures import check_file, drawing
from . import charts, verdict
from .charts import Chart
from .gathering import Missing, Report

# Control characters, halves of surrogate pairs, and code points without a character.
_NOT_IN_HTML = ("Cc", "Cs", "Cn")
# They change the order of letters: a name could pass for another one.
_DIRECTIONS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def page(report: Report) -> str:
    """Return the page of an index.

    Returns
    -------
    str
        HTML; every value in it is escaped.

    Raises
    ------
    InvalidInputError
        If matplotlib is missing.
    """
    return _render(
        "index.html",
        report=report,
        verdict=verdict.of_index(report),
        charts={
            "search": _drawn(charts.of_measurement, report.measurement, report.candidates),
            "bits": _drawn(charts.of_bits, report.bits),
            "lists": _drawn(charts.of_lists, report.lists),
            "history": _drawn(charts.of_history, report.history),
        },
    )


def doctor_page(found: Diagnosis) -> str:
    """Return the page of what the doctor found about a table.

    Returns
    -------
    str
        HTML; every value in it is escaped.

    Raises
    ------
    InvalidInputError
        If matplotlib is missing.
    """
    whole = [point for point in found.points if point.filter is None]
    by_name = {index.name: index for index in found.indexes}
    filtered: list[tuple[Any, ...]] = []
    for scope in found.scopes:
        if scope.filter is None:
            continue
        filtered.append((scope.filter, scope.rows, "exact", "", 1.0, "all", scope.p50_ms))
        filtered += [
            (
                scope.filter, scope.rows, point.index, point.setting_of(by_name[point.index]),
                point.recall, f"{point.returned:.3g} of {point.wanted:.3g}", point.p50_ms,
            )
            for point in found.points
            if point.filter == scope.filter
        ]  # fmt: skip
    return _render(
        "table.html",
        found=found,
        made_at=datetime.now(UTC),
        verdict=verdict.of_table(found),
        now=[point for point in whole if point.current],
        exact=next((scope for scope in found.scopes if scope.filter is None), None),
        filtered=filtered,
        charts={
            "search": list(charts.of_indexes(found)) if whole else [],
            "memory": list(charts.of_memory(found)),
        },
    )


def _render(template: str, **values: Any) -> str:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        finalize=_shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"megabytes": _megabytes, "quoted": shlex.quote}
    environment.tests["missing"] = lambda value: isinstance(value, Missing)
    return environment.get_template(template).render(**values)


def _drawn(draw: Callable[..., Iterator[Chart]], found: Any, *more: Any) -> list[Chart]:
    return [] if found is None or isinstance(found, Missing) else list(draw(found, *more))


def _shown(value: Any) -> Any:
    """Return a value as the template writes it; Jinja2 escapes it afterwards."""
    if hasattr(value, "__html__"):
        return value
    if value is None or value is False:
        return ""
    if value is True:
        return "yes"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M}"
    return "".join(
        "\ufffd"
        if letter in _DIRECTIONS or (letter not in "\n\t" and category(letter) in _NOT_IN_HTML)
        else letter
        for letter in str(value)
    )


def _megabytes(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:,.1f} MB" if n_bytes >= 100_000 else f"{n_bytes / 1e3:,.1f} kB"


def check_page(path: Path) -> None:
    """Find out before the work whether a page can be written.

    Raises
    ------
    InvalidInputError
        If matplotlib is missing, there is no such folder, or the path is not a plain file.
    """
    with drawing():
        check_file(path)


def save_page(text: str, path: Path) -> None:
    """Write a page beside its place, then move it there.

    Parameters
    ----------
    path
        A file there is replaced; if writing fails, it stays as it is.

    Raises
    ------
    InvalidInputError
        As `check_page`.
    OSError
        If the file cannot be written.
    """
    check_page(path)
    write_whole(path, text.encode())
