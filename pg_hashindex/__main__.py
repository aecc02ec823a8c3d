"""The program ``pg-hashindex``, also run by ``python -m pg_hashindex``."""

import io
import sys
from importlib import import_module

__all__ = ["run"]

_INSTALL = "pip install 'psycopg[binary]', or the system's package, such as libpq5"


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
    except ImportError as error:
        if "libpq" not in str(error):
            raise
        sys.stderr.write(f"error: psycopg finds no libpq: {_INSTALL}\n")
        sys.exit(1)


if __name__ == "__main__":
    run()
