"""Train landmarks: k-means with thousands of centres over blocks of rows, in bounded memory."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...hashers.numerics.rows import row_slices
from .assignment import MAX_FLAT, ListSums
from .groups import LandmarkGroups, nearest, put_in_groups, reorder
from .space import BLOCK_ROWS, SPACE_ROWS, Space, in_threads, moderate_rows, row_lengths

#: Read blocks (n, d) of about this number of random rows; another seed gives other rows.
Draw: TypeAlias = Callable[[int, int], Iterable[NDArray[np.float32]]]

# Groups for each root of the number of landmarks, and groups that a row visits. Fewer comparisons
# than `Landmarks` makes, since a wrong neighbour harms a mean less than a list. On 300,000 text
# embeddings twice as many visits cover no more of the true ten.
_FINENESS, _VISITED = 4.0, 8
# Indexes on 300,000 text embeddings: lists that a search reads for .95 of the true ten, its CPU
# milliseconds, megabytes of the index. One landmark for 28 rows, two rounds of 12 rows for each:
# 79, 2.0, 61.8; three rounds: 71, 1.7, 61.8. One for 20, three rounds of 9: 67, 1.55, 66.2. One
# for 16, three of 8: 63, 1.45, 71.1.
_ROUNDS = 3
_ROWS_PER_LANDMARK = 9
_TABLE_ROWS_PER_LANDMARK = 20
# Rows are equal up to rounding if their distance is below this part of their length.
_SAME = 1e-5
# The most landmarks that move to another row in a round: one of 16, but at least 1,024.
_REPLACED, _LEAST_REPLACED = 16, 1024
# First rows are drawn again if they are more numbers than this, 32 MB.
_FIRST_VALUES = 1 << 23


def landmark_count(n_rows: int) -> int:
    """Return how many landmarks a table with this number of rows should have: one for 20 rows."""
    return max(1, n_rows // _TABLE_ROWS_PER_LANDMARK)


def training_rows(n_landmarks: int) -> int:
    """Return how many rows a round of training this number of landmarks reads: 9 for each."""
    return _ROWS_PER_LANDMARK * n_landmarks


#: Which landmarks: a slice, or numbers.
Part: TypeAlias = slice | NDArray[np.intp]


class Centres:
    """Means of rows: ``centres[10:20]`` computes some of them, float32 (n, d)."""

    def __init__(self, sums: ListSums, numbers: NDArray[np.intp]) -> None:
        self._sums, self._numbers = sums, numbers
        #: How large numbers of rows around them may be.
        self.largest = sums.largest

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, part: Part) -> NDArray[np.float32]:
        return self._sums.means(self._numbers[part])[0]


class Halves:
    """Landmarks as they are stored: ``halves[10:20]`` computes some of them, float16 (n, k)."""

    def __init__(self, count: int, compute: Callable[[Part], NDArray[np.float32]]) -> None:
        self._count, self._compute = count, compute

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, part: Part) -> NDArray[np.float16]:
        return self._compute(part).astype(np.float16)


def train_by_blocks(
    draw: Draw,
    read: "Callable[[Round, int], None]",
    n_landmarks: int,
    dimension: int,
    *,
    spherical: bool,
    seed: int,
    rounds: int = _ROUNDS,
    on_round: Callable[[int, int], None] | None = None,
) -> Centres | None:
    """Train landmarks by k-means: each round moves landmarks to the means of their rows.

    The first landmarks are rows that ``draw`` gives; ``read`` adds the rows of each round, which
    has a number from 2 on. So memory holds what rows are compared with, their sums, and a block. If
    there are more than 1,024 landmarks, a row is compared with those near it, in fewer dimensions,
    as `Landmarks` does. A landmark that loses all its rows moves to a row, drawn with a probability
    that grows with its squared distance to its own landmark (as in k-means++). After the last
    round, landmarks of fewer than three rows are dropped, so that no landmark reveals a single row.

    The result does not depend on the order in which rows are added. If only directions count
    (``spherical``), landmarks have unit length, and zero vectors are left out. ``on_round`` is
    called after each round with the rounds done and the rounds in all. Returns m landmarks; the
    first axis, if no three rows have a mean; None if ``draw`` gives no row.
    """
    blocks: Iterable[NDArray[np.float32]]
    again = n_landmarks * dimension > _FIRST_VALUES
    blocks = list(draw(SPACE_ROWS if again else max(SPACE_ROWS, n_landmarks), 0))
    if not any(map(len, blocks)):
        return None
    first = usable_rows(np.concatenate(blocks), spherical)[0]
    if not len(first):
        return _first_axis(dimension, spherical)
    largest = ListSums.largest_of(first)
    space = Space.around(first, spherical=spherical, reduces=n_landmarks > MAX_FLAT)
    if again:
        blocks = (usable_rows(block, spherical)[0] for block in draw(n_landmarks, 1))
    else:
        blocks = [first]
    del first
    points = _first_points(blocks, n_landmarks, space, seed)
    del blocks
    for done in range(rounds):
        last = done + 1 == rounds
        n_far = 0 if last else max(_LEAST_REPLACED, n_landmarks // _REPLACED)
        starts = np.zeros(0, np.intp)
        if n_landmarks > MAX_FLAT:
            _, starts = put_in_groups(points, _FINENESS)
        round_ = Round(space, points, starts, largest=largest, n_far=n_far, seed=seed + done)
        # The next points take their place.
        del points
        read(round_, 2 + done)
        if on_round is not None:
            on_round(done + 1, rounds)
        if not last:
            points = round_.moved(n_landmarks)
            if not len(points):
                break
    return round_.centres() or _first_axis(dimension, spherical)


def _first_axis(dimension: int, spherical: bool) -> Centres:
    """Return one landmark that does not depend on the rows; all of them are nearest to it."""
    sums = ListSums(1, dimension, spherical=spherical, largest=1.0)
    sums.add(np.eye(1, dimension, dtype=np.float32), np.zeros(1, np.intp))
    return Centres(sums, np.zeros(1, np.intp))


def _first_points(
    blocks: Iterable[NDArray[np.float32]], n_landmarks: int, space: Space, seed: int
) -> NDArray[np.float32]:
    """Return the coordinates of different rows, at most as many as landmarks."""
    most = max(n_landmarks, SPACE_ROWS)
    points, numbers, end = np.empty((most, space.width), np.float32), np.empty(most, np.uint64), 0
    for block in blocks:
        for part in row_slices(min(len(block), most - end), BLOCK_ROWS):
            rows, places = block[part], slice(end, end + part.stop - part.start)
            points[places], numbers[places] = space(rows), _random_numbers(rows, seed)
            end = places.stop
    _, kept = np.unique(numbers[:end], return_index=True)
    chosen = np.random.default_rng(seed).permutation(np.sort(kept))
    return reorder(points, chosen[:n_landmarks])


def usable_rows(
    X: NDArray[np.float32], spherical: bool
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Leave out rows (n, d) without a direction, if only directions count; return which stay."""
    kept = np.ones(len(X), np.bool_)
    if spherical:
        X, lengths = moderate_rows(X)
        kept = lengths > 0
    return X if kept.all() else X[kept], kept


