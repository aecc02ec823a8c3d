"""Rules that every function and table of ours keeps, read off the catalogs and off sql/."""

import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from fixtures.catalog import catalog

from pg_hashindex import schema, store
from pg_hashindex.database import Connection
from pg_hashindex.index import HashIndex
from pg_hashindex.model import Model

pytestmark = pytest.mark.newest

FILES = sorted(schema._folder("sql").glob("*.sql"))

# What is evaluated in other sessions, generated columns and parallel workers: reads no table.
PURE = {"project_with", "encode_with"}

PATH = "pg_catalog, public, pg_temp"


# Of a model's layers, which PostgreSQL is to keep in plans.
FOLDED = {"layers_of", "weights_of", "bias_of"}


class Function(NamedTuple):
    name: str
    signature: str
    language: str
    volatility: str
    parallel: str
    strict: bool
    definer: bool
    settings: list[str] | None
    standard_body: bool
    source: str
    comment: str | None


@pytest.fixture
def with_indexes(connection: Connection, items: str, model: Model) -> Connection:
    """A database with an index of each layout, so that their own functions are judged too."""
    for layout in ("table", "column"):
        HashIndex.create(
            connection,
            f"by_{layout}",
            table=items,
            column="embedding",
            model=model.name,
            layout=layout,  # type: ignore[arg-type]
        )
    return connection


def functions(connection: Connection) -> list[Function]:
    rows = connection.execute(
        """
        SELECT p.proname, p.oid::regprocedure::text, l.lanname, p.provolatile, p.proparallel,
               p.proisstrict, p.prosecdef, p.proconfig, p.prosqlbody IS NOT NULL,
               coalesce(pg_get_function_sqlbody(p.oid), p.prosrc),
               obj_description(p.oid, 'pg_proc')
        FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
        WHERE p.pronamespace = 'hashindex'::regnamespace ORDER BY 2
        """
    ).fetchall()
    found = [Function(*row) for row in rows]
    assert {"create_index", "search_by_table", "sync_by_column"} <= {f.name for f in found}
    return found


def test_every_function_says_what_it_does(with_indexes: Connection) -> None:
    without = [f.signature for f in functions(with_indexes) if not f.comment]
    assert without == []


def test_every_table_type_and_the_schema_say_what_they_are(with_indexes: Connection) -> None:
    found = catalog(with_indexes)
    ours = [row for row in found["relations"] if row[0].startswith("hashindex.")]
    # Alembic's own table is made by alembic.
    tables = [row for row in ours if row[1] == "r" and row[0] != "hashindex.alembic_version"]
    assert len(tables) == 8
    assert [row[0] for row in tables if row[-1] is None] == []
    comments = dict(found["types"])
    assert comments["hashindex.layer"]
    assert dict(found["schemas"])["hashindex"].startswith("pg_hashindex ")


def test_no_function_depends_on_the_caller_s_search_path(with_indexes: Connection) -> None:
    for function in functions(with_indexes):
        pinned = [s for s in function.settings or [] if s.startswith("search_path=")]
        if function.standard_body:
            # Parsed when it was made; a setting would keep it from being inlined.
            assert function.settings is None, function.signature
        else:
            # find_key writes a type's name, which has to be read under any path.
            path = "pg_catalog, pg_temp" if function.name == "find_key" else PATH
            assert pinned == [f"search_path={path}"], function.signature


def test_no_function_runs_with_the_rights_of_its_owner(with_indexes: Connection) -> None:
    assert [f.signature for f in functions(with_indexes) if f.definer] == []


def test_functions_that_read_tables_are_parallel_unsafe(with_indexes: Connection) -> None:
    """Citus sends what is PARALLEL SAFE to workers, where our tables are not."""
    found = functions(with_indexes)
    reading = r"\b(?:FROM|JOIN|INTO|UPDATE)\s+(?:ONLY\s+)?(?:hashindex\.|pg_|%)|EXECUTE\b"
    unsafe = {f.name for f in found if f.parallel == "u"}
    for function in found:
        calls = set(re.findall(r"hashindex\.(\w+)\s*\(", function.source))
        if re.search(reading, function.source) or calls & unsafe:
            assert function.parallel == "u", function.signature
        # What these read never changes, and what calls them stores nothing by it.
        if function.parallel == "u" and function.name not in FOLDED:
            assert function.volatility in "sv", function.signature
    assert {f.name for f in found} - unsafe >= PURE


def test_pure_functions_are_immutable_strict_and_parallel_safe(with_indexes: Connection) -> None:
    pure = [f for f in functions(with_indexes) if f.name in PURE]
    assert len(pure) == len(PURE)
    for function in pure:
        assert (function.volatility, function.strict, function.parallel) == ("i", True, "s")


