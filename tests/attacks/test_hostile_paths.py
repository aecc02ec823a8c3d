"""No code of an attacker runs in place of the schema's: by search_path, pg_temp or look-alikes."""

import re

import psycopg
import pytest
from fixtures.checks import assert_fresh
from fixtures.decoys import RUN_ALL, decoys, shadows
from fixtures.indexes import create_index, indexed, with_access
from fixtures.outdated import leave_extension
from fixtures.roles import make_administrator
from pgvector import Vector
from psycopg.conninfo import make_conninfo

from pg_hashindex import operations, schema, store
from pg_hashindex.db import connection as database
from pg_hashindex.db import sql_files
from pg_hashindex.db.work import list_work
from pg_hashindex.hashers import LSH
from pg_hashindex.index.handle import HashIndex, list_indexes
from pg_hashindex.quality.evaluate import evaluate
from pg_hashindex.quality.queries import draw


@pytest.fixture(params=["public", "ext"])
def home(request, connection, items, model):
    """The schema that pgvector is in."""
    if request.param != "public":
        connection.execute(f"CREATE SCHEMA {request.param}".encode())
        connection.execute(f"ALTER EXTENSION vector SET SCHEMA {request.param}".encode())
        connection.execute(f"GRANT USAGE ON SCHEMA {request.param} TO PUBLIC".encode())
        upgrade(connection)
    return str(request.param)


@pytest.fixture
def keeper(connection, home, as_role):
    """A session of the owner of table items and of the schema."""
    owner = as_role("keeper")
    connection.execute(
        "ALTER TABLE items OWNER TO keeper; GRANT USAGE, CREATE ON SCHEMA public TO keeper"
    )
    make_administrator(connection, "keeper")
    return owner


@pytest.fixture
def poisoned(connection, home, keeper):
    """The same, with an attacker's schema before all others, and decoys beside pgvector too."""
    connection.execute(RUN_ALL)
    connection.execute("SET search_path TO pg_catalog")
    statements = ["CREATE SCHEMA evil", "CREATE SEQUENCE evil.ran", *decoys(connection, home)]
    row = connection.execute("SELECT pg_temp.run_all(%s)", [statements]).fetchone()
    made = row[0]
    assert made > 5000
    for table in ("model", "index", "items_idx_codes", "pg_class", "vector", "layer", "bit"):
        connection.execute(f'CREATE TABLE evil."{table}" (id int)'.encode())
        if table not in {"vector", "bit"}:
            connection.execute(f'CREATE TABLE public."{table}" (id int)'.encode())
    connection.execute(
        "GRANT USAGE ON SCHEMA evil TO PUBLIC; GRANT ALL ON evil.ran TO PUBLIC; "
        "DO $$ BEGIN EXECUTE pg_catalog.format("
        "'ALTER DATABASE %I SET search_path TO evil, public', "
        "pg_catalog.current_database()); END $$"
    )
    keeper.execute("SET search_path TO evil, public")
    return keeper


def ran(connection):
    """Whether any function of the attacker's ran since, in whatever session."""
    row = connection.execute(
        "SELECT r.is_called, pg_catalog.setval('evil.ran', 1, false) FROM evil.ran r"
    ).fetchone()
    return bool(row[0])


def upgrade(connection, path="public"):
    leave_extension(connection)
    owner = "SELECT nspowner::regrole::text FROM pg_namespace WHERE nspname = 'hashindex'"
    (role,) = connection.execute(owner).fetchone()
    engine = database.create_engine(make_conninfo(connection.info.dsn, user=role))
    with engine.begin() as upgrading:
        upgrading.exec_driver_sql(f"SET LOCAL search_path TO {path}")
        schema.upgrade(upgrading)
    engine.dispose()


def test_the_decoys_would_be_taken(poisoned, connection, home):
    """Or the other tests could not fail."""
    for statement in (
        "SELECT hashtextextended('x', 0)",
        f"SELECT '[1,2]'::{home}.vector <-> '[1,2]'::{home}.vector",
        f"SELECT '[1,2]'::{home}.vector OPERATOR({home}.<->) '[1,2]'::{home}.halfvec",
        f"SELECT B'1' OPERATOR({home}.<~>) B'1'::bit varying",
        "SELECT format('%s'::text, 'x'::text)",
        "SELECT 'x'::text || 1",
        "SELECT 1::oid = 'oid'::regtype",
    ):
        with pytest.raises(psycopg.errors.RaiseException, match="HIJACKED"):
            poisoned.execute(statement.encode())
        assert ran(connection)


