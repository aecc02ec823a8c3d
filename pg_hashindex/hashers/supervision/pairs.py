"""The known pairs that S3PLH and SSH learn from, and sums over them without a matrix of pairs.

`LabelPairs` and `GivenPairs` have the same members. ``numbers``, intp (l,), are the rows in pairs,
rising. Methods take the coordinates X of these rows, float32 (l, r).
"""

from dataclasses import dataclass

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ...errors import InvalidInputError
from ...models.vectors import SparseRows
from ..numerics.rows import row_slices
from .label_sets import LabelSets
from .labels import Labels, Supervision, check_classes

#: The weights of a pair of neighbours and of a pair of others.
PairWeights = tuple[float, float]


@dataclass(frozen=True, eq=False)
class LabelPairs:
    """All pairs of labelled rows; rows that share a label are neighbours.

    Rows are grouped by their sets of labels, so that sums over pairs of rows become sums over
    pairs of groups.
    """

    numbers: NDArray[np.intp]
    groups: NDArray[np.intp]  # (l,) the set of labels of each row
    sets: SparseRows  # (g, c) the labels of each set
    sharing: SparseRows  # (g, g) 1 where two sets have a label in common

    @classmethod
    def read(cls, numbers: NDArray[np.intp], labels: Labels, max_sets: int) -> "LabelPairs":
        """Group rows (l,) by their labels, which all of them have.

        If rows have several labels, only the ``max_sets`` most frequent sets are kept.
        """
        found = LabelSets(labels)
        groups, sets = found.of_row, found.members
        if len(found) > max_sets and not found.single:
            kept = np.sort(np.argsort(-found.counts, kind="stable")[:max_sets])
            renumbered = np.full(len(found), -1, np.intp)
            renumbered[kept] = np.arange(max_sets)
            groups, sets = renumbered[groups], sets[kept]
            numbers, groups = numbers[groups >= 0], groups[groups >= 0]
        sharing = sets @ sets.T
        sharing.data[:] = 1
        return cls(numbers, groups, sets, sharing)

    @property
    def n_neighbours(self) -> int:
        """How many pairs have S_ij = 1."""
        sizes = np.bincount(self.groups, minlength=self.sharing.shape[0])
        return (int(sizes @ (self.sharing @ sizes)) - len(self.groups)) // 2

    @property
    def n_others(self) -> int:
        """How many pairs have S_ij = -1."""
        return len(self.groups) * (len(self.groups) - 1) // 2 - self.n_neighbours

    def signs(self, left: NDArray[np.intp], right: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return S_ij for pairs of row numbers, 0 where a row has no label."""
        places = [np.searchsorted(self.numbers, side) for side in (left, right)]
        places = [np.minimum(place, len(self.numbers) - 1) for place in places]
        labelled = (self.numbers[places[0]] == left) & (self.numbers[places[1]] == right)
        sets = [self.sets[self.groups[place]] for place in places]
        shared = np.asarray(sets[0].multiply(sets[1]).sum(axis=1)).ravel() > 0
        return np.where(labelled, np.where(shared, 1, -1), 0)

    def all_pairs(self, X: NDArray[np.float32], weights: PairWeights) -> NDArray[np.float64]:
        """Return the weighted sum of S_ij (x_i x_j' + x_j x_i') / 2 over all pairs, (r, r)."""
        totals = np.zeros((self.sharing.shape[0], X.shape[1]))
        itself = np.zeros((X.shape[1], X.shape[1]))
        for part in row_slices(len(X)):
            block, groups = X[part].astype(np.float64), self.groups[part]
            totals += _by_place(groups, np.ones(len(block)), len(totals)) @ block
            itself += block.T @ block
        # A row and itself are not a pair.
        neighbours = totals.T @ (self.sharing @ totals) - itself
        total = totals.sum(axis=0)
        others = np.outer(total, total) - itself - neighbours
        result: NDArray[np.float64] = (weights[0] * neighbours - weights[1] * others) / 2
        return result

    def wrong_pairs(
        self, X: NDArray[np.float32], weights: PairWeights, direction: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return this sum over pairs whose bits contradict S, each times |w'x_i w'x_j|, (r, r)."""
        n_groups = self.sharing.shape[0]
        totals = np.zeros((2 * n_groups, X.shape[1]))
        for part in row_slices(len(X)):
            block = X[part].astype(np.float64)
            projections = block @ direction
            places = self.groups[part] + n_groups * (projections > 0)
            totals += _by_place(places, np.abs(projections), len(totals)) @ block
        below, above = totals[:n_groups], totals[n_groups:]
        # Neighbours on different sides, and others on the same side. A group shares its own labels,
        # so no row is paired with itself here.
        apart = below.T @ (self.sharing @ above)
        together = np.zeros_like(apart)
        for side in (below, above):
            total = side.sum(axis=0)
            together += np.outer(total, total) - side.T @ (self.sharing @ side)
        result: NDArray[np.float64] = (weights[0] * (apart + apart.T) - weights[1] * together) / 2
        return result


@dataclass(frozen=True, eq=False)
class GivenPairs:
    """Pairs that were given one by one.

    A pair that contradicts the labels is held twice: as it was given, and as the labels say with a
    count of -1, which removes it from the sums over label pairs.
    """

    numbers: NDArray[np.intp]
    left: NDArray[np.intp]  # (p,) places in numbers
    right: NDArray[np.intp]
    signs: NDArray[np.intp]  # (p,) 1 or -1
    counts: NDArray[np.intp]  # (p,) 1 or -1

    @classmethod
    def read(cls, pairs: NDArray[np.intp], by_label: LabelPairs | None) -> "GivenPairs | None":
        """Keep the pairs that add to the labels; None if there are none.

        A pair that is given both as neighbours and as others is refused.
        """
        ends = np.sort(pairs[:, :2], axis=1)
        ends, first, places = np.unique(ends, axis=0, return_index=True, return_inverse=True)
        signs = pairs[first, 2]
        if (bad := signs[places.ravel()] != pairs[:, 2]).any():
            left, right = pairs[int(np.argmax(bad)), :2]
            raise InvalidInputError(
                f"rows {left} and {right} are given both as neighbours and as others; keep one of "
                "the two pairs"
            )
        known = np.zeros(len(ends), np.intp) if by_label is None else by_label.signs(*ends.T)
        new, against = known != signs, known == -signs
        if not new.any():
            return None
        numbers, places = np.unique(np.concatenate([ends[new], ends[against]]), return_inverse=True)
        left, right = places.reshape(-1, 2).T
        counts = np.repeat([1, -1], [np.count_nonzero(new), np.count_nonzero(against)])
        return cls(numbers, left, right, np.concatenate([signs[new], known[against]]), counts)

    @property
    def n_neighbours(self) -> int:
        """How many pairs have S_ij = 1."""
        return int(self.counts[self.signs > 0].sum())

    @property
    def n_others(self) -> int:
        """How many pairs have S_ij = -1."""
        return int(self.counts[self.signs < 0].sum())

    def all_pairs(self, X: NDArray[np.float32], weights: PairWeights) -> NDArray[np.float64]:
        """Return the weighted sum of S_ij (x_i x_j' + x_j x_i') / 2 over all pairs, (r, r)."""
        return self._sum(X, weights, np.ones(len(self.signs)))

    def wrong_pairs(
        self, X: NDArray[np.float32], weights: PairWeights, direction: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return this sum over pairs whose bits contradict S, each times |w'x_i w'x_j|, (r, r)."""
        projections = np.empty(len(X))
        for part in row_slices(len(X)):
            projections[part] = X[part].astype(np.float64) @ direction
        products = projections[self.left] * projections[self.right]
        return self._sum(X, weights, np.where(self.signs * products < 0, np.abs(products), 0))

    def _sum(
        self, X: NDArray[np.float32], weights: PairWeights, factors: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        weight = np.where(self.signs > 0, weights[0], weights[1])
        values = (self.counts * self.signs * weight * factors).astype(np.float32)
        shape = (len(X), len(X))
        half = scipy.sparse.csr_array((values, (self.left, self.right)), shape=shape)
        result = np.zeros((X.shape[1], X.shape[1]))
        for rows in row_slices(len(X)):
            result += X[rows].astype(np.float64).T @ (half[rows] @ X)
        return (result + result.T) / 2


def known_pairs(given: Supervision, max_label_sets: int) -> list[LabelPairs | GivenPairs]:
    """Return the pairs by label and the explicit ones, as far as there are any."""
    by_label, result = None, list[LabelPairs | GivenPairs]()
    # If pairs are given, labels alone need not be enough.
    if given.labels is not None and (given.pairs is None or len(given.labels.labelled)):
        if given.pairs is None:
            check_classes(given.labels)
        numbers = given.labels.labelled
        by_label = LabelPairs.read(numbers, given.labels.take(numbers), int(max_label_sets))
        result.append(by_label)
    if given.pairs is not None and (by_pair := GivenPairs.read(given.pairs, by_label)):
        result.append(by_pair)
    return result


def count_pairs(
    kinds: list[LabelPairs | GivenPairs], balance: bool
) -> tuple[int, int, PairWeights]:
    """Count neighbours and others, and return the weights that make sums over pairs means.

    With ``balance`` all neighbours weigh as much as all others.
    """
    n_neighbours = sum(kind.n_neighbours for kind in kinds)
    n_others = sum(kind.n_others for kind in kinds)
    if balance and n_neighbours and n_others:
        return n_neighbours, n_others, (0.5 / n_neighbours, 0.5 / n_others)
    weight = 1 / (n_neighbours + n_others)
    return n_neighbours, n_others, (weight, weight)


def _by_place(places: NDArray[np.intp], values: NDArray[np.float64], n_places: int) -> SparseRows:
    """Return the matrix that sums rows by place, each times its value."""
    columns = np.arange(len(places))
    return scipy.sparse.csr_array((values, (places, columns)), shape=(n_places, len(places)))
