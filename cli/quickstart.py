"""``pg-hashindex quickstart``: from a table of vectors to searches by codes, in one command.

Each step looks at what is there, so a run that was cut off is run again.
"""

import shlex
from typing import Any, get_args

import click

from pg_hashindex import schema
from pg_hashindex.db.connection import Connection, create_engine
from pg_hashindex.db.server_errors import translated_errors
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.index.options import checked_options
from pg_hashindex.models.model import Metric
from pg_hashindex.quality import advice, tuning
from pg_hashindex.quality import quickstart as steps
from pg_hashindex.quality.doctor import diagnose
from pg_hashindex.quality.doctor_catalog import usual_metric
from pg_hashindex.quality.doctor_findings import Diagnosis

from ._index_options import index_options
from ._shared import (
    ASSUMED,
    NO,
    Share,
    build_options,
    confirm,
    connected,
    echo,
    metric_option,
    name_option,
    note,
    print_tuned,
    progress,
    refuse_columns,
    table_options,
    url_option,
    yes_option,
)

# Answers that are searched for.
_K = 10
_QUERIES = 100
_KINDS = {"hnsw": "codes in pgvector's HNSW", "lists": "codes in lists"}


@click.command()
@table_options(required=True)
@click.option(
    "--recall",
    type=Share(),
    default=0.95,
    show_default=True,
    help="Part of the true ten nearest that searches are to find.",
)
@name_option("Name of the model and the index.  [default: TABLE_COLUMN]")
@index_options(["key_columns"])
@metric_option(
    get_args(Metric),
    "Exact distance.  [default: that of a vector index of the column, else cosine]",
)
@index_options(["tenant"])
@click.option("--writes", is_flag=True, help="Rows are written often: make an index for that.")
@click.option(
    "--access",
    type=click.Choice(get_args(advice.Kind)),
    help="Codes in pgvector's HNSW, or in lists.  [default: hnsw, unless --tenant, --writes or the "
    "table call for lists]",
)
@build_options
@yes_option
@url_option
def quickstart(
    database_url: str,
    table: str,
    column: str,
    recall: float,
    name: str | None,
    metric: Metric | None,
    writes: bool,
    access: advice.Kind | None,
    memory: int,
    jobs: int | None,
    yes: bool,
    **given: Any,
) -> None:
    """Make a table searchable by a name: install the schema, train, index, measure.

    Makes the simplest set that serves the table, and says which and why. Asks before it changes
    anything. If a run was cut off, run it again: it continues where it stopped, and changes nothing
    if the index is complete. Exit code 1 if the recall is not reached, or the exact query is
    faster.
    """
    if recall == 0:
        raise click.UsageError("--recall must be above 0")
    with connected(database_url) as connection:
        steps.refuse_read_only(connection)
        found = diagnose(connection, table, column, measure=False)
        name = name or steps.default_name(found)
        options = checked_options(name, given | {"metric": metric})
        key = options.get("key_columns")
        tenant = options.get("tenant")
        refuse_columns(connection, found.table.name, [tenant] if tenant else [], "--tenant")
        index = steps.find_index(connection, found, name)
        model = steps.find_model(connection, found, name, access)
        if index is not None:
            chosen: advice.Kind = "lists" if index.is_lists else "hnsw"
            why = "it is there already"
            if access not in (None, chosen):
                raise click.UsageError(f"index {name} has access {index.access}: see index swap")
        elif access is not None:
            chosen, why = access, "--access says so"
        else:
            bits = steps.graph_bits(found.table.dimension)
            asked = {"--tenant": tenant, "--writes": writes}
            chosen, why = advice.choose(
                found, bits, model, [option for option, value in asked.items() if value]
            )
        steps.refuse_rights(connection, found, key, chosen)
        model = steps.find_model(connection, found, name, chosen)
        distance: Metric = metric or usual_metric(i.metric for i in found.indexes)
        complete = index is not None and steps.is_complete(index)
        if index is not None:
            steps.refuse_other_options(index, options)
        elif model is not None:
            distance = steps.metric_of(model, metric)
        if not complete:
            assumed = ASSUMED if metric is None and model is None and found.metric_assumed else ""
            current = _schema_is_current(database_url)
            note(f"making an index by {_KINDS[chosen]}: {why}")
            note(steps.plan(found, name, distance + assumed, options, current, chosen))
            if not yes:
                confirm("Continue?")
            if not current:
                _install(database_url)
            if model is None and index is None:
                with progress(f"training model {name}"):
                    model = steps.train_model(connection, found, name, distance, chosen)
            elif model is not None:
                note(f"model {model.name}:{model.version} is there")
        if index is None:
            assert model is not None  # noqa: S101
            with progress(f"creating index {name}"):
                index = steps.make_index(
                    connection, found, name, model, options | {"metric": distance}, chosen,
                    memory, jobs,
                )  # fmt: skip
        if _fill_index(connection, found, index, recall, memory, jobs, complete):
            raise click.exceptions.Exit(NO)


def _is_slower(milliseconds: float, exact_ms: float) -> bool:
    said = advice.slower(milliseconds, exact_ms)
    if said is not None:
        note(said)
    return said is not None


def _fill_index(
    connection: Connection,
    found: Diagnosis,
    index: HashIndex,
    recall: float,
    memory: int,
    jobs: int | None,
    complete: bool,
) -> bool:
    """Encode the rows of an index, and measure it; return whether it disappoints."""
    name = index.name
    if index.is_lists and not steps.is_complete(index):
        with progress(f"encoding the rows of {found.table.name} as {name}"):
            index.encode(memory=memory, jobs=jobs)
    index = HashIndex.open(connection, name)
    if not found.table.measurable:
        echo(_next(index, found))
        note(f"it was not measured: pg-hashindex evaluate {name}")
        return False
    with progress(f"measuring index {name}"):
        tuned, changed = tuning.tune_built(index, recall, queries=_QUERIES, complete=complete)
    print_tuned(tuned)
    if changed:
        note(f"searches keep {tuning.describe(tuned.best)} from now on")
    elif complete:
        note(f"index {name} is up to date")
    if tuned.cause is not None:
        note(f"recall {recall:g} is not reached: {tuned.cause}")
    echo(_next(index, found))
    if tuned.cause is not None:
        note(f"to reach it: {tuned.remedy}")
    return _is_slower(tuned.best.p50_ms, tuned.exact_p50_ms) or tuned.cause is not None


def _schema_is_current(database_url: str) -> bool:
    with translated_errors(), create_engine(database_url).connect() as connection:
        return schema.status(connection).up_to_date


def _install(database_url: str) -> None:
    with translated_errors(), create_engine(database_url).begin() as transaction:
        schema.upgrade(transaction)
    note("installed schema hashindex")


def _next(index: HashIndex, found: Diagnosis) -> str:
    usual, filtered = steps.searches(index, found)
    return f"""
Search, with your query's vector in place of the subquery:

{usual}

{filtered}

Undo all of it:

  pg-hashindex index drop {index.name} --yes
  pg-hashindex model drop {shlex.quote(index.model_name)}
  pg-hashindex schema downgrade --yes   # where no other index or model is kept"""
