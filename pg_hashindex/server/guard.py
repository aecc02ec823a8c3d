"""The process that stops an embedded server when the process that started it ends.

Run as a script, with ``python -I -S``: it imports nothing but the standard library, so that it
starts in milliseconds. It starts the server itself, so the server never runs unguarded, and prints
the result. Then it waits for the end of its standard input, a pipe whose other end only the owner
holds: the kernel closes it however the owner dies. If the mark, a file in the data directory, is
gone or changed, the guard leaves the server running.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if sys.platform != "win32":
    import fcntl


def main(order: dict[str, Any]) -> None:
    """Start the server, wait for the owner's end, stop the server.

    The order has ``start`` (a command), ``stop`` (commands, each tried if the one before fails),
    ``options`` of ``subprocess`` for them, ``data_dir``, ``lock`` (its locked descriptor), ``mark``
    (the file's path), ``owner`` (the process id) and ``socket_dir``, removed at the end unless it
    is the data directory.
    """
    data_dir, mark = Path(order["data_dir"]), Path(order["mark"])
    returncode, output = run(order["start"], order["options"])
    content = ""
    if returncode == 0:
        pid = (data_dir / "postmaster.pid").read_text().split(maxsplit=1)[0]
        content = f"{order['owner']} {pid}\n"
        # Do not follow a link that the server's user may have put there.
        mark.unlink(missing_ok=True)
        with os.fdopen(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(content)
    # Closing sys.stdout would not close the pipe, which the owner reads to its end. If the owner
    # was killed meanwhile, continue, so that its server is stopped.
    with contextlib.suppress(BrokenPipeError), os.fdopen(1, "w") as owner:
        json.dump([returncode, output], owner)
    os.close(order["lock"])
    if returncode:
        return
    sys.stdin.read()
    # Check the mark without the lock first, since its holder may wait for this process to end.
    if read_mark(mark) != content:
        return
    lock = os.open(data_dir, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    if read_mark(mark) == content:
        any(run(command, order["options"])[0] == 0 for command in order["stop"])
        mark.unlink(missing_ok=True)
        if order["socket_dir"] != order["data_dir"]:
            with contextlib.suppress(OSError):
                os.rmdir(order["socket_dir"])


def read_mark(mark: Path) -> str:
    """Return the text of the mark, empty if there is none."""
    try:
        return mark.read_text()
    except (OSError, UnicodeError):
        return ""


def run(command: Sequence[str], options: dict[str, Any]) -> tuple[int, str]:
    """Run a program without showing its output; return its exit status and output."""
    result = subprocess.run(  # noqa: S603
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        **options,
    )
    return result.returncode, os.fsdecode(result.stdout).strip()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
