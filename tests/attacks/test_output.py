"""Output to terminals, files and logs has no secret and no control characters."""

import io
import json
import os
import re
import zipfile

import numpy as np
import psycopg
import pytest
from fixtures.indexes import indexed
from pg_hashindex.cli._shared import escaped, print_table

from pg_hashindex import store
from pg_hashindex.db.connection import connect
from pg_hashindex.errors import ConnectionFailedError, InvalidInputError
from pg_hashindex.hashers import LSH
from pg_hashindex.models.model import Model
from pg_hashindex.operations.page import _shown

pytestmark = pytest.mark.newest

SECRETS = (
    "hunter2",
    "s3cr@t",
    "s3cr/t",
    "a@b/c@d",
    "s3cr?t",
    "s3cr#t",
    "12/34@x",
    "p@host:5432/db",
)


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("host", ["127.0.0.1:1", "no-such-host.invalid", "[::1]:1"])
def test_a_password_shows_in_no_error(secret, host):
    """Whatever the URL looks like."""
    for url in (
        f"postgresql://me:{secret}@{host}/db",
        f"postgresql+psycopg://me:{secret}@{host}/db?connect_timeout=2",
        f"postgresql://me:{secret}@{host}",
        f"postgres://me@{host}/db?password={secret}",
        f"postgresql://me@{host}/db?options=-c%20app.key%3D{secret}",
        f"host=127.0.0.1 port=1 user=me password='{secret}'",
        f"host=127.0.0.1 port=1 user=me options='-c app.key={secret}'",
        f"host=127.0.0.1 port=1 user=me password={secret} extra",
    ):
        with pytest.raises(ConnectionFailedError) as caught:
            connect(url)
        shown = f"{caught.value!s} {caught.value.__cause__!s}"
        for part in (secret, *[part for part in secret.split("@") if len(part) > 1]):
            assert part not in shown.replace("/db", "").replace("host:5432", "").replace(
                "HOST:PORT", ""
            ).replace("host", ""), url


HOSTILE = "\u009b31m\u202eevil\r\n\x1b[2J\x07\u2028name"


def test_names_are_printed_escaped(on, connection, items, model):
    """Controls, line breaks, and what turns text around."""
    connection.execute(
        psycopg.sql.SQL("ALTER TABLE items RENAME TO {}").format(psycopg.sql.Identifier(HOSTILE))
    )
    name = "items_idx"
    indexed(connection, name, table=psycopg.sql.Identifier(HOSTILE).as_string(connection))
    for arguments in (
        ("index", "show"),
        ("index", "show", "--json"),
        ("index", "show", name),
        ("index", "show", name, "--json"),
        ("index", "check", name),
        ("index", "check", name, "--json"),
        ("index", "configure", name, "--candidates", "50"),
        ("index", "drop", name, "--yes"),
    ):
        said = on(*arguments, code=None).output
        for line in said.split("\n"):
            assert escaped(line) == line, arguments
    assert escaped(HOSTILE) == "\\x9b31m\\u202eevil\\r\\n\\x1b[2J\\x07\\u2028name"


def test_a_table_in_a_terminal(capsys, monkeypatch):
    """It is drawn by rich, which takes nothing in a name for markup; elsewhere it is plain."""
    monkeypatch.setenv("COLUMNS", "120")
    print_table(["name", "n"], [[HOSTILE, 1], ["[red]x[/]", 10]])
    plain = capsys.readouterr().out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_table(["name", "n"], [[HOSTILE, 1], ["[red]x[/]", 10]])
    drawn = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert drawn != plain
    for line in drawn.splitlines():
        assert escaped(line) == line
    for text in (plain, drawn):
        assert escaped(HOSTILE) in text
        assert "[red]x[/]" in text


def test_json_is_the_name_all_the_same(on, connection, model):
    store.save(connection, Model("\u202ex\u009b", "lsh", 8, model.layers))
    said = on("model", "show", "--json").output
    assert "\u202e" not in said
    assert "\u202ex\u009b" in [line["name"] for line in json.loads(said)]


def test_an_error_is_printed_escaped(on, connection):
    said = on("index", "show", HOSTILE, code=3).output
    for line in said.split("\n"):
        assert escaped(line) == line


def test_an_export_replaces_nothing_unasked(on, model, tmp_path):
    target, link = tmp_path / "lsh.model", tmp_path / "link"
    on("model", "export", "lsh", str(target))
    before = target.read_bytes()
    target.write_bytes(b"mine")
    assert "give --force" in on("model", "export", "lsh", str(target), code=3).output
    assert target.read_bytes() == b"mine"
    # Nor through a link, also one that leads nowhere.
    link.symlink_to(target)
    on("model", "export", "lsh", str(link), code=3)
    on("model", "export", "lsh", str(link), "--force")
    assert (target.read_bytes(), link.read_bytes()) == (b"mine", before)
    assert not link.is_symlink()
    link.unlink()
    link.symlink_to(tmp_path / "nowhere")
    on("model", "export", "lsh", str(link), code=3)
    assert not (tmp_path / "nowhere").exists()
    on("model", "export", "lsh", str(target), "--force")
    assert target.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "lsh.model"]


def test_what_is_not_a_file_is_neither_read_nor_replaced(on, model, tmp_path):
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(tmp_path / "nowhere")
    np.save(tmp_path / "rows.npy", np.zeros((3, 8), np.float32))
    encode = ("model", "encode", "lsh", "--from", str(tmp_path / "rows.npy"), "--force", "--to")
    (tmp_path / "pipe.npy").symlink_to(pipe)
    for command in (
        ("model", "train", "m", "--from", str(pipe)),
        ("model", "export", "lsh", str(pipe), "--force"),
        (*encode, str(tmp_path / "pipe.npy")),
    ):
        assert "not a regular file" in on(*command, code=3).output
    assert pipe.is_fifo()


def test_a_model_file_that_says_it_is_larger_is_not_unpacked():
    rows = np.random.default_rng(1).standard_normal((30, 8)).astype(np.float32)
    data = LSH(n_bits=12, random_state=0).fit(rows).to_model("lsh").to_bytes()
    assert Model.from_bytes(data).n_bits == 12
    bomb = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(data)) as original,
        zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for member in original.namelist():
            archive.writestr(member, original.read(member))
        array = io.BytesIO()
        np.save(array, np.zeros(50_000_000, np.uint8))
        archive.writestr("weights_1.npy", array.getvalue())
    assert len(bomb.getvalue()) < 200_000
    with pytest.raises(InvalidInputError, match="claims to hold"):
        Model.from_bytes(bomb.getvalue())


def test_a_page_shows_no_letter_that_turns_others_round():
    for letter in "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069":
        assert _shown(f"a{letter}b") == "a\ufffdb"
    # Joiners belong to words of some languages.
    assert _shown("\u0645\u06cc\u200c\u062e\u0648\n") == "\u0645\u06cc\u200c\u062e\u0648\n"


def test_help_says_that_others_see_a_password(run):
    said = " ".join(run("--help").output.split())
    assert "Other users of the machine see a password in an option" in said
