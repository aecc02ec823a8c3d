"""Learned binary codes for pgvector: train in Python, search in SQL."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import hashers, metrics, training
    from .db import schema
    from .db.connection import connect
    from .errors import HashIndexError
    from .index.async_index import AsyncHashIndex
    from .index.catalog import IndexSummary
    from .index.handle import HashIndex, list_indexes
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

# The module of each name, or the name in it.
_HOMES = {
    "AsyncHashIndex": "index.async_index:AsyncHashIndex",
    "HashIndex": "index.handle:HashIndex",
    "HashIndexError": "errors:HashIndexError",
    "Hit": "index.search:Hit",
    "IndexSummary": "index.catalog:IndexSummary",
    "Layer": "models.layers:Layer",
    "Model": "models.model:Model",
    "comparison": "quality.comparison",
    "connect": "db.connection:connect",
    "evaluate": "quality.evaluate",
    "hashers": "hashers",
    "list_indexes": "index.handle:list_indexes",
    "metrics": "metrics",
    "sampling": "training.sampling",
    "schema": "db.schema",
    "store": "models.store",
    "training": "training",
    "tuning": "quality.tuning",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for: whoever searches waits for no scipy, alembic or matplotlib."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    value: Any = import_module(f".{module}", __name__)
    globals()[name] = value = getattr(value, attribute) if attribute else value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
