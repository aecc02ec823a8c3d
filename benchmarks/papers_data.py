"""The rows of `papers.py`: data sets, samples of them, and graphs of names."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

import numpy as np
import scipy.sparse
from common import DATA_FOLDER
from numpy.typing import NDArray

from pg_hashindex.hashers import PCAH
from pg_hashindex.papers import Split, draw_labelled
from pg_hashindex.papers.protocols import fewer, read_data

QUERIES, DATABASE_ROWS = 1_000, 60_000
WORD = re.compile("[a-z]{2,}")
# Chosen by the accuracy of labels that were passed along the graph, on another sample. Words of
# many packages ("perl", "doc") tell more about a section than words of few, which join packages of
# one source across sections ("libfoo", in libs, libdevel and doc): the accuracy is .51, against .39
# for words of two packages or more with weights by inverse document frequency.
LEAST_PACKAGES, MOST_PACKAGES = 5, 20_000


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


@lru_cache(maxsize=1)
def few_labels(
    name: str, a_class: int, seed: int, most: int | None = None
) -> tuple[Split, list[str]]:
    """Draw a database, labelled rows and queries; return names of both too, if rows have them.

    MNIST names its queries. With another number of labels, the same seed draws the same rows, and
    the fewer labels are among the more. All of the database is trained on.
    """
    rng, names = np.random.default_rng(seed), []
    if name == "mnist":
        arrays, numbers = read_data(name, DATA_FOLDER)
        X, y = arrays["X"], arrays["y"]
        queries, others = numbers["query"], rng.permutation(numbers["database"])
    else:
        X, y, names = _packages()
        queries, others = np.split(rng.permutation(len(X)), [QUERIES])
    rows = others[: most or DATABASE_ROWS]
    labelled = draw_labelled(y[rows].astype(np.intp), a_class, seed)
    numbers = {"query": queries, "database": rows, "train": rows, "labelled": labelled}
    return Split.of(X, y, numbers=numbers), [names[row] for row in (*rows, *queries) if names]


def on_database(split: Split) -> Split:
    """Return the split with the whole database to learn from."""
    places = np.arange(len(split.database))
    return replace(split, train=split.database, train_labels=split.labels, train_places=places)


def on_labelled(split: Split) -> Split:
    """Return the split with its labelled rows alone to learn from."""
    rows = split.labelled
    assert rows is not None
    return replace(
        split,
        train=split.train[rows],
        train_labels=split.train_labels[rows],
        train_places=rows,
        labelled=np.arange(len(rows)),
    )


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


def word_graph(
    names: Sequence[str], *, least: int = LEAST_PACKAGES, most: int = MOST_PACKAGES
) -> scipy.sparse.csr_array:
    """Join packages with the words of their names.

    A word is two letters or more between other characters. Its edges weigh log(packages that have
    it); words of fewer packages than ``least``, or more than ``most``, join nothing.
    """
    found = [sorted(set(WORD.findall(name.lower()))) for name in names]
    counts = Counter(word for words in found for word in words)
    kept = sorted(word for word, count in counts.items() if least <= count <= most)
    number = {word: place for place, word in enumerate(kept)}
    edges = [(row, number[w]) for row, words in enumerate(found) for w in words if w in number]
    rows, columns = np.array(edges).T
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
