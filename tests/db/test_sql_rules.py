"""Rules for each function and table of schema hashindex, checked in the catalogs and in sql/."""

import re
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest
from fixtures.catalog import catalog
from fixtures.indexes import indexed
from fixtures.sql_lint import order_keys, untied, without_strings, writes

from pg_hashindex import schema, store
from pg_hashindex.db import sql_files

pytestmark = pytest.mark.newest

FILES = sorted(sql_files.folder("sql").glob("*.sql"))
TEMPLATES = sorted(sql_files.folder("sql").glob("templates/*.sql"))

# Functions for other sessions, generated columns and parallel workers: they read no table.
PURE = {"project_with", "_quantize", "encode_with"}

PATH = "pg_catalog, public, pg_temp"
# For types as every path reads them, and for what runs with the rights of an index's owner.
NARROW_PATH = "pg_catalog, pg_temp"
NARROW = re.compile("_find_key|(sync|refresh|renew)_.*")

# It returns a model's layers and weights, which PostgreSQL is to keep in plans.
FOLDED = {"_layers_of"}

# Holds the texts of others.
TEXTS = {"_template"}

# An index of each access path, for every template.
KINDS = ("scan", "lists")


DOCUMENTED = Path(__file__).parents[2] / "docs" / "sql.md"


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
def with_indexes(connection, items, model):
    """A database with an index of each kind, so that their own functions are judged too."""
    for access in KINDS:
        indexed(connection, f"by_{access}", access=access)
    return connection


def functions(connection):
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
    assert {"create_index", "search_by_scan", "sync_by_lists"} <= {f.name for f in found}
    return found


def test_every_function_says_what_it_does(with_indexes):
    """Public functions by a COMMENT ON, the others in the line above them."""
    public = [f for f in functions(with_indexes) if not f.name.startswith("_")]
    assert [f.signature for f in public if not f.comment] == []
    texts = "\n".join(sql_files.text(file) for file in FILES)
    found = re.findall(r"^(.*)\nCREATE OR REPLACE FUNCTION hashindex\.(_\w+)", texts, re.M)
    assert len(found) > 100
    assert [name for above, name in found if not above.startswith("-- ")] == []


def test_no_function_is_longer_than_120_lines():
    found = re.findall(
        r"^CREATE OR REPLACE FUNCTION hashindex\.(\w+)(.*?\n(?:RETURN .*?;|END;|\$\$;))$",
        "\n".join(sql_files.text(file) for file in FILES),
        re.M | re.S,
    )
    assert len(found) > 100
    lengths = {name: text.count("\n") + 1 for name, text in found}
    assert {name: length for name, length in lengths.items() if length > 120} == {}


def test_every_table_type_and_the_schema_say_what_they_are(with_indexes):
    found = catalog(with_indexes)
    ours = [row for row in found["relations"] if row[0].startswith("hashindex.")]
    # Alembic's own table is made by alembic.
    tables = [row for row in ours if row[1] == "r" and row[0] != "hashindex.alembic_version"]
    assert len(tables) >= 5 + len(KINDS)
    assert [row[0] for row in tables if row[-1] is None] == []
    # Those of codes and landmarks are made for an index.
    columns = with_indexes.execute(
        "SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid "
        "WHERE c.relnamespace = 'hashindex'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 "
        "AND c.relname <> 'alembic_version' AND c.relname !~ '^set_[0-9]' AND NOT a.attisdropped "
        "AND col_description(c.oid, a.attnum) IS NULL"
    ).fetchall()
    assert columns == []
    comments = dict(found["types"])
    assert comments["hashindex.layer"]
    assert dict(found["schemas"])["hashindex"].startswith("pg_hashindex ")