@pytest.mark.newest
def test_an_owner_on_an_attackers_path(poisoned, connection, vectors):
    """Whatever he asks of an index, in SQL and from Python."""
    index = create_index(poisoned, table="public.items")
    assert index.encode() == 300
    query = Vector(vectors[0])
    for access in ("lists", "scan"):
        index = with_access(index, access)
        assert index.access == access
        assert index.search(vectors[0], 3)[0].id == 1
        assert index.within(vectors[0], 12)
        assert index.search_like(1, 3)
        calls = [
            "hashindex.search_items_idx(%(q)s)",
            "hashindex.within('items_idx', %(q)s, 2)",
            "hashindex.search('items_idx', %(q)s)",
            "hashindex.search('items_idx', %(q)s, where_equals => '{\"category\": \"a\"}')",
            "hashindex.exact_search('items_idx', %(q)s)",
            "hashindex.hybrid('items_idx', %(q)s, 'b', 'category')",
            "hashindex.recall('items_idx', 3, 3)",
            "hashindex.encode('lsh', %(q)s)",
            "hashindex.project('lsh', %(q)s)",
        ]
        if access == "lists":
            calls.append("hashindex.near_duplicates('items_idx', 1, 12)")
            assert operations.near_duplicates(index, "public.near", max_distance=1.0).pairs
        for call in calls:
            assert poisoned.execute(f"SELECT * FROM {call}".encode(), {"q": query}).fetchall()
        _write(poisoned)
    poisoned.execute("SELECT * FROM hashindex.health('items_idx')")
    assert evaluate(index, queries=3, k=2, candidates=[300]).points[0].recall == 1
    assert index.summary().waiting == index.waiting() == 0
    store.save(poisoned, LSH(n_bits=16).fit(vectors).to_model("lsh2"))
    index.swap(model="lsh2", force=True)
    assert HashIndex.open(poisoned, "items_idx").search(vectors[5], 1)[0].id == 6
    index = HashIndex.open(poisoned, "items_idx")
    index.prune()
    assert index.swap(model="lsh", force=True).set.startswith("codes of lsh:1")
    index.rollback()
    index.prune()
    index = HashIndex.open(poisoned, "items_idx")
    assert len(draw(index, 3)) == 3
    operations.check(index, full=True)
    operations.repair(index, full=True)
    assert list_work(poisoned) == []
    assert [found.name for found in list_indexes(poisoned)] == ["items_idx"]
    assert store.describe(poisoned, "lsh2").indexes == ["items_idx"]
    store.load(poisoned, "lsh2")
    poisoned.execute("SET search_path TO public")
    assert_fresh(HashIndex.open(poisoned, "items_idx"))
    poisoned.execute("SET search_path TO evil, public")
    HashIndex.open(poisoned, "items_idx").drop()
    assert not ran(connection)


def _write(session):
    """Fire every trigger, by statements that the attacker's operators could be in nothing of."""
    row = "(1001, 'w', '[1,2,3,4,5,6,7,8]')"
    session.execute(f"INSERT INTO public.items VALUES {row}".encode())
    session.execute("UPDATE public.items SET embedding = embedding, category = category")
    session.execute(
        "UPDATE public.items SET embedding = '[1,1,1,1,1,1,1,1]' WHERE category IS NULL"
    )
    session.execute(
        "DELETE FROM public.items WHERE id OPERATOR(pg_catalog.=) 1001 OR embedding IS NULL"
    )


def test_functions_whatever_comes_before_pg_catalog(poisoned, connection, vectors):
    """With pg_catalog behind the attacker's schema even = is his; our functions do not care."""
    indexed(poisoned, table="public.items")
    poisoned.execute("SET search_path TO evil, pg_catalog, public")
    with pytest.raises(psycopg.errors.RaiseException, match="HIJACKED"):
        poisoned.execute("SELECT 1 = 1")
    assert ran(connection)
    query = str(vectors[0].tolist())
    for call in (
        "hashindex.search_items_idx(%(q)s)",
        "hashindex.within('items_idx', %(q)s, 2)",
        "hashindex.search('items_idx', %(q)s)",
        "hashindex.search('items_idx', %(q)s, where_equals => '{\"category\": \"a\"}')",
        "hashindex.exact_search('items_idx', %(q)s)",
        "hashindex.hybrid('items_idx', %(q)s, 'b', 'category')",
        "hashindex.recall('items_idx', 3, 3)",
        "hashindex.encode('lsh', %(q)s)",
        "hashindex.create_index('second', 'public.items', 'embedding', 'lsh', access => 'scan')",
        "hashindex.configure_index('second', candidates => 50)",
        "hashindex.drop_index('second')",
    ):
        poisoned.execute(f"SELECT {call}".encode(), {"q": query})
    _write(poisoned)
    assert not ran(connection)


