"""``pg-hashindex model``: train, keep and move models."""

import io
import shlex
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any, get_args

import click
import numpy as np
from psycopg.sql import Literal

from pg_hashindex import store
from pg_hashindex.db.server_errors import translated_errors
from pg_hashindex.db.statements import execute
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import HASHERS
from pg_hashindex.models import functions
from pg_hashindex.models.columns import encode_column
from pg_hashindex.models.faiss_files import (
    codes_to_faiss,
    is_faiss,
    model_from_faiss,
    require_faiss,
)
from pg_hashindex.models.model import Metric, Model
from pg_hashindex.models.whole_files import write_whole
from pg_hashindex.quality.advice import of_training
from pg_hashindex.quality.doctor_catalog import metric_of_column
from pg_hashindex.training import METHOD, RowCodes, hasher_for, train
from pg_hashindex.training.array_files import SUFFIXES, ArrayFile
from pg_hashindex.training.files import load_sample
from pg_hashindex.training.sampling import SAMPLE_ROWS, UNSUPERVISED_ROWS, sample_rows, sample_table
from pg_hashindex.training.whole_tables import train_on_table

from ._shared import (
    LANGUAGES,
    answer,
    connected,
    echo,
    file_argument,
    force_option,
    is_verbose,
    key_option,
    metric_option,
    model_argument,
    name_option,
    note,
    of_database,
    of_name,
    parameter,
    preset_option,
    print_json,
    print_table,
    progress,
    rows_per_second_option,
    seed_option,
    table_options,
    url_option,
    verbose_option,
)

_COLUMN_OR_ARRAY = (
    "Its column of type vector or halfvec; or array of the file, by default X or the only one of "
    "two dimensions."
)
from_option = click.option(
    "--from",
    "file",
    type=click.Path(path_type=Path),
    help=f"File of vectors, instead of a table: {', '.join(SUFFIXES)}.",
)
# Supervision besides labels.
_SUPERVISION_OPTIONS = ("pairs", "triplets", "graph", "graph_features")
_DIMENSION = """
    SELECT a.atttypmod FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = to_regclass($1)::oid AND a.attname = $2 AND a.atttypmod > 0
"""


@click.group()
def model() -> None:
    """Train, list, show, drop and move models."""


