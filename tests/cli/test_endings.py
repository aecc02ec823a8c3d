"""Commands that cannot continue: one line that names what and where, nothing half done."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from fixtures.indexes import indexed
from pg_hashindex.cli._shared import confirm

from pg_hashindex import store
from pg_hashindex.db import locks
from pg_hashindex.hashers import ITQ

pytestmark = pytest.mark.newest


def ended(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", f"{code}\nfrom pg_hashindex.__main__ import run\nrun()", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("module", ["click", "pg_hashindex.cli.model", "numpy"])
def test_ctrl_c_while_python_imports(module):
    found = ended(
        "import sys\n"
        "class Press:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {module!r}: raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Press())",
        "model",
        "train",
        "--help",
    )
    assert (found.returncode, found.stdout, found.stderr) == (130, "", "interrupted\n")


def test_ctrl_c_while_a_command_works(url, connection):
    with connection.transaction():
        connection.execute("LOCK TABLE hashindex.model IN ACCESS EXCLUSIVE MODE")
        process = subprocess.Popen(
            [sys.executable, "-m", "pg_hashindex", "model", "show", "--database-url", url],
            stderr=subprocess.PIPE,
            text=True,
            # A shell has its background jobs ignore SIGINT, and what they start.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        until = time.monotonic() + 30
        while not connection.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone():
            assert time.monotonic() < until
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (130, "interrupted\n")


def test_ctrl_c_at_a_question(monkeypatch):
    def press(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("click.termui.visible_prompt_func", press)
    with pytest.raises(KeyboardInterrupt):
        confirm("Remove?")


@pytest.mark.parametrize("force", [False, True])
def test_an_export_to_a_full_disk_leaves_nothing(on, model, tmp_path, monkeypatch, force):
    file = tmp_path / "m.model"
    if force:
        file.write_bytes(b"before")
    opening = Path.open

    def full(path, mode="r", *others, **named):
        opened = opening(path, mode, *others, **named)  # type: ignore[call-overload]
        if mode != "xb":
            return opened
        opened.close()
        return opening(Path("/dev/full"), "wb")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", full)
        said = on("model", "export", "lsh", file, *["--force"] * force, code=3).stderr
    assert said == f"Error: cannot write {file}: No space left on device\n"
    assert [(f, f.read_bytes()) for f in tmp_path.iterdir()] == [(file, b"before")] * force


@pytest.mark.parametrize("device", ["/dev/full", "/dev/zero"])
def test_a_device_is_not_a_model_file(on, device):
    said = on("model", "import", device, code=3).stderr
    assert said == f"Error: {device} is a device, not a model file\n"


def test_a_model_from_a_pipe(on, model, tmp_path):
    on("model", "export", "lsh", tmp_path / "m")
    reading, writing = os.pipe()
    os.write(writing, (tmp_path / "m").read_bytes())
    os.close(writing)
    on("model", "import", f"/dev/fd/{reading}")
    os.close(reading)


def test_files_are_named(on, tmp_path):
    gone = tmp_path / "gone"
    said = on("model", "import", gone, code=3).stderr
    assert said == f"Error: {gone}: No such file or directory\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["evaluate", "items_idx", "--fail-under", "NaN"],
        ["doctor", "items", "embedding", "--fail-under", "nan"],
        ["index", "swap", "items_idx", "--model", "lsh", "--tolerance", "nan"],
    ],
)
def test_nan_is_not_a_share(on, arguments):
    assert "is not in the range 0<=x<=1" in on(*arguments, code=2).stderr


TABLE = ["--table", "items", "--column", "embedding"]
TRAIN = ["model", "train", "m", "--method", "itq", "--bits", "8", *TABLE]
AT_ONCE = ["--patience", "0"]
ACTIONS = [
    TRAIN,
    [*TRAIN, "--all-rows"],
    ["index", "create", "other", "--access", "scan", "--model", "lsh", *TABLE, *AT_ONCE],
    ["index", "encode", "items_idx"],
    ["index", "check", "items_idx"],
    ["index", "repair", "items_idx"],
    ["index", "swap", "items_idx", "--model", "lsh"],
    ["index", "drop", "items_idx", "--yes", *AT_ONCE],
    ["search", "items_idx", "--like", "1"],
    ["evaluate", "items_idx"],
]


@pytest.mark.parametrize("limit", ["lock_timeout", "statement_timeout"])
def test_time_outs_name_the_table_and_the_next_step(
    run, url, connection, items, model, monkeypatch, limit
):
    monkeypatch.setattr(locks, "PATIENCE", 0.0)
    indexed(connection)
    with connection.transaction():
        connection.execute("LOCK TABLE items IN ACCESS EXCLUSIVE MODE")
        for action in ACTIONS:
            limited = f"{url}&options=-c%20{limit}%3D50"
            found = run(*action, "--database-url", limited, code=None)
            assert found.exit_code == 3, action
            told = found.stderr.splitlines()[-1]
            assert "items" in told, action
            assert "run the command again" in told, action


def test_a_model_as_a_script(on, url, connection, vectors, tmp_path):
    """It is stored by SQL alone, as it was to the last bit."""
    name = 'it\'s a "model" \\'
    model = ITQ(n_bits=6, normalize="l2").fit(vectors).to_model(name, metric="cosine", cuts=3)  # type: ignore[arg-type]
    store.save(connection, model)
    file = tmp_path / "m.sql"
    on("model", "export", name, file, "--sql")
    connection.execute(file.read_bytes())
    first, again = (store.load(connection, f"{name}:{version}") for version in (1, 2))
    assert again.to_bytes() == replace(first, version=2).to_bytes()
