"""``pg-hashindex quickstart``: from a table of vectors to searches by codes, in one command.

Each step looks at what is there, so a run that was cut off is run again.
"""

import shlex

import click

from pg_hashindex import schema
from pg_hashindex.db.citus import refuse_unsuitable
from pg_hashindex.db.connection import Connection, create_engine
from pg_hashindex.db.server_errors import translated_errors
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.models.model import Metric
from pg_hashindex.quality import quickstart as steps
from pg_hashindex.quality import tuning
from pg_hashindex.quality.doctor import diagnose
from pg_hashindex.quality.doctor_catalog import usual_metric
from pg_hashindex.quality.doctor_findings import Diagnosis

from ._shared import (
    ASSUMED,
    NO,
    Share,
    confirm,
    connected,
    database_option,
    echo,
    filter_columns_option,
    key_option,
    memory_option,
    note,
    print_tuned,
    progress,
    refuse_columns,
    table_options,
    tenant_option,
    trusted,
)

_QUERIES = 100


@click.command()
@table_options
@click.option(
    "--recall",
    type=Share(),
    default=0.95,
    show_default=True,
    help="Part of the true ten nearest that searches are to find.",
)
@click.option("--name", help="Name of the model and the index.  [default: TABLE_COLUMN]")
@key_option("Key columns, unique together and NOT NULL.  [default: primary key]")
@click.option(
    "--metric",
    type=click.Choice(["l2", "cosine", "ip"]),
    help="Exact distance.  [default: that of a vector index of the column, else cosine]",
)
@filter_columns_option
@tenant_option
@click.option("--anyway", is_flag=True, help="Continue even if HNSW is the better choice.")
@memory_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@database_option
def quickstart(
    database_url: str,
    table: str,
    column: str,
    recall: float,
    name: str | None,
    key_columns: list[str] | None,
    metric: Metric | None,
    filter_columns: list[str],
    tenant: str | None,
    anyway: bool,
    memory: int,
    yes: bool,
) -> None:
    """Make an index of a table: install the schema, train a model, encode, measure.

    Asks before it changes anything. If a run was cut off, run it again: it continues where it
    stopped, and changes nothing if the index is complete. Exit code 1 if pgvector's HNSW suits the
    table better, or if the recall is not reached.
    """
    with connected(database_url) as connection:
        steps.refuse_read_only(connection)
        found = diagnose(connection, table, column, measure=False)
        refuse_unsuitable(connection, table)
        steps.refuse_rights(connection, found, key_columns)
        refuse_columns(connection, found.table.name, filter_columns, "--filter-columns")
        refuse_columns(connection, found.table.name, [tenant] if tenant else [], "--tenant")
        name = name or steps.default_name(found)
        index = steps.find_index(connection, found, name)
        if index is not None:
            steps.refuse_other_settings(index, key_columns, metric, filter_columns, tenant)
        complete = index is not None and steps.is_complete(index)
        if not complete:
            better = steps.hnsw_suits(found, filter_columns, tenant)
            if better is not None and index is None and not anyway:
                note(better)
                raise click.exceptions.Exit(NO)
            chosen = metric or usual_metric(i.metric for i in found.indexes)
            distance = chosen + (ASSUMED if metric is None and found.metric_assumed else "")
            current = _schema_is_current(database_url)
            note(steps.plan(found, name, distance, tenant, current))
            if not yes:
                confirm("Continue?")
            if not current:
                _install(database_url)
            if index is None:
                _train(connection, found, name, chosen, anyway)
                index = HashIndex.create(
                    connection,
                    name,
                    table=found.table.name,
                    column=found.table.column,
                    model=name,
                    key_columns=key_columns,
                    metric=chosen,
                    filter_columns=filter_columns,
                    tenant=tenant,
                )
                note(f"created index {name}; rows written from now on are encoded at once")
            if not steps.is_complete(index):
                with progress(f"encoding the rows of {found.table.name} as {name}"):
                    index.encode(memory=memory)
        index = HashIndex.open(connection, name)
        with progress(f"measuring index {name}"):
            tuned = tuning.tune(index, recall, queries=_QUERIES)
        print_tuned(tuned)
        changed = steps.configure(index, tuned, complete=complete)
        if changed:
            note(f"searches keep {tuning.describe(tuned.best)} from now on")
        elif complete:
            note(f"index {name} is up to date")
        if tuned.cause is not None:
            note(f"recall {recall:g} is not reached: {tuned.cause}")
        echo(_next(index, found))
        if tuned.cause is not None:
            note(f"to reach it: {tuned.remedy}")
            raise click.exceptions.Exit(NO)


def _schema_is_current(database_url: str) -> bool:
    with translated_errors(), create_engine(database_url).connect() as connection:
        return schema.status(connection, trust_owner=trusted()).up_to_date


def _install(database_url: str) -> None:
    with translated_errors(), create_engine(database_url).begin() as transaction:
        schema.upgrade(transaction)
    note("installed schema hashindex")


def _train(
    connection: Connection, found: Diagnosis, name: str, metric: Metric, anyway: bool
) -> None:
    there = steps.find_model(connection, found, name)
    if there is not None:
        note(f"model {there} is there")
        return
    with progress(f"training model {name}"):
        steps.train_model(connection, found, name, metric, force=anyway)


def _next(index: HashIndex, found: Diagnosis) -> str:
    everywhere, filtered, *of_tenant = steps.searches(index, found)
    within = "".join(
        f"\nRows of one {index.tenant_column}, in one of its lists of landmarks or all of its "
        f"codes:\n\n{one}\n"
        for one in of_tenant
    )
    return f"""
Search, with your query's vector in place of the subquery:

{everywhere}

{filtered}
{within}
Undo all of it:

  pg-hashindex index drop {index.name} --yes
  pg-hashindex model drop {shlex.quote(index.model_name)}
  pg-hashindex schema downgrade --yes   # where no other index or model is kept"""
