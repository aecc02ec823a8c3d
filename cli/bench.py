"""``pg-hashindex bench``: compare methods by the measures of the papers."""

import json
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import click

from pg_hashindex.hashers import HASHERS, Preset
from pg_hashindex.metrics import Ties
from pg_hashindex.models.model import MAX_BITS
from pg_hashindex.models.quantization import Levels
from pg_hashindex.models.whole_files import write_whole
from pg_hashindex.papers import (
    PROTOCOLS,
    QUERIES,
    TRAIN_ROWS,
    Measures,
    Method,
    Outcome,
    Split,
    Truth,
    TruthKind,
    average,
    compare,
    default_methods,
    load_split,
    load_splits,
)
from pg_hashindex.papers.plots import draw
from pg_hashindex.papers.protocols import Figure, Paper, figures_of
from pg_hashindex.papers.results import Results
from pg_hashindex.quality.plots import check_plot, save_figure
from pg_hashindex.training.array_files import SUFFIXES

from ._shared import (
    COULD_NOT,
    echo,
    note,
    parameter,
    plot_option,
    print_json,
    print_table,
)


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


def _numbers(context: click.Context, option: click.Parameter, value: str | None) -> Any:
    if value is None:
        return []
    try:
        return [int(word) for word in _words(context, option, value)]
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