def test_no_function_depends_on_the_caller_s_search_path(with_indexes):
    for function in functions(with_indexes):
        pinned = [s for s in function.settings or [] if s.startswith("search_path=")]
        if function.standard_body:
            # Parsed when it was made; a setting would keep it from being inlined.
            assert function.settings is None, function.signature
        else:
            path = NARROW_PATH if NARROW.fullmatch(function.name) else PATH
            allowed = [f"search_path={path}"], [f"search_path={NARROW_PATH}"]
            assert pinned in allowed, function.signature


def test_triggers_alone_run_with_the_rights_of_their_owner(with_indexes):
    """Writers need no rights on schema hashindex, and cannot use these for tables of their own."""
    definers = {f.name for f in functions(with_indexes) if f.definer}
    assert definers == {f"sync_by_{access}" for access in KINDS}
    callers = with_indexes.execute(
        """
        SELECT p.proname FROM pg_proc p, aclexplode(p.proacl) acl
        WHERE p.pronamespace = 'hashindex'::regnamespace AND p.prosecdef
          AND (acl.grantee = 0 OR p.proacl IS NULL)
        """
    ).fetchall()
    assert callers == []
    closed = with_indexes.execute(
        "SELECT count(*) FROM pg_proc WHERE prosecdef AND proacl IS NOT NULL "
        "AND pronamespace = 'hashindex'::regnamespace"
    ).fetchone()
    assert closed == (len(KINDS),)


def test_what_runs_as_the_administrator_looks_names_up_in_pg_catalog_alone(with_indexes):
    """Trigger functions, and all that they call."""
    found = functions(with_indexes)
    reached = {f.name for f in found if f.definer}
    while True:
        called = {
            name
            for f in found
            if f.name in reached
            for name in re.findall(r'hashindex\."?(\w+)"?\s*\(', f.source)
        }
        if called <= reached:
            break
        reached |= called
    assert {"_refuse_vector", "_layers_of", "_other_owners"} <= reached
    for function in found:
        if function.name in reached and not function.standard_body:
            assert f"search_path={NARROW_PATH}" in (function.settings or []), function.signature


def test_names_that_triggers_use_are_qualified(with_indexes):
    """pgvector is not on their path, and only PostgreSQL's objects are."""
    for function in functions(with_indexes):
        if function.definer or function.name.startswith("refresh_"):
            body = without_strings(function.source)
            for name in re.findall(
                r"(?<![.\w])(l2_normalize|inner_product|binary_quantize)\b", body
            ):
                pytest.fail(f"{function.signature} calls {name} by its bare name")
            assert not re.search(r"(?<!OPERATOR\(public\.)<[-=#~]>", body), function.signature


def test_functions_that_read_tables_are_parallel_unsafe(with_indexes):
    """Citus sends what is PARALLEL SAFE to workers, where our tables are not."""
    found = functions(with_indexes)
    reading = r"\b(?:FROM|JOIN|INTO|UPDATE)\s+(?:ONLY\s+)?(?:hashindex\.|pg_|%)|EXECUTE\b"
    unsafe = {f.name for f in found if f.parallel == "u"}
    for function in found:
        if function.name in TEXTS:
            continue
        calls = set(re.findall(r"hashindex\.(\w+)\s*\(", function.source))
        if re.search(reading, function.source) or calls & unsafe:
            assert function.parallel == "u", function.signature
        # These read rows that never change, and their callers store nothing by them.
        if function.parallel == "u" and function.name not in FOLDED:
            assert function.volatility in "sv", function.signature
    assert {f.name for f in found} - unsafe >= PURE


def test_pure_functions_are_immutable_strict_and_parallel_safe(with_indexes):
    pure = [f for f in functions(with_indexes) if f.name in PURE]
    assert len(pure) == len(PURE)
    for function in pure:
        assert (function.volatility, function.strict, function.parallel) == ("i", True, "s")