@model.command("train")
@click.option(
    "--method",
    type=click.Choice(list(HASHERS)),
    default=METHOD,
    show_default=True,
    help="How to learn.",
)
@click.option(
    "--bits",
    "n_bits",
    type=int,
    help="Length of a code; 'sign' has a bit for each dimension.  [default: 256 a cut, or 64 to "
    "128 for methods that learn from more than rows; fewer if rows or dimensions are few]",
)
@click.option(
    "--cuts",
    type=click.IntRange(1, 8),
    help="Cuts of each projection, one bit each.  [default: 3 for methods that learn from rows "
    "alone, if --bits are a multiple of 3; otherwise 1]",
)
@click.option(
    "--codes",
    type=click.Choice(get_args(RowCodes)),
    default="hashed",
    show_default=True,
    help="Codes of rows that training knows: hashed as all others, or those that it learned.",
)
@table_options("Table to learn from", _COLUMN_OR_ARRAY)
@from_option
@click.option(
    "--labels",
    metavar="COLUMN",
    help="Column of labels (integers, text, or arrays of them; NULL or -1: no label), or array of "
    "the file, or a file of one array.",
)
@click.option(
    "--pairs",
    metavar="TABLE|QUERY",
    help="Three columns: two keys, and 1 for neighbours or -1 for others; or array of the file, "
    "of row numbers.",
)
@click.option(
    "--triplets",
    metavar="TABLE|QUERY",
    help="Three keys: the first row is nearer to the second than to the third; or array of the "
    "file, of row numbers.",
)
@click.option(
    "--graph-query",
    "graph",
    metavar="TABLE|QUERY",
    help="Edges of a graph: key, object (a tag, an owner, a word) and, optionally, a weight; or "
    "array of the file, of row and object numbers.",
)
@click.option(
    "--graph-column",
    "graph_features",
    metavar="COLUMN",
    help="Column of vectors to make the graph from, instead of --column; or array of the file.",
)
@key_option("The key that pairs, triplets and the graph of a table name.  [default: primary key]")
@metric_option(
    get_args(Metric),
    "Distance that searches rank by; cosine scales rows to unit length.  [default: that of a "
    "vector index of the column, else cosine]",
)
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    help="Most rows to learn from.  "
    f"[default: {UNSUPERVISED_ROWS}, or {SAMPLE_ROWS} for methods that learn from more than rows]",
)
@click.option(
    "--all-rows",
    is_flag=True,
    help="Learn from every row of the table, read in blocks; for methods that learn from rows "
    "alone.",
)
@preset_option(
    "Parameters to begin with: the defaults, the paper's, or the ones of its authors' program."
)
@click.option(
    "--param",
    "parameters",
    multiple=True,
    metavar="KEY=VALUE",
    help="A parameter of the method, which wins over the preset; may be repeated. Deep methods "
    "take device=auto, cpu, cuda, ... as PyTorch names it.",
)
@seed_option
@force_option("Train even on too few rows.")
@verbose_option
@of_name
def train_model(
    database_url: str,
    name: str,
    method: str,
    table: str | None,
    column: str | None,
    file: Path | None,
    key_columns: list[str] | None,
    metric: Metric | None,
    sample: int | None,
    all_rows: bool,
    parameters: tuple[str, ...],
    force: bool,
    as_json: bool,
    **others: Any,
) -> None:
    """Train model NAME, store it, and print what to do with it; a taken name gets the next version.

    --verbose prints what `model show` does.
    """
    known = {what: others.pop(what) for what in ("labels", *_SUPERVISION_OPTIONS)}
    taught = [what for what, given in known.items() if given is not None]
    if key_columns is not None and (file is not None or not {*taught} - {"labels"}):
        raise click.UsageError(
            "--id is the key for --pairs, --triplets, --graph-query and --graph-column of a table; "
            "give it only with these"
        )
    if all_rows and (file is not None or taught or sample is not None):
        raise click.UsageError(
            "--all-rows reads only the vectors of a table, and all of them; leave out --sample, "
            "--from, --labels, --pairs, --triplets, --graph-query and --graph-column"
        )
    if {"graph", "graph_features"} <= {*taught}:
        raise click.UsageError("give either --graph-query or --graph-column, not both")
    if (table is None) == (file is None) or (table is not None and column is None):
        raise click.UsageError("give either --table and --column, or --from")
    given = dict(map(parameter, parameters))
    options: dict[str, Any] = {**others, "parameters": given}
    draw: dict[str, Any] = {
        **known,
        "rows": sample_rows(method) if sample is None else sample,
        "random_state": others["random_state"],
    }
    drawn = None
    with connected(database_url) as connection:
        if metric is None and table is not None and column is not None:
            metric = metric_of_column(connection, table, column)
        options["metric"] = metric or "cosine"
        # Refuse what can be refused before the sample is read.
        hasher = hasher_for(method, taught, **options)
        options["force"] = force
        # Refuse a missing schema or right before minutes of training, not after.
        store.check_may_save(connection)
        if table is None or column is None:
            drawn = load_sample(file or Path(), vectors=column, **draw)
        else:
            with translated_errors(table=table):
                dimensions = execute(connection, _DIMENSION, [table, column]).fetchall()
            for (dimension,) in dimensions:
                hasher.check_dimension(dimension)
            if all_rows:
                with progress(f"training {method} on all rows of {table}"):
                    trained = train_on_table(connection, table, column, name, method, **options)
            else:
                with progress(f"reading {table}"):
                    drawn = sample_table(
                        connection, table, column, **draw,
                        key_columns=key_columns, metric=options["metric"],
                    )  # fmt: skip
    if drawn is not None:
        # Train without a connection, since servers and proxies close idle ones.
        shape = f"{len(drawn.X)} rows of {drawn.X.shape[1]} dimensions"
        teachers = {what: getattr(drawn, what) for what in ("y", *_SUPERVISION_OPTIONS)}
        with progress(f"training {method} on {shape}"):
            trained = train(drawn.X, name, method, **teachers, **options)
    with connected(database_url) as connection:
        saved = store.save(connection, trained)
        stored = store.describe(connection, f"{saved.name}:{saved.version}")
    copies = stored.n_bits - stored.training["distinct_bits"]
    # A cut far from the values of a projection is the same for all rows.
    if copies and len(stored.cuts) == 1:
        note(
            f"note: {copies} of {stored.n_bits} bits are copies of others, or the same for all "
            "rows: ask for fewer bits"
        )
    of_graph = stored.training.get("graph")
    if isinstance(of_graph, dict) and (isolated := of_graph.get("isolated_rows")):
        note(
            f"note: {isolated} of {of_graph['rows']} rows share no object of the graph with "
            "another row, so the graph has no effect on them"
        )
    # A caller who teaches labels, pairs or a graph wants other neighbours than the nearest.
    if not taught and (low := of_training(stored)) is not None:
        note(f"warning: {low}")
    _print_model(stored, as_json, whole=is_verbose())
    if not as_json:
        _print_next(stored, table or "TABLE", column if table and column else "COLUMN")


