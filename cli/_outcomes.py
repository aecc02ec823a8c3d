"""The output of ``pg-hashindex bench``."""

from collections.abc import Sequence

from pg_hashindex.quality.comparison import Outcome

from ._shared import echo, note, print_table

__all__ = ["note_outcome", "print_outcomes"]


def note_outcome(outcome: Outcome) -> None:
    """Print the progress of the comparison on stderr."""
    if outcome.error is not None:
        note(f"{outcome.method}, {outcome.n_bits} bits: failed")
    elif outcome.codes == "hashed":
        note(
            f"{outcome.method}, {outcome.n_bits} bits: trained on {outcome.train_rows} rows in "
            f"{outcome.train_wall_s:.1f} s"
        )


def print_outcomes(outcomes: Sequence[Outcome]) -> None:
    """Print a table of scores for each ground truth, a table of times and memory, and failures."""
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
                *(f"{outcome.scores[truth].values[name]:.4f}" for name in measures),
            ]
            for outcome in scored
        ],
    )


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
