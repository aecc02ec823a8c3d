"""The rows of `papers.py`: data sets, and samples of them."""

from collections import Counter
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

import numpy as np
import scipy.sparse
from common import DATA_FOLDER
from numpy.typing import NDArray

from pg_hashindex.hashers import PCAH
from pg_hashindex.papers import Split
from pg_hashindex.papers.figures import fewer, read_data

QUERIES = 1_000


def read_split(name: str, quick: int | None = None) -> Split:
    """Read a data set: its own split, or of packages one that is drawn; ``quick`` is its rows."""
    if name == "packages":
        return packages(0, quick=quick)
    arrays, numbers = read_data(name, DATA_FOLDER)
    numbers = numbers if quick is None else fewer(numbers, quick)
    return Split.of(arrays["X"], arrays.get("y"), numbers=numbers)


@cache
def _packages() -> tuple[NDArray[np.float32], NDArray[np.intp], list[str]]:
    """Read rows, numbers of their sections, and names."""
    with np.load(DATA_FOLDER / "packages.npz") as archive:
        sections = np.unique(archive["section"], return_inverse=True)[1]
        return archive["X"].astype(np.float32), sections, archive["name"].tolist()


def packages(seed: int, *, several: bool = False, quick: int | None = None) -> Split:
    """Sections of packages; or sections and the first words of names that 100 or more share."""
    X, sections, names = _packages()
    y: Any = sections
    if several:
        first = [name.split("-")[0] for name in names]
        words = {w: i for i, (w, n) in enumerate(Counter(first).most_common()) if n >= 100}
        known = np.flatnonzero([word in words for word in first])
        lines = np.concatenate([np.arange(len(y)), known])
        columns = np.concatenate([y, y.max() + 1 + np.array([words[first[k]] for k in known])])
        shape = (len(y), y.max() + 1 + len(words))
        y = scipy.sparse.csr_array((np.ones(len(lines), np.int8), (lines, columns)), shape=shape)
    order = np.random.default_rng(seed).permutation(len(X))
    database = order[QUERIES:21_000]
    numbers = {
        "query": order[:QUERIES],
        "database": database,
        "train": database[:10_000],
        **dict.fromkeys(("anchors", "labelled"), np.arange(1_000)),
    }
    return Split.of(X, y, numbers=numbers if quick is None else fewer(numbers, quick))


def on_database(split: Split) -> Split:
    """Return the split with the whole database to learn from."""
    places = np.arange(len(split.database))
    return replace(split, train=split.database, train_labels=split.labels, train_places=places)


def thinned(split: Split, seed: int) -> Split:
    """Thin the training rows: classes keep from all of their rows to a tenth, geometrically."""
    rng = np.random.default_rng(seed)
    y = split.train_labels
    classes = rng.permutation(np.unique(y))
    share = dict(zip(classes, np.geomspace(1, 0.1, len(classes)), strict=True))
    kept = rng.random(len(y)) < np.array([share[label] for label in y])
    return replace(split, train=split.train[kept], train_labels=y[kept], train_places=None)


def noisy(split: Split, seed: int, share: float) -> Split:
    """Give a share of the training rows a label drawn at random."""
    rng = np.random.default_rng(seed)
    y = np.array(split.train_labels)
    wrong = rng.random(len(y)) < share
    y[wrong] = rng.choice(np.unique(y), wrong.sum())
    return replace(split, train_labels=y, train_places=None)


def smaller(split: Split) -> Split:
    """Keep 500 queries, the training rows, and 10,000 others of a large database."""
    split = replace(split, queries=split.queries[::2], query_labels=split.query_labels[::2])
    if len(split.database) < 20_000:
        return split
    others = np.setdiff1d(np.arange(len(split.database)), split.train_places)
    kept = np.concatenate([split.train_places, others[:: len(others) // 10_000]])
    return replace(
        split,
        database=split.database[kept],
        labels=split.labels[kept],
        train_places=np.arange(len(split.train_places)),
    )


@lru_cache(maxsize=1)
def held_back(name: str, quick: int | None = None) -> Split:
    """Return rows of the training of a data set as a data set of their own."""
    several = name.endswith("several labels")
    split = packages(0, several=True, quick=quick) if several else read_split(name, quick)
    order = np.random.default_rng(0).permutation(len(split.train))
    queries, rows = order[:500], order[500:5_500]
    X, y = split.train, split.train_labels
    if name == "mnist":
        # In their main directions, to save time.
        X = PCAH(n_bits=128).fit(X[rows]).project(X)
    numbers = {"query": queries, "database": rows, "train": rows}
    return Split.of(X, y, numbers=numbers | {"labelled": np.arange(min(1_000, len(rows)))})
