"""``pg-hashindex index``: create, encode, list, show and drop indexes."""

from dataclasses import asdict
from typing import Any, get_args

import click

from pg_hashindex.errors import HashIndexError
from pg_hashindex.index import HashIndex, IndexSummary, Layout, list_indexes
from pg_hashindex.model import Metric

from ._shared import (
    LANGUAGES,
    connected,
    database_option,
    json_option,
    note,
    print_json,
    print_table,
)


@click.group()
def index() -> None:
    """Create, encode, list, show and drop indexes."""


@index.command()
@click.argument("name")
@click.option("--table", required=True, help="Table to search, as SQL writes it.")
@click.option("--column", required=True, help="Its column of type vector.")
@click.option("--model", required=True, metavar="NAME[:VERSION]", help="Model that makes codes.")
@click.option("--id", "id_column", help="Key column, unique and NOT NULL.  [default: primary key]")
@click.option(
    "--metric", type=click.Choice(get_args(Metric)), help="Exact distance.  [default: the model's]"
)
@click.option(
    "--layout",
    type=click.Choice(get_args(Layout)),
    default="table",
    show_default=True,
    help="Codes in a table of their own, or in a new column of the table.",
)
@click.option(
    "--encode/--no-encode", default=True, show_default=True, help="Encode the rows there now."
)
@database_option
@json_option
def create(
    database_url: str,
    name: str,
    table: str,
    column: str,
    model: str,
    id_column: str | None,
    metric: Metric | None,
    layout: Layout,
    encode: bool,
    as_json: bool,
) -> None:
    """Create index NAME: codes, triggers, search function; then encode the rows."""
    with connected(database_url) as connection:
        created = HashIndex.create(
            connection,
            name,
            table=table,
            column=column,
            model=model,
            id_column=id_column,
            metric=metric,
            layout=layout,
        )
        if created.encoded_in == "sql":
            note(f"created index {name}; rows written from now on are encoded at once")
        else:
            note(
                f"created index {name}; its model is evaluated in Python, so rows written from now "
                f"on wait for: pg-hashindex index encode {name}"
            )
        if encode:
            created.encode(progress=True)
        _print_index(created, created.summary(), as_json, encoded=encode)


@index.command("encode")
@click.argument("name")
@database_option
@json_option
def encode_index(database_url: str, name: str, as_json: bool) -> None:
    """Encode the rows of index NAME that have no code yet; goes on where a run stopped."""
    with connected(database_url) as connection:
        found = HashIndex.open(connection, name)
        written, waiting = found.encode(progress=True), found.waiting()
    if as_json:
        print_json({"name": name, "encoded": written, "waiting": waiting})
    else:
        note(f"encoded {written} rows")
    if waiting:
        note(_what_to_do(found, waiting, encoded=True))


@index.command("list")
@database_option
@json_option
def list_all(database_url: str, as_json: bool) -> None:
    """List every index."""
    with connected(database_url) as connection:
        rows = [_fields(found) | {"waiting": _waiting(found)} for found in list_indexes(connection)]
    if as_json:
        print_json(rows)
        return
    headings = ["name", "table", "column", "model", "bits", "metric", "layout", "encoded in"]
    headings += ["waiting", "created"]
    print_table(
        headings,
        [
            # Text, so that a column of numbers and of none stands to one side.
            [_shown(heading, row[heading.replace(" ", "_")]) for heading in headings]
            for row in rows
        ],
    )


@index.command()
@click.argument("name")
@database_option
@json_option
def show(database_url: str, name: str, as_json: bool) -> None:
    """Show an index: what it binds, how far it is encoded, what it takes."""
    with connected(database_url) as connection:
        found = HashIndex.open(connection, name)
        _print_index(found, found.summary(), as_json)


@index.command()
@click.argument("name")
@database_option
@json_option
def drop(database_url: str, name: str, as_json: bool) -> None:
    """Drop an index with its codes and triggers; table and model stay."""
    with connected(database_url) as connection:
        HashIndex.open(connection, name).drop()
    if as_json:
        print_json({"name": name, "dropped": True})
    else:
        note(f"dropped index {name}")


def _fields(found: HashIndex) -> dict[str, Any]:
    return {
        "name": found.name,
        "table": found.qualified_table,
        "column": found.column_name,
        "id": f"{found.id_column} {found.id_type}",
        "model": f"{found.model}:{found.model_version}",
        "method": found.method,
        "bits": found.n_bits,
        "dimension": found.dimension,
        "metric": found.metric,
        "layout": found.layout,
        "encoded_in": found.encoded_in,
        "created": found.created_at,
    }


def _waiting(found: HashIndex) -> int | None:
    """Count rows without a code where triggers write none; None elsewhere: it reads the table."""
    if found.encoded_in == "sql":
        return None
    try:
        return found.waiting()
    except HashIndexError:
        return None  # its table is gone, or not ours to read: it is listed all the same


def _shown(heading: str, value: Any) -> Any:
    if heading == "encoded in":
        return LANGUAGES[value]
    if heading == "waiting":
        return "" if value is None else str(value)
    return value


def _what_to_do(found: HashIndex, waiting: int, *, encoded: bool) -> str:
    if encoded and found.network == "rows":
        return (
            f"{waiting} rows wait without a code: they are none of those that model {found.model} "
            "was trained on; train it anew with them, and make the index anew"
        )
    return f"{waiting} rows have no code: pg-hashindex index encode"


def _print_index(
    found: HashIndex, summary: IndexSummary, as_json: bool, *, encoded: bool = False
) -> None:
    if as_json:
        print_json(_fields(found) | asdict(summary))
        return
    arguments = "$1, 10" if found.encoded_in == "sql" else "$1, 10, query_code => $2"
    print_table(
        ["", ""],
        [
            *(
                [heading, str(_shown(heading, value))]
                for key, value in _fields(found).items()
                for heading in [key.replace("_", " ")]
            ),
            ["codes", f"{summary.codes} of {summary.rows} rows, {summary.waiting} wait"],
            [
                "size",
                f"{summary.code_bytes / 1e6:.1f} MB of codes, "
                f"{summary.vector_bytes / 1e6:.1f} MB of vectors",
            ],
            ["search", f"SELECT * FROM {found.search_function}({arguments})"],
        ],
    )
    if summary.waiting:
        note(_what_to_do(found, summary.waiting, encoded=encoded))
