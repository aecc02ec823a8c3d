"""``pg-hashindex quickstart``: from a table of vectors to searches by codes, in one command.

Each step looks at what is there, so a run that was cut off is run again.
"""

import re
import shlex
from typing import Any

import click

from pg_hashindex import schema, store
from pg_hashindex.db.citus import refuse_unsuitable
from pg_hashindex.db.connection import Connection, create_engine
from pg_hashindex.db.server_errors import translated_errors
from pg_hashindex.db.statements import one_row
from pg_hashindex.db.table_source import find_relation
from pg_hashindex.errors import (
    DatabaseStateError,
    InvalidInputError,
    MissingRightsError,
    MissingSchemaError,
    UnknownIndexError,
    UnknownModelError,
)
from pg_hashindex.index.catalog import default_index_name
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.models.model import Metric
from pg_hashindex.quality import reaching, sizes
from pg_hashindex.quality.doctor import diagnose
from pg_hashindex.quality.doctor_catalog import usual_metric
from pg_hashindex.quality.doctor_findings import Diagnosis
from pg_hashindex.quality.tuning import Budget, Goal, apply, tune_table
from pg_hashindex.training import METHOD, default_bits, hasher_for, train
from pg_hashindex.training.sampling import sample_rows, sample_table

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
    print_table,
    progress,
    refuse_columns,
    smallest_option,
    table_options,
    tenant_option,
    trusted,
)

_QUERIES = 100
_SLOW_BUILD_SECONDS = 1800


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
@click.option("--tune", "tuned", is_flag=True, help="Try methods and settings on a sample first.")
@smallest_option
@click.option("--anyway", is_flag=True, help="Continue where HNSW suits the table better.")
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
    tuned: bool,
    smallest: bool,
    anyway: bool,
    memory: int,
    yes: bool,
) -> None:
    """Make an index of a table: install the schema, train a model, encode, measure.

    Asks before it changes anything. If a run was cut off, run it again: it continues where it
    stopped, and changes nothing where all is there. Exit code 1 if pgvector's HNSW suits the table
    better, or if the recall is not reached.
    """
    if tuned and (filter_columns or tenant):
        raise click.UsageError("--tune makes an index without --filter-columns and --tenant")
    if smallest and not tuned:
        raise click.UsageError("--smallest is found by --tune: give both")
    with connected(database_url) as connection:
        _refuse_read_only(connection)
        found = diagnose(connection, table, column, measure=False)
        refuse_unsuitable(connection, table)
        _refuse_rights(connection, found, key_columns)
        refuse_columns(connection, found.table.name, filter_columns, "--filter-columns")
        refuse_columns(connection, found.table.name, [tenant] if tenant else [], "--tenant")
        name = name or _default_name(found)
        index = _index(connection, found, name)
        if index is not None:
            _refuse_other_settings(index, key_columns, metric, filter_columns, tenant)
        chosen = metric or usual_metric(i.metric for i in found.indexes)
        complete = index is not None and _is_complete(index)
        if not complete:
            # Tuning measures what this only estimates.
            unasked = index is None and not anyway and not tuned
            if unasked and (better := _hnsw_suits(found, filter_columns, tenant)) is not None:
                note(better)
                raise click.exceptions.Exit(NO)
            current = _schema_is_current(database_url)
            distance = chosen + (ASSUMED if metric is None and found.metric_assumed else "")
            note(_plan(found, name, distance, tenant, tuned, current))
            if not yes:
                confirm("Go on?")
            if not current:
                with translated_errors(), create_engine(database_url).begin() as transaction:
                    there = schema.administrator(transaction) if trusted() else None
                    schema.upgrade(transaction, owner=None if there is None else there[0])
                note("installed schema hashindex")
            if index is None:
                options: dict[str, Any] = {"key_columns": key_columns, "metric": chosen}
                if tuned:
                    goal = Goal(recall, smallest=smallest)
                    index = _tuned(connection, found, name, goal, memory, **options)
                else:
                    options |= {"filter_columns": filter_columns, "tenant": tenant}
                    index = _made(connection, found, name, anyway, **options)
            if not _is_complete(index):
                with progress(f"encoding the rows of {found.table.name} as {name}"):
                    index.encode(memory=memory)
        index, reached, changed = _measured(connection, name, recall)
        if complete and not changed:
            note(f"index {name} is there, and complete: nothing was changed")
        echo(_next(index, found))
        if not reached:
            note(f"find what reaches it: pg-hashindex tune {name} --recall {recall:g}")
            raise click.exceptions.Exit(NO)