class Round:
    """One round of k-means: points (m, k) of a space, and the sums of the rows nearest to each.

    If there are ``starts`` of groups, points are in groups.

    Processes that read some of the rows each have an equal round, made of what `arrays` returns;
    one of them takes what `parts` of the others returns.
    """

    def __init__(
        self,
        space: Space,
        points: NDArray[np.float32],
        starts: NDArray[np.intp],
        *,
        largest: float,
        n_far: int,
        seed: int,
    ) -> None:
        self._space, self._seed = space, seed
        self._points, self._starts = points, starts
        self._groups = LandmarkGroups(points, starts, _VISITED) if len(starts) else None
        self.sums = ListSums(
            len(points), len(space.mean), spherical=space.spherical, largest=largest
        )
        self._far = _FarRows(n_far, space.width)

    def add(self, X: NDArray[np.float32]) -> None:
        """Add rows (n, d)."""
        X, _ = usable_rows(X, self._space.spherical)
        rows = np.empty((len(X), self._space.width), np.float32)
        places = np.empty(len(X), np.intp)

        def work(part: slice) -> None:
            rows[part] = self._space(X[part])
            places[part] = nearest(rows[part], self._points, self._groups)

        in_threads(work, len(X))
        self.sums.add(X, places)
        if self._far.most:
            distances = row_lengths(rows - self._points[places])
            # Distances are exact only to the digits that the original rows had.
            scale = 1 if self._space.spherical else row_lengths(X)
            distances[distances <= _SAME * scale * self._space.scale] = 0
            self._far.add(rows, distances, _random_numbers(X, self._seed))

    def task(self) -> dict[str, float]:
        """Return what `of` takes, with the arrays."""
        return {"largest": self.sums.largest, "n_far": self._far.most, "seed": self._seed}

    def arrays(self) -> list[NDArray[Any]]:
        """Return what another process needs beside it."""
        space = self._space
        return [space.mean, np.array(space.scale), space.basis, self._points, self._starts]

    @classmethod
    def of(cls, task: dict[str, Any], arrays: Sequence[NDArray[Any]], *, spherical: bool) -> Self:
        """Return an equal round in another process, without rows."""
        mean, scale, basis, points, starts = arrays
        space = Space(mean, np.float32(scale), basis, spherical=spherical)
        return cls(space, points, starts, **task)

    def parts(self) -> Iterator[NDArray[Any]]:
        """Yield what `merge` adds, as arrays."""
        yield from (self._far.points, self._far.chances, self._far.numbers)
        yield from self.sums.parts()

    def merge(self, parts: Iterator[NDArray[Any]]) -> None:
        """Add the rows of an equal round."""
        self._far.merge(next(parts), next(parts), next(parts))
        self.sums.merge(parts)

    def forget(self) -> None:
        """Forget all rows."""
        self.sums = self.sums.emptied()
        self._far = _FarRows(self._far.most, self._space.width)

    def moved(self, n_landmarks: int) -> NDArray[np.float32]:
        """Return the points for the next round: means, and rows in the place of lost ones."""
        # Their place is for the next points.
        self._groups, self._points = None, self._points[:0].copy()
        points, end = np.empty((n_landmarks, self._space.width), np.float32), 0
        for part in row_slices(len(self.sums), BLOCK_ROWS):
            means, there = self.sums.means(part, 1)
            rows = self._space(means[there])
            points[end : end + len(rows)] = rows
            end += len(rows)
        rows = self._far.points[: n_landmarks - end]
        points[end : end + len(rows)] = rows
        return points[: end + len(rows)]

    def centres(self) -> Centres | None:
        """Return the means, group after group: their numbers give the order of lists on disk."""
        self._groups, self._points = None, self._points[:0].copy()
        found = [
            part.start + np.flatnonzero(self.sums.means(part)[1])
            for part in row_slices(len(self.sums), BLOCK_ROWS)
        ]
        numbers = np.concatenate(found)
        if not len(numbers):
            return None
        points = np.empty((len(numbers), self._space.width), np.float32)
        for part in row_slices(len(numbers), BLOCK_ROWS):
            points[part] = self._space(self.sums.means(numbers[part])[0])
        return Centres(self.sums, numbers[put_in_groups(points, _FINENESS)[0]])


