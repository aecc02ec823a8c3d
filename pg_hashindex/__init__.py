"""Learned binary codes for pgvector: train in Python, search in SQL."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import comparison, evaluate, hashers, metrics, sampling, schema, store, training, tuning
    from .async_index import AsyncHashIndex
    from .database import connect
    from .errors import HashIndexError
    from .index import HashIndex, IndexSummary, list_indexes, search
    from .layers import Layer
    from .model import Model
    from .searching import Hit

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
    "AsyncHashIndex": "async_index",
    "HashIndex": "index",
    "HashIndexError": "errors",
    "Hit": "searching",
    "IndexSummary": "index",
    "Layer": "layers",
    "Model": "model",
    "connect": "database",
    "list_indexes": "index",
    "search": "index",
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
