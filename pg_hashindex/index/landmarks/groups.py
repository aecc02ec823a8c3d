"""Groups of landmarks, so that a row is compared only with landmarks of the nearest groups."""

import math
from collections.abc import Iterator

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ...hashers.numerics.kmeans import nearest_centres
from ...hashers.numerics.rows import row_slices

# Rounds of k-means among the landmarks, which forms the groups; more find no more neighbours.
_ROUNDS = 4
# The largest size of a group, in multiples of the mean: larger groups take longer to visit.
_LARGEST = 3
# Scores computed at a time: 32 MB.
_BLOCK_SCORES = 1 << 23
# Columns that are put in another order at a time.
_COLUMNS = 32
# Rows added up in float32 before float64 takes the sum.
_SUM_ROWS = 32


class LandmarkGroups:
    """Landmarks in groups around centres of their own: an inverted file, one level.

    A row is compared with the group centres, and then with the landmarks of the groups visited.
    Each row chooses its own groups. Letting all rows of a group visit the same neighbouring groups
    needs fewer and larger products, but takes twice the time for the same neighbours.

    Points float32 (m, k) have values of about 1 at most: their scores must hold in float32. They
    and the places where groups begin are those that `put_in_groups` gives.
    """

    def __init__(
        self, points: NDArray[np.float32], starts: NDArray[np.intp], n_visited: int
    ) -> None:
        self.points, self.starts = points, starts
        self._sizes = np.diff(starts)
        self._halves = _half_squares(self.points)
        sums: NDArray[np.float32] = np.add.reduceat(self.points, self.starts[:-1], axis=0)
        self._centres = (sums / self._sizes[:, None]).astype(np.float32)
        self._centre_halves = _half_squares(self._centres)
        self._n_visited = min(n_visited, len(self._centres))
        self._block_rows = max(1, _BLOCK_SCORES // max(self._n_visited, len(self._centres)))

    def nearest(self, X: NDArray[np.float32]) -> NDArray[np.intp]:
        """Find the nearest point of each row (n, k) among those of the groups it visits."""
        result = np.empty(len(X), np.intp)
        for part in row_slices(len(X), self._block_rows):
            visited = self._visited(X[part])
            # Every visited group has landmarks, so all places of both arrays are written.
            least = np.empty(visited.size, np.float32)
            places = np.empty(visited.size, np.intp)
            for pairs, group, scores in self._scores(X[part], visited):
                best = scores.argmin(axis=1)
                least[pairs] = scores[np.arange(len(pairs)), best]
                places[pairs] = self.starts[group] + best
            best = least.reshape(visited.shape).argmin(axis=1)
            every = np.arange(len(visited))
            result[part] = places.reshape(visited.shape)[every, best]
        return result

    def _visited(self, X: NDArray[np.float32]) -> NDArray[np.intp]:
        """Return the groups that each row visits, intp (n, n_visited)."""
        scores = X @ self._centres.T
        np.subtract(self._centre_halves, scores, out=scores)
        return _least(scores, self._n_visited)

    def _scores(
        self, X: NDArray[np.float32], visited: NDArray[np.intp]
    ) -> Iterator[tuple[NDArray[np.intp], int, NDArray[np.float32]]]:
        """Compare rows with the landmarks of the groups they visit, group by group.

        Yields the places in ``visited`` of the p rows that visit a group, the group, and their
        scores (p, its size): half of the squared distance, without the square of the row.
        """
        flat = visited.ravel()
        # NumPy sorts numbers of 16 bits by radix.
        few = len(self._sizes) <= np.iinfo(np.uint16).max
        order = np.argsort(flat.astype(np.uint16) if few else flat, kind="stable")
        ends = np.bincount(flat, minlength=len(self._sizes)).cumsum()
        rows = order // visited.shape[1]
        start = 0
        for group, end in enumerate(ends.tolist()):
            if start < end:
                part = slice(self.starts[group], self.starts[group + 1])
                scores = X[rows[start:end]] @ self.points[part].T
                np.subtract(self._halves[part], scores, out=scores)
                yield order[start:end], group, scores
            start = end


def nearest(
    X: NDArray[np.float32], points: NDArray[np.float32], groups: LandmarkGroups | None
) -> NDArray[np.intp]:
    """Find the nearest point of each row (n, k): among all, or in the groups that it visits."""
    return nearest_centres(X, points, 1)[0][:, 0] if groups is None else groups.nearest(X)


def put_in_groups(
    points: NDArray[np.float32], fineness: float
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Put points (m, k), in place, group after group.

    ``fineness`` is the number of groups for each root of the number of points. Returns the former
    numbers of the points, and where each group begins; see `_split`.
    """
    n_groups = min(len(points), math.ceil(fineness * math.sqrt(len(points))))
    # Start from evenly spaced points: any will do, and these are reproducible.
    centres = points[np.arange(n_groups) * len(points) // n_groups]
    every, weights = np.arange(len(points)), np.ones(len(points), np.float32)
    for _ in range(_ROUNDS):
        labels = nearest_centres(points, centres, 1)[0][:, 0]
        means, counts = place_means(points, labels, len(centres), every, weights)
        centres = means[counts > 0]
    labels = nearest_centres(points, centres, 1)[0][:, 0]
    members, starts = _split(points, labels, _LARGEST * len(points) // n_groups)
    reorder(points, members)
    return members, starts


def reorder(points: NDArray[np.float32], numbers: NDArray[np.intp]) -> NDArray[np.float32]:
    """Put points of different numbers first, in this order, in place; return them."""
    result = points[: len(numbers)]
    for start in range(0, points.shape[1], _COLUMNS):
        columns = slice(start, start + _COLUMNS)
        result[:, columns] = points[numbers, columns]
    return result


def _split(
    points: NDArray[np.float32], labels: NDArray[np.intp], largest: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Put the members of each group together; cut groups above the largest size along an axis.

    Returns the numbers of points, group after group, and the start of each group among them, and
    the end; none is empty.
    """
    members = np.lexsort((points[:, 0], labels))
    ordered = labels[members]
    firsts = np.flatnonzero(np.diff(ordered, prepend=-1))
    sizes = np.diff(firsts, append=len(members))
    parts = -(-sizes // max(largest, 1))
    # The lengths of a group's parts differ by at most one.
    number = np.arange(parts.sum()) - np.repeat(parts.cumsum() - parts, parts)
    starts = np.repeat(firsts, parts) + number * np.repeat(sizes, parts) // np.repeat(parts, parts)
    return members, np.append(starts, len(members))


def _least(scores: NDArray[np.float32], n: int) -> NDArray[np.intp]:
    """Find the places of the n least numbers of each line, in no order.

    Each place is written over the last bits of its number, and the numbers are partitioned, which
    takes a third of the time of an indirect partition. So numbers that differ in those bits alone
    (in a 1000th part, of 4,000 in a line) count as equal. The scores are overwritten.

    Returns intp (n_lines, n); all places, if a line is shorter.
    """
    width = scores.shape[1]
    if n >= width:
        return np.broadcast_to(np.arange(width), scores.shape).astype(np.intp)
    last = np.int32((1 << (width - 1).bit_length()) - 1)
    bits = scores.view(np.int32)
    bits &= ~last
    bits |= np.arange(width, dtype=np.int32)
    scores.partition(n - 1, axis=1)
    return (bits[:, :n] & last).astype(np.intp)


def _half_squares(points: NDArray[np.float32]) -> NDArray[np.float32]:
    result: NDArray[np.float32] = np.einsum("ij,ij->i", points, points) / 2
    return result


def place_means(
    rows: NDArray[np.float32],
    places: NDArray[np.intp],
    n_places: int,
    numbers: NDArray[np.intp],
    weights: NDArray[np.float32],
) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
    """Return the weighted mean of the rows of each place, (n_places, d), and how many they are.

    ``places`` (p,) belong to the rows ``numbers`` (p,) of ``rows`` (n, d), which are not copied;
    the mean is 0 where a place has no row. Sums of at most 32 rows in float32, and sums of these in
    float64: thousands of equal rows in float32 alone have a mean that is none of them.
    """
    order = np.argsort(places, kind="stable")
    counts = np.bincount(places, minlength=n_places)
    parts = -(-counts // _SUM_ROWS)
    rank = np.arange(len(places)) - np.repeat(counts.cumsum() - counts, counts)
    firsts = np.flatnonzero(rank % _SUM_ROWS == 0)
    members = scipy.sparse.csr_array(
        (weights[order], numbers[order], np.append(firsts, len(places))),
        shape=(len(firsts), len(rows)),
    )
    sums = members @ rows
    means = np.zeros((n_places, rows.shape[1]), np.float32)
    starts = parts.cumsum() - parts
    short, long = parts == 1, np.flatnonzero(parts > 1)
    means[short] = sums[starts[short]] / counts[short, None].astype(np.float32)
    if len(long):
        several = sums[np.repeat(parts > 1, parts)].astype(np.float64)
        ends = parts[long].cumsum()
        means[long] = np.add.reduceat(several, ends - parts[long], axis=0) / counts[long, None]
    return means, counts
