"""Learned binary codes for pgvector: train in Python, search in SQL."""

from . import comparison, evaluate, hashers, metrics, sampling, schema, store, training, tuning
from .database import connect
from .errors import HashIndexError
from .index import HashIndex, IndexSummary, list_indexes
from .layers import Layer
from .model import Model
from .search import Hit

__all__ = [
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
