"""``pg-hashindex quickstart``: from a table of vectors to searches by codes, in one command.

Each step looks at what is there, so a run that was cut off is run again.
"""

import shlex
from textwrap import indent
from typing import Any, get_args

import click

from pg_hashindex import schema
from pg_hashindex.db.connection import Connection, connect, create_engine
from pg_hashindex.db.server_errors import translated_errors
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.index.options import checked_options
from pg_hashindex.models.functions import candidates_for
from pg_hashindex.models.model import Metric
from pg_hashindex.models.store import StoredModel
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
    print_measured,
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
_KINDS = {"function": "a function in pgvector's HNSW", "index": "an index of pg_hashindex"}


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
    "--as",
    "kind",
    type=click.Choice(get_args(advice.Kind)),
    help="A function of a model in pgvector's HNSW, or an index of pg_hashindex.  [default: the "
    "function, unless --tenant, --writes or the table call for an index]",
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
    kind: advice.Kind | None,
    memory: int,
    jobs: int | None,
    yes: bool,
    **given: Any,
) -> None:
    """Make a table searchable by codes: install the schema, train, index, measure.

    Makes the simplest that serves the table, and says which and why. Asks before it changes
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
        index = None if kind == "function" else steps.find_index(connection, found, name)
        model = steps.find_model(connection, found, name, kind)
        if kind == "function" and (writes or tenant):
            raise click.UsageError("--tenant and --writes are for --as index")
        why = "its codes are there already" if index is not None else "--as says so"
        chosen = kind or "index"
        if kind is None and index is None:
            bits = steps.graph_bits(found.table.dimension)
            asked = {"--tenant": tenant, "--writes": writes}
            needs = [option for option, value in asked.items() if value]
            chosen, why = advice.choose(found, bits, model, needs)
        steps.refuse_rights(connection, found, key, chosen)
        model = steps.find_model(connection, found, name, chosen)
        distance: Metric = metric or usual_metric(i.metric for i in found.indexes)
        if index is not None:
            steps.refuse_other_options(index, options)
            complete = steps.is_complete(index)
        else:
            if model is not None:
                distance = steps.metric_of(model, metric)
            graph = None if model is None else steps.find_graph(connection, found, model)
            complete = chosen == "function" and graph is not None and graph.valid
        if not complete:
            assumed = ASSUMED if metric is None and model is None and found.metric_assumed else ""
            current = _schema_is_current(database_url)
            note(f"making {_KINDS[chosen]}: {why}")
            note(steps.plan(found, name, distance + assumed, options, current, chosen))
            if not yes:
                confirm("Continue?")
            if not current:
                _install(database_url)
            if model is None and index is None:
                with progress(f"training model {name}"):
                    decided = kind is not None or found.table.without_codes is not None
                    model, instead = steps.train_model(
                        connection, found, name, distance, chosen, key=key, decided=decided
                    )
                if instead is not None:
                    chosen = "index"
                    note(f"making {_KINDS[chosen]} instead: {instead}")
            elif model is not None:
                note(f"model {model.name}:{model.version} is there")
        if chosen == "index":
            if index is None:
                assert model is not None  # noqa: S101
                index = HashIndex.create_lists(
                    connection,
                    name,
                    table=found.table.name,
                    column=found.table.column,
                    model=f"{model.name}:{model.version}",
                    **options | {"metric": distance},
                )
                note(f"created index {name}; rows written from now on are encoded at once")
            failed = _fill_index(connection, found, index, recall, memory, jobs, complete)
        else:
            assert model is not None  # noqa: S101
            failed = _make_graph(
                connection, database_url, found, model, recall, memory, jobs, complete
            )
        if failed:
            raise click.exceptions.Exit(NO)


def _make_graph(
    connection: Connection,
    database_url: str,
    found: Diagnosis,
    model: StoredModel,
    recall: float,
    memory: int,
    jobs: int | None,
    complete: bool,
) -> bool:
    """Index the codes of a model's function, and measure that; return whether it disappoints."""
    table, column = found.table.name, found.table.column
    with (
        connect(database_url) as watcher,
        progress(f"indexing the codes of {table} by model {model.name}:{model.version}"),
    ):
        system, graph = steps.make_graph(connection, watcher, found, model, memory, jobs)
    if complete:
        note(f"index {graph.name} is up to date")
    how = "" if found.table.kind == "partitioned table" else "CONCURRENTLY "
    undo = f"""
Undo all of it:

  DROP INDEX {how}{graph.name};   -- in psql
  pg-hashindex model drop {shlex.quote(f"{model.name}:{model.version}")}
  pg-hashindex schema downgrade --yes   # where no other index or model is kept"""
    if not found.table.measurable:
        example = system.example(_K, system.setting(candidates_for(_K)))
        echo(f"\nSearch, with your query's vector as $1:\n\n{indent(example, '  ')}\n{undo}")
        note(f"it was not measured: pg-hashindex doctor {table} {column} says how")
        return False
    with progress(f"measuring index {graph.name}"):
        seen = diagnose(
            connection,
            table,
            column,
            k=_K,
            sample=_QUERIES,
            metric=model.metric,
            only=graph.name,
        )
    for left_out in seen.notes:
        note(left_out)
    if not seen.points:
        note(f"index {graph.name} was not measured")
        return True
    exact = seen.scopes[0]
    times = exact.p50_ms, exact.p95_ms
    print_measured(seen.points, seen.k, {"hnsw.ef_search and LIMIT": "value"}, times)
    point, reached = advice.choose_setting(seen.points, recall)
    echo(f"""
Search, with your query's vector as $1; this finds {point.recall:.1%} in {point.p50_ms:.3g} ms:

{indent(system.example(seen.k, system.setting(point.value)), "  ")}
{undo}""")
    if not reached:
        note(f"recall {recall:g} is not reached: {point.value} candidates find {point.recall:.3g}")
        if found.table.without_codes is None:
            note("to reach it: drop it as above, and make an index by --as index")
    return _is_slower(point.p50_ms, exact.p50_ms) or not reached


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
    if not steps.is_complete(index):
        with progress(f"encoding the rows of {found.table.name} as {name}"):
            index.encode(memory=memory, jobs=jobs)
    index = HashIndex.open(connection, name)
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