def _refuse_read_only(connection: Connection) -> None:
    standby, read_only = one_row(
        connection, "SELECT pg_is_in_recovery(), current_setting('transaction_read_only')"
    )
    if standby:
        raise DatabaseStateError(
            "nothing can be made here; a standby only reads: connect to the primary server"
        )
    if read_only == "on":
        raise DatabaseStateError(
            "sessions only read here (default_transaction_read_only is on): connect to a server, "
            "or as a role, that may write"
        )


_RIGHTS = """
    SELECT pg_catalog.quote_ident(current_user),
           pg_catalog.quote_ident(pg_catalog.current_database()), n.nspname IS NOT NULL,
           pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE'),
           pg_catalog.quote_ident(a.rolname), pg_catalog.pg_has_role(a.oid, 'USAGE'),
           (SELECT pg_catalog.string_agg(r, ', ')
            FROM pg_catalog.unnest('{SELECT,UPDATE,TRIGGER}'::text[]) r
            WHERE NOT pg_catalog.has_table_privilege(a.oid, c.oid, r))
    FROM pg_catalog.pg_class c
    LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = 'hashindex'
    JOIN pg_catalog.pg_roles a ON a.oid = coalesce(n.nspowner, current_user::regrole::oid)
    WHERE c.oid = $1::regclass::oid
"""


def _refuse_rights(connection: Connection, found: Diagnosis, key: list[str] | None) -> None:
    """Refuse a role or a table with which a later step would fail; say what to GRANT."""
    table = found.table.name
    role, database, installed, may_create, administrator, administers, missing = one_row(
        connection, _RIGHTS, [table]
    )
    if installed and not administers:
        raise MissingRightsError(
            f"role {role} does not administer schema hashindex; a superuser grants that with: "
            f"GRANT {administrator} TO {role}"
        )
    if not installed and not may_create:
        raise MissingRightsError(
            f"role {role} may not make schema hashindex; the owner of the database grants that "
            f"with: GRANT CREATE ON DATABASE {database} TO {role}"
        )
    if found.table.without_codes is not None:
        raise InvalidInputError(found.table.without_codes)
    if missing is not None:
        raise MissingRightsError(
            f"role {administrator} may not keep an index of {table}; its owner grants that with: "
            f"GRANT {missing} ON {table} TO {administrator}"
        )
    if found.table.primary_key is None and key is None:
        raise InvalidInputError(
            f"{table} has no primary key: give --id {','.join(found.table.other_key or ())}, or "
            "other columns that are unique together and NOT NULL"
        )


def _refuse_other_settings(
    index: HashIndex,
    key: list[str] | None,
    metric: str | None,
    filter_columns: list[str],
    tenant: str | None,
) -> None:
    """Refuse to continue with an index other than the one requested."""
    # The column of tenants is kept too, first.
    own, wanted = (
        [name for name in columns if name != index.tenant_column]
        for columns in (index.filter_columns, filter_columns)
    )
    for option, asked, has in (
        ("--metric", metric, index.metric),
        ("--id", ",".join(sorted(key or ())), ",".join(sorted(index.key_columns))),
        ("--filter-columns", ",".join(wanted), ",".join(own)),
        ("--tenant", tenant, index.tenant_column),
    ):
        if asked and asked != has:
            raise InvalidInputError(
                f"index {index.name!r} is there already, with {option} {has or 'left out'}: give "
                "another --name, or leave the option out"
            )


def _default_name(found: Diagnosis) -> str:
    table = found.table.name.replace('"', "").rpartition(".")[2]
    return default_index_name(f"{table}_{found.table.column}")


