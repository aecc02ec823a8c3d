"""The rows of `semi_supervised.py`: samples, labels, and graphs of names."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from pg_hashindex.papers import Split, draw_labelled

DATABASE_ROWS, QUERIES = 60_000, 1_000

WORD = re.compile("[a-z]{2,}")
# Chosen by the accuracy of labels that were passed along the graph, on another sample. Words of
# many packages ("perl", "doc") tell more about a section than words of few, which join packages of
# one source across sections ("libfoo", in libs, libdevel and doc): the accuracy is .51, against .39
# for words of two packages or more with weights by inverse document frequency.
LEAST_PACKAGES, MOST_PACKAGES = 5, 20_000


@dataclass(frozen=True)
class DataSet:
    """The rows of one seed; `split` trains on the whole database and names the labelled rows."""

    split: Split
    #: Names of the database, then of the queries; images have none.
    names: Sequence[str] = ()


@lru_cache(maxsize=1)
def draw(data: Path, name: str, a_class: int, seed: int, most: int | None = None) -> DataSet:
    """Draw the database, the labelled rows and, if the data set names none, the queries.

    With another number of labels, the same seed draws the same rows, and the fewer labels are among
    the more.

    ``data``: The folder of the data sets. ``a_class``: How many rows of each class are
    labelled; all of them in smaller classes. ``most``: Rows of the database to take instead of
    all, for trying things out.
    """
    X, y, names = read(data, name)
    rng = np.random.default_rng(seed)
    if name == "mnist":
        with np.load(data / "mnist_split.npz") as archive:
            queries, others = archive["query"], rng.permutation(archive["database"])
    else:
        queries, others = np.split(rng.permutation(len(X)), [QUERIES])
    database = others[: most or DATABASE_ROWS]
    rows, labels = X[database], y[database]
    split = Split(
        X[queries],
        rows,
        rows,
        y[queries],
        labels,
        labels,
        train_places=np.arange(len(database)),
        labelled=draw_labelled(labels, a_class, seed),
    )
    return DataSet(split, [names[row] for row in (*database, *queries)] if names else ())


@cache
def read(data: Path, name: str) -> tuple[NDArray[np.float32], NDArray[np.intp], list[str]]:
    """Read rows, numbers of their labels, and names if they have any."""
    with np.load(data / f"{name}.npz") as archive:
        if name == "mnist":
            return archive["X"] / np.float32(255), archive["y"].astype(np.intp), []
        sections = np.unique(archive["section"], return_inverse=True)[1]
        return archive["X"].astype(np.float32), sections, archive["name"].tolist()


def word_graph(
    names: Sequence[str], *, least: int = LEAST_PACKAGES, most: int = MOST_PACKAGES
) -> scipy.sparse.csr_array:
    """Join packages with the words of their names.

    A word is two letters or more between other characters. Its edges weigh log(packages that have
    it); words of fewer packages than ``least``, or more than ``most``, join nothing.

    ``least``: 2 or more: a word of one package joins nothing.
    """
    found = [sorted(set(WORD.findall(name.lower()))) for name in names]
    counts = Counter(word for words in found for word in words)
    kept = sorted(word for word, count in counts.items() if least <= count <= most)
    number = {word: place for place, word in enumerate(kept)}
    rows, columns = [], []
    for row, words in enumerate(found):
        for word in words:
            if word in number:
                rows.append(row)
                columns.append(number[word])
    value = np.log([counts[word] for word in kept])
    shape = (len(names), len(kept))
    return scipy.sparse.csr_array((value[columns], (rows, columns)), shape=shape)


def side_by_side(*graphs: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    """Join the objects of several graphs; each graph has the same weight at each row."""
    scaled = []
    for graph in graphs:
        totals = np.asarray(graph.sum(axis=1))
        factors = np.divide(1.0, totals, out=np.zeros_like(totals, dtype=float), where=totals > 0)
        scaled.append(scipy.sparse.diags_array(factors) @ graph)
    return scipy.sparse.csr_array(scipy.sparse.hstack(scaled))
