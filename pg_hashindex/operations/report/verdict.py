"""The sentence that a page opens with: all is well, or what to do first."""

from dataclasses import dataclass

from ...quality.doctor_findings import Diagnosis
from .gathering import Missing, Report

# Below this a search misses one of twenty of the nearest rows.
_RECALL = 0.95


@dataclass(frozen=True)
class Verdict:
    """A sentence, how urgent it is (``ok``, ``warning`` or ``broken``), and what to run."""

    status: str
    text: str
    commands: tuple[str, ...] = ()


def of_index(report: Report) -> Verdict:
    """Say how an index does, in plain words: the worst finding, or else its recall and time."""
    name, health, measured = report.index.name, report.health, report.measurement
    if isinstance(health, Missing):
        return Verdict("broken", f"The index could not be checked: {health.reason}")
    found = [finding for finding in health.findings if finding.status != "ok"]
    for urgency, words in (("broken", "is broken"), ("warning", "needs attention")):
        for finding in found:
            if finding.status == urgency:
                return Verdict(urgency, f"The index {words}: {finding.detail}. {finding.advice}")
    if isinstance(measured, Missing):
        return Verdict(
            "warning", f"Nothing was found wrong, and recall is not known: {measured.reason}"
        )
    (own,) = (point for point in measured.points if point.candidates == report.candidates)
    said = (
        f"Searches find {own.recall:.1%} of the {measured.k} nearest rows in {own.p50_ms:.3g} ms; "
        f"comparing every row takes {measured.exact_p50_ms:.3g} ms"
    )
    if own.recall < _RECALL:
        tune = f"pg-hashindex tune {name} --recall {_RECALL:g}"
        return Verdict("warning", f"{said}. To find more, look for other settings:", (tune,))
    return Verdict("ok", f"All is well: {said[0].lower()}{said[1:]}.")


def of_table(found: Diagnosis) -> Verdict:
    """Say how pgvector's indexes do on a table, in plain words: the first advice."""
    if not found.complete:
        return Verdict("warning", "There was no time to measure all: give a longer --timeout.")
    if not found.advice:
        return Verdict("ok", "Nothing needs to be done.")
    first = found.advice[0]
    return Verdict("ok" if first.kind == "leave" else "warning", first.text)
