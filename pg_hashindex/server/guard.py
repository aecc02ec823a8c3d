"""The process that stops an embedded server when the process that asked for it is gone.

Run as a script, with ``python -I -S``: it imports nothing but the standard library, so that it
starts in milliseconds and weighs little. It starts the server itself, so that there is no moment
at which the server runs unguarded, and says how that went on its standard output. Then it waits
for the end of its standard input, a pipe whose other end only the owner holds: the kernel closes it
however the owner dies. What it does then depends on its mark, a file in the data directory: a
server whose mark is gone or changed is no longer the guard's to stop.
"""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

if sys.platform != "win32":
    import fcntl


def main(order: dict[str, Any]) -> None:
    """Start the server, wait for the owner's end, stop the server.

    Parameters
    ----------
    order : dict
        ``start`` (a command), ``stop`` (commands, the next where one fails), ``options`` of
        ``subprocess`` for them, ``data_dir``, ``lock`` (its locked descriptor), ``mark`` (the
        file's path), ``owner`` (the process id).
    """
    data_dir, mark = Path(order["data_dir"]), Path(order["mark"])
    returncode, output = _run(order["start"], order["options"])
    content = ""
    if returncode == 0:
        pid = (data_dir / "postmaster.pid").read_text().split(maxsplit=1)[0]
        content = f"{order['owner']} {pid}\n"
        write_mark(mark, content)
    # Closing sys.stdout would not close the pipe, which the owner reads to its end. An owner that
    # was killed meanwhile reads nothing, and its server is to be stopped all the same.
    with contextlib.suppress(BrokenPipeError), os.fdopen(1, "w") as owner:
        json.dump([returncode, output], owner)
    os.close(order["lock"])
    if returncode:
        return
    sys.stdin.read()
    if read_mark(mark) != content:
        return
    lock = os.open(data_dir, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    # Again: another start or stop may have come first.
    if read_mark(mark) != content:
        return
    for command in order["stop"]:
        if _run(command, order["options"])[0] == 0:
            break
    mark.unlink(missing_ok=True)


def write_mark(mark: Path, content: str) -> None:
    """Write the mark anew, never through a link that the server's user may have put there."""
    mark.unlink(missing_ok=True)
    descriptor = os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(content)


def read_mark(mark: Path) -> str:
    """Return what the mark says, nothing where there is none."""
    try:
        return mark.read_text()
    except (OSError, UnicodeError):
        return ""


def _run(command: list[str], options: dict[str, Any]) -> tuple[int, str]:
    result = subprocess.run(  # noqa: S603
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        **options,
    )
    return result.returncode, result.stdout.decode(errors="replace")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
