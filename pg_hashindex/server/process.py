"""The running server: what postmaster.pid says of it, its socket, this process's guards."""

import atexit
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from . import guard as _server_guard
from .user import ServerUser

PORT = 5432

# sun_path of sockaddr_un holds 108 bytes on Linux, 104 on macOS, the closing zero among them.
_SOCKET_PATH_BYTES = 103 if sys.platform == "darwin" else 107
_SOCKET_DIR_PREFIX = "pg_hashindex-"
_LOG_LINES = 20

# The guards of this process by data directory. They hold the pipes that keep the servers up, so
# they live as long as the process, not as long as an EmbeddedServer object.
_guards: dict[Path, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True)
class Postmaster:
    """The lines of postmaster.pid that matter here.

    Parameters
    ----------
    pid, port : int
    socket_dir : Path
    """

    pid: int
    port: int
    socket_dir: Path

    @classmethod
    def read(cls, data_dir: Path) -> "Postmaster | None":
        """Read the file; it outlives a server that crashed."""
        try:
            lines = (data_dir / "postmaster.pid").read_text().splitlines()
            return cls(int(lines[0]), int(lines[3]), Path(lines[4]))
        except (FileNotFoundError, NotADirectoryError, IndexError, ValueError):
            # Absent, or not written to the end: the server has come no further, or never will.
            return None

    @classmethod
    def running(cls, data_dir: Path) -> "Postmaster | None":
        """Read the file if a server answers at the socket it names."""
        postmaster = cls.read(data_dir)
        if postmaster is None:
            return None
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(5)
            try:
                connection.connect(str(postmaster.socket_dir / f".s.PGSQL.{postmaster.port}"))
            except TimeoutError:
                return postmaster  # so many clients wait that the queue is full
            except OSError:
                return None
        return postmaster

    def uri(self, database: str) -> str:
        """Return the address of a database; the port too, lest PGPORT changes it."""
        host, name = quote(str(self.socket_dir), safe="/"), quote(database, safe="")
        return f"postgresql://postgres@/{name}?host={host}&port={self.port}"


def clear_stale(data_dir: Path) -> None:
    """Remove what a dead server left, where PostgreSQL would take it for a live one.

    It does when another process has the dead one's number now, as in restarted containers, or
    when nobody has waited for the dead one. The caller has found that nothing answers.
    """
    if postmaster := Postmaster.read(data_dir):
        remove_socket_dir(postmaster.socket_dir)
    for name in ("postmaster.pid", f".s.PGSQL.{PORT}.lock"):
        with contextlib.suppress(FileNotFoundError):
            first_line = (data_dir / name).read_text().partition("\n")[0]
            if first_line.isdecimal() and _is_another_process(int(first_line), data_dir):
                (data_dir / name).unlink()


def _is_another_process(pid: int, data_dir: Path) -> bool:
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE or process.name() != "postgres":
            return True
        arguments = process.cmdline()
    except psutil.Error:
        return False
    # "postgres: checkpointer" and the like are children of some server; a server that names its
    # data directory by the environment could be this one.
    is_child = bool(arguments) and arguments[0].startswith("postgres: ")
    return is_child or ("-D" in arguments and str(data_dir) not in arguments)


def make_socket_dir(data_dir: Path, user: ServerUser) -> Path:
    """Return the data directory, or a new private folder where that is no place for a socket."""
    # Commas separate hosts in an URI, and folders in unix_socket_directories.
    if _fits_socket(data_dir) and not re.search(r'[\s,"]', str(data_dir)):
        return data_dir
    for parent in (Path(tempfile.gettempdir()).resolve(), Path("/tmp")):  # noqa: S108
        example = parent / f"{_SOCKET_DIR_PREFIX}12345678"
        if _fits_socket(example) and not user.closed_parent(example):
            break
    folder = Path(tempfile.mkdtemp(prefix=_SOCKET_DIR_PREFIX, dir=parent))
    user.own(folder)
    return folder


def remove_socket_dir(socket_dir: Path) -> None:
    """Remove a folder that `make_socket_dir` made; leave any other alone."""
    if not socket_dir.name.startswith(_SOCKET_DIR_PREFIX):
        return
    with contextlib.suppress(OSError):
        for name in (f".s.PGSQL.{PORT}", f".s.PGSQL.{PORT}.lock"):
            (socket_dir / name).unlink(missing_ok=True)
        # Refused, as it should be, where the folder holds anything else.
        socket_dir.rmdir()


def _fits_socket(folder: Path) -> bool:
    return len(os.fsencode(folder / f".s.PGSQL.{PORT}")) <= _SOCKET_PATH_BYTES


def log_tail(log: Path, start: int) -> str:
    """Return the last lines that a log got after the byte ``start``."""
    try:
        with log.open("rb") as file:
            file.seek(start)
            lines = file.read().decode(errors="replace").splitlines()
    except OSError as error:
        return f"(its log {log} cannot be read: {error})"
    return "\n".join([f"the end of {log}:", *lines[-_LOG_LINES:]])


def is_orphan(mark: Path) -> bool:
    """Say whether a guarded server was to end with a process that is no more."""
    import psutil

    pid = _server_guard.read_mark(mark).partition(" ")[0]
    if not pid.isdecimal():
        return False
    try:
        return bool(psutil.Process(int(pid)).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def start_guarded(data_dir: Path, lock: int, order: Mapping[str, Any]) -> tuple[int, str]:
    """Start a server through a guard process, which stops it when this process is gone.

    Parameters
    ----------
    data_dir : Path
    lock : int
        The locked descriptor of the data directory: the guard shares the lock until the server is
        up, so that nobody comes between even if this process dies meanwhile.
    order : mapping
        What `_server_guard.main` needs besides.

    Returns
    -------
    returncode : int
    output : str
        Of pg_ctl.
    """
    # A guard whose server was stopped by somebody else may be left; its mark is gone already.
    dismiss_guard(data_dir)
    full_order = dict(order, data_dir=str(data_dir), lock=lock, owner=os.getpid())
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-I", "-S", _server_guard.__file__, json.dumps(full_order)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
        # A session of its own, so that Ctrl-C reaches us and not the guard.
        start_new_session=True,
        pass_fds=[lock],
    )
    _guards[data_dir] = process
    assert process.stdout is not None and process.stderr is not None  # noqa: S101, PT018
    with process.stdout, process.stderr:
        report = process.stdout.read()
        problem = b"" if report else process.stderr.read()
    if report:
        returncode, output = json.loads(report)
    else:
        returncode, output = 1, f"the guard process failed: {problem.decode(errors='replace')}"
    if returncode:
        dismiss_guard(data_dir)
    return returncode, output


def has_guard(data_dir: Path) -> bool:
    """Say whether this process is the one that a server is to end with."""
    return data_dir in _guards


def dismiss_guard(data_dir: Path) -> None:
    """Close a guard's pipe and wait until it has done what its mark tells it to."""
    process = _guards.pop(data_dir, None)
    if process is not None:
        assert process.stdin is not None  # noqa: S101
        process.stdin.close()
        process.wait()


def _dismiss_guards() -> None:
    for data_dir in list(_guards):
        dismiss_guard(data_dir)


def _forget_guards() -> None:
    """In a forked child: its copies of the pipes must not outlive the owner."""
    for process in _guards.values():
        if process.stdin is not None:
            process.stdin.close()
        process.returncode = 0  # not this process's child to wait for
    _guards.clear()


# At a normal end the servers have stopped when the process has; the pipes alone would do it too,
# but a moment later.
atexit.register(_dismiss_guards)
if sys.platform != "win32":
    os.register_at_fork(after_in_child=_forget_guards)