@bench.command("hash")
@click.option(
    "--data",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Rows X (n, d), and labels y where there are some, in a .npz, .npy, .mat, .fvecs, .bvecs "
    "or .ivecs file; bytes are divided by 255.",
)
@click.option(
    "--vectors",
    metavar="NAME",
    help="The array of rows.  [default: X, or the only array of two dimensions]",
)
@click.option("--labels", metavar="NAME|FILE", help="The array of labels.  [default: y]")
@click.option(
    "--split",
    "split_file",
    type=click.Path(path_type=Path),
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
@click.option(
    "--splits",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Draw so many splits, and train on each with a seed of its own, from --seed on; print "
    "means and standard deviations.",
)
@click.option(
    "--labelled",
    is_flag=False,
    flag_value="labelled",
    metavar="[NAME|N]",
    help="Hide all labels from training but those of an array's rows, or of N rows a class, drawn.",
)
@click.option(
    "--graph",
    metavar="NAME|FILE",
    help="An array of edges (row, object and, optionally, weight) for methods that take a graph.",
)
@click.option(
    "--graph-features",
    metavar="NAME|FILE",
    help="An array with a vector for each row of X, to make the graph from.",
)
@click.option(
    "--triplets",
    metavar="NAME|FILE",
    help="An array of triplets, for methods that learn from those instead of labels.",
)
@click.option(
    "--pairs",
    metavar="NAME|FILE",
    help="An array of pairs (two rows, and 1 for neighbours or -1 for others), for methods that "
    "learn from those instead of labels; with --labelled beside them.",
)
@click.option(
    "--methods",
    callback=_words,
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
    help="With 'paper' or 'program', the settings of its paper or of its authors' program have a "
    "line of their own for each method whose defaults differ.",
)
@click.option(
    "--param",
    "parameters",
    multiple=True,
    metavar="METHOD.KEY=VALUE",
    help="A parameter of one of the methods; may be given again.",
)
@click.option(
    "--validate",
    "choices",
    multiple=True,
    metavar="METHOD.KEY=VALUE,...",
    help="Choose a parameter by MAP on a fifth of the training rows, held back; may be given again "
    "to try all combinations.",
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
@click.option(
    "--top",
    callback=_numbers,
    metavar="R,...",
    help="Measure MAP@R too, over the first R rows, such as 1000,5000; MAP is over all.",
)
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
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of every draw."
)
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Train with so many seeds, from --seed on; print means and standard deviations.",
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
    vectors: str | None,
    labels: str | None,
    split_file: Path | None,
    protocol: str | None,
    splits: int,
    labelled: str | None,
    graph: str | None,
    graph_features: str | None,
    triplets: str | None,
    pairs: str | None,
    methods: list[str] | None,
    bits: list[int],
    levels: str,
    preset: Preset,
    parameters: tuple[str, ...],
    choices: tuple[str, ...],
    truths: tuple[TruthKind, ...],
    fraction: float,
    nearest: int,
    k: list[int],
    top: list[int],
    radius: int,
    neighbours: int,
    ties: Ties,
    queries: int | Path | None,
    train_rows: int | Path | None,
    seed: int,
    seeds: int,
    plot_file: Path | None,
    as_json: str | None,
) -> list[Outcome]:
    """Train, encode and score methods on a data set.

    Codes are "hashed" if the hash function makes all of them, and "learned" if the database has
    codes that training made: for supervised methods that were trained on all of it, and for
    transductive ones, which learn from the queries too, without their labels. Codes of 4 levels are
    ranked by the asymmetric distance, with the query's projections in 8 levels. Codes of sph are
    ranked by the spherical distance of its paper too.

    Arrays are looked for in the split, where they name training rows by their places, then in the
    data, where they name rows of X; FILE is one of a single array. METHOD.anchors="split" takes
    the split's anchors.
    """
    given = [_method_parameter(text) for text in parameters]
    chosen_from = [_choices(text) for text in choices]
    if plot_file is not None:
        check_plot(plot_file)
        if len(bits) < 2:
            raise click.UsageError(
                "--plot draws curves over bits, which need two points: give --bits 16,32,64"
            )
    if splits > 1 and seeds > 1:
        raise click.UsageError("give either --splits, of which each has its own seed, or --seeds")
    drawn: dict[str, Any] = {
        "protocol": protocol,
        "queries": queries,
        "train_rows": train_rows,
        "vectors": vectors,
        "labels": labels,
        "labelled": int(labelled) if labelled is not None and labelled.isdecimal() else labelled,
        "graph": graph,
        "triplets": triplets,
        "pairs": pairs,
        "graph_features": graph_features,
    }
    measures = Measures(tuple(k), tuple(top), radius, neighbours, ties)
    outcomes: list[Outcome] = []
    compared: list[Method] = []
    for number, split in enumerate(
        load_splits(data, split_file, splits=splits, random_state=seed, **drawn)
    ):
        if not number:
            note(
                f"{len(split.queries)} queries, {len(split.database)} database rows, "
                f"{len(split.train)} training rows, {split.train.shape[1]} dimensions, "
                f"{'no ' if split.labels is None else ''}labels"
            )
            compared = _with_choices(
                _methods(split, methods, bits, given, 4 if levels == "4" else 2, preset),
                chosen_from,
            )
            if split.labelled is not None and (labelled is not None or protocol is not None):
                note(f"the labels of {len(split.labelled)} training rows are known")
                compared = [replace(method, labels="labelled") for method in compared]
            _check_supervision(
                compared,
                labels=labelled,
                graph=graph,
                graph_features=graph_features,
                triplets=triplets,
                pairs=pairs,
            )
        if splits > 1:
            note(f"split {number + 1} of {splits}")
        asked = _truths(split, truths, fraction, nearest)
        results = None
        if as_json:
            how = {"file": split_file, "seed": seed + number, **drawn}
            results = Results(Path(as_json), data, how, asked, measures)
        for outcome in compare(
            split,
            compared,
            bits,
            truths=asked,
            measures=measures,
            random_state=seed + number,
            seeds=seeds,
            # Means keep the peak of the first seed.
            memory=not number,
            results=results,
        ):
            outcomes.append(outcome)
            if results is not None and any(outcome is known for known in results.recalled):
                note(f"{outcome.method}, {outcome.n_bits} bits: known from {results.path}")
            else:
                _note_outcome(outcome)
    outcomes = average(outcomes, splits=splits)
    if as_json == "":
        print_json([outcome.as_dict() for outcome in outcomes])
    else:
        _print_outcomes(outcomes)
    if all(outcome.error is not None for outcome in outcomes):
        raise click.exceptions.Exit(COULD_NOT)
    # After the table, so that it is printed even if the disk is full.
    if plot_file is not None:
        save_figure(draw(outcomes), plot_file)
        note(f"wrote {plot_file}")
    return outcomes


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
@click.pass_context
def bench_paper(
    context: click.Context,
    name: Paper,
    folder: Path,
    figures: tuple[str, ...],
    quick: bool,
    output: Path | None,
) -> None:
    """Run the figures and tables of a paper again: sgh, cghash, bgdh, sadih, or s3plh with usplh.

    Each is a comparison that `bench hash` makes; its command is printed. The data sets are not
    those of the papers, which `docs/papers` explains.
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
        with tempfile.TemporaryDirectory(prefix="pg_hashindex-") as scratch:
            files = figure.files(folder, Path(scratch), quick=quick)
            parts = None if output is None else output / f"{key}.jsonl"
            results, picture = _run_figure(context, figure, files, parts, quick=quick)
        echo()
        if output is not None:
            save_figure(picture(), output / f"{key}.png")
            write_whole(output / f"{key}.json", (json.dumps(results) + "\n").encode())
            (output / f"{key}.jsonl").unlink(missing_ok=True)
            note(f"wrote {output / key}.json and .png")


def _run_figure(
    context: click.Context,
    figure: Figure,
    files: Sequence[Path],
    parts: Path | None,
    *,
    quick: bool,
) -> tuple[Any, Callable[[], Any]]:
    """Print a figure's results; return them as JSON values, and a function that draws them.

    ``parts``: Where to keep each measurement, so that none is repeated after a stop.
    """
    # They load hashers, which no other command of this module needs before its work.
    from pg_hashindex.papers import pictures

    if figure.kind == "feature-map":
        compared = pictures.measure_feature_map(load_split(*files))
        _print_values(compared.values)
        return compared.values, lambda: pictures.draw_feature_map(compared)
    if figure.kind == "retrieved":
        answers = pictures.retrieve(load_split(*files))
        _print_values(answers.values)
        return answers.values, lambda: pictures.draw_retrieved(answers)
    note(figure.command)
    words = ["--data", str(files[0]), *shlex.split(figure.options)]
    words += ["--split", str(files[1])] if figure.splits == 1 else ["--splits", str(figure.splits)]
    words += ["--seeds", "1", "--splits", "1"] if quick else []
    words += [] if parts is None else ["--json", str(parts)]
    with bench_hash.make_context("hash", words, parent=context) as inner:
        outcomes = bench_hash.invoke(inner)
    return [outcome.as_dict() for outcome in outcomes], lambda: draw(outcomes)


def _print_values(values: Mapping[str, float]) -> None:
    print_table(list(values), [list(values.values())])


def _method_parameter(text: str) -> tuple[str, str, Any]:
    form = "METHOD.KEY=VALUE"
    key, value = parameter(text, form)
    method, _, name = key.partition(".")
    if not (method and name):
        raise click.UsageError(f"--param {text!r} is not {form}")
    return method, name, value


def _compared_presets(hasher: str, preset: Preset) -> list[Preset]:
    """Return the default, and the preset that was asked for if it differs from the default."""
    kind = HASHERS[hasher]
    known = {"paper": kind.paper_parameters, "program": kind.program_parameters}
    return ["default", preset] if known.get(preset) else ["default"]


def _choices(text: str) -> tuple[str, str, list[Any]]:
    """Read the values of --validate: JSON values, or else words, between commas."""
    form = "METHOD.KEY=VALUE,VALUE,..."
    key, _, listed = text.partition("=")
    method, _, name = key.partition(".")
    if not (method and name and listed):
        raise click.UsageError(f"--validate {text!r} is not {form}")
    try:
        values = json.loads(f"[{listed}]")
    except ValueError:
        values = [parameter(f"{name}={word.strip()}")[1] for word in listed.split(",")]
    if len(values) < 2:
        raise click.UsageError(f"--validate {text!r} has one value, which leaves no choice")
    return method, name, values


def _with_choices(
    methods: Sequence[Method], choices: Sequence[tuple[str, str, list[Any]]]
) -> list[Method]:
    names = [method.name for method in methods]
    if strangers := [name for name, _, _ in choices if name not in names]:
        raise click.UsageError(
            f"--validate is for {strangers[0]!r}, which is not compared; compared are "
            + ", ".join(names)
        )
    return [
        replace(m, choices={key: values for name, key, values in choices if name == m.name})
        for m in methods
    ]


def _check_supervision(methods: Sequence[Method], **given: str | None) -> None:
    """Refuse labels, a graph, its features, triplets or pairs that no method learns from."""
    for what, name in given.items():
        if name is not None and not any(HASHERS[method.hasher].takes(what) for method in methods):
            option = "labelled" if what == "labels" else what.replace("_", "-")
            raise click.UsageError(
                f"--{option} has no effect: none of the methods compared learns from it; compared "
                f"are {', '.join(method.name for method in methods)}"
            )


def _methods(
    split: Split,
    names: list[str] | None,
    bits: Sequence[int],
    parameters: Sequence[tuple[str, str, Any]],
    levels: Levels,
    preset: Preset,
) -> list[Method]:
    given = names or [method.hasher for method in default_methods(split, bits, levels)]
    # A method under a name of its own is NAME=METHOD.
    chosen = {
        name.strip(): (hasher or name).strip()
        for name, _, hasher in (text.partition("=") for text in given)
    }
    if unknown := [hasher for hasher in chosen.values() if hasher not in HASHERS]:
        raise click.UsageError(f"method {unknown[0]!r} is unknown; known are {', '.join(HASHERS)}")
    if strangers := [method for method, _, _ in parameters if method not in chosen]:
        raise click.UsageError(
            f"--param is for {strangers[0]!r}, which is not compared; compared are "
            + ", ".join(chosen)
        )
    if preset == "paper":
        # Refuse a method that was named and has no paper.
        for hasher in chosen.values() if names else ():
            HASHERS[hasher].paper()
    return [
        Method(
            hasher,
            {key: value for method, key, value in parameters if method == name},
            name if chosen_preset == "default" else f"{name} ({chosen_preset})",
            levels=levels,
            preset=chosen_preset,
        )
        for name, hasher in chosen.items()
        for chosen_preset in _compared_presets(hasher, preset)
    ]


def _truths(split: Split, kinds: Sequence[TruthKind], fraction: float, nearest: int) -> list[Truth]:
    if not kinds:
        kinds = ("nearest-fraction",) if split.labels is None else ("label",)
    amounts = {"label": None, "nearest-fraction": fraction, "nearest-k": nearest}
    return [Truth(kind, amounts[kind]) for kind in dict.fromkeys(kinds)]


def _note_outcome(outcome: Outcome) -> None:
    """Print the progress of the comparison on stderr."""
    if outcome.error is not None:
        note(f"{outcome.method}, {outcome.n_bits} bits: failed")
    elif outcome.codes == "hashed":
        chosen = "".join(f", {key} = {value}" for key, value in outcome.chosen.items())
        note(
            f"{outcome.method}, {outcome.n_bits} bits{chosen}: trained on {outcome.train_rows} "
            f"rows in {outcome.train_wall_s:.1f} s"
        )


def _print_outcomes(outcomes: Sequence[Outcome]) -> None:
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


def _database_rows(outcome: Outcome) -> int:
    """Return how many rows were encoded: the curves end there."""
    return int(next(iter(outcome.scores.values())).curve.at[-1])


def _print_costs(trained: Sequence[Outcome]) -> None:
    print_table(
        [
            *("method", "bits", "rows", "train s", "CPU s", "peak MB"),
            *("encode s", "CPU s", "us a row"),
        ],
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
                1e6 * outcome.encode_cpu_s / _database_rows(outcome),
            ]
            for outcome in trained
        ],
    )
