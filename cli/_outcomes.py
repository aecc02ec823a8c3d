"""The output of ``pg-hashindex bench``."""

from collections.abc import Mapping, Sequence
from typing import Any

from pg_hashindex.quality.comparison import Outcome

from ._shared import echo, note, print_table

__all__ = ["note_outcome", "print_outcomes"]


def note_outcome(outcome: Outcome) -> None:
    """Print the progress of the comparison on stderr."""
    if outcome.error is not None:
        note(f"{outcome.method}, {outcome.n_bits} bits: failed")
    elif outcome.codes == "hashed":
        chosen = "".join(f", {key} = {value}" for key, value in outcome.chosen.items())
        note(
            f"{outcome.method}, {outcome.n_bits} bits{chosen}: trained on {outcome.train_rows} "
            f"rows in {outcome.train_wall_s:.1f} s"
        )


def print_outcomes(outcomes: Sequence[Outcome]) -> None:
    """Print a table of scores for each truth, one of times and memory, choices and failures."""
    scored = [outcome for outcome in outcomes if outcome.error is None]
    for truth in dict.fromkeys(truth for outcome in scored for truth in outcome.scores):
        ties = "in row order" if scored[0].ties == "order" else "averaged"
        echo(f"Truth: {truth}; ties {ties}\n")
        _print_scores(scored, truth)
        echo()
    trained = [outcome for outcome in scored if outcome.codes == "hashed"]
    if trained:
        echo("Training, and encoding the database\n")
        _print_costs(trained)
    if any(outcome.chosen for outcome in trained):
        echo("\nChosen on training rows held back\n")
        _print_choices(trained)
    for outcome in outcomes:
        if outcome.error is not None:
            echo(f"\n{outcome.method}, {outcome.n_bits} bits failed: {outcome.error}")


def _print_scores(scored: Sequence[Outcome], truth: str) -> None:
    measures = list(scored[0].scores[truth].values)
    print_table(
        ["method", "bits", "levels", "codes", "distance", *measures],
        [
            [
                outcome.method,
                outcome.n_bits,
                outcome.levels,
                outcome.codes,
                outcome.distance,
                *(_score(outcome, truth, name) for name in measures),
            ]
            for outcome in scored
        ],
    )


def _score(outcome: Outcome, truth: str, measure: str) -> str:
    mean = f"{outcome.scores[truth].values[measure]:.4f}"
    if outcome.seeds == 1:
        return mean
    return f"{mean} ± {outcome.standard_deviation['scores'][truth][measure]:.4f}"


def _print_choices(trained: Sequence[Outcome]) -> None:
    print_table(
        ["method", "bits", "values", "MAP of each"],
        [
            [
                outcome.method,
                outcome.n_bits,
                _values(outcome.chosen),
                "; ".join(
                    f"{_values({key: line[key] for key in outcome.chosen})}: "
                    + (f"{line['MAP']:.4f}" if "MAP" in line else line["error"])
                    for line in outcome.tried
                ),
            ]
            for outcome in trained
            if outcome.chosen
        ],
    )


def _values(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in values.items())


def _print_costs(trained: Sequence[Outcome]) -> None:
    print_table(
        ["method", "bits", "rows", "train s", "CPU s", "peak MB", "encode s", "CPU s"],
        [
            [
                outcome.method,
                outcome.n_bits,
                outcome.train_rows,
                outcome.train_wall_s,
                outcome.train_cpu_s,
                outcome.train_peak_bytes / 1e6,
                outcome.encode_wall_s,
                outcome.encode_cpu_s,
            ]
            for outcome in trained
        ],
    )
