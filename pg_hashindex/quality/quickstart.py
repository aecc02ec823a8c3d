"""The decisions of ``pg-hashindex quickstart``: what is refused, what is there, what comes next."""

import shlex
from collections.abc import Sequence
from typing import LiteralString

from psycopg import sql

from ..db.connection import Connection
from ..db.server_errors import translated_errors
from ..db.statements import execute, one_row
from ..db.table_source import find_relation
from ..errors import (
    DatabaseStateError,
    InvalidInputError,
    MissingRightsError,
    MissingSchemaError,
    UnknownIndexError,
    UnknownModelError,
)
from ..index.catalog import default_index_name
from ..index.handle import HashIndex
from ..models import store
from ..models.model import Metric
from ..training import METHOD, default_bits, hasher_for, train
from ..training.sampling import sample_rows, sample_table
from . import sizes, tuning
from .doctor_catalog import usual_metric
from .doctor_findings import Diagnosis

_SLOW_BUILD_SECONDS = 1800

_READ_ONLY: LiteralString = (
    "SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'"
)

_RIGHTS: LiteralString = """
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

_QUOTED: LiteralString = "SELECT pg_catalog.quote_ident(n) FROM pg_catalog.unnest($1::text[]) n"

_SEARCHES: tuple[LiteralString, LiteralString] = (
    """  SELECT t.*, s.distance FROM {search}({query}, k => 10) s
  JOIN {table} t {same} ORDER BY s.distance;""",
    """  SELECT id, distance FROM hashindex.search({name}, {query}, 10,
      filter => $${key} IS NOT NULL$$);""",
)
_SEARCH_OF_TENANT: LiteralString = """  SELECT * FROM {search}({query}, 10,
      tenant => (SELECT {tenant} FROM {table} LIMIT 1));"""


def refuse_read_only(connection: Connection) -> None:
    """Refuse a standby, and sessions that only read."""
    standby, read_only = one_row(connection, _READ_ONLY)
    if standby:
        raise DatabaseStateError(
            "the server is a standby (read-only): connect to the primary server"
        )
    if read_only:
        raise DatabaseStateError(
            "sessions only read here (default_transaction_read_only is on): connect to a server, "
            "or as a role, that may write"
        )


def refuse_rights(connection: Connection, found: Diagnosis, key: Sequence[str] | None) -> None:
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


def refuse_other_settings(
    index: HashIndex,
    key: Sequence[str] | None,
    metric: str | None,
    filter_columns: Sequence[str],
    tenant: str | None,
) -> None:
    """Refuse to continue with an index other than the one requested."""
    # The column of tenants is kept too, first, and that of labels, last.
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


def default_name(found: Diagnosis) -> str:
    """Return the name of the model and the index of a table if none is given."""
    table = found.table.name.replace('"', "").rpartition(".")[2]
    return default_index_name(f"{table}_{found.table.column}")


def find_index(connection: Connection, found: Diagnosis, name: str) -> HashIndex | None:
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


def is_complete(index: HashIndex) -> bool:
    """Return whether all rows have codes, and the access path is built."""
    return index.building is None and not index.waiting()


def hnsw_suits(found: Diagnosis, filter_columns: Sequence[str], tenant: str | None) -> str | None:
    """Say that pgvector's own index is the better choice, if nothing speaks for codes."""
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


def plan(found: Diagnosis, name: str, distance: str, tenant: str | None, current: bool) -> str:
    """Say what will be done; ``current`` is whether the schema is up to date."""
    table, hasher = found.table, hasher_for()
    n = default_bits(hasher, table.rows, table.dimension)
    size = sizes.megabytes(sizes.expected_bytes(table.rows))
    steps = [] if current else ["install schema hashindex, or bring it up to this release"]
    steps += [
        f"train model {name}: {hasher.method}, {n} projections of {hasher.default_levels(n)} "
        f"levels, distance {distance}",
        f"create index {name} of {table.rows} rows, about {size}"
        + (f", with landmarks within each {tenant}" if tenant else "")
        + f", and triggers on {table.name} that keep it fresh",
        "measure its recall",
    ]
    lines = "\n".join(f"  {number}. {step}" for number, step in enumerate(steps, 1))
    return f"This will, where it is not done yet:\n{lines}\nThe rows themselves stay as they are."


def find_model(connection: Connection, found: Diagnosis, name: str) -> str | None:
    """Find the model that an earlier run has left, as ``name:version``; refuse another one."""
    try:
        there = store.describe(connection, name)
    except UnknownModelError:
        return None
    if there.dimension != found.table.dimension:
        raise InvalidInputError(
            f"there is a model {name!r} of {there.dimension} dimensions, and vectors of "
            f"{found.table.name} have {found.table.dimension}: give another --name"
        )
    return f"{name}:{there.version}"


def train_model(
    connection: Connection, found: Diagnosis, name: str, metric: Metric, *, force: bool
) -> None:
    """Train a model on rows of the table, and save it."""
    table = found.table
    rows = sample_rows(METHOD)
    X = sample_table(connection, table.name, table.column, rows=rows, metric=metric).X
    store.save(connection, train(X, name, metric=metric, force=force))


def configure(index: HashIndex, tuned: tuning.Tuned, *, complete: bool) -> bool:
    """Store the best settings, unless others were set by hand and are good enough.

    Settings of an index that was ``complete`` before are only replaced by fewer candidates, since
    times differ from run to run.
    """
    own, best = tuned.own, tuned.best
    better = best.candidates < own.candidates if complete else best != own
    wanted = best != own and (
        own.recall < tuned.recall or (better and index.row.has_usual_candidates())
    )
    if wanted:
        tuning.apply(index, tuned)
    return wanted


def searches(index: HashIndex, found: Diagnosis) -> list[str]:
    """Return examples of searches as SQL: all columns, a filter, and within a tenant if any."""
    table, tenant = found.table, index.tenant_column
    with translated_errors():
        quoted = execute(
            index.connection, _QUOTED, [[*index.key_columns, *filter(None, [tenant])]]
        ).fetchall()
    names = [sql.SQL(name) for (name,) in quoted]
    key = names[: len(index.key_columns)]
    cast = sql.SQL("" if table.type == "vector" else "::vector")
    query = sql.SQL("(SELECT {}{} FROM {} LIMIT 1)").format(
        sql.SQL(table.quoted_column), cast, sql.SQL(table.name)
    )
    same = sql.SQL("ON t.{} = s.id" if len(key) == 1 else "USING ({})").format(
        sql.SQL(", ").join(key)
    )
    templates = [*_SEARCHES, *([_SEARCH_OF_TENANT] if tenant is not None else [])]
    return [
        sql.SQL(template)
        .format(
            search=sql.SQL(index.search_function),
            name=sql.Literal(index.name),
            query=query,
            table=sql.SQL(table.name),
            same=same,
            key=key[0],
            tenant=names[-1],
        )
        .as_string(index.connection)
        for template in templates
    ]
