"""The command line: parses and prints; everything else is the library's."""

from .main import main

__all__ = ["main"]
