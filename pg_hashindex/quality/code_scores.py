"""Measures of the papers for the codes of an index."""

import numpy as np

from ..errors import InvalidInputError
from ..hashers.supervision.labels import Labels
from ..index.catalog import HasRow
from ..index.search import as_count
from ..metrics.truth import relevant_by_distance, rows_of_fraction
from ..training.sampling import sample_table
from .scores import Measures, Scores, score, sharing_labels

__all__ = ["CODE_ROWS", "score_codes"]

#: The most rows to draw from the table, including the queries.
CODE_ROWS = 20_000
_FRACTION = 0.02


def score_codes(
    index: HasRow,
    *,
    labels: str | None = None,
    queries: int = 200,
    rows: int = CODE_ROWS,
    measures: Measures | None = None,
    random_state: int = 0,
) -> dict[str, Scores]:
    """Measure the order by an index's codes, without re-ranking.

    Draws rows of the index's table, takes some as queries and ranks all others by their codes, with
    the exact weights of the model's bits. A search of lists rounds weights to fifteenths of the
    largest; pgvector's indexes rank by the Hamming distance alone.

    Parameters
    ----------
    labels
        A column of labels, as `sample_table` takes it: rows of a shared label are relevant. Without
        labels, the nearest 2 % by the index's metric are relevant.
    queries
        The most queries; never more than a tenth of the rows.
    rows
        The most rows to draw; with labels, of rows that have one.
    random_state
        The seed of both draws.

    Returns
    -------
    dict of str to Scores
        By the name of the truth.

    Raises
    ------
    InvalidInputError
        If there are too few rows, or no labels that rows share, or a number is out of range; or
        the index ranks by inner product, which has no nearest rows, and there are no labels.
    """
    index = index.row
    for what, value in (("queries", queries), ("rows", rows)):
        as_count(what, value)
    if labels is None and index.metric == "ip":
        raise InvalidInputError(
            f"index {index.name!r} ranks by inner product, by which no rows are the nearest; "
            "measure its codes by labels"
        )
    sample = sample_table(
        index.connection,
        index.qualified_table,
        index.column_name,
        labels=labels,
        rows=rows,
        random_state=random_state,
        metric=index.metric,
    )
    X, y = sample.X, None
    if labels is not None:
        labelled = Labels.read(sample.y, len(X)).labelled
        X, y = X[labelled], sample.y[labelled]
    model = index.loaded_model
    if len(X) < 20:
        raise InvalidInputError(
            f"{index.qualified_table} has {len(X)} rows "
            f"{'' if labels is None else f'with a label in {labels} '}to measure by; 20 are needed"
        )
    compared = X
    if index.metric == "cosine":
        lengths = np.linalg.norm(X, axis=1, keepdims=True)
        compared = X / np.where(lengths > 0, lengths, 1)
    order = np.random.default_rng(random_state).permutation(len(X))
    n_queries = max(1, min(queries, len(X) // 10))
    query, database = np.sort(order[:n_queries]), np.sort(order[n_queries:])
    measures = measures or Measures(k=(min(100, len(database)),))
    measures.check(len(database))
    if y is not None:
        labels_of = y[query], y[database]
        relevant = {"label": sharing_labels(*labels_of)}
    else:
        labels_of = None
        nearest = rows_of_fraction(_FRACTION, len(database))
        relevant = {
            f"nearest {100 * _FRACTION:g} %": relevant_by_distance(
                compared[query], compared[database], nearest
            )
        }
    codes = model.encode(X[database])
    return score(model, X[query], codes, relevant, measures, labels=labels_of)
