"""``pg-hashindex index``: create, encode, configure, list, show and drop indexes."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, get_args

import click

from pg_hashindex.db.locks import PATIENCE
from pg_hashindex.errors import HashIndexError
from pg_hashindex.index.catalog import Access, IndexRow, Layout, ListSummary, Ranking, read_rows
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.models.model import Metric

from ._shared import (
    LANGUAGES,
    LateGroup,
    answer,
    confirm,
    connected,
    filter_columns_option,
    note,
    of_database,
    of_index,
    opened,
    print_json,
    print_table,
    progress,
    table_options,
    trust_option,
)


def access_option(default: Access | None) -> Callable[..., Any]:
    """Return the option for an access path."""
    return click.option(
        "--access",
        type=click.Choice(get_args(Access)),
        default=default,
        show_default=default is not None,
        help="How searches find candidates: among all codes, by substrings of codes in b-trees, by "
        "lists of codes around landmarks, or by pgvector's HNSW over the codes.",
    )


ranking_option = click.option(
    "--ranking",
    type=click.Choice(get_args(Ranking)),
    help="Order of candidates: by differing bits, by the query's projection at them, or by the "
    "model's weights.",
)


throttle_option = click.option(
    "--throttle",
    "rows_per_second",
    type=float,
    metavar="ROWS_PER_SECOND",
    help="Encode at most this number of rows a second, and list as many by landmarks.",
)


patience_option = click.option(
    "--patience",
    type=click.FloatRange(min=0),
    default=PATIENCE,
    show_default=True,
    metavar="SECONDS",
    help="How long to try again while transactions keep the table in use.",
)


_OTHERS = {
    "check": "Check index NAME, and print findings with advice.",
    "swap": "Give index NAME another model, while it is searched and written to.",
    "rollback": "Return to the codes that index NAME had before the last swap.",
    "prune": "Drop the codes that index NAME had before the last swap.",
    "repair": "Repair index NAME, and print what was done.",
    "rebind": "Name the table or columns of index NAME after a renaming, and repair it.",
    "grant": "Let roles search index NAME by its codes.",
    "revoke": "Take the codes of index NAME from roles; rights on the table stay as they are.",
    "distribute": "Bring index NAME to the shards of its table, which Citus distributes.",
}
_MODULES = {"rollback": "swap", "prune": "swap", "rebind": "repair", "revoke": "grant"}


@click.group(cls=LateGroup, late=_OTHERS, modules=_MODULES)
def index() -> None:
    """Create, encode, configure, swap, check, repair and drop indexes."""


@index.command()
@table_options
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
@access_option("scan")
@ranking_option
@filter_columns_option
@trust_option
@click.option(
    "--encode/--no-encode", default=True, show_default=True, help="Encode the rows there now."
)
@patience_option
@of_index
def create(database_url: str, name: str, encode: bool, as_json: bool, **options: Any) -> None:
    """Create index NAME: codes, triggers, search function; then encode the rows."""
    with connected(database_url) as connection:
        created = HashIndex.create(connection, name, **options)
        if created.encoded_in == "sql":
            note(f"created index {name}; rows written from now on are encoded at once")
        else:
            note(
                f"created index {name}; its model is evaluated in Python, so rows written from now "
                f"on wait for: pg-hashindex index encode {name}"
            )
        if encode:
            with progress(f"encoding the rows of {created.qualified_table}") as bars:
                created.encode(progress=bars)
        _print_index(created.row, as_json, encoded=encode)


@index.command("encode")
@throttle_option
@of_index
def encode_index(
    database_url: str, name: str, rows_per_second: float | None, as_json: bool
) -> None:
    """Encode the rows of index NAME that have no code; an interrupted run is continued.

    Then build the access path that the index is configured for, if it is not in use yet.
    """
    with opened(database_url, name) as found:
        with progress(f"encoding the rows of {found.qualified_table}") as bars:
            written = found.encode(progress=bars, rows_per_second=rows_per_second)
        waiting, row = found.waiting(), found.row
    done = {"name": name, "encoded": written, "waiting": waiting, "access": row.access}
    answer(as_json, done, f"encoded {written} rows")
    if waiting:
        note(_what_to_do(row, waiting, encoded=True))
    _note_building(row)


@index.command()
@access_option(None)
@ranking_option
@click.option("--candidates", type=int, help="Rows kept by code before the exact order.")
@click.option("--probes", type=int, help="Landmarks whose lists are read, 1 to 1000.")
@click.option(
    "--build/--no-build",
    default=True,
    show_default=True,
    help="Encode rows without a code and build the access path now.",
)
@patience_option
@of_index
def configure(database_url: str, name: str, build: bool, as_json: bool, **settings: Any) -> None:
    """Change the defaults of searches of index NAME; other settings stay as they are.

    Searches do not wait; they use the previous access path until the new one is built.
    """
    with opened(database_url, name) as found:
        found.configure(**settings)
        if build and found.building is not None:
            with progress(f"building access by {found.building}") as bars:
                found.encode(progress=bars)
        _print_index(found.row, as_json)


@index.command()
@of_index
def rebalance(database_url: str, name: str, as_json: bool) -> None:
    """Build the landmarks of index NAME again, as many as its table now calls for."""
    with opened(database_url, name) as found, progress(f"building the landmarks of {name}") as bars:
        done = found.rebalance(progress=bars)
    answer(
        as_json,
        {"name": name} | done._asdict(),
        f"put {done.rows} rows in the order of {done.landmarks} landmarks; there were "
        f"{done.landmarks_before}",
    )


@index.command("list")
@of_database
def list_all(database_url: str, as_json: bool) -> None:
    """List every index."""
    with connected(database_url) as connection:
        rows = [
            _fields(row) | {"waiting": _waiting(row)}
            for row in read_rows(connection, "ORDER BY i.name")
        ]
    if as_json:
        print_json(rows)
        return
    headings = ["name", "table", "column", "model", "bits", "metric", "layout", "access"]
    headings += ["encoded in", "waiting", "swap", "created"]
    for row in rows:
        row["encoded in"] = LANGUAGES[row["encoded_in"]]
    print_table(headings, [[row[heading] for heading in headings] for row in rows])


@index.command()
@of_index
def show(database_url: str, name: str, as_json: bool) -> None:
    """Show an index: its table and model, how many rows are encoded, and its size."""
    with opened(database_url, name) as found:
        _print_index(found.row, as_json)


@index.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
@patience_option
@of_index
def drop(database_url: str, name: str, yes: bool, patience: float, as_json: bool) -> None:
    """Drop an index with its codes and triggers; table and model stay."""
    with opened(database_url, name) as found:
        if not yes:
            confirm(f"Drop index {name} of {found.qualified_table}, with its codes?")
        found.drop(patience=patience)
    answer(as_json, {"name": name, "dropped": True}, f"dropped index {name}")


def _fields(found: IndexRow) -> dict[str, Any]:
    return {
        "name": found.name,
        "table": found.qualified_table,
        "column": found.column_name,
        "id": f"{found.id_column} {found.id_type}",
        "model": found.model_name,
        "method": found.method,
        "bits": found.n_bits,
        "levels": found.levels,
        "dimension": found.dimension,
        "metric": found.metric,
        "layout": found.layout,
        "access": found.access,
        "building": found.building,
        "ranking": found.ranking,
        "candidates": found.candidates,
        "probes": found.probes,
        "filter_columns": ", ".join(found.filter_columns) or None,
        "encoded_in": found.encoded_in,
        "swap": None if found.swap_of is None else f"{found.swap_state} of {found.swap_of}",
        "created": found.created_at,
    }


def _waiting(found: IndexRow) -> int | None:
    """Count rows without a code, which reads the table; None if triggers write codes."""
    if found.encoded_in == "sql":
        return None
    try:
        return found.waiting()
    except HashIndexError:
        return None  # its table is gone, or we may not read it: list the index all the same


def _what_to_do(found: IndexRow, waiting: int, *, encoded: bool) -> str:
    if encoded and found.network == "rows":
        return (
            f"{waiting} rows wait without a code: model {found.model} was not trained on them; "
            "train it again with them, and create the index again"
        )
    return f"{waiting} rows have no code: pg-hashindex index encode"


def _note_building(found: IndexRow) -> None:
    if found.building is not None:
        note(
            f"searches go by {found.access} until access by {found.building} is built: "
            f"pg-hashindex index encode {found.name}"
        )


def _note_swap(found: IndexRow) -> None:
    for row in read_rows(found.connection, "ORDER BY i.name"):
        if row.swap_of != found.name:
            continue
        model = row.model_name
        if row.swap_state == "previous":
            note(
                f"the codes of model {model} are kept up to date as {row.name}; return to them: "
                f"pg-hashindex index rollback {found.name}; drop them: pg-hashindex index prune "
                f"{found.name}"
            )
        else:
            note(
                f"a swap to model {model} is unfinished, as {row.name}; continue: pg-hashindex "
                f"index swap {found.name} --model {model}; give it up: pg-hashindex index repair "
                f"{found.name} --undo"
            )


def _note_lists(found: IndexRow, lists: ListSummary, rows: int) -> None:
    if not lists.in_order:
        note(
            "some lists are much longer than the others, so searches read more than needed: "
            f"pg-hashindex index rebalance {found.name}"
        )
    if not lists.trained_rows / 10 < rows < lists.trained_rows * 10:
        note(
            f"the landmarks were trained on {lists.trained_rows} rows, and there are {rows} now; "
            "answers are right, but slow: train landmarks again by pg-hashindex index rebalance "
            f"{found.name}"
        )


def _print_index(found: IndexRow, as_json: bool, *, encoded: bool = False) -> None:
    summary, lists = found.summary(), found.lists()
    if as_json:
        fields = _fields(found) | asdict(summary)
        print_json(fields if lists is None else fields | {"lists": asdict(lists)})
        return
    arguments = "$1, 10" if found.encoded_in == "sql" else "$1, 10, query_code => $2"
    shown = _fields(found) | {
        "encoded_in": LANGUAGES[found.encoded_in],
        "codes": f"{summary.codes} of {summary.rows} rows, {summary.waiting} wait",
        "lists": lists
        and f"{lists.landmarks} landmarks, {lists.mean:.0f} codes each, {lists.longest} at most",
        "size": f"{summary.code_bytes / 1e6:.1f} MB of codes, "
        f"{summary.access_bytes / 1e6:.1f} MB of the access path, "
        f"{summary.vector_bytes / 1e6:.1f} MB of vectors",
        "search": f"SELECT * FROM {found.search_function}({arguments})",
    }
    given = {key.replace("_", " "): value for key, value in shown.items() if value is not None}
    print_table(["", ""], [[heading, str(value)] for heading, value in given.items()])
    if summary.waiting:
        note(_what_to_do(found, summary.waiting, encoded=encoded))
    _note_building(found)
    _note_swap(found)
    if lists is not None:
        _note_lists(found, lists, summary.codes)
