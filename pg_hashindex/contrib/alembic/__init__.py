"""Indexes in migrations of alembic: write ``import pg_hashindex.contrib.alembic`` in env.py.

``alembic.op`` then has the functions below as its methods, and autogenerate compares the indexes
that are declared beside tables (`pg_hashindex.contrib.sqlalchemy.HashIndex`) with those of the
database. The functions themselves are for code that is checked with mypy, which knows of no such
methods.
"""

from . import comparing  # noqa: F401
from .operations import (
    ConfigureHashIndexOp,
    CreateHashIndexOp,
    DropHashIndexOp,
    InstallHashIndexOp,
    SwapHashIndexOp,
    UninstallHashIndexOp,
    configure_hash_index,
    create_hash_index,
    drop_hash_index,
    install_hashindex,
    swap_hash_index,
    uninstall_hashindex,
)

__all__ = [
    "ConfigureHashIndexOp",
    "CreateHashIndexOp",
    "DropHashIndexOp",
    "InstallHashIndexOp",
    "SwapHashIndexOp",
    "UninstallHashIndexOp",
    "configure_hash_index",
    "create_hash_index",
    "drop_hash_index",
    "install_hashindex",
    "swap_hash_index",
    "uninstall_hashindex",
]
