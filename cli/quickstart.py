"""``pg-hashindex quickstart``: from a table of vectors to searches by a name, in one command.

Each step looks at what is there, so a run that was cut off is run again.
"""

import shlex
from contextlib import suppress
from typing import Any, get_args

import click

from pg_hashindex import schema
from pg_hashindex.db.citus import is_sharded
from pg_hashindex.db.connection import create_engine
from pg_hashindex.db.locks import refuse_pooled
from pg_hashindex.db.server_errors import translated_errors
from pg_hashindex.errors import HashIndexError, InvalidInputError
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.index.options import checked_options
from pg_hashindex.models import store
from pg_hashindex.models.model import Metric
from pg_hashindex.models.store import StoredModel
from pg_hashindex.quality import advice, tuning
from pg_hashindex.quality import quickstart as steps
from pg_hashindex.quality.code_fits import train_code
from pg_hashindex.quality.doctor import diagnose
from pg_hashindex.quality.doctor_findings import Diagnosis
from pg_hashindex.training.sampling import sample_rows, sample_table

from ._index_options import index_options
from ._shared import (
    ASSUMED,
    NO,
    Share,
    confirm,
    connected,
    echo,
    facts_options,
    jobs_option,
    metric_option,
    more_facts,
    name_option,
    note,
    print_tuned,
    progress,
    refuse_columns,
    url_option,
    yes_option,
)

_QUERIES = 100
_BUILD_MEMORY = 2**30
_LEAST_BUILD_MEMORY = 2**29
# Queries that the table is searched exactly for, before a set is chosen.
_DOCTORED = 30


@click.command()
@click.argument("table")
@click.argument("column", required=False)
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
    [*get_args(Metric), "l1"],
    "Exact distance.  [default: that of an index of the column, else cosine]",
)
@facts_options
@click.option(
    "--access",
    type=click.Choice(["hnsw", "ivfflat", "lists"]),
    help="Choose among the sets of this access alone.",
)
@jobs_option
@yes_option
@url_option
def quickstart(
    database_url: str,
    table: str,
    column: str | None,
    recall: float,
    name: str | None,
    metric: str | None,
    tenant: str | None,
    writes: float | None,
    key_columns: list[str] | None,
    access: str | None,
    memory: int | None,
    jobs: int | None,
    yes: bool,
) -> None:
    """Make a table searchable by a name: install the schema, train, index, measure.

    Makes the set that doctor decides for, and says what it did not take and why. A table that is
    searched exactly in 5 ms needs none: nothing is changed then. Asks before it changes anything.
    If a run was cut off, run it again: it continues where it stopped, and changes nothing if the
    index is complete. Exit code 1 if the recall is not reached, or the exact query is faster.
    """
    if recall == 0:
        raise click.UsageError("--recall must be above 0")
    with connected(database_url) as connection:
        steps.refuse_read_only(connection)
        refuse_pooled(connection)
        found = diagnose(
            connection, table, column, sample=_DOCTORED,
            metric=metric, goal=recall, tenant=tenant, writes=writes, memory=memory, codes=False,
            measure=not is_sharded(connection, table),
        )  # fmt: skip
        steps.refuse_l1(found)
        name = name or steps.default_name(found)
        named = {"key_columns": key_columns, "metric": metric, "tenant": tenant}
        options = checked_options(name, named)
        refuse_columns(connection, found.table.name, key_columns or [], "--id")
        index = steps.find_index(connection, found, name)
        if index is not None and access is not None and access != steps.access_of(index):
            raise click.UsageError(f"index {name} has access {index.access}: see index swap")
        chosen = steps.choose(found, recall, access, index)
        if index is None and chosen.kind == "lists" and access is None and found.tenant is not None:
            # Also a column of policies, for which lists were chosen.
            options |= {"tenant": found.tenant.column}
        model = steps.find_model(connection, found, name, steps.method_of(chosen))
        first = advice.halfvec_index(found, recall)
        if index is None and chosen.kind == "vectors" and first:
            raise InvalidInputError(
                f"the HNSW that {found.table.name} has does not fit into memory, or does not "
                "reach the recall, and an index of vectors would take it: run first: "
                f"{' '.join(first)}"
            )
        if index is not None:
            steps.refuse_other_options(index, options)
        if index is None and chosen.kind == "exact":
            note(f"{found.table.name} needs no index: {chosen.why}; nothing was changed")
            for statement in advice.tenant_btree(found):
                note(f"that b-tree is not there: {statement}")
            return
        complete = index is not None and steps.is_complete(index)
        if not complete:
            for named_fact, fact in more_facts(found):
                note(f"{named_fact}: {fact}")
            note(f"making an index by {_said(chosen)}: {chosen.why}")
            for one in chosen.sets:
                if not one.taken:
                    note(f"not {one.name}: {one.why_not}")
        steps.refuse_rights(connection, found, key_columns, chosen.kind == "lists")
        distance: Any = found.metric  # l1 was refused
        if index is None and model is not None:
            distance = steps.metric_of(model, metric)
        if not complete:
            assumed = ASSUMED if metric is None and model is None and found.metric_assumed else ""
            current = _schema_is_current(database_url)
            note(steps.plan(found, name, distance + assumed, options, current, chosen))
            if not yes:
                confirm("Continue?")
            if not current:
                _install(database_url)
    build = min(memory or _BUILD_MEMORY, _BUILD_MEMORY)
    if chosen.kind == "lists":
        # `memory` is the server's; lists, which suit a small one, are built by the client.
        build = max(build, _LEAST_BUILD_MEMORY)
    if index is None:
        trained = None
        method = steps.method_of(chosen)
        if model is not None:
            note(f"model {model.name}:{model.version} is there")
        elif method is not None:
            model = trained = _train(database_url, found, name, distance, method)
        # A session that waited for the question, or for training, may have been ended.
        with connected(database_url) as connection:
            try:
                with progress(f"creating index {name}"):
                    steps.make_index(
                        connection, found, name, model, options | {"metric": distance}, chosen,
                        build, jobs,
                    )  # fmt: skip
            except HashIndexError:
                if trained is not None:
                    # The session may have ended.
                    with suppress(HashIndexError), connected(database_url) as another:
                        store.drop(another, f"{trained.name}:{trained.version}")
                raise
    elif not complete:
        with connected(database_url) as connection:
            index = HashIndex.open(connection, name)
            if index.is_lists:
                with progress(f"encoding the rows of {found.table.name} as {name}"):
                    index.encode(memory=build, jobs=jobs)
    with connected(database_url) as connection:
        if _disappoints(HashIndex.open(connection, name), found, recall, complete):
            raise click.exceptions.Exit(NO)


