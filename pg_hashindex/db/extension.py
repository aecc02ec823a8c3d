"""The extension pg_hashindex: its files, made from the same statements as `schema.upgrade`."""

import importlib.metadata
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from ..errors import InvalidInputError
from . import schema, sql_files

NAME = "pg_hashindex"

# The alembic revisions of earlier releases. From each of them there is an update script.
_RELEASES: dict[str, str] = {}

_COMMENT = "learned binary codes for pgvector: hash models, indexes of codes, search"

_CONTROL = """\
comment = '{comment}'
default_version = '{version}'
requires = 'vector'
schema = 'hashindex'
relocatable = false
# It runs as, and belongs to, the role that installs it. So it needs no "trusted".
superuser = false
"""

_MAKEFILE = """\
# make install copies the files into the server's folder of extensions.
EXTENSION = {name}
DATA = $(wildcard {name}--*.sql)
PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)
"""

_DOCKERFILE = """\
# PostgreSQL by the image of pgvector's authors, with {name} in its first database:
# docker build --tag {name} .
FROM pgvector/pgvector:pg18
COPY {name}.control {name}--*.sql /usr/share/postgresql/18/extension/
RUN echo "CREATE EXTENSION {name} CASCADE;" > /docker-entrypoint-initdb.d/{name}.sql
"""


def files() -> dict[str, str]:
    """Return the extension's files: the control file, and the scripts, by their names."""
    version = importlib.metadata.version(NAME)
    scripts = {
        f"--{version}": "\n".join(
            [_part("create"), *schema.install_statements(), _part("configure")]
        ),
        "--unpackaged": "-- Has no objects: SELECT hashindex.join_extension() makes it whole.\n",
        f"--unpackaged--{version}": "\n".join([_part("join"), _part("configure")]),
    }
    for release, revision in _RELEASES.items():
        scripts[f"--{release}--{version}"] = _update_script(revision)
    return {f"{NAME}.control": _CONTROL.format(comment=_COMMENT, version=version)} | {
        f"{NAME}{suffix}.sql": script for suffix, script in scripts.items()
    }


def write(folder: str | os.PathLike[str]) -> list[Path]:
    """Write the extension's files into a folder, with what PGXN and Docker build and describe."""
    version = importlib.metadata.version(NAME)
    description = {
        "name": NAME,
        "abstract": _COMMENT,
        "version": version,
        "maintainer": "The pg_hashindex developers",
        "license": "postgresql",
        "provides": {
            NAME: {"file": f"{NAME}--{version}.sql", "abstract": _COMMENT, "version": version}
        },
        "prereqs": {"runtime": {"requires": {"PostgreSQL": "15.0.0", "vector": "0.8.0"}}},
        "meta-spec": {"version": "1.0.0", "url": "https://pgxn.org/meta/spec.txt"},
    }
    texts = files() | {
        "META.json": json.dumps(description, indent=2) + "\n",
        "Makefile": _MAKEFILE.format(name=NAME),
        "Dockerfile": _DOCKERFILE.format(name=NAME),
    }
    Path(folder).mkdir(parents=True, exist_ok=True)
    return _write(Path(folder), texts)


def install(pg_config: str = "pg_config") -> list[Path]:
    """Copy the extension's files to a server on this machine, found by its program pg_config."""
    try:
        shared = subprocess.run(  # noqa: S603
            [pg_config, "--sharedir"], capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise InvalidInputError(
            f"{pg_config} does not run ({error}); name the server's own with --pg-config, for "
            "instance /usr/lib/postgresql/18/bin/pg_config"
        ) from error
    folder = Path(shared) / "extension"
    try:
        return _write(folder, files())
    except PermissionError as error:
        raise InvalidInputError(
            f"{folder} may not be written; run it as a user who may, for instance by sudo"
        ) from error
    except OSError as error:
        raise InvalidInputError(f"{folder} cannot be written: {error}") from error


def tle_script() -> str:
    """Return the script that registers the extension with pg_tle, where servers take no files."""
    version = importlib.metadata.version(NAME)
    scripts = files()
    install = scripts[f"{NAME}--{version}.sql"]
    updates = "".join(
        f"SELECT pgtle.install_update_path('{NAME}', '{release}', '{version}', "
        f"$_pgtle_${scripts[f'{NAME}--{release}--{version}.sql']}$_pgtle_$);\n"
        for release in _RELEASES
    )
    return (
        "-- Registers pg_hashindex with pg_tle. Then run:\n"
        "-- CREATE SCHEMA hashindex; CREATE EXTENSION pg_hashindex SCHEMA hashindex;\n"
        f"SELECT pgtle.install_extension('{NAME}', '{version}', '{_COMMENT}', "
        f"$_pgtle_${install}$_pgtle_$, '{{vector}}');\n{updates}"
    )


def _update_script(revision: str) -> str:
    *statements, stamp = schema.install_statements(revision)
    keep = "SELECT pg_catalog.set_config('hashindex.role_before', current_setting('role'), true);"
    return "\n".join([keep, *statements, _part("update"), stamp, _part("configure")])


def _part(name: str) -> str:
    text = (sql_files.folder("sql") / "extension" / f"{name}.sql").read_text("utf-8")
    return text.replace("{stamp}", schema.comment())


def _write(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    paths = []
    for name, text in texts.items():
        path = folder / name
        if path.is_symlink():
            # It may lead to any file that this user can read.
            path.unlink()
        path.write_text(text, "utf-8")
        paths.append(path)
    return paths
