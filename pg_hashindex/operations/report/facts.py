"""What an index is, in words and numbers."""

from typing import Any

from .gathering import Missing, Report
from .markup import Markup, element, pairs

__all__ = ["facts", "key_figures"]

# Where models are evaluated, for people.
_LANGUAGES = {"sql": "SQL", "python": "Python"}


def key_figures(report: Report) -> Markup:
    """Return the few numbers that matter most, side by side."""
    return element(
        "dl",
        *(
            element("div", element("dt", name), element("dd", value), element("dd", more))
            for name, value, more in _key_figures(report)
        ),
    )


def _key_figures(report: Report) -> list[tuple[str, Any, Any]]:
    shown: list[tuple[str, Any, Any]] = []
    health, measured, summary = report.health, report.measurement, report.summary
    if not isinstance(health, Missing):
        found = [finding for finding in health.findings if finding.status != "ok"]
        of_all = f"{len(found) or 'none'} of {len(health.findings)} checks found something"
        status = element("span", health.status, class_=f"status {health.status}")
        shown.append(("check", status, of_all))
    if not isinstance(measured, Missing):
        point, evaluation = measured.point, measured.evaluation
        shown.append(
            (f"recall@{evaluation.k}", f"{point.recall:.3f}", f"{measured.own} candidates")
        )
        exact = f"exact search {evaluation.exact_p50_ms:.3g} ms"
        shown.append(("median query", f"{point.p50_ms:.3g} ms", exact))
    if not isinstance(summary, Missing):
        waiting = f"{summary.waiting:,} wait for a code" if summary.waiting else "all have a code"
        shown.append(("rows", f"{summary.rows:,}", waiting))
        size = summary.code_bytes + summary.access_bytes
        shown.append(("size", megabytes(size), f"vectors {megabytes(summary.vector_bytes)}"))
    return shown


def facts(report: Report) -> Markup:
    """Return what an index is, and what it takes."""
    return element("div", _settings(report), _sizes(report), class_="beside")


def _settings(report: Report) -> Markup:
    index = report.index
    rows: list[tuple[str, Any]] = [
        ("table", index.qualified_table),
        ("column", index.column_name),
        ("key", f"{index.id_column} {index.id_type}"),
        ("model", f"{index.model}:{index.model_version}"),
        ("method", index.method),
        ("bits", index.n_bits),
        ("levels", index.levels),
        ("dimension", index.dimension),
        ("metric", index.metric),
        ("layout", index.layout),
        ("access", index.access),
        ("being built", index.building),
        ("ranking", index.ranking),
        ("candidates", index.candidates),
        ("probes", index.probes),
        ("encoded in", _LANGUAGES[index.encoded_in]),
        ("swap", None if index.swap_of is None else f"{index.swap_state} of {index.swap_of}"),
        ("created (UTC)", index.created_at),
    ]
    return pairs([row for row in rows if row[1] is not None])


def _sizes(report: Report) -> Markup:
    index, summary = report.index, report.summary
    given = "$1, 10" if index.encoded_in == "sql" else "$1, 10, query_code => $2"
    search = element("code", f"{index.search_function}({given})")
    if isinstance(summary, Missing):
        rows: list[tuple[str, Any]] = [("rows, codes and sizes", f"not known: {summary.reason}")]
    else:
        rows = [
            ("rows with a vector", summary.rows),
            ("codes", summary.codes),
            ("rows that wait for a code", summary.waiting),
            ("codes take", megabytes(summary.code_bytes)),
            ("the access path takes", megabytes(summary.access_bytes)),
            ("vectors take", megabytes(summary.vector_bytes)),
        ]
    return pairs([*rows, ("search function", search)])


def megabytes(n_bytes: int) -> str:
    """Return a size for people."""
    return f"{n_bytes / 1e6:,.1f} MB" if n_bytes >= 100_000 else f"{n_bytes / 1e3:,.1f} kB"
