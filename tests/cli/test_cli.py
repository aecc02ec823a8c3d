"""The command line: the whole way through it, and every way to be refused."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import psycopg
import pytest
from click.testing import CliRunner
from fixtures.commands import children
from fixtures.indexes import begin_lists
from fixtures.servers import make_folder
from pg_hashindex.cli import main
from pg_hashindex.cli.demo import _print_next
from pgvector import Vector

from pg_hashindex.db.connection import connect
from pg_hashindex.server.demo import DATABASE

pytestmark = pytest.mark.newest


@pytest.fixture
def rows():
    return np.random.default_rng(1).standard_normal((1200, 8)).astype(np.float32)


@pytest.fixture
def docs(connection, rows):
    """A table of 1,200 rows, enough to train on."""
    connection.execute('CREATE TABLE "My Docs" (id int PRIMARY KEY, v vector(8))')
    with connection.cursor() as cursor:
        cursor.executemany(
            'INSERT INTO "My Docs" VALUES (%s, %s)', [(i, Vector(v)) for i, v in enumerate(rows)]
        )
    return '"My Docs"'


def commands(command, path=""):
    yield path, command
    if isinstance(command, click.Group):
        for name, child in children(command).items():
            yield from commands(child, f"{path} {name}".strip())


def test_everything_has_help(run):
    for path, command in commands(main):
        assert command.help, path
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"{path} {parameter.opts}"
        assert "Usage" in run(*path.split(), "--help").stdout


def test_version(run):
    assert run("--version").stdout.startswith("pg-hashindex, version 0.")


def test_the_whole_way(run, empty_url, tmp_path, rows):
    sqlalchemy_url = empty_url.replace("postgresql", "postgresql+psycopg")
    source = ["--table", "docs", "--column", "v"]

    def on(*arguments):
        return run(*arguments, "--database-url", sqlalchemy_url)

    run("schema", "status", "--database-url", empty_url, code=1)
    on("schema", "upgrade")
    assert "already up to date" in on("schema", "upgrade").stderr
    assert json.loads(on("schema", "status", "--json").stdout)["up_to_date"] is True

    with connect(empty_url) as connection:
        connection.execute("CREATE TABLE docs (id int PRIMARY KEY, v vector(8))")
        with connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO docs VALUES (%s, %s)", [(i, Vector(v)) for i, v in enumerate(rows)]
            )

    train = ["model", "train", "m", "--table", "docs", "--column", "v", "--bits", "16"]
    train += ["--metric", "l2"]
    sgh = [*train, "--method", "sgh", "--param", "n_anchors=50", "--seed", "3"]
    brief = on(*sgh).stdout
    assert "share of ones" not in brief
    assert "index create INDEX --table docs --column v --model m --access lists\n" in brief
    on("model", "drop", "m")
    printed = on(*sgh, "--verbose")
    for word in ("1080", "share of ones", "estimated", "shift > normalize > rbf > shift > affine"):
        assert word in printed.stdout
    assert "training sgh on 1200 rows" in printed.stderr
    np.save(tmp_path / "rows.npy", rows)
    second = on(
        "model", "train", "m", "--from", str(tmp_path / "rows.npy"), "--method", "lsh",
        "--bits", "24", "--metric", "cosine", "--json",
    )  # fmt: skip
    assert json.loads(second.stdout)["version"] == 2
    models = json.loads(on("model", "show", "--json").stdout)
    assert [(m["name"], m["version"], m["n_bits"]) for m in models] == [("m", 1, 16), ("m", 2, 24)]
    assert "m:1" in on("model", "show", "m:1").stdout

    created = on(
        "index", "create", "docs_idx", "--access", "scan", *source, "--model", "m:1", "--json"
    )
    fields = json.loads(created.stdout)
    assert (fields["rows"], fields["codes"], fields["metric"]) == (1200, 1200, "l2")
    with connect(empty_url) as connection:
        begin_lists(connection, "later", table="docs", column="v", model="m")
    assert "1200 rows have no code" in on("index", "show", "later").stderr
    assert "encoded 1200 rows" in on("index", "encode", "later").stderr
    assert "docs_idx" in on("index", "show").stdout
    assert len(json.loads(on("index", "show", "--json").stdout)) == 2

    query = json.dumps(rows[5].tolist())
    hits = json.loads(on("search", "docs_idx", "--query", query, "-k", "3", "--json").stdout)
    assert hits[0] == {"id": 5, "distance": 0.0}
    like = json.loads(on("search", "docs_idx", "--like", "5", "-k", "2", "--json").stdout)
    assert like == hits[1:]
    assert on("search", "docs_idx", "--like", "5").stdout.splitlines()[0].split() == [
        "id", "distance",
    ]  # fmt: skip

    evaluate = ["evaluate", "docs_idx", "--queries", "20", "--candidates", "1200"]
    assert json.loads(on(*evaluate, "--json").stdout)["points"][0]["recall"] == 1
    assert "exact search" in on(*evaluate).stdout

    file = tmp_path / "m.model"
    on("model", "export", "m:1", str(file))
    assert "imported model m:3" in on("model", "import", str(file)).stderr
    assert "used by index" in run("model", "drop", "m", "--database-url", empty_url, code=3).stderr
    assert json.loads(on("index", "encode", "later", "--json").stdout)["encoded"] == 0
    assert on("index", "drop", "docs_idx", "--yes").stderr == "dropped index docs_idx\n"
    assert json.loads(on("index", "drop", "later", "--yes", "--json").stdout)["dropped"] is True
    assert on("model", "drop", "m:3").stderr == "dropped model m:3\n"
    assert on("model", "drop", "m").stderr == "dropped model m:1\ndropped model m:2\n"
    on("schema", "downgrade", "--yes")
    run("schema", "status", "--database-url", empty_url, code=1)


def test_schema_sql_needs_no_database(run):
    assert run("schema", "upgrade", "--sql").stdout.rstrip().endswith("COMMIT;")


def test_names_as_sql_writes_them(on, docs):
    on(
        "model", "train", "it's a \"model\"", "--table", docs, "--column", "v",
        "--method", "itq", "--bits", "8",
    )  # fmt: skip
    on(
        "index",
        "create",
        "A-b",
        "--access",
        "scan",
        "--table",
        docs,
        "--column",
        "v",
        "--model",
        'it\'s a "model"',
    )
    assert json.loads(on("search", "A-b", "--like", "3", "--json").stdout)[0]["id"] != 3
    assert on("index", "show", "A-b").stdout.count('"My Docs"') == 1


def test_downgrade_asks(run, url):
    result = CliRunner().invoke(main, ["schema", "downgrade", "--database-url", url], input="n\n")
    assert result.exit_code == 1
    assert "Aborted" in result.output


@pytest.mark.reads
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["model", "show", "nothing"], 3, 'model "nothing" does not exist'),
        (["model", "show", "nothing:x"], 3, "is not a number"),
        (["model", "drop", "nothing"], 3, "does not exist"),
        (["index", "show", "nothing"], 3, '"nothing" does not exist'),
        (["index", "encode", "nothing"], 3, '"nothing" does not exist'),
        (["search", "nothing", "--like", "1"], 3, '"nothing" does not exist'),
        (["search", "nothing"], 2, "either --query or --like"),
        (["search", "nothing", "--query", "[1]", "--like", "1"], 2, "either --query or --like"),
        (["model", "train", "m", "--method", "sgh", "--bits", "8"], 2, "--table and --column"),
        (["model", "train", "m", "--method", "magic"], 2, "'magic' is not one of"),
        (["model", "import", "/nothing/there"], 3, "No such file"),
        (["model", "import", "/"], 3, "Is a directory"),
        (["model", "import", __file__], 3, "not a model file"),
        (["schema", "nothing"], 2, "No such command"),
        (["doctor", "--fail-under", "0.9"], 2, "need a TABLE"),
        (["doctor", "--html", "page.html"], 2, "need a TABLE"),
        (["doctor", "--role", "app"], 2, "need a TABLE"),
        (["doctor", "--filter", "id > 1"], 2, "--filter, --queries-from"),
        (["evaluate", "i", "--history", "--fail-under", "0.9"], 2, "--history measures nothing"),
        (
            ["model", "train", "m", "--method", "itq", "--all-rows", "--sample", "500"],
            2,
            "leave out --sample",
        ),
    ],
)
def test_refused(on, arguments, code, message):
    result = on(*arguments, code=code)
    assert message in result.stderr
    assert result.stdout == ""
    assert code == 2 or len(result.stderr.splitlines()) == 1


TRAINING_REFUSED = [
    (["--bits", "8", "--table", "nothing", "--column", "v"], 'relation "nothing" does not'),
    (["--bits", "8", "--table", '"My Docs"', "--column", "w"], "no column 'w'"),
    (["--bits", "0", "--table", '"My Docs"', "--column", "v"], "got 0"),
    (["--bits", "200", "--table", '"My Docs"', "--column", "v"], "too few"),
    (["--bits", "8", "--table", '"My Docs"', "--column", "v", "--sample", "500"], "too few"),
    (["--bits", "8", "--table", '"My Docs"', "--column", "v", "--param", "x=1"], "'x'"),
    (["--bits", "8", "--from", "/nothing.npy"], "No such file"),
]


def test_training_refused(on, docs):
    for arguments, message in TRAINING_REFUSED:
        result = on("model", "train", "m", "--method", "lsh", *arguments, code=3)
        assert message in result.stderr, arguments
        assert "Traceback" not in result.stderr, arguments
    assert json.loads(on("model", "show", "--json").stdout) == []


def test_cuts(on, docs):
    source = ["--table", docs, "--column", "v"]
    train = ["model", "train", "m", "--bits", "24", *source]
    printed = on(*train, "--method", "itq", "-v").stdout
    for line in (
        r"^bits +24$",
        r"^cuts +-\d\S+, 0, \d\S+$",
        r"^profile +of the projections of 1080 rows$",
    ):
        assert re.search(line, printed, re.MULTILINE), line
    refused = on(*train, "--cuts", 3, "--method", "cghash", code=3).stderr
    assert "models of cghash have one cut, not 3" in refused
    on("index", "create", "i", "--access", "scan", *source, "--model", "m")
    assert re.search(r"^cuts +3$", on("index", "show", "i", "-v").stdout, re.MULTILINE)
    checked = json.loads(on("index", "check", "i", "--json").stdout)
    status = {found["check"]: found["status"] for found in checked["findings"]}
    for name in ("wrong_codes", "projection_drift", "bit_drift"):
        assert status[name] == "ok", name


def test_training_warns_of_low_recall(on, docs):
    """With the next thing to try, as long as there is one."""
    train = ["model", "train", "m", "--table", docs, "--column", "v", "--method", "itq", "--bits"]
    warned = on(*train, 1).stderr
    assert re.search(r"warning: recall@10 is 0.\d\d within 200 candidates of 1080 rows", warned)
    assert "try --cuts 3 --bits 3 next" in warned
    assert "try --bits 10 next" in on(*train, 5, "--cuts", 5).stderr
    assert "warning" not in on(*train, 24).stderr


def test_bad_parameters(on, docs):
    source = ["--table", docs, "--column", "v"]
    train = ["model", "train", "m", "--method", "lsh", "--bits", "8", *source]
    assert "not KEY=VALUE" in on(*train, "--param", "x", code=2).stderr
    sign = ["model", "train", "m", "--method", "sign", *source]
    assert "sign has no paper" in on(*sign, "--preset", "paper", code=3).stderr
    assert "'papers' is not one of" in on(*train, "--preset", "papers", code=2).stderr
    on(*train)
    on("index", "create", "i", "--access", "scan", *source, "--model", "m")
    for query, message in {
        "[1, 2]": "2 dimensions, expected 8",
        "[1, NaN, 1, 1, 1, 1, 1, 1]": "is nan",
        "one": "is not a vector",
        "3": "is not a vector",
        '{"a": 1}': "is not a vector",
        '"12345678"': "is not a vector",
        "[" * 100_000: "is not a vector",
        f"[1{'0' * 400}, 1, 1, 1, 1, 1, 1, 1]": "is not a vector",
        "[1e999, 1, 1, 1, 1, 1, 1, 1]": "is inf",
        "[]": "0 dimensions, expected 8",
    }.items():
        assert message in on("search", "i", "--query", query, code=3).stderr
    for k in ("0", "-1", str(2**31), str(10**30)):
        result = on("search", "i", "--like", "1", "-k", k, code=3)
        assert f"k is {k}; it must be" in result.stderr
        result = on("search", "i", "--like", "1", "--candidates", k, code=3)
        assert f"candidates is {k}; it must be" in result.stderr
    assert "id is of type integer" in on("search", "i", "--like", "one", code=3).stderr
    for option in ("-k", "--queries", "--candidates"):
        result = on("evaluate", "i", option, "0", code=3)
        assert "must be 1 or more" in result.stderr
        assert result.stderr.splitlines()[-1].startswith("Error: ")
        assert "Traceback" not in result.stderr
    assert "it must be 2147483646 or less" in on("evaluate", "i", "-k", str(2**40), code=3).stderr
    assert "no row with id = 5000" in on("search", "i", "--like", "5000", code=3).stderr
    again = on("index", "create", "i", "--access", "scan", *source, "--model", "m", code=3)
    assert 'index "i" exists already' in again.stderr
    refused = on("model", "export", "m", "/nothing/there", code=3).stderr
    assert "cannot write /nothing/there: No such file or directory" in refused


def test_no_database(run):
    result = run("model", "show", code=2)
    assert "PG_HASHINDEX_DATABASE_URL" in result.stderr
    assert "server start" in result.stderr


def test_the_environment_names_the_database(run, url, monkeypatch):
    monkeypatch.setenv("PG_HASHINDEX_DATABASE_URL", url)
    run("model", "show")


def test_which_database(run, url, empty_url, monkeypatch):
    """The option, our variable, DATABASE_URL, then what libpq reads: the first one counts."""
    parts = psycopg.conninfo.conninfo_to_dict(url)
    monkeypatch.setenv("PGHOST", str(parts["host"]))
    monkeypatch.setenv("PGPORT", str(parts["port"]))
    monkeypatch.setenv("PGUSER", str(parts["user"]))
    monkeypatch.setenv("PGDATABASE", str(parts["dbname"]))
    run("model", "show")
    run("schema", "status")
    monkeypatch.setenv("DATABASE_URL", empty_url)
    assert "schema upgrade" in run("model", "show", code=3).stderr
    monkeypatch.setenv("PG_HASHINDEX_DATABASE_URL", url)
    run("model", "show")
    assert "schema upgrade" in run("model", "show", "--database-url", empty_url, code=3).stderr


def test_an_index_is_dropped_when_somebody_says_so(on, docs):
    source = ["--table", docs, "--column", "v"]
    on("model", "train", "m", "--method", "lsh", "--bits", "8", *source)
    on("index", "create", "i", "--access", "scan", *source, "--model", "m")
    asked = on("index", "drop", "i", code=1)  # without a terminal
    assert "Drop index i of" in asked.stderr
    assert "i  " in on("index", "show").stdout
    on("index", "drop", "i", "--yes")
    assert "does not exist" in on("index", "drop", "i", code=3).stderr


def test_columns_of_what_is_found(on, connection, docs):
    source = ["--table", docs, "--column", "v"]
    on("model", "train", "m", "--method", "lsh", "--bits", "8", *source)
    on("index", "create", "i", "--access", "scan", *source, "--model", "m")
    connection.execute(
        f'ALTER TABLE {docs} ADD "a %s" text, ADD told text;'
        f"UPDATE {docs} SET \"a %s\" = 'row ' || id, told = repeat('x', 61) WHERE id <> 7"
    )
    search = ["search", "i", "--like", "3", "--candidates", "1200", "-k", "1000"]
    found = json.loads(on(*search, "--columns", "a %s, told", "--json").stdout)
    for hit in found:
        expected = {"a %s": f"row {hit['id']}", "told": "x" * 61}
        assert hit["columns"] == (expected if hit["id"] != 7 else {"a %s": None, "told": None})
    lines = on(*search, "--columns", "told").stdout.splitlines()
    assert lines[0].split() == ["id", "distance", "told"]
    assert lines[1].split()[2] == "x" * 57 + "..."
    assert "columns" not in json.loads(on(*search, "--json").stdout)[0]
    refused = on(*search, "--columns", "nothing", code=3)
    assert "has no column 'nothing': check --columns" in refused.stderr


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://me:secret@127.0.0.1:1/db",
        "host=127.0.0.1 port=1 user=me password=secret",
        "postgresql+psycopg://me:secret@127.0.0.1:1/db",
        "postgresql://me:secret@127.0.0.1:1,127.0.0.1:2/db",
        "postgresql://me@127.0.0.1:1/db?sslpassword=secret",
        "postgresql://me:secret@127.0.0.1:port/db",
        # libpq repeats the part that it cannot read.
        "postgresql://me:%secret@127.0.0.1:1/db",
        "postgresql://me:secret@[::1/db",
        "postgresql://me:secret@127.0.0.1:1/db?nonsense=1",
        "mysql://me:secret@127.0.0.1:1/db",
        "postgresql://me:secret@.../db",
        "not a url secret",
    ],
)
def test_unreachable(run, address):
    for command in (["model", "show"], ["schema", "status"]):
        result = run(*command, "--database-url", address, code=3)
        assert result.stderr.startswith("Error: cannot connect to")
        assert len(result.stderr.splitlines()) == 1
        assert result.stdout == ""
        assert "secret" not in result.stderr
        assert "secret" not in str(result.exception.__context__)


def test_without_the_schema(run, empty_url):
    for command in (
        ["model", "show"],
        ["index", "show"],
        ["search", "i", "--like", "1"],
        ["model", "train", "m", "--method", "lsh", "--bits", "8", "--table", "t", "--column", "v"],
    ):
        result = run(*command, "--database-url", empty_url, code=3)
        assert "pg-hashindex schema upgrade" in result.stderr


def test_without_pgvector(run, make_database):
    bare = make_database("template0")
    for command in (["model", "show"], ["schema", "upgrade"]):
        result = run(*command, "--database-url", bare, code=3)
        assert "CREATE EXTENSION vector" in result.stderr


def test_undecodable_argument(run, url):
    """Bytes of a terminal in another encoding."""
    result = run("model", "show", "caf\udce9", "--database-url", url, code=3)
    assert result.stderr.startswith("Error: ")
    assert len(result.stderr.splitlines()) == 1


def test_characters_that_the_terminal_lacks(connection, url):
    """They are written by their numbers, and the command goes on."""
    connection.execute('CREATE TABLE "中" (v vector(3))')
    found = subprocess.run(
        [sys.executable, "-m", "pg_hashindex", "doctor", "--database-url", url],
        env=os.environ | {"PYTHONIOENCODING": "latin-1"}, capture_output=True, check=False,
    )  # fmt: skip
    assert (found.returncode, b"\\u4e2d" in found.stdout) == (0, True), found.stderr


def test_json_has_no_nan(on, docs):
    """A query of zeros has no cosine distance."""
    source = ["--table", docs, "--column", "v"]
    on("model", "train", "m", "--method", "lsh", "--bits", "8", *source, "--metric", "cosine")
    on("index", "create", "i", "--access", "scan", *source, "--model", "m")
    zeros = json.dumps([0] * 8)
    said = on("search", "i", "--query", zeros, "-k", "2", "--json").stdout
    found = json.loads(said, parse_constant=pytest.fail)
    assert [hit["distance"] for hit in found] == [None, None]


def test_results_and_notes_do_not_mix(on, docs, tmp_path):
    """stdout has the complete JSON and nothing else, so it can be piped."""
    source = ["--table", docs, "--column", "v"]
    train = on("model", "train", "m", "--method", "lsh", "--bits", "8", *source, "--json")
    assert json.loads(train.stdout)["name"] == "m"
    assert "training lsh" in train.stderr
    create = on("index", "create", "i", "--access", "scan", *source, "--model", "m", "--json")
    assert json.loads(create.stdout)["codes"] == 1200
    assert "creating index i: done in" in create.stderr
    evaluate = on("evaluate", "i", "--queries", "2", "--candidates", "10", "--json")
    assert len(json.loads(evaluate.stdout)["points"]) == 1
    assert "evaluating" in evaluate.stderr
    for silent in (
        ["index", "encode", "i"],
        ["model", "export", "m", str(tmp_path / "m")],
        ["model", "import", str(tmp_path / "m")],
        ["index", "drop", "i", "--yes"],
        ["model", "drop", "m"],
        ["schema", "upgrade"],
        ["schema", "downgrade", "--yes"],
    ):
        result = on(*silent)
        assert result.stdout == ""
        assert result.stderr


@pytest.fixture
def server_folder():
    folder = make_folder("pg_hashindex-demo-")
    yield folder
    shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.newest
def test_demo(run, server, server_folder, monkeypatch):
    """Twice: the second run starts over. The server goes down both times."""
    monkeypatch.setattr("pg_hashindex.cli.demo._CANDIDATES", (25,))
    arguments = ["--data-dir", str(server_folder / "data"), "--pg-version", str(server.version)]
    for _ in range(2):
        result = run("demo", "--stop", *arguments)
        for word in (
            "Nearest packages by packages_itq (768 bits, itq)",
            "candidates",
            "exact search",
            "One code takes 96 bytes, one vector 1536",
            "5,000 rows are too few for codes to be faster",
        ):
            assert word in result.stdout
        assert "making database pg_hashindex_demo, and" in result.stderr
        assert "not running" in run("server", "stop", *arguments).stderr


@pytest.mark.parametrize("on_path", [False, True])
def test_the_demo_ends_with_lines_to_paste(server, monkeypatch, capsys, on_path):
    folder = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin" if on_path else "/usr/bin")
    _print_next(server)
    printed = capsys.readouterr().out
    assert (f"  export PATH={folder}:$PATH\n" in printed) is not on_path
    assert (
        f"  export PG_HASHINDEX_DATABASE_URL='{server.uri(DATABASE)}'\n  pg-hashindex search "
        in printed
    )