def _index(connection: Connection, found: Diagnosis, name: str) -> HashIndex | None:
    """Find what an earlier run has left of the index; refuse another one of that name."""
    try:
        index = HashIndex.open(connection, name)
    except (UnknownIndexError, MissingSchemaError):
        return None
    relation, _, _ = find_relation(connection, found.table.name)
    if (index.table, index.column_name) != (relation, found.table.column):
        raise InvalidInputError(
            f"there is an index {name!r}, of {index.qualified_table}.{index.column_name}: give "
            "another --name"
        )
    return index


def _is_complete(index: HashIndex) -> bool:
    return index.building is None and not index.waiting()


def _hnsw_suits(found: Diagnosis, filter_columns: list[str], tenant: str | None) -> str | None:
    """Say that pgvector's own index is the better choice, where nothing speaks for codes."""
    table, memory = found.table, found.memory
    hnsw = sizes.hnsw_bytes(table.rows, table.type, table.dimension)
    seconds = sizes.hnsw_seconds(table.rows, table.dimension)
    if (
        filter_columns
        or tenant
        or table.dimension > sizes.HNSW_DIMENSIONS[table.type]
        or table.bytes + hnsw > memory.effective_cache_size
        or seconds > _SLOW_BUILD_SECONDS
        or table.changed > table.rows
    ):
        return None
    how = "" if table.kind == "partitioned table" else "CONCURRENTLY "
    there = [
        index
        for index in found.indexes
        if index.method == "hnsw" and index.valid and index.condition is index.expression is None
    ]
    make = (
        f"{there[0].name} is there already"
        if there
        else f"CREATE INDEX {how}ON {table.name} USING hnsw "
        f"({table.quoted_column} {table.type}_{usual_metric(i.metric for i in found.indexes)}_ops);"
    )
    return (
        f"HNSW suits you better: {table.name} ({sizes.megabytes(table.bytes)}) and its HNSW (about "
        f"{sizes.megabytes(hnsw)}) fit in the memory that the server expects to have "
        f"({sizes.as_setting(memory.effective_cache_size)}, effective_cache_size), and few rows "
        f"were changed.\n  {make}\n  pg-hashindex doctor --table {shlex.quote(table.name)} "
        f"--column {shlex.quote(table.column)}   # how well it searches\nNothing was done. For "
        "many writes, filters or less memory give --anyway, --filter-columns or --tenant."
    )


def _plan(
    found: Diagnosis, name: str, distance: str, tenant: str | None, tuned: bool, current: bool
) -> str:
    table, steps = found.table, []
    size = sizes.megabytes(sizes.expected_bytes(table.rows))
    if not current:
        steps.append("install schema hashindex, or bring it up to this release")
    if tuned:
        steps.append(
            f"try methods and settings on a sample by distance {distance}, and train the best model"
        )
    else:
        hasher = hasher_for()
        n = default_bits(hasher, table.rows, table.dimension)
        steps.append(
            f"train model {name}: {hasher.method}, {n} projections of {hasher.default_levels(n)} "
            f"levels, distance {distance}"
        )
    steps += [
        f"create index {name} of {table.rows} rows, about {size}"
        + (f", with landmarks within each {tenant}" if tenant else "")
        + f", and triggers on {table.name} that keep it fresh",
        "measure its recall",
    ]
    lines = "\n".join(f"  {number}. {step}" for number, step in enumerate(steps, 1))
    return f"This will, where it is not done yet:\n{lines}\nThe rows themselves stay as they are."


def _schema_is_current(database_url: str) -> bool:
    with translated_errors(), create_engine(database_url).connect() as connection:
        return schema.status(connection, trust_owner=trusted()).up_to_date


def _made(
    connection: Connection,
    found: Diagnosis,
    name: str,
    anyway: bool,
    **options: Any,
) -> HashIndex:
    """Train a model, unless an earlier run has left one, and create the index."""
    table = found.table
    try:
        there = store.describe(connection, name)
    except UnknownModelError:
        with progress(f"training model {name}"):
            X = sample_table(connection, table.name, table.column, rows=sample_rows(METHOD)).X
            model = train(X, name, metric=options["metric"], force=anyway)
        store.save(connection, model)
    else:
        if there.dimension != table.dimension:
            raise InvalidInputError(
                f"there is a model {name!r} of {there.dimension} dimensions, and vectors of "
                f"{table.name} have {table.dimension}: give another --name"
            ) from None
        note(f"model {name}:{there.version} is there")
    created = HashIndex.create(
        connection,
        name,
        table=table.name,
        column=table.column,
        model=name,
        **options,
    )
    note(f"created index {name}; rows written from now on are encoded at once")
    return created


