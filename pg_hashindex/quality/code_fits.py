"""How many candidates kinds of codes need in a table; nothing is written."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..metrics.search import candidates_in_table
from ..models.codes import hamming_distances
from ..models.model import OPERATORS, Metric, Model
from ..training import train
from .doctor_findings import CodeFit

_RECALL = 0.98


def train_code(
    X: NDArray[Any], method: str, metric: str, *, name: str = "sample", force: bool = False
) -> Model:
    """Train a model by a method, for l2 where models have no such metric."""
    used: Metric = metric if metric in OPERATORS else "l2"  # type: ignore[assignment]
    return train(X, name, method, metric=used, force=force)


def fit_code(
    code: str,
    model: Model,
    queries: NDArray[np.float32],
    near: NDArray[np.float32],
    sample: NDArray[np.float32],
    rows: int,
    are_near: NDArray[np.bool_],
) -> CodeFit:
    """Count the candidates that a table needs.

    Parameters
    ----------
    queries : (m, d)
    near : (m, j, d)
        The rows of the table that are nearest to each query, nearest first.
    sample : (n, d)
        Rows of the table.
    rows
        How many rows the table has.
    are_near : (m, n)
        Which sampled rows are the query's own, or among the near ones.
    """
    asked, others = model.encode(queries), model.encode(sample)
    by_near, by_others = [], []
    for query, rows_near in zip(asked[:, None], near, strict=True):
        by_near.append(hamming_distances(query, model.encode(rows_near))[0])
        by_others.append(hamming_distances(query, others)[0])
    candidates = candidates_in_table(
        np.array(by_near), np.array(by_others), rows, recall=_RECALL, are_near=are_near
    )
    return CodeFit(code, model.n_bits, candidates, _RECALL, rows)