def test_temporary_tables_of_the_same_names(index, vectors):
    """The session's own temporary tables come first on no pinned path."""
    connection = index.connection
    before = index.search(vectors[0])
    for table in (
        "items", "items_idx_codes", "model", "index", "pg_class", "pg_proc", "pg_extension",
        "pg_namespace", "pg_attribute", "pg_index", "new_rows", "old_rows", "vector", "layer",
    ):  # fmt: skip
        connection.execute(f'CREATE TEMP TABLE "{table}" (id bigint, embedding text)'.encode())
    connection.execute("INSERT INTO pg_temp.items VALUES (-1, 'x'), (-2, 'y')")
    connection.execute("INSERT INTO pg_temp.new_rows VALUES (-1, 'x')")
    query = str(vectors[0].tolist())
    for call in (
        "hashindex.search_items_idx(%s::public.vector)",
        "hashindex.search('items_idx', %s::public.vector)",
        "hashindex.exact_search('items_idx', %s::public.vector)",
    ):
        found = connection.execute(f"SELECT id::text FROM {call}".encode(), [query]).fetchall()
        assert [int(row[0]) for row in found] == [hit.id for hit in before]
    connection.execute("INSERT INTO public.items VALUES (1001, 'w', '[1,2,3,4,5,6,7,8]')")
    connection.execute("UPDATE public.items SET embedding = '[1,1,1,1,1,1,1,1]' WHERE id < 5")
    connection.execute("DELETE FROM public.items WHERE id = 9")
    connection.execute(
        "SELECT hashindex.create_index("
        "'second', 'public.items', 'embedding', 'lsh', access => 'scan');"
        "SELECT hashindex.drop_index('second')"
    )
    connection.execute("DISCARD TEMP")
    assert_fresh(index)


def test_an_upgrade_on_an_attackers_path(poisoned, connection):
    """By a superuser, whose path an attacker may write to: schema public, of old."""
    upgrade(connection, "evil, public")
    assert not ran(connection)


@pytest.fixture
def work(run, connection, keeper, as_role, url, tmp_path, vectors):
    """Do through the command line, as the administrator, all that it has for an index."""

    as_role("reader")
    connection.execute("GRANT SELECT ON public.items TO reader")
    # As many rows as landmarks and training ask for.
    with connection.cursor() as cursor, cursor.copy("COPY public.items FROM STDIN") as copy:
        for i in range(900):
            copy.write_row((i + 301, "abc"[i % 3], Vector(vectors[i % 300] * (1 + i / 300))))

    def on(*arguments):
        session = url.replace("postgres@", "keeper@")
        return run(*arguments, "--database-url", session).stdout

    def work():
        source = ("--table", "public.items", "--column", "embedding")
        quick = ("--queries", 10)
        on("model", "train", "one", "--method", "itq", "--bits", 8, "--force", *source)
        on(
            "model",
            "train",
            "two",
            "--method",
            "pcah",
            "--bits",
            9,
            "--force",
            *source,
        )
        on("model", "show")
        on("model", "show", "one")
        on("index", "create", "i", "--access", "scan", *source, "--model", "one")
        for access in ("lists", "scan"):
            if access == "lists":
                on("index", "encode", "i")
            on("index", "swap", "i", "--access", access, "--force")
            on("index", "prune", "i")
            on("search", "i", "--query", "[1,2,3,4,5,6,7,8]")
            # A filter is the caller's own SQL, and means what it means under his path.
            filters = (
                "category OPERATOR(pg_catalog.=) 'a'",
                "id OPERATOR(pg_catalog.<) 9::int8",
            )
            for condition in filters:
                on("search", "i", "--like", 7, "--filter", condition, "--candidates", 20)
            on("search", "i", "--like", 7, "--radius", 3)
            on("index", "check", "i")
            on("evaluate", "i", *quick, "--candidates", 20, "--save")
        on("evaluate", "i", "--history")
        on("index", "swap", "i", "--model", "two", "--force")
        on("index", "rollback", "i")
        on("index", "prune", "i")
        on("index", "show", "i")
        on("index", "show")
        on("doctor", *source[1::2], *quick, "--html", tmp_path / "page.html")
        on("index", "grant", "i", "reader")
        on("index", "grant", "i", "reader", "--revoke")
        on("index", "check", "i", "--full")
        on("index", "repair", "i", "--full")
        on("index", "drop", "i", "--yes")
        on("doctor", *source[1::2], *quick)
        on("quickstart", *source[1::2], "--name", "quick", "--access", "lists", "--yes")
        on("index", "repair", "--orphans")
        on("index", "create", "tuned", "--access", "scan", *source, "--model", "two")
        on("tune", "tuned", "--recall", "0.1", *quick, "--apply")
        on("index", "swap", "tuned", "--access", "lists", "--force")
        on("index", "prune", "tuned")
        on("index", "rebalance", "tuned")
        on("index", "drop", "tuned", "--yes")
        on("model", "drop", "two")

    return work