def _print_next(stored: store.StoredModel, table: str, column: str) -> None:
    """Print the command that puts a model to use."""
    name, source = shlex.quote(stored.name), shlex.join(["--table", table, "--column", column])
    if stored.evaluated_in == "python" or "learned_codes" in stored.training:
        bits = f"bit({stored.n_bits})"
        command = f"pg-hashindex model encode {name} {source} --into COLUMN"
        if "learned_codes" in stored.training:
            command += " --codes learned"
        echo(f"\nNext, with a column of type {bits}: {command}")
    else:
        # pgvector's index needs a function, which would show the anchors.
        lists = " --access lists" if {"rbf", "affinity"} & {*stored.layer_kinds} else ""
        echo(f"\nNext: pg-hashindex index create INDEX {source} --model {name}{lists}")


@model.command(short_help="Show what is known about a model, or list every version of all.")
@click.argument("reference", metavar="[NAME[:VERSION]]", required=False)
@of_database
def show(database_url: str, reference: str | None, as_json: bool) -> None:
    """Show what is known about a model; without a name, list every version of every model."""
    with connected(database_url) as connection:
        if reference is not None:
            _print_model(store.describe(connection, reference), as_json)
            return
        models = store.list_models(connection)
    if as_json:
        print_json([vars(stored) for stored in models])
        return
    headings = ["name", "version", "method", "dimension", "bits", "metric", "evaluated in"]
    first = attrgetter("name", "version", "method", "dimension", "n_bits", "metric")
    rows = [
        [*first(m), LANGUAGES[m.evaluated_in], m.created_at, ", ".join(m.indexes)] for m in models
    ]
    print_table([*headings, "created", "indexes"], rows)


def _print_model(stored: store.StoredModel, as_json: bool, *, whole: bool = True) -> None:
    if as_json:
        print_json(vars(stored))
        return
    network = [f"network of kind {stored.network}"] if stored.network else []
    steps = " > ".join([*stored.layer_kinds, *network])
    lines = {
        "model": f"{stored.name}:{stored.version}",
        "method": stored.method,
        "dimension": stored.dimension,
        "bits": stored.n_bits,
        "cuts": ", ".join(f"{cut:.4g}" for cut in stored.cuts),
        "metric": stored.metric,
        "parameters": _flat(stored.parameters),
        "bit weights": "learned" if stored.weighted else "all the same",
        "layers": f"{steps} ({stored.size_bytes / 1024:.0f} kB)",
        "evaluated in": LANGUAGES[stored.evaluated_in],
        **{key.replace("_", " "): _flat(value) for key, value in stored.training.items()},
        "profile": "none"
        if stored.profile_rows is None
        else f"of the projections of {stored.profile_rows} rows",
        "checksum": stored.checksum[:16],
        "indexes": ", ".join(stored.indexes) or "none",
    }
    if isinstance(recall := stored.training.get("recall"), dict):
        lines["recall"] = (
            f"{recall['value']} estimated, @{recall['k']} within {recall['candidates']} "
            f"candidates of {recall['among']} rows"
        )
    everyday = ("model", "method", "bits", "metric", "evaluated in", "rows", "seconds")
    measures = ("recall", "label precision")
    shown = [
        [key, str(value)] for key, value in lines.items() if whole or key in (*everyday, *measures)
    ]
    print_table(["", ""], shown)


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_flat(item)}" for key, item in sorted(value.items()))
    return str(value)