class _FarRows:
    """Rows drawn with a probability that grows with their squared distance, without replacement.

    The least of exponential variables with these rates are such a draw. Several threads may add at
    a time.
    """

    def __init__(self, most: int, width: int) -> None:
        self.most = most
        #: Distinct rows, in the order of the draw.
        self.points = np.empty((0, width), np.float32)
        self.chances, self.numbers = np.empty(0), np.empty(0, np.uint64)
        self._lock = threading.Lock()

    def add(
        self,
        points: NDArray[np.float32],
        distances: NDArray[np.float32],
        numbers: NDArray[np.uint64],
    ) -> None:
        """Draw among rows (n, k) too, by random numbers (n,); those of distance 0 are left out."""
        apart = np.flatnonzero(distances > 0)
        uniform = (numbers[apart] >> np.uint64(11)).astype(np.float64) * 2.0**-53
        self.merge(
            points[apart], -np.log1p(-uniform) / distances[apart].astype(np.float64) ** 2,
            numbers[apart],
        )  # fmt: skip

    def merge(
        self,
        points: NDArray[np.float32],
        chances: NDArray[np.float64],
        numbers: NDArray[np.uint64],
    ) -> None:
        """Draw among rows of another draw too."""
        with self._lock:
            if len(chances) and len(self.chances) == self.most:
                below = chances < self.chances[-1]
                points, chances, numbers = points[below], chances[below], numbers[below]
            if not len(chances):
                return
            chances = np.concatenate([self.chances, chances])
            numbers = np.concatenate([self.numbers, numbers])
            order = np.lexsort((numbers, chances))
            # Equal rows have the same number: the first of them.
            _, firsts = np.unique(numbers[order], return_index=True)
            kept = order[np.sort(firsts)[: self.most]]
            self.points = np.concatenate([self.points, points])[kept]
            self.chances, self.numbers = chances[kept], numbers[kept]


def _random_numbers(X: NDArray[np.float32], seed: int) -> NDArray[np.uint64]:
    """Return a random number of each row (n, d), the same for equal rows; -0 equals 0."""
    factors = np.random.default_rng(seed).integers(2**64, size=X.shape[1], dtype=np.uint64)
    # The higher digits of such a sum are random.
    result: NDArray[np.uint64] = (X + np.float32(0)).view(np.uint32) @ factors
    return result ^ (result >> np.uint64(32))