def _tuned(
    connection: Connection,
    found: Diagnosis,
    name: str,
    goal: Goal,
    memory: int,
    **options: Any,
) -> HashIndex:
    table = found.table
    with progress(f"tuning for {table.name}"):
        budget = Budget(memory=memory)
        advice = tune_table(connection, table.name, table.column, goal, budget, **options)
    if advice.applicable is None:
        kind = None if advice.recommended is None else advice.recommended.kind
        note(
            ("HNSW suits you better" if kind == "pgvector" else "tuning recommends no codes")
            + f": {advice.reason}"
            + (f"; to have it: {advice.statements}" if advice.statements else "")
        )
        raise click.exceptions.Exit(NO)
    with progress(f"making {advice.applicable.label}"):
        return apply(connection, advice, name=name, memory=memory)


def _measured(connection: Connection, name: str, recall: float) -> tuple[HashIndex, bool, bool]:
    """Measure, and have searches keep as few candidates and read as few lists as reach the recall.

    Returns the index, whether it reaches the recall, and whether it was configured.
    """
    index = HashIndex.open(connection, name)
    with progress(f"measuring index {name}"):
        tried = reaching.reach(index, recall, queries=_QUERIES)
    own, best = tried.own, tried.best
    of_lists = index.access == "landmarks"
    print_table(
        ["candidates", *(["probes"] if of_lists else []), f"recall@{own.k}", "p50 ms", "p95 ms"],
        [
            *(
                [
                    str(point.candidates),
                    *([point.probes] if of_lists else []),
                    point.recall,
                    point.p50_ms,
                    point.p95_ms,
                ]
                for point in tried.points
            ),
            [
                "exact search",
                *([None] if of_lists else []),
                1.0,
                tried.exact_p50_ms,
                tried.exact_p95_ms,
            ],
        ],
    )
    # Somebody's choice stays, if it is good enough.
    changed = best != own and (own.recall < recall or index.row.has_usual_candidates())
    if changed:
        probes = best.probes if of_lists else None
        index = index.configure(candidates=best.candidates, probes=probes)
        lists = f", of {best.probes} lists," if of_lists else ""
        note(f"searches keep {best.candidates} candidates{lists} from now on")
    if tried.cause is not None:
        note(f"recall {recall:g} is not reached: {tried.cause}")
    return index, tried.cause is None, changed


def _next(index: HashIndex, found: Diagnosis) -> str:
    table = found.table
    cast = "" if table.type == "vector" else "::vector"
    columns = [_quoted(name) for name in index.key_columns]
    same = f"ON t.{columns[0]} = s.id" if len(columns) == 1 else f"USING ({', '.join(columns)})"
    query = f"(SELECT {table.quoted_column}{cast} FROM {table.name} LIMIT 1)"
    tenant = index.tenant_column
    of_tenant = (
        ""
        if tenant is None
        else f"""
Rows of one {tenant}, in one of its lists of landmarks or all of its codes:

  SELECT * FROM {index.search_function}({query}, 10,
      tenant => (SELECT {_quoted(tenant)} FROM {table.name} LIMIT 1));
"""
    )
    return f"""
Search, with your query's vector in place of the subquery:

  SELECT t.*, s.distance FROM {index.search_function}({query}, k => 10) s
  JOIN {table.name} t {same} ORDER BY s.distance;

  SELECT id, distance FROM hashindex.search('{index.name}', {query}, 10,
      filter => $${columns[0]} IS NOT NULL$$);
{of_tenant}
Undo all of it:

  pg-hashindex index drop {index.name} --yes
  pg-hashindex model drop {shlex.quote(index.model_name)}
  pg-hashindex schema downgrade --yes   # where no other index or model is kept"""


def _quoted(name: str) -> str:
    return name if re.fullmatch("[a-z_][a-z0-9_]*", name) else f'"{name}"'
