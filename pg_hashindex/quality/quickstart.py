"""The decisions of ``pg-hashindex quickstart``: what is refused, what is there, what comes next."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, LiteralString

from psycopg import sql

from ..db.connection import Connection
from ..db.server_errors import translated_errors
from ..db.sql_files import query
from ..db.statements import one_row
from ..db.table_source import find_relation
from ..errors import (
    DatabaseStateError,
    InvalidInputError,
    MissingRightsError,
    MissingSchemaError,
    UnknownIndexError,
)
from ..index.catalog import default_index_name
from ..index.handle import HashIndex
from ..index.options import OPTIONS, same_option
from ..models import store
from ..models.model import Metric
from ..models.store import StoredModel
from ..training import LEAST_ROWS, METHOD, default_bits, hasher_for
from . import advice, sizes
from .doctor_findings import Diagnosis

_READ_ONLY: LiteralString = (
    "SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'"
)

_RIGHTS = query("quickstart.rights")

_QUOTED = query("quickstart.quoted")

_SEARCHES: tuple[LiteralString, LiteralString] = (
    """  SELECT t.*, s.distance FROM {search}({query}, k => 10{tenant}) s
  JOIN {table} t ON {same} ORDER BY s.distance;""",
    """  SELECT id, distance FROM hashindex.search({name}, {query}, 10,
      filter => $${key} IS NOT NULL$${all_tenants});""",
)
_TENANT: LiteralString = """,
      tenant => (SELECT {} FROM {} LIMIT 1)"""


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


def refuse_rights(
    connection: Connection, found: Diagnosis, key: Sequence[str] | None, by_lists: bool
) -> None:
    """Refuse a role or a table with which a later step would fail; say what to GRANT."""
    table = found.table.name
    (
        role, database, installed, may_create, administrator, administers, schema, missing, owner
    ) = one_row(connection, _RIGHTS, [table])  # fmt: skip
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
    if found.table.kind == "materialised view":
        raise InvalidInputError(str(found.table.without_codes))
    if by_lists:
        if found.table.without_codes is not None:
            raise InvalidInputError(found.table.without_codes)
        if schema is not None:
            raise MissingRightsError(
                f"role {administrator} may not use schema {schema}; its owner grants that with: "
                f"GRANT USAGE ON SCHEMA {schema} TO {administrator}"
            )
        if missing is not None:
            raise MissingRightsError(
                f"role {administrator} may not keep an index of {table}; its owner grants that "
                f"with: GRANT {missing} ON {table} TO {administrator}"
            )
    elif owner is not None:
        instead = "" if found.table.takes_function_only else ", or give --access lists"
        raise MissingRightsError(
            f"role {role} may not make an index of {table}, only its owner: GRANT {owner} TO "
            f"{role}{instead}"
        )
    _refuse_keyless(found, key)


def _refuse_keyless(found: Diagnosis, key: Sequence[str] | None) -> None:
    table = found.table.name
    if found.table.primary_key is None and key is None:
        if found.table.other_key is None:
            raise InvalidInputError(
                f"{table} has no key, columns that are unique and NOT NULL: add a primary key"
            )
        raise InvalidInputError(
            f"{table} has no primary key: give --id {','.join(found.table.other_key)}, or "
            "other columns that are unique together and NOT NULL"
        )


def refuse_other_options(index: HashIndex, options: Mapping[str, Any]) -> None:
    """Refuse to continue with an index other than the one requested."""
    for name, asked in options.items():
        has = index.options.get(name)
        if asked and not same_option(asked, has):
            shown = (",".join(has) if isinstance(has, list) else has) or "left out"
            raise InvalidInputError(
                f"index {index.name!r} is there already, with --{OPTIONS[name].flag} {shown}: give "
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
    if not index.is_lists and index.state == "building":
        # A build of pgvector's begins again: `HashIndex.create` gives up what was left.
        return None
    return index


def is_complete(index: HashIndex) -> bool:
    """Return whether all rows have codes, and the access path is built."""
    if not index.is_lists:
        return bool(index.encoded)
    return index.state == "used" and not index.waiting()


def access_of(index: HashIndex) -> str:
    """Return the access of an index, as ``--access`` names it."""
    return "lists" if index.is_lists else str(index.access)


def choose(
    found: Diagnosis, recall: float, access: str | None, index: HashIndex | None
) -> advice.Choice:
    """Choose a set; the one that an earlier run has begun stays."""
    facts = advice.facts_of(found, recall)
    access = access if index is None else access_of(index)
    if facts is None:
        if access is None and found.table.measurable and found.table.rows:
            notes = "; ".join(found.notes)
            raise InvalidInputError(
                f"no exact search of {found.table.name}, by which a set is chosen, was measured"
                f"{notes and f' ({notes})'}: give --access hnsw, ivfflat or lists"
            )
        kinds: dict[str | None, advice.Kind] = {"lists": "lists", "ivfflat": "codes in IVFFlat"}
        # A model learns nothing from few rows.
        few = found.table.vectors < LEAST_ROWS
        kind = kinds.get(access, "vectors" if few else "codes")
        why = f"pgvector's index serves a {found.table.kind}" if access is None else advice.FORCED
        return advice.Choice(kind, why, ())
    # A set takes no partial index.
    whole = {each.name for each in found.indexes if each.condition is None}
    facts = replace(
        facts,
        there=tuple(
            one
            for one in facts.there
            if one.kind == "vectors" and not one.set and one.name in whole
        ),
    )
    return advice.choose(facts, access)


def refuse_l1(found: Diagnosis) -> None:
    """Refuse a distance that no index of pg_hashindex has; say what to take."""
    if found.metric != "l1":
        return
    statement = advice.index_of_l1(found.table)
    own = "" if statement is None else f"take pgvector's own, {statement}; or "
    raise InvalidInputError(
        f"no index of pg_hashindex searches by l1: {own}give --metric l2, cosine or ip"
    )


def plan(
    found: Diagnosis,
    name: str,
    distance: str,
    options: Mapping[str, Any],
    current: bool,
    chosen: advice.Choice,
) -> str:
    """Say what will be done; ``current`` is whether the schema is up to date."""
    table = found.table
    steps = [] if current else ["install schema hashindex, or bring it up to this release"]
    size = next((sizes.megabytes(one.bytes) for one in chosen.sets if one.taken), "some MB")
    if (method := method_of(chosen)) is not None:
        hasher = hasher_for(method)
        bits = advice.code_bits(table.dimension)
        if method == METHOD:
            n = default_bits(hasher, table.vectors, table.dimension)
            bits = n * hasher.default_cuts(n)
        about = "" if method == METHOD else "about "
        steps.append(f"train model {name}: {method}, {about}{bits} bits, distance {distance}")
    what = (
        f"{advice.name_of(chosen.kind)}, about {size}"
        if chosen.there is None
        else (f"index {chosen.there.name}, which is there, distance {distance}")
    )
    within = (
        f", with landmarks within each {options['tenant']}"
        if (chosen.kind == "lists" and options.get("tenant"))
        else ""
    )
    steps += [f"create index {name} of {table.vectors} rows: {what}{within}", "measure its recall"]
    lines = "\n".join(f"  {number}. {step}" for number, step in enumerate(steps, 1))
    rows = (
        f"PostgreSQL writes {table.name} again for the column of codes: searches and writes wait."
        if chosen.kind == "stored codes"
        else "The rows themselves stay as they are."
    )
    return f"This will, where it is not done yet:\n{lines}\n{rows}"


def method_of(chosen: advice.Choice) -> str | None:
    """Return the method of the model that a set needs; None if it needs none."""
    if chosen.kind in ("exact", "vectors", "keep"):
        return None
    return METHOD if chosen.kind == "lists" else advice.GRAPH_METHOD


def find_model(
    connection: Connection, found: Diagnosis, name: str, method: str | None
) -> StoredModel | None:
    """Find the newest model that an earlier run has left, of a method; refuse another one.

    A set of vectors has no method, and no model.
    """
    if method is None:
        return None
    try:
        models = [model for model in store.list_models(connection) if model.name == name]
    except MissingSchemaError:
        return None
    suiting = [model for model in models if model.method == method]
    if not suiting:
        return None
    there = max(suiting, key=lambda model: model.version)
    if there.dimension != found.table.dimension:
        raise InvalidInputError(
            f"there is a model {name!r} of {there.dimension} dimensions, and vectors of "
            f"{found.table.name} have {found.table.dimension}: give another --name"
        )
    return there


def metric_of(model: StoredModel, asked: str | None) -> Metric:
    """Return the metric of a model that is there; refuse another one."""
    if asked not in (None, model.metric):
        raise InvalidInputError(
            f"model {model.name}:{model.version} is there already, with --metric {model.metric}: "
            "give another --name, or leave the option out"
        )
    return model.metric


def make_index(
    connection: Connection,
    found: Diagnosis,
    name: str,
    model: StoredModel | None,
    options: dict[str, Any],
    chosen: advice.Choice,
    memory: int,
    jobs: int | None,
) -> HashIndex:
    """Make the index, of the codes of a model or of vectors."""
    named: dict[str, Any] = {
        "table": found.table.name,
        "column": found.table.column,
        "model": "none" if model is None else f"{model.name}:{model.version}",
        **options,
    }
    if chosen.there is not None:
        # An equal, valid index is taken as it is.
        there = next(one for one in found.indexes if one.name == chosen.there.name)
        named |= {"access": there.method}
    else:
        named = {**advice.OPTIONS_OF[chosen.kind], **named}
    return HashIndex.create(connection, name, memory=memory, jobs=jobs, **named)


def searches(index: HashIndex, found: Diagnosis) -> list[str]:
    """Return examples of searches: all columns, within a tenant if any; and by a filter."""
    table, tenant = found.table, index.tenant_column
    with translated_errors():
        key, answer, quoted_tenant = one_row(index.connection, _QUOTED, [index.name])
    query = sql.SQL("(SELECT {} FROM {} LIMIT 1)").format(
        sql.SQL(table.quoted_column), sql.SQL(table.name)
    )
    same = " AND ".join(f"t.{own} = s.{shown}" for own, shown in zip(key, answer, strict=True))
    of_tenant = sql.SQL(_TENANT).format(sql.SQL(quoted_tenant or ""), sql.SQL(table.name))
    usual, filtered = (
        sql.SQL(template)
        .format(
            search=sql.SQL(index.search_function),
            name=sql.Literal(index.name),
            query=query,
            table=sql.SQL(table.name),
            same=sql.SQL(same),
            key=sql.SQL(key[0]),
            tenant=sql.SQL("") if tenant is None else of_tenant,
            all_tenants=sql.SQL("" if tenant is None else ", all_tenants => true"),
        )
        .as_string(index.connection)
        for template in _SEARCHES
    )
    if tenant is not None:
        filtered = f"The rows of every {tenant}, which takes longer:\n\n{filtered}"
    return [usual, filtered]
