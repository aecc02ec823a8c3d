"""Learned binary codes for pgvector: train in Python, search in SQL."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import hashers, metrics, training
    from .db import schema
    from .db.connection import connect
    from .errors import HashIndexError
    from .index.async_index import AsyncHashIndex
    from .index.handle import HashIndex, IndexSummary, list_indexes, search
    from .index.search import Hit
    from .models import store
    from .models.layers import Layer
    from .models.model import Model
    from .quality import comparison, evaluate, tuning
    from .training import sampling

__all__ = [
    "AsyncHashIndex",
    "HashIndex",
    "HashIndexError",
    "Hit",
    "IndexSummary",
    "Layer",
    "Model",
    "comparison",
    "connect",
    "evaluate",
    "hashers",
    "list_indexes",
    "metrics",
    "sampling",
    "schema",
    "search",
    "store",
    "training",
    "tuning",
]

# What is no module of its own, and where it is.
_MODULES = {
    "AsyncHashIndex": "index.async_index",
    "HashIndex": "index.handle",
    "HashIndexError": "errors",
    "Hit": "index.search",
    "IndexSummary": "index.handle",
    "Layer": "models.layers",
    "Model": "models.model",
    "connect": "db.connection",
    "list_indexes": "index.handle",
    "search": "index.handle",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for: whoever searches waits for no scipy, alembic or matplotlib."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f".{_MODULES.get(name, name)}", __name__)
    value = getattr(module, name) if name in _MODULES else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