def _said(chosen: advice.Choice) -> str:
    if chosen.there is not None:
        return f"{chosen.there.name}, which is there"
    return "no set" if chosen.kind == "exact" else advice.name_of(chosen.kind)


def _train(url: str, found: Diagnosis, name: str, metric: str, method: str) -> StoredModel:
    """Train a model on rows of the table, and save it by a session of its own."""
    table = found.table
    with progress(f"training model {name}"):
        with connected(url) as connection:
            X = sample_table(
                connection, table.name, table.column, rows=sample_rows(method), metric=metric
            ).X
        trained = train_code(X, method, metric, name=name)
        with connected(url) as connection:
            saved = store.save(connection, trained)
            return store.describe(connection, f"{saved.name}:{saved.version}")


def _note_slower(milliseconds: float, exact_ms: float) -> bool:
    """Print that searches are slower than the exact query, if they are; return whether."""
    said = advice.slower(milliseconds, exact_ms)
    if said is not None:
        note(said)
    return said is not None


def _disappoints(index: HashIndex, found: Diagnosis, recall: float, complete: bool) -> bool:
    """Measure an index, print the result and what comes next; return whether it disappoints."""
    tuned: tuning.Tuned | None = None
    changed, why = False, f"pg-hashindex evaluate {index.name}"
    if found.table.measurable:
        try:
            with progress(f"measuring index {index.name}"):
                tuned, changed = tuning.tune_built(
                    index, recall, queries=_QUERIES, complete=complete
                )
        except InvalidInputError as error:
            why = str(error)
    if tuned is None:
        echo(_next(index, found))
        note(f"it was not measured: {why}")
        return False
    print_tuned(tuned)
    if changed:
        note(f"searches keep {tuning.describe(tuned.best)} from now on")
    elif complete:
        note(f"index {index.name} is up to date")
    if tuned.cause is not None:
        note(f"recall {recall:g} is not reached: {tuned.cause}")
    echo(_next(index, found))
    if tuned.cause is not None:
        note(f"to reach it: {tuned.remedy}")
    return _note_slower(tuned.best.p50_ms, tuned.exact_p50_ms) or tuned.cause is not None


def _schema_is_current(database_url: str) -> bool:
    with translated_errors(), create_engine(database_url).connect() as connection:
        return schema.status(connection).up_to_date


def _install(database_url: str) -> None:
    with translated_errors(), create_engine(database_url).begin() as transaction:
        schema.upgrade(transaction)
    note("installed schema hashindex")


def _next(index: HashIndex, found: Diagnosis) -> str:
    usual, filtered = steps.searches(index, found)
    model = (
        f"\n  pg-hashindex model drop {shlex.quote(index.model_name)}" if index.row.model_id else ""
    )
    return f"""
Search, with your query's vector in place of the subquery:

{usual}

{filtered}

Undo all of it:

  pg-hashindex index drop {index.name} --yes{model}
  pg-hashindex schema downgrade --yes   # where no other index or model is kept"""