@model.command("functions")
@model_argument
@click.option(
    "--reveal-anchors", is_flag=True, help="All roles may read the rows that the model keeps."
)
@of_database
def make_functions(database_url: str, reference: str, reveal_anchors: bool, as_json: bool) -> None:
    """Make functions code_NAME and project_NAME of a model.

    They read no table, so indexes of pgvector, generated columns and dumps may use them. Prints
    their names, and the statement of an index that searches by them; it makes them, too.
    """
    with connected(database_url) as connection:
        made = functions.create(connection, reference, reveal_anchors=reveal_anchors)
    name = f"{made.model.name}:{made.model.version}"
    create_index = (
        "SELECT hashindex.create_index('NAME', 'TABLE', 'COLUMN', "
        f"model => {Literal(name).as_string()});"
    )
    project = made.code.replace("code_", "project_", 1)
    if as_json:
        bits = made.model.n_bits
        print_json(
            {"code": made.code, "project": project, "bits": bits, "create_index": create_index}
        )
        return
    note(f"made functions of model {name}, whose codes are bit({made.model.n_bits})")
    click.echo(f"{made.code}\n{project}\n{create_index}")


@model.command()
@model_argument
@url_option
def drop(database_url: str, reference: str) -> None:
    """Drop one version, or every version, of a model that no index uses."""
    with connected(database_url) as connection:
        for dropped in store.drop(connection, reference):
            note(f"dropped model {dropped.name}:{dropped.version}")


@model.command("export")
@model_argument
@file_argument
@force_option("Replace the file if it is there.")
@click.option("--sql", is_flag=True, help="Write a script for psql, for databases without Python.")
@url_option
def export_model(database_url: str, reference: str, file: Path, force: bool, sql: bool) -> None:
    """Write a model to FILE: one archive with a checksum, nothing in it is code."""
    with connected(database_url) as connection:
        if sql:
            data = f"{store.script(connection, reference)}\n".encode()
        else:
            data = store.load(connection, reference).to_bytes()
    _write(file, data, replace=force)


def _write(file: Path, data: bytes, *, replace: bool) -> None:
    try:
        write_whole(file, data, replace=replace)
    except FileExistsError:
        raise InvalidInputError(f"{file} is there already; give --force to replace it") from None
    except OSError as error:
        raise InvalidInputError(f"cannot write {file}: {error.strerror}") from error
    note(f"wrote {file}, {len(data) / 1024:.0f} kB")


