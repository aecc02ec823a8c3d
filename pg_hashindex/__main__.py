"""The program ``pg-hashindex``, also run by ``python -m pg_hashindex``."""

import sys
from importlib import import_module

__all__ = ["run"]


def run() -> None:
    """Run the program; Ctrl-C ends it with one line and exit code 130."""
    # Imported here, since that takes a while, in which Ctrl-C may be pressed too.
    try:
        import_module("pg_hashindex.cli").main()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    run()
