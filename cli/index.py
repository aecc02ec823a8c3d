"""``pg-hashindex index``: create, encode, list, show and drop indexes."""

from dataclasses import asdict
from typing import Any, get_args

import click

from pg_hashindex.index import HashIndex, IndexSummary, Layout, list_indexes
from pg_hashindex.model import Metric

from ._shared import connected, database_option, json_option, note, print_json, print_table


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
        note(f"created index {name}; rows written from now on are encoded at once")
        if encode:
            created.encode(progress=True)
        _print_index(created, created.summary(), as_json)


@index.command("encode")
@click.argument("name")
@database_option
@json_option
def encode_index(database_url: str, name: str, as_json: bool) -> None:
    """Encode the rows of index NAME that have no code yet; goes on where a run stopped."""
    with connected(database_url) as connection:
        written = HashIndex.open(connection, name).encode(progress=True)
    if as_json:
        print_json({"name": name, "encoded": written})
    else:
        note(f"encoded {written} rows")


@index.command("list")
@database_option
@json_option
def list_all(database_url: str, as_json: bool) -> None:
    """List every index."""
    with connected(database_url) as connection:
        rows = [_fields(found) for found in list_indexes(connection)]
    if as_json:
        print_json(rows)
        return
    headings = ["name", "table", "column", "model", "bits", "metric", "layout", "created"]
    print_table(headings, [[row[heading] for heading in headings] for row in rows])


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
        "created": found.created_at,
    }


def _print_index(found: HashIndex, summary: IndexSummary, as_json: bool) -> None:
    if as_json:
        print_json(_fields(found) | asdict(summary))
        return
    print_table(
        ["", ""],
        [
            *([key, str(value)] for key, value in _fields(found).items()),
            ["codes", f"{summary.codes} of {summary.rows} rows"],
            [
                "size",
                f"{summary.code_bytes / 1e6:.1f} MB of codes, "
                f"{summary.vector_bytes / 1e6:.1f} MB of vectors",
            ],
            ["search", f"SELECT * FROM {found.search_function}($1, 10)"],
        ],
    )
    if summary.codes < summary.rows:
        note(f"{summary.rows - summary.codes} rows have no code: pg-hashindex index encode")
