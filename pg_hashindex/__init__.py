"""Learned binary codes for pgvector: train in Python, search in SQL."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import hashers, metrics, training
    from .db import schema
    from .db.connection import connect
    from .errors import HashIndexError
    from .index.async_index import AsyncHashIndex
    from .index.handle import HashIndex, IndexSummary, list_indexes
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
    "store",
    "training",
    "tuning",
]

# The module that each name is in, and the modules among the names.
_HOMES = {
    "AsyncHashIndex": "index.async_index",
    "HashIndex": "index.handle",
    "HashIndexError": "errors",
    "Hit": "index.search",
    "IndexSummary": "index.handle",
    "Layer": "models.layers",
    "Model": "models.model",
    "connect": "db.connection",
    "list_indexes": "index.handle",
}
_MODULES = {
    "comparison": "quality.comparison",
    "evaluate": "quality.evaluate",
    "hashers": "hashers",
    "metrics": "metrics",
    "sampling": "training.sampling",
    "schema": "db.schema",
    "store": "models.store",
    "training": "training",
    "tuning": "quality.tuning",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for: whoever searches waits for no scipy, alembic or matplotlib."""
    value: Any
    if name in _MODULES:
        value = import_module(f".{_MODULES[name]}", __name__)
    elif name in _HOMES:
        value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
