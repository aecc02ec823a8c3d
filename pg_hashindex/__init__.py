"""Learned binary codes for pgvector: train in Python, search in SQL."""

from . import comparison, evaluate, hashers, metrics, sampling, schema, store, training, tuning
from .async_index import AsyncHashIndex
from .database import connect
from .errors import HashIndexError
from .index import HashIndex, IndexSummary, list_indexes
from .layers import Layer
from .model import Model
from .search_by_name import search
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