@model.command("encode")
@model_argument
@table_options("Table to write codes into", _COLUMN_OR_ARRAY)
@click.option("--into", metavar="COLUMN", help="Its column of type bit(n), one bit for each of n.")
@key_option("The key of the table.  [default: primary key]")
@click.option("--missing", is_flag=True, help="Only encode rows that have no code.")
@click.option(
    "--codes",
    type=click.Choice(get_args(RowCodes)),
    help="Codes of rows that the model was trained on: hashed as all others, or those that it "
    "learned.  [default: hashed; learned if it only has these]",
)
@rows_per_second_option
@from_option
@click.option(
    "--to",
    "target",
    type=click.Path(path_type=Path),
    metavar="FILE.npy|FILE.faiss",
    help="File to write: bytes (n, bits / 8) of NumPy, or an IndexBinaryFlat of Faiss.",
)
@force_option("Replace the file if it is there.")
@of_database
def encode(database_url: str, reference: str, as_json: bool, **given: Any) -> None:
    """Write the codes of a table's vectors into a column, or the codes of a file into a file.

    Rows of a table are written in batches, in the order of their key, and writers of the table do
    not wait. If it was stopped, run it again: rows that have their code are not written again. Rows
    that the model cannot encode are named, and their code is NULL.

    In a file a code is a row of bytes, the most significant bit first as numpy.packbits has it, and
    zeros after the last bit; the order of the bits changes no Hamming distance, and is the same in
    both kinds of files.
    """
    table, column, into, file, target, force = (
        given.pop(name) for name in ("table", "column", "into", "file", "target", "force")
    )
    if table and column and into and not (file or target or force):
        _encode_column(database_url, reference, as_json, table, column=column, into=into, **given)
    elif file and target and not any([table, into, *given.values(), as_json]):
        _encode_file(database_url, reference, file, target, column, force)
    else:
        raise click.UsageError("give either --table, --column and --into, or --from and --to")


def _encode_column(
    database_url: str, reference: str, as_json: bool, table: str, into: str, **options: Any
) -> None:
    with connected(database_url) as connection, progress(f"encoding {table}"):
        done = encode_column(connection, reference, table, into=into, **options)
    left = f"{done.left_out} left without" if done.left_out else ""
    had = f"{done.unchanged} rows had theirs" if done.unchanged else ""
    answer(
        as_json,
        vars(done),
        ", ".join(
            filter(None, [f"wrote {done.written} codes of model {done.model} to {into}", had, left])
        ),
        *(f"key {key}: {why}" for key, why in done.reasons.items()),
        *(["..."] if done.left_out > len(done.reasons) else []),
    )


def _encode_file(
    database_url: str, reference: str, source: Path, target: Path, vectors: str | None, force: bool
) -> None:
    if target.suffix not in (".npy", ".faiss"):
        raise click.UsageError(f"--to {target} must end in .npy or .faiss")
    # Before the work, not after it.
    if not force and (target.exists() or target.is_symlink()):
        raise InvalidInputError(f"{target} is there already; give --force to replace it")
    if target.suffix == ".faiss":
        require_faiss()
    with connected(database_url) as connection:
        loaded = store.load(connection, reference)
    if loaded.bit_weights is not None:
        note(
            f"warning: model {loaded.name} has weights of bits, so Hamming distances of its codes "
            "do not rank as its searches do; train it by a method without weights"
        )
    codes = loaded.encode(ArrayFile(source).read_vectors(vectors))
    if target.suffix == ".faiss":
        data = codes_to_faiss(codes)
    else:
        buffer = io.BytesIO()
        np.save(buffer, codes)
        data = buffer.getvalue()
    _write(target, data, replace=force)


@model.command("import")
@file_argument
@name_option("Name to store it under.  [default: its own; of a file of Faiss the file's]")
@metric_option(get_args(Metric), "Distance of a model that Faiss wrote.  [default: l2]")
@url_option
def import_model(database_url: str, file: Path, name: str | None, metric: Metric | None) -> None:
    """Store the model in FILE under its name, as the next version.

    FILE is one of `model export`, or of Faiss: a transform of vectors (ITQ, PCA, OPQ, a rotation),
    or an IndexLSH, with transforms before it or without. Faiss itself reads its files, so take them
    from sources that you trust.
    """
    if file.is_char_device():
        raise InvalidInputError(f"{file} is a device, not a model file")
    data = file.read_bytes()
    if is_faiss(data):
        read = model_from_faiss(data, name or file.stem, metric or "l2")
    elif metric is not None:
        raise click.UsageError("--metric is for files of Faiss; a model has its own")
    else:
        read = Model.from_bytes(data)
        read = read if name is None else replace(read, name=name)
    with connected(database_url) as connection:
        saved = store.save(connection, read)
    note(f"imported model {saved.name}:{saved.version}")