# The texts that it sends are the same on each version.
@pytest.mark.newest
def test_the_command_line_on_an_attackers_path(poisoned, connection, work):
    """Each of its sessions begins on that path."""
    work()
    assert not ran(connection)


@pytest.mark.newest
@pytest.mark.parametrize("home", ["public"], indirect=True)
def test_the_command_line_among_temporary_tables(keeper, work, monkeypatch):
    """Decoys for all names of a statement, in each of its sessions."""
    opened, statement = database._open, shadows()

    def shadowed(url, *, autocommit=True):
        session = opened(url, autocommit=True)
        session.execute(statement.encode())
        session.autocommit = autocommit
        return session

    monkeypatch.setattr(database, "_open", shadowed)
    work()


#: Names of pgvector that a statement of pg_hashindex could use.
_PGVECTORS = """
    SELECT DISTINCT p.proname FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid
    WHERE d.classid = 'pg_proc'::regclass AND d.deptype = 'e' AND d.refobjid = (
        SELECT e.oid FROM pg_extension e WHERE e.extname = 'vector'
    ) AND NOT EXISTS (
        SELECT FROM pg_proc o
        WHERE o.proname = p.proname AND o.pronamespace = 'pg_catalog'::regnamespace
    )
"""


def test_every_function_names_what_it_means(connection, home, vectors):
    """Installed and generated: pinned to pg_catalog; pgvector in full, in text that is run too."""
    store.save(connection, LSH(n_bits=8).fit(vectors).to_model("lsh3", cuts=3))
    connection.execute(
        f"CREATE TABLE public.halves (id int PRIMARY KEY, embedding {home}.halfvec(8))".encode()
    )
    for access in ("scan", "lists"):
        create_index(connection, access, table="public.items", access=access).encode()
    for name, model in (("halves", "lsh"), ("halves4", "lsh3")):
        create_index(connection, name, table="public.halves", model=model)
    functions = connection.execute(
        "SELECT p.oid::regprocedure::text, p.prosrc, p.proconfig, p.prosqlbody IS NOT NULL "
        "FROM pg_proc p WHERE p.pronamespace = 'hashindex'::regnamespace"
    ).fetchall()
    names = "|".join(sorted(row[0] for row in connection.execute(_PGVECTORS)))
    bare = re.compile(
        rf"(?<![\w.\"])(?:{names})\s*\(|::\s*(?:vector|halfvec|sparsevec)\b"
        r"|(?<!\.)(?:<->|<=>|<#>|<\+>|<~>|<%>)|(?<![\w.])(?:vector|halfvec|bit)_\w+_ops\b"
    )
    assert len(functions) > 150
    for signature, text, settings, parsed in functions:
        path = [one for one in settings or [] if one.startswith("search_path=")]
        assert parsed or path == ["search_path=pg_catalog, pg_temp"], signature
        code = re.sub(r"--[^\n]*", "", text)
        # If the operator of a metric is chosen, it stands alone; format() qualifies it.
        code = re.sub(r"THEN '<.>'|ELSE '<.>'|THEN '<..>'", "", code)
        assert not (found := bare.findall(code)), (signature, found)


def test_what_runs_under_the_callers_path_was_written_before():
    """Between the two settings of the path, names are looked up in schemas of anybody."""
    ran_there = []
    for file in sorted(sql_files.folder("sql").rglob("*.sql")):
        for block in re.findall(
            r"set_config\('search_path', (?:coalesce\()?(?:caller|filter)_path[^;]*, true\);\n(.*?)"
            r"(?:pg_catalog\.set_config\('search_path', own_path|SET LOCAL search_path|\nEND\n)",
            file.read_text(),
            re.DOTALL,
        ):
            ran_there += [line.strip() for line in block.splitlines() if line.strip()]
    assert len(ran_there) > 5
    written = re.compile(
        r"(RETURN QUERY |OPEN \w+ FOR )?EXECUTE \w+( INTO \w+)?"
        r"( USING \w+(::pg_catalog\.\w+)?(, \w+)*)?;"
        r"|FETCH \w+ INTO \w+;|CLOSE \w+;|path :=|PERFORM|--.*"
    )
    assert [line for line in ran_there if not written.fullmatch(line)] == []
