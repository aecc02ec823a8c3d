"""Learned binary codes for pgvector: train in Python, search in SQL."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import hashers as hashers
    from . import metrics as metrics
    from . import operations as operations
    from . import papers as papers
    from . import training as training
    from .db import schema as schema
    from .db.connection import connect as connect
    from .db.progress import show_progress as show_progress
    from .errors import HashIndexError as HashIndexError
    from .index.async_index import AsyncHashIndex as AsyncHashIndex
    from .index.catalog import IndexSummary as IndexSummary
    from .index.handle import HashIndex as HashIndex
    from .index.handle import list_indexes as list_indexes
    from .index.search import Hit as Hit
    from .models import store as store
    from .models.columns import encode_column as encode_column
    from .models.layers import Layer as Layer
    from .models.model import Model as Model
    from .quality import evaluate as evaluate
    from .quality import tuning as tuning
    from .training import sampling as sampling

# The module of each name, or the name in it.
_HOMES = {
    "AsyncHashIndex": "index.async_index:AsyncHashIndex",
    "HashIndex": "index.handle:HashIndex",
    "HashIndexError": "errors:HashIndexError",
    "Hit": "index.search:Hit",
    "IndexSummary": "index.catalog:IndexSummary",
    "Layer": "models.layers:Layer",
    "Model": "models.model:Model",
    "connect": "db.connection:connect",
    "encode_column": "models.columns:encode_column",
    "evaluate": "quality.evaluate",
    "hashers": "hashers",
    "list_indexes": "index.handle:list_indexes",
    "metrics": "metrics",
    "operations": "operations",
    "papers": "papers",
    "sampling": "training.sampling",
    "schema": "db.schema",
    "show_progress": "db.progress:show_progress",
    "store": "models.store",
    "training": "training",
    "tuning": "quality.tuning",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    """Import a name on first use, so that a search loads no scipy, alembic or matplotlib."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    value: Any = import_module(f".{module}", __name__)
    globals()[name] = value = getattr(value, attribute) if attribute else value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