def test_nothing_that_is_stored_depends_on_folded_layers(with_indexes):
    """They are IMMUTABLE and read a table: fit for the plans of a session, not for an index."""
    found = functions(with_indexes)
    assert {f.name for f in found if f.name in FOLDED} == FOLDED
    callers = [f for f in found if any(f"{name}(" in f.source for name in FOLDED)]
    assert {"search_by_scan"} <= {f.name for f in callers}
    # Functions that write their calls into other functions are STABLE too.
    assert [
        f.signature for f in callers if f.name not in FOLDED | TEXTS and f.volatility not in "sv"
    ] == []


def test_searching_is_stable(with_indexes):
    """So that it works on a replica, and in a read-only transaction."""
    for function in functions(with_indexes):
        verb = function.name.split("_by_")[0]
        if verb in {"search", "hybrid", "exact_search", "candidates", "within", "_list_candidates"}:
            assert function.volatility == "s", function.signature
            assert writes(function.source) == [], function.signature


def test_encoding_is_strict(with_indexes):
    """A row without a vector has no code; it is not an error."""
    strict = {f.name for f in functions(with_indexes) if f.strict}
    assert {"project_with", "encode_with", "project", "encode"} <= strict


# Landmarks and codes: those that are as near are as good.
RANKED = (r"^\(?l\.centre ", r"code OPERATOR\(\w+\.<~>\) ")


def test_every_order_of_answers_has_a_tie_break(with_indexes):
    """By the exact distance, that is; candidates that are as near by code are as good."""
    found = [f for f in functions(with_indexes) if f.name.startswith("search_by_")]
    assert len(found) == len(KINDS)
    for function in found:
        assert order_keys(function.source), function.signature
        assert untied(function.source, RANKED) == [], function.signature


