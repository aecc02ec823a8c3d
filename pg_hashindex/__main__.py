"""The program ``pg-hashindex``, also run by ``python -m pg_hashindex``."""

import io
import sys
from importlib import import_module

__all__ = ["run"]


def run() -> None:
    """Run the program; Ctrl-C ends it with one line and exit code 130."""
    for stream in (sys.stdout, sys.stderr):
        # Text of rows may have characters that the terminal's encoding lacks.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    # Imported here, since that takes a while, in which Ctrl-C may be pressed too.
    try:
        import_module("pg_hashindex.cli").main()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    run()
