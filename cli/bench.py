"""``pg-hashindex bench``: compare methods by the measures of the papers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import click

from pg_hashindex.hashers import HASHERS, Preset
from pg_hashindex.metrics import Ties
from pg_hashindex.models.model import MAX_BITS
from pg_hashindex.models.quantization import Levels
from pg_hashindex.quality.comparison import (
    QUERIES,
    TRAIN_ROWS,
    Measures,
    Method,
    Split,
    Truth,
    TruthKind,
    compare,
    default_methods,
    load_split,
)
from pg_hashindex.quality.plots import check_plot, save_plot

from ._outcomes import note_outcome, print_outcomes
from ._shared import COULD_NOT, json_option, note, parameter, print_json


@click.group()
def bench() -> None:
    """Compare methods on a data set; no database is needed."""


def _words(context: click.Context, option: click.Parameter, value: str | None) -> Any:
    """Split a list at its commas, and drop repeated words."""
    if value is None:
        return None
    words = [word.strip() for word in value.split(",") if word.strip()]
    if not words:
        raise click.BadParameter("the list is empty")
    return list(dict.fromkeys(words))


def _numbers(context: click.Context, option: click.Parameter, value: str) -> Any:
    try:
        return [int(word) for word in _words(context, option, value)]
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not a list of numbers such as 16,32,64") from error


def _bits(context: click.Context, option: click.Parameter, value: str) -> Any:
    lengths = _numbers(context, option, value)
    if wrong := [length for length in lengths if not 1 <= length <= MAX_BITS]:
        raise click.BadParameter(f"{wrong[0]} is not in 1 to {MAX_BITS}")
    return lengths


@bench.command("hash")
@click.option(
    "--data",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE.npz",
    help="Rows X (n, d), and labels y where there are some; bytes are divided by 255.",
)
@click.option(
    "--split",
    "split_file",
    type=click.Path(path_type=Path),
    metavar="FILE.npz",
    help="Row numbers query, database and train.  [default: drawn]",
)
@click.option(
    "--methods",
    callback=_words,
    metavar="NAME,...",
    help="Methods to compare.  [default: all that can learn from the data]",
)
@click.option(
    "--bits",
    callback=_bits,
    default="32",
    show_default=True,
    metavar="N,...",
    help="Numbers of projections, a bit of the code each.",
)
@click.option(
    "--levels",
    type=click.Choice(["2", "4"]),
    default="2",
    show_default=True,
    help="Levels kept of each projection: 2 (signs) or 4; a code has bits x log2(levels) bits.",
)
@click.option(
    "--preset",
    type=click.Choice(get_args(Preset)),
    default="default",
    show_default=True,
    help="With 'paper', the settings of its paper have a line of their own for each method whose "
    "defaults differ.",
)
@click.option(
    "--param",
    "parameters",
    multiple=True,
    metavar="METHOD.KEY=VALUE",
    help="A parameter of one of the methods; may be given again.",
)
@click.option(
    "--truth",
    "truths",
    multiple=True,
    type=click.Choice(get_args(TruthKind)),
    help="What is relevant: rows of the same label, or the nearest by l2; may be given again.  "
    "[default: label where there are labels, else nearest-fraction]",
)
@click.option(
    "--fraction",
    type=float,
    default=0.02,
    show_default=True,
    help="Part of the rows that nearest-fraction takes as relevant.",
)
@click.option(
    "--nearest",
    type=int,
    default=100,
    show_default=True,
    help="Number of rows that nearest-k takes as relevant.",
)
@click.option(
    "--k",
    "-k",
    callback=_numbers,
    default="100",
    show_default=True,
    metavar="N,...",
    help="First rows, for precision (P@k) and the share of the relevant ones (found@k).",
)
@click.option("--top", type=int, metavar="R", help="Measure MAP@R too.")
@click.option(
    "--radius", type=int, default=2, show_default=True, help="Hamming radius of a lookup."
)
@click.option(
    "--neighbours", type=int, default=3, show_default=True, help="Rows that vote for a label."
)
@click.option(
    "--ties",
    type=click.Choice(get_args(Ties)),
    default="order",
    show_default=True,
    help="Rows at the same distance: in row order, or averaged over all orders.",
)
@click.option(
    "--queries",
    type=int,
    help=f"Queries drawn.  [default: {QUERIES}, at most a tenth of the rows]",
)
@click.option(
    "--train-rows",
    type=int,
    help=f"Training rows drawn from the database.  [default: {TRAIN_ROWS}]",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of every draw."
)
@click.option(
    "--plot",
    "plot_file",
    type=click.Path(path_type=Path),
    metavar="FILE.png",
    help="Draw the curves into a file; .pdf and .svg work too.",
)
@json_option
def bench_hash(
    data: Path,
    split_file: Path | None,
    methods: list[str] | None,
    bits: list[int],
    levels: str,
    preset: Preset,
    parameters: tuple[str, ...],
    truths: tuple[TruthKind, ...],
    fraction: float,
    nearest: int,
    k: list[int],
    top: int | None,
    radius: int,
    neighbours: int,
    ties: Ties,
    queries: int | None,
    train_rows: int | None,
    seed: int,
    plot_file: Path | None,
    as_json: bool,
) -> None:
    """Train, encode and score methods on a data set.

    Codes are "hashed" if the hash function makes all of them, and "learned" if the database has
    codes that training made: for supervised methods that were trained on all of it, and for
    transductive ones, which learn from the queries too, without their labels. Codes of 4 levels are
    ranked by the asymmetric distance, with the query's projections in 8 levels.
    """
    given = [_method_parameter(text) for text in parameters]
    if plot_file is not None:
        check_plot(plot_file)
    split = load_split(data, split_file, queries=queries, train_rows=train_rows, random_state=seed)
    note(
        f"{len(split.queries)} queries, {len(split.database)} database rows, {len(split.train)} "
        f"training rows, {split.train.shape[1]} dimensions, "
        f"{'no ' if split.labels is None else ''}labels"
    )
    outcomes = []
    for outcome in compare(
        split,
        _methods(split, methods, bits, given, 4 if levels == "4" else 2, preset),
        bits,
        truths=_truths(split, truths, fraction, nearest),
        measures=Measures(tuple(k), top, radius, neighbours, ties),
        random_state=seed,
    ):
        outcomes.append(outcome)
        note_outcome(outcome)
    if as_json:
        print_json([outcome.as_dict() for outcome in outcomes])
    else:
        print_outcomes(outcomes)
    if all(outcome.error is not None for outcome in outcomes):
        raise click.exceptions.Exit(COULD_NOT)
    # After the table, so that it is printed even if the disk is full.
    if plot_file is not None:
        save_plot(outcomes, plot_file)
        note(f"wrote {plot_file}")


def _method_parameter(text: str) -> tuple[str, str, Any]:
    form = "METHOD.KEY=VALUE"
    key, value = parameter(text, form)
    method, _, name = key.partition(".")
    if not (method and name):
        raise click.UsageError(f"--param {text!r} is not {form}")
    return method, name, value


def _methods(
    split: Split,
    names: list[str] | None,
    bits: Sequence[int],
    parameters: Sequence[tuple[str, str, Any]],
    levels: Levels,
    preset: Preset,
) -> list[Method]:
    chosen = names or [method.hasher for method in default_methods(split, bits, levels)]
    if unknown := [name for name in chosen if name not in HASHERS]:
        raise click.UsageError(f"method {unknown[0]!r} is unknown; known are {', '.join(HASHERS)}")
    if strangers := [method for method, _, _ in parameters if method not in chosen]:
        raise click.UsageError(
            f"--param is for {strangers[0]!r}, which is not compared; compared are "
            + ", ".join(chosen)
        )
    if preset == "paper":
        # Refuse a method that was named and has no paper.
        for name in names or ():
            HASHERS[name].paper()
    return [
        Method(
            name,
            {key: value for method, key, value in parameters if method == name},
            levels=levels,
            preset=chosen_preset,
        )
        for name in chosen
        for chosen_preset in get_args(Preset)
        if chosen_preset == "default" or (preset == "paper" and HASHERS[name].paper_parameters)
    ]


def _truths(split: Split, kinds: Sequence[TruthKind], fraction: float, nearest: int) -> list[Truth]:
    if not kinds:
        kinds = ("nearest-fraction",) if split.labels is None else ("label",)
    amounts = {"label": None, "nearest-fraction": fraction, "nearest-k": nearest}
    return [Truth(kind, amounts[kind]) for kind in dict.fromkeys(kinds)]
