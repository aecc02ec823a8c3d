"""Write files whole, or not at all."""

import errno
import os
import secrets
from pathlib import Path

__all__ = ["write_whole"]


def write_whole(path: Path, content: bytes, *, replace: bool = True) -> None:
    """Write a file beside its place, then move it there; leave nothing behind if that fails.

    Raises
    ------
    FileExistsError
        If there is something at its place, and it is not to be replaced.
    OSError
        If the file cannot be written; one that was there stays as it is.
    """
    if not replace and os.path.lexists(path):
        raise FileExistsError(path)
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    # A link is replaced, not followed: in a folder of others it could lead to any of one's files.
    # For the same reason the file beside must be a new one.
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with beside.open("xb") as file:
            file.write(content)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