def test_nothing_that_is_stored_depends_on_folded_layers(with_indexes: Connection) -> None:
    """They are IMMUTABLE and read a table: fit for the plans of a session, not for an index."""
    found = functions(with_indexes)
    assert {f.name for f in found if f.name in FOLDED} == FOLDED
    callers = [f for f in found if any(f"{name}(" in f.source for name in FOLDED)]
    assert {"search_by_table", "sync_by_table", "sync_by_column"} <= {f.name for f in callers}
    assert all(f.volatility in "sv" for f in callers if f.name not in FOLDED)


def test_searching_is_stable(with_indexes: Connection) -> None:
    """So that it works on a replica, and in a read-only transaction."""
    for function in functions(with_indexes):
        if function.name in {"search", "exact_search", "search_by_table", "search_by_column"}:
            assert function.volatility == "s", function.signature


def test_encoding_is_strict(with_indexes: Connection) -> None:
    """A row without a vector has no code; it is no error."""
    strict = {f.name for f in functions(with_indexes) if f.strict}
    assert {"project_with", "encode_with", "project", "encode"} <= strict


def test_every_order_of_a_search_has_a_tie_break(with_indexes: Connection) -> None:
    for layout in ("table", "column"):
        (found,) = [f for f in functions(with_indexes) if f.name == f"search_by_{layout}"]
        orders = re.findall(r"(?<!GROUP \()ORDER BY (.+?)(?:\n|\)? LIMIT)", found.source)
        assert len(orders) >= 4
        for order in orders:
            last = order.split(",")[-1].strip().rpartition(".")[2].strip('"')
            assert last == "id", order


def test_functions_of_language_sql_read_no_table_of_a_user(with_indexes: Connection) -> None:
    """Over a distributed table they fail; and a body kept as text may change its meaning."""
    written = [f for f in functions(with_indexes) if f.language == "sql"]
    assert [f.signature for f in written if not f.standard_body] == []
    assert {f.language for f in functions(with_indexes)} == {"sql", "plpgsql"}
    read = with_indexes.execute(
        """
        SELECT p.proname, c.oid::regclass::text
        FROM pg_proc p
        JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
        JOIN pg_class c ON d.refclassid = 'pg_class'::regclass AND c.oid = d.refobjid
        WHERE p.pronamespace = 'hashindex'::regnamespace AND p.prosqlbody IS NOT NULL
          AND c.relnamespace <> 'pg_catalog'::regnamespace
        """
    ).fetchall()
    assert read == []


def test_no_table_holds_oids(with_indexes: Connection) -> None:
    """They differ between nodes, and after a restore."""
    held = with_indexes.execute(
        """
        SELECT c.relname, a.attname, format_type(a.atttypid, NULL)
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
        WHERE c.relnamespace = 'hashindex'::regnamespace AND c.relkind IN ('r', 'p', 'c')
          AND (a.atttypid = 'oid'::regtype OR format_type(a.atttypid, NULL) LIKE 'reg%%')
        """,
        [],
    ).fetchall()
    assert held == []


def declarations() -> Iterator[tuple[str, str]]:
    """Every CREATE FUNCTION of sql/, those inside of strings too, up to its body."""
    for file in FILES:
        text = file.read_text()
        for match in re.finditer(r"^CREATE\s+(OR REPLACE\s+)?(FUNCTION|PROCEDURE)\b", text, re.M):
            name = text[match.end() :].split("(")[0].strip()
            head = re.split(r"\nAS |\nRETURN |\nBEGIN ATOMIC", text[match.start() :])[0]
            yield f"{file.name}: {name}", head


@pytest.mark.parametrize(
    "declaration", [pytest.param(head, id=name) for name, head in declarations()]
)
def test_every_function_is_declared_in_full(declaration: str) -> None:
    assert declaration.startswith("CREATE OR REPLACE FUNCTION hashindex.")
    assert len(re.findall(r"\b(IMMUTABLE|STABLE|VOLATILE)\b", declaration)) == 1
    assert len(re.findall(r"\bPARALLEL (SAFE|RESTRICTED|UNSAFE)\b", declaration)) == 1
    assert not re.search(r"\bSECURITY DEFINER\b", declaration)


def test_files_are_numbered_apart_and_end_in_a_newline() -> None:
    numbers = [file.name[:4] for file in FILES]
    assert len(set(numbers)) == len(numbers)
    for file in FILES:
        assert re.fullmatch(r"\d{3}_[a-z_]+\.sql", file.name)
        assert file.read_text().endswith("\n")
        assert "\t" not in file.read_text()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_file_may_be_run_again(connection: Connection, items: str, path: object) -> None:
    """Each by itself, after the first, which sets the path that functions keep."""
    store.list_models(connection)
    before = catalog(connection)
    for _ in range(2):
        with connection.transaction():
            for file in FILES:
                if file in (FILES[0], path):
                    connection.execute(file.read_bytes())
    assert catalog(connection) == before


def test_every_file_may_be_run_again_beside_indexes(with_indexes: Connection) -> None:
    before = catalog(with_indexes)
    with with_indexes.transaction():
        for file in FILES:
            with_indexes.execute(file.read_bytes())
    assert catalog(with_indexes) == before
