"""``pg-hashindex bench``: compare methods by the measures of the papers."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, cast, get_args

import click

from pg_hashindex.metrics import Ties
from pg_hashindex.models.model import MAX_BITS
from pg_hashindex.models.whole_files import write_whole
from pg_hashindex.papers import (
    PROTOCOLS,
    QUERIES,
    TRAIN_ROWS,
    Comparison,
    Measures,
    Outcome,
    Truth,
    TruthKind,
)
from pg_hashindex.papers.figures import Paper, figures_of
from pg_hashindex.papers.plots import draw
from pg_hashindex.quality.plots import check_plot, save_figure
from pg_hashindex.training.array_files import SUFFIXES

from ._shared import (
    COULD_NOT,
    as_value,
    echo,
    note,
    plot_option,
    preset_option,
    print_json,
    print_table,
    words,
)

_TRUTHS = tuple(kind for kind in get_args(TruthKind) if kind != "file")
_Option = Callable[[Callable[..., None]], Callable[..., None]]
_Columns = Sequence[tuple[str, Callable[[Outcome], Any]]]


@click.group()
def bench() -> None:
    """Compare methods on a data set; no database is needed."""


def _unique_words(context: click.Context, option: click.Parameter, value: str | None) -> Any:
    """Split a list at its commas, and drop repeated words."""
    found = words(context, option, value)
    if found is not None and not found:
        raise click.BadParameter("the list is empty")
    return list(dict.fromkeys(found or ()))


def _numbers(context: click.Context, option: click.Parameter, value: str | None) -> Any:
    try:
        return tuple(int(word) for word in _unique_words(context, option, value))
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not a list of numbers such as 16,32,64") from error


def _bits(context: click.Context, option: click.Parameter, value: str) -> Any:
    lengths = _numbers(context, option, value)
    if wrong := [length for length in lengths if not 1 <= length <= MAX_BITS]:
        raise click.BadParameter(f"{wrong[0]} is not in 1 to {MAX_BITS}")
    return lengths


def _number_or_file(context: click.Context, option: click.Parameter, value: str | None) -> Any:
    if value is not None and value.lower().endswith(SUFFIXES):
        return Path(value)
    return click.INT(value, option, context)


def _truths(context: click.Context, option: click.Parameter, texts: Sequence[str]) -> Any:
    for text in texts:
        if text not in _TRUTHS and not text.lower().endswith(SUFFIXES):
            known = f"{', '.join(_TRUTHS)} nor a file ({', '.join(SUFFIXES)})"
            raise click.BadParameter(f"{text!r} is neither one of {known}")
    return dict.fromkeys(texts)


def _named(context: click.Context, option: click.Parameter, value: str | None) -> Any:
    """Return hashers by the names of their lines; one under a name of its own is NAME=METHOD."""
    found: dict[str, str] = {}
    for word in _unique_words(context, option, value):
        name, _, hasher = word.partition("=")
        if name.strip() in found:
            raise click.BadParameter(f"{name.strip()!r} is given twice")
        found[name.strip()] = (hasher or name).strip()
    return found


def _of_methods(context: click.Context, option: click.Parameter, texts: Sequence[str]) -> Any:
    """Return the values of METHOD.KEY=VALUE by method and key."""
    found: dict[str, dict[str, Any]] = {}
    for text in texts:
        method, dot, rest = text.partition(".")
        name, sign, value = rest.partition("=")
        if not (method and dot and name and sign):
            raise click.UsageError(f"{option.opts[0]} {text!r} is not {option.metavar}")
        found.setdefault(method, {})[name] = value
    return found


def _parameters(context: click.Context, option: click.Parameter, texts: Sequence[str]) -> Any:
    found = _of_methods(context, option, texts)
    return {m: {key: as_value(text) for key, text in given.items()} for m, given in found.items()}


def _choices(context: click.Context, option: click.Parameter, texts: Sequence[str]) -> Any:
    """Read the values of --validate: JSON values, or else words, between commas."""
    found = _of_methods(context, option, texts)
    return {m: {key: _values(text) for key, text in given.items()} for m, given in found.items()}


def _values(text: str) -> Any:
    try:
        return json.loads(f"[{text}]")
    except ValueError:
        return [as_value(word.strip()) for word in text.split(",")]


def _text(name: str, metavar: str, text: str) -> _Option:
    return click.option(name, metavar=metavar, help=text)


def _number(name: str, default: float, text: str, *, least: int | None = None) -> _Option:
    kind = type(default) if least is None else click.IntRange(min=least)
    return click.option(name, type=kind, default=default, show_default=True, help=text)


_file = click.Path(path_type=Path)


@bench.command("hash")
@click.option(
    "--data",
    required=True,
    type=_file,
    metavar="FILE",
    help="Rows X (n, d), and labels y where there are some, in a file ("
    + ", ".join(SUFFIXES)
    + "); bytes are divided by 255.",
)
@_text("--vectors", "NAME", "The array of rows.  [default: X, or the only array of two dimensions]")
@_text("--labels", "NAME|FILE", "The array of labels.  [default: y]")
@click.option(
    "--split",
    "split_file",
    type=_file,
    metavar="FILE",
    help="Row numbers query, database and train, from 0 on, in a .npz or .mat file.  "
    "[default: drawn]",
)
@click.option(
    "--protocol",
    type=click.Choice(list(PROTOCOLS)),
    help="Draw queries and training rows of each class: few-train 100 and 500, all-train 1,000 and "
    "the whole database, few-labels 100 and the whole database, with 500 labels.",
)
@_number(
    "--splits",
    1,
    "Draw this number of splits, and train on each with its own seed, from --seed on; print "
    "means and standard deviations.",
    least=1,
)
@click.option(
    "--labelled",
    callback=lambda _, __, value: int(value) if (value or "").isdecimal() else value,
    is_flag=False,
    flag_value="labelled",
    metavar="[NAME|N]",
    help="Hide all labels from training, except on an array's rows, or on N drawn rows a class.",
)
@_text(
    "--graph",
    "NAME|FILE",
    "An array of edges (row, object and, optionally, weight) for methods that take a graph.",
)
@_text(
    "--graph-features",
    "NAME|FILE",
    "An array with a vector for each row of X, to make the graph from.",
)
@_text(
    "--triplets",
    "NAME|FILE",
    "An array of triplets, for methods that learn from those instead of labels.",
)
@_text(
    "--pairs",
    "NAME|FILE",
    "An array of pairs (two rows, and 1 for neighbours or -1 for others), for methods that "
    "learn from those instead of labels; with --labelled beside them.",
)
@click.option(
    "--methods",
    callback=_named,
    metavar="NAME,...",
    help="Methods to compare; NAME=METHOD is one under a name of its own, for other parameters.  "
    "[default: all that can learn from the data]",
)
@click.option(
    "--bits",
    callback=_bits,
    default="32",
    show_default=True,
    metavar="N,...",
    help="Bits of codes.",
)
@preset_option(
    "With 'paper' or 'program', the settings of its paper or of its authors' program have a line "
    "of their own for each method whose defaults differ."
)
@click.option(
    "--param",
    "parameters",
    multiple=True,
    callback=_parameters,
    metavar="METHOD.KEY=VALUE",
    help="A parameter of one of the methods; may be given again.",
)
@click.option(
    "--validate",
    "choices",
    multiple=True,
    callback=_choices,
    metavar="METHOD.KEY=VALUE,...",
    help="Choose a parameter by MAP on a fifth of the training rows, held back; may be given again "
    "to try all combinations.",
)
@click.option(
    "--truth",
    "truths",
    multiple=True,
    callback=_truths,
    metavar="|".join([*_TRUTHS, "FILE"]),
    help="What is relevant: rows of the same label, or the nearest by l2, which FILE may have as "
    "row numbers, a line for each of the queries of a file; may be given again.  "
    "[default: label where there are labels, else nearest-fraction]",
)
@_number("--fraction", 0.02, "Part of the rows that nearest-fraction takes as relevant.")
@_number("--nearest", 100, "Number of rows that nearest-k, or FILE, takes as relevant.")
@click.option(
    "--k",
    "-k",
    callback=_numbers,
    default="100",
    show_default=True,
    metavar="N,...",
    help="First rows, for precision (P@k) and the share of the relevant ones (found@k).",
)
@click.option(
    "--top",
    callback=_numbers,
    metavar="R,...",
    help="Measure MAP@R too, over the first R rows, such as 1000,5000; MAP is over all.",
)
@_number("--radius", 2, "Hamming radius of a lookup.")
@_number("--neighbours", 3, "Rows that vote for a label.")
@click.option(
    "--ties",
    type=click.Choice(get_args(Ties)),
    default="order",
    show_default=True,
    help="Rows at the same distance: in row order, or averaged over all orders.",
)
@click.option(
    "--queries",
    callback=_number_or_file,
    metavar="N|FILE",
    help=f"Queries drawn, or a file of them; all of the data is the database then.  [default: "
    f"{QUERIES}, at most a tenth of the rows]",
)
@click.option(
    "--train-rows",
    callback=_number_or_file,
    metavar="N|FILE",
    help="Training rows drawn from the database, or beside a file of queries a file of them.  "
    f"[default: {TRAIN_ROWS}]",
)
@_number("--seed", 0, "Seed of every draw.", least=0)
@_number(
    "--seeds",
    1,
    "Train with this number of seeds, from --seed on; print means and standard deviations.",
    least=1,
)
@plot_option("the curves into a file")
@click.option(
    "--json",
    "as_json",
    is_flag=False,
    flag_value="",
    metavar="[FILE]",
    help="Print JSON; or add each measurement to FILE, a line of JSON each, and do not measure "
    "again what it has.",
)
def bench_hash(
    data: Path,
    split_file: Path | None,
    truths: Sequence[str],
    fraction: float,
    nearest: int,
    k: tuple[int, ...],
    top: tuple[int, ...],
    radius: int,
    neighbours: int,
    ties: Ties,
    seed: int,
    plot_file: Path | None,
    as_json: str | None,
    **options: Any,
) -> None:
    """Train, encode and score methods on a data set.

    Codes are "hashed" if the hash function makes all of them, and "learned" if the database has
    codes that training made: for supervised methods that were trained on all of it, and for
    transductive ones, which learn from the queries too, without their labels. Codes of sph are
    ranked by the spherical distance of its paper too.

    Arrays are looked for in the split, where they name training rows by their places, then in the
    data, where they name rows of X; FILE is one of a single array. METHOD.anchors="split" takes
    the split's anchors.
    """
    if plot_file is not None:
        check_plot(plot_file)
        if len(options["bits"]) < 2:
            raise click.UsageError(
                "--plot draws curves over bits, which need two points: give --bits 16,32,64"
            )
    amounts: dict[str, float | None] = {
        "label": None,
        "nearest-fraction": fraction,
        "nearest-k": nearest,
    }
    names = ("methods", "parameters", "choices", "preset", "bits", "seeds", "splits")
    comparison = Comparison(
        **{name: options.pop(name) for name in names},
        truths=[
            Truth(cast(TruthKind, named), amounts[named])
            if named in amounts
            else Truth("file", nearest, Path(named))
            for named in truths
        ],
        fraction=fraction,
        measures=Measures(k, top, radius, neighbours, ties),
        random_state=seed,
        rows=options,
    )
    kept = Path(as_json) if as_json else None
    outcomes = comparison.run(data, split_file, kept=kept, tell=note)
    if as_json == "":
        print_json([outcome.as_dict() for outcome in outcomes])
    else:
        _print_outcomes(outcomes)
    # After the table, so that it is printed even if the disk is full.
    if plot_file is not None and any(outcome.error is None for outcome in outcomes):
        save_figure(draw(outcomes), plot_file)
        note(f"wrote {plot_file}")
    _check(outcomes)


@bench.command("paper")
@click.argument("name", metavar="PAPER", type=click.Choice(get_args(Paper)))
@click.option(
    "--data",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=".",
    metavar="FOLDER",
    help="Where the data sets are, such as mnist.npz and mnist_split.npz.  [default: here]",
)
@click.option(
    "--figure",
    "figures",
    multiple=True,
    metavar="FIGURE",
    help="One figure or table of the paper; may be given again.  [default: all]",
)
@click.option(
    "--quick", is_flag=True, help="Try it on 2,000 rows; what is printed then says little."
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Write each figure's results as JSON, and its picture; continue a run that was stopped.",
)
def bench_paper(
    name: Paper, folder: Path, figures: tuple[str, ...], quick: bool, output: Path | None
) -> None:
    """Run the figures and tables of a paper again: sgh, cghash, bgdh, sadih, or s3plh with usplh.

    Each is a comparison that `bench hash` makes; its command is printed. The data sets are not
    the papers' own, as `docs/papers.md` explains.
    """
    chosen = figures_of(name, figures)
    # Before any work, since a paper's figures take minutes.
    for figure in chosen.values():
        figure.check(folder)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        check_plot(output / "figure.png")
    for key, figure in chosen.items():
        note(f"{key}: {figure.original}")
        if figure.command is not None:
            note(figure.command)
        stem = f"{key}-quick" if quick else key
        kept = None if output is None else output / f"{stem}.jsonl"
        found = figure.run(folder, quick=quick, kept=kept, tell=note)
        if isinstance(found, list):
            _print_outcomes(found)
            _check(found)
        else:
            print_table(list(found.values), [list(found.values.values())])
        echo()
        if output is not None:
            picture = draw(found) if isinstance(found, list) else found.draw()
            save_figure(picture, output / f"{stem}.png")
            write_whole(output / f"{stem}.json", figure.as_json(found).encode())
            (output / f"{stem}.jsonl").unlink(missing_ok=True)
            note(f"wrote {output / stem}.json and .png")


def _check(outcomes: Sequence[Outcome]) -> None:
    if all(outcome.error is not None for outcome in outcomes):
        raise click.exceptions.Exit(COULD_NOT)


_LINE: _Columns = (("method", lambda one: one.method), ("bits", lambda one: one.n_bits))
_CODES: _Columns = (*_LINE, *((name, attrgetter(name)) for name in ("codes", "distance")))
_COSTS: _Columns = (
    *_LINE,
    ("rows", lambda one: one.train_rows),
    ("train s", lambda one: one.train_wall_s),
    ("CPU s", lambda one: one.train_cpu_s),
    ("peak MB", lambda one: one.train_peak_bytes / 1e6),
    ("encode s", lambda one: one.encode_wall_s),
    ("CPU s", lambda one: one.encode_cpu_s),
    ("us a row", lambda one: 1e6 * one.encode_cpu_s / one.database_rows),
)
_CHOICES: _Columns = (
    *_LINE,
    ("values", lambda one: _said(one.chosen)),
    ("MAP of each", lambda one: "; ".join(_tried(one, line) for line in one.tried)),
)


def _print_outcomes(outcomes: Sequence[Outcome]) -> None:
    """Print a table of scores for each truth, one of times and memory, choices and failures."""
    scored = [outcome for outcome in outcomes if outcome.error is None]
    # A training may have several outcomes, by codes and by distance.
    first: dict[tuple[str, int], Outcome] = {}
    for outcome in sorted(scored, key=lambda one: one.codes != "hashed"):
        first.setdefault((outcome.method, outcome.n_bits), outcome)
    trained = [*first.values()]
    for truth in scored[0].scores if scored else ():
        echo(
            f"Truth: {truth}; ties {'in row order' if scored[0].ties == 'order' else 'averaged'}\n"
        )
        measures = ((name, partial(_score, truth, name)) for name in scored[0].scores[truth].values)
        _print(scored, (*_CODES, *measures))
        echo()
    if trained:
        echo("Training, and encoding the database\n")
        _print(trained, _COSTS)
    if chosen := [outcome for outcome in trained if outcome.chosen]:
        echo("\nChosen on training rows held back\n")
        _print(chosen, _CHOICES)
    for outcome in outcomes:
        if outcome.error is not None:
            echo(f"\n{outcome.method}, {outcome.n_bits} bits failed: {outcome.error}")


def _print(outcomes: Sequence[Outcome], columns: _Columns) -> None:
    headings = [heading for heading, _ in columns]
    print_table(headings, [[cell(outcome) for _, cell in columns] for outcome in outcomes])


def _score(truth: str, measure: str, outcome: Outcome) -> str:
    mean = f"{outcome.scores[truth].values[measure]:.4f}"
    if outcome.seeds == 1:
        return mean
    return f"{mean} ± {outcome.standard_deviation['scores'][truth][measure]:.4f}"


def _tried(outcome: Outcome, line: Mapping[str, Any]) -> str:
    found = f"{line['MAP']:.4f}" if "MAP" in line else line["error"]
    return f"{_said({key: line[key] for key in outcome.chosen})}: {found}"


def _said(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in values.items())