def test_functions_of_language_sql_read_no_table_of_a_user(with_indexes):
    """Over a distributed table they fail; and a body kept as text may change its meaning.

    Nor a view of PostgreSQL's: Citus would create it on every node, which only a superuser may.
    Tables of pg_catalog are not listed here, since nothing can drop them.
    """
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
        """
    ).fetchall()
    assert read == []


def test_no_table_holds_oids(with_indexes):
    """They differ between nodes, and after a restore, which two of them are to show."""
    held = with_indexes.execute(
        """
        SELECT c.relname, a.attname, format_type(a.atttypid, NULL)
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
        WHERE c.relnamespace = 'hashindex'::regnamespace AND c.relkind IN ('r', 'p', 'c')
          AND (a.atttypid = 'oid'::regtype OR format_type(a.atttypid, NULL) LIKE 'reg%%')
        """,
        [],
    ).fetchall()
    assert held == [("index_set", "table_oid", "oid"), ("index_set", "codes_oid", "oid")]


def declarations():
    """Every CREATE FUNCTION of sql/, and of its templates, up to its body."""
    for file in [*FILES, *TEMPLATES]:
        text = file.read_text()
        for match in re.finditer(r"^CREATE\s+(OR REPLACE\s+)?(FUNCTION|PROCEDURE)\b", text, re.M):
            name = text[match.end() :].split("(")[0].strip()
            name += " (template)" if file in TEMPLATES else ""
            head = re.split(r"\nAS |\nRETURN |\nBEGIN ATOMIC", text[match.start() :])[0]
            yield f"{file.name}: {name}", head


@pytest.mark.parametrize(
    ("name", "declaration"), [pytest.param(*found, id=found[0]) for found in declarations()]
)
def test_every_function_is_declared_in_full(name, declaration):
    assert re.match(r"CREATE OR REPLACE FUNCTION (hashindex\.\w|\{[a-z]+\}\()", declaration)
    assert len(re.findall(r"\b(IMMUTABLE|STABLE|VOLATILE)\b", declaration)) == 1
    assert len(re.findall(r"\bPARALLEL (SAFE|RESTRICTED|UNSAFE)\b", declaration)) == 1
    definer = bool(re.search(r"\bSECURITY DEFINER\b", declaration))
    assert definer == (name.split(":")[0] == "write_lists.sql")
    if definer:
        assert "SET search_path = pg_catalog, pg_temp" in declaration


def test_every_placeholder_is_used(with_indexes):
    """By a template, or by a statement that asks for it by name."""
    text = "".join(file.read_text() for file in [*FILES, *TEMPLATES])
    used = set(re.findall(r"\{(?:if )?(\w+)\}|->>? '(\w+)'", text))
    # Lists: {each c.id as key}, {same b.key c.id}.
    lists = " ".join(re.findall(r"\{(?:each|same|set|row|among) ([^{}]+)\}", text))
    rows = with_indexes.execute(
        "SELECT DISTINCT jsonb_object_keys(hashindex._parts(l.i, l.s)) "
        "FROM hashindex.index_set s, hashindex._lists_of(s.id) l"
    ).fetchall()
    assert {name for (name,) in rows} <= {one for pair in used for one in pair} | set(
        re.findall(r"\w+", lists)
    )


def test_a_template_is_refused_with_other_values_than_it_has(with_indexes):
    fill = 'SELECT hashindex._fill(%s, \'{"a": 1, "b": ["x"], "none": null}\', %s)'
    for template, own, found in [
        ("{if a}{a}{else a}{b}{end a}{if none}{c}{end none}", "{}", "1"),
        (
            "{each t.b}, {same t.b u.b}, {row b}, {among t.b $1}",
            "{}",
            "t.x, t.x = u.x, x, t.x OPERATOR(pg_catalog.=) ANY ($1)",
        ),
        ("{a} {{it's {a}}} {c}", '{"c": "{a}"}', "1 'it''s 1' {a}"),
    ]:
        assert with_indexes.execute(fill, [template, own]).fetchone() == (found,)
    for template, own, wrong in [
        ("{c}", "{}", "no value for: c"),
        ("{if c}{end c}", "{}", "no value for: c"),
        ("{none} {each t.c}", "{}", "no value for: none, each t.c"),
        ("{a}", '{"c": 1}', "does not use: c"),
    ]:
        with pytest.raises(psycopg.errors.InvalidParameterValue, match=wrong):
            with_indexes.execute(fill, [template, own])


PUBLIC = re.compile(r"`(?:hashindex\.)?([a-z][a-z0-9_]*[a-z0-9])\(")
POSTGRES = {"bit", "bit_count", "json_build_array"}


def test_functions_without_an_underscore_are_documented(connection):
    """Those of docs/sql.md are public, all others are ours."""
    written = set(PUBLIC.findall(DOCUMENTED.read_text())) - POSTGRES
    rows = connection.execute(
        "SELECT DISTINCT proname FROM pg_proc WHERE pronamespace = 'hashindex'::regnamespace "
        "AND prorettype <> 'trigger'::regtype"
    ).fetchall()
    public = {row[0] for row in rows if not row[0].startswith("_")}
    assert public == written


def test_files_are_numbered_apart_and_end_in_a_newline():
    numbers = [file.name[:4] for file in FILES]
    assert len(set(numbers)) == len(numbers)
    for file in FILES:
        assert re.fullmatch(r"\d{3}_[a-z_]+\.sql", file.name)
        assert file.read_text().endswith("\n")
        assert "\t" not in file.read_text()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_file_may_be_run_again(connection, items, path):
    """Each by itself, after the first, which sets the path that functions keep."""
    store.list_models(connection)
    before = catalog(connection)
    for _ in range(2):
        with connection.transaction():
            for file in FILES:
                if file in (FILES[0], path):
                    connection.execute(schema._naming_pgvector(sql_files.text(file)).encode())
    assert catalog(connection) == before


def test_every_file_may_be_run_again_beside_indexes(with_indexes):
    before = catalog(with_indexes)
    with with_indexes.transaction():
        for file in FILES:
            with_indexes.execute(schema._naming_pgvector(sql_files.text(file)).encode())
    assert catalog(with_indexes) == before
