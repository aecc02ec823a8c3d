"""Train landmarks: k-means with thousands of centres over blocks of rows, in bounded memory."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import InvalidInputError
from ...hashers.numerics.kmeans import nearest_centres
from ...hashers.numerics.rows import row_slices
from ...models.vectors import as_rows
from .assignment import LEAST_ROWS, MAX_FLAT, ListMeans
from .groups import LandmarkGroups
from .space import Space, in_threads, moderate_rows, reduced, reducing_basis, row_lengths, unit_rows

#: Read blocks (n, d) of about this number of random rows; another seed gives other rows.
Draw: TypeAlias = Callable[[int, int], Iterable[NDArray[np.float32]]]

# Groups for each root of the number of landmarks, and groups that a row visits. Fewer comparisons
# than `Landmarks` makes, since a wrong neighbour harms a mean less than a list. On 300,000 text
# embeddings twice as many visits cover no more of the true ten.
_GROUPS = (4.0, 8)
# Indexes on 300,000 text embeddings: lists that a search reads for .95 of the true ten, its CPU
# milliseconds, megabytes of the index. One landmark for 28 rows, two rounds of 12 rows for each:
# 79, 2.0, 61.8; three rounds: 71, 1.7, 61.8. One for 20, three rounds of 9: 67, 1.55, 66.2. One
# for 16, three of 8: 63, 1.45, 71.1.
_ROUNDS = 3
_ROWS_PER_LANDMARK = 9
_TABLE_ROWS_PER_LANDMARK = 20
# Rows that give the mean and the scale of the data.
_SPACE_ROWS = 8192
# Rows are equal up to rounding if their distance is below this part of their length.
_SAME = 1e-5
_BLOCK_ROWS = 8192
# The most landmarks that move to another row in a round: one of 16, but at least 1,024.
_REPLACED, _LEAST_REPLACED = 16, 1024
# Columns that are put in another order at a time.
_COLUMNS = 32


def landmark_count(n_rows: int) -> int:
    """Return how many landmarks a table with this number of rows should have: one for 20 rows."""
    return max(1, n_rows // _TABLE_ROWS_PER_LANDMARK)


def training_rows(n_landmarks: int) -> int:
    """Return how many rows a round of training this number of landmarks reads: 9 for each."""
    return _ROWS_PER_LANDMARK * n_landmarks


def train_landmarks(
    rows: ArrayLike,
    n_landmarks: int,
    *,
    spherical: bool,
    random_state: int | None = None,
    rounds: int = _ROUNDS,
    on_round: Callable[[int, int], None] | None = None,
) -> NDArray[np.float32]:
    """Train landmarks on rows (n, d) in memory; see `train_by_blocks`.

    Returns float32 (m, d), n_landmarks or less if there are fewer distinct rows or landmarks are
    dropped; if no three rows have a mean, the only landmark is the first axis.
    """
    X = as_rows(rows).astype(np.float32, copy=False)
    for name, value in (("n_landmarks", n_landmarks), ("rounds", rounds)):
        if value < 1:
            raise InvalidInputError(f"{name} must be 1 or more, got {value}")
    if not len(X):
        raise InvalidInputError("there are no rows to train landmarks on")
    seed = int(np.random.default_rng(random_state).integers(2**31))

    def draw(n_rows: int, number: int) -> Iterator[NDArray[np.float32]]:
        order = np.random.default_rng([seed, number]).permutation(len(X))[:n_rows]
        for part in row_slices(len(order), _BLOCK_ROWS):
            yield X[order[part]]

    # With fewer than three rows for each, most landmarks would be dropped.
    most = max(1, len(X) // LEAST_ROWS)
    trained = train_by_blocks(
        draw, min(n_landmarks, most), X.shape[1], spherical=spherical, random_state=seed,
        rounds=rounds, on_round=on_round, rows_per_round=len(X),
    )  # fmt: skip
    return _fallback_landmark(X.shape[1]) if trained is None else trained


def train_by_blocks(
    draw: Draw,
    n_landmarks: int,
    dimension: int,
    *,
    spherical: bool,
    random_state: int,
    rounds: int = _ROUNDS,
    rows_per_round: int | None = None,
    on_round: Callable[[int, int], None] | None = None,
) -> NDArray[np.float32] | None:
    """Train landmarks by k-means: each round moves landmarks to the means of their rows.

    Each round draws other rows and reads them in blocks, so that memory holds the landmarks, the
    sums of their rows, and a block. If there are more than 1,024 landmarks, a row is compared with
    those near it, in fewer dimensions, as `Landmarks` does. A landmark that loses all its rows
    moves to a row, drawn with a probability that grows with its squared distance to its own
    landmark (as in k-means++). After the last round, landmarks of fewer than three rows are
    dropped, so that no landmark reveals a single row.

    If only directions count (``spherical``), landmarks have unit length, and zero vectors are left
    out. ``on_round`` is called after each round with the rounds done and the rounds in all. Returns
    float32 (m, d); the first axis, if no three rows have a mean; None if ``draw`` gives no row.
    """
    rng = np.random.default_rng(random_state)
    most = max(n_landmarks, _SPACE_ROWS)
    first, seen = np.empty((most, dimension), np.float32), False
    n_first = 0
    for block in draw(most, 0):
        seen = seen or len(block) > 0
        usable = usable_rows(block, spherical)[0][: most - n_first]
        first[n_first : n_first + len(usable)] = usable
        n_first += len(usable)
        if n_first == most:
            break
    if not seen:
        return None
    first = first[:n_first]
    if not n_first:
        return _fallback_landmark(dimension)
    training = _Training(first, n_landmarks, spherical, rng)
    del first
    for done in range(rounds):
        blocks = draw(rows_per_round or training_rows(n_landmarks), 1 + done)
        drawn = (usable_rows(block, spherical)[0] for block in blocks)
        training.step(drawn, last=done + 1 == rounds)
        if on_round is not None:
            on_round(done + 1, rounds)
        if not len(training.centres):
            return _fallback_landmark(dimension)
    return training.in_groups()


def _fallback_landmark(dimension: int) -> NDArray[np.float32]:
    """Return one landmark that does not depend on the rows; all of them are nearest to it."""
    return np.eye(1, dimension, dtype=np.float32)


def usable_rows(
    X: NDArray[np.float32], spherical: bool
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Leave out rows (n, d) without a direction, if only directions count; return which stay."""
    kept = np.ones(len(X), np.bool_)
    if spherical:
        X, lengths = moderate_rows(X)
        kept = lengths > 0
    return X if kept.all() else X[kept], kept


class _Training:
    """One run of k-means from some of the first rows."""

    def __init__(
        self,
        first: NDArray[np.float32],
        n_landmarks: int,
        spherical: bool,
        rng: np.random.Generator,
    ) -> None:
        self._n_landmarks, self._spherical, self._rng = n_landmarks, spherical, rng
        sample = first[:: -(-len(first) // _SPACE_ROWS)]
        self._space = Space(sample, spherical)
        self._basis = reducing_basis(self._space(sample)) if n_landmarks > MAX_FLAT else None
        distinct = {_digest(row): number for number, row in enumerate(first)}
        kept = np.array(list(distinct.values()))
        if len(kept) > n_landmarks:
            kept = kept[rng.permutation(len(kept))[:n_landmarks]]
        self.centres = first if len(kept) == len(first) else first[kept]
        self._direct(self.centres)

    def step(self, blocks: Iterable[NDArray[np.float32]], *, last: bool) -> None:
        """Move landmarks to the means of their rows; the last time, drop those of too few."""
        n, dimension = self.centres.shape
        points = self._reduced(self.centres)
        # Their place is for the means.
        del self.centres
        groups = LandmarkGroups(points, *_GROUPS) if n > MAX_FLAT else None
        means = ListMeans(n, dimension, spherical=self._spherical)
        far = _FarRows(max(_LEAST_REPLACED, self._n_landmarks // _REPLACED), dimension, self._rng)
        for block in blocks:
            rows = self._reduced(block)
            places = _assigned(rows, points, groups)
            means.add(block, places)
            if not last:
                distances = row_lengths(rows - points[places])
                # Distances are exact only to the digits that the original rows had.
                scale = 1 if self._spherical else row_lengths(block)
                distances[distances <= _SAME * scale * self._space.scale] = 0
                far.add(block, distances)
        self.centres, full = means.centres(LEAST_ROWS if last else 1)
        if not last:
            lost = np.flatnonzero(~full)
            added = far.rows(self._n_landmarks - int(full.sum()))
            self._direct(added)
            in_place = added[: len(lost)]
            self.centres[lost[: len(in_place)]] = in_place
            full[lost[: len(in_place)]] = True
            self._keep(full)
            if len(added) > len(lost):
                self.centres = np.concatenate([self.centres, added[len(lost) :]])
        else:
            self._keep(full)

    def in_groups(self) -> NDArray[np.float32]:
        """Return the landmarks group after group: their numbers give the order of lists on disk."""
        order = LandmarkGroups(self._reduced(self.centres), *_GROUPS).members
        for start in range(0, self.centres.shape[1], _COLUMNS):
            columns = slice(start, start + _COLUMNS)
            self.centres[:, columns] = self.centres[order, columns]
        return self.centres

    def _reduced(self, X: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return rows (n, d) as they are compared."""
        width = X.shape[1] if self._basis is None else self._basis.shape[1]
        result = np.empty((len(X), width), np.float32)

        def work(part: slice) -> None:
            result[part] = reduced(self._space(X[part]), self._basis)

        in_threads(work, len(X))
        return result

    def _keep(self, kept: NDArray[np.bool_]) -> None:
        """Drop the other centres, in place."""
        if kept.all():
            return
        end = 0
        for part in row_slices(len(kept), _BLOCK_ROWS):
            rows = self.centres[part][kept[part]]
            self.centres[end : end + len(rows)] = rows
            end += len(rows)
        self.centres = self.centres[:end]

    def _direct(self, X: NDArray[np.float32]) -> None:
        """Scale rows to unit length, in place, if only directions count."""
        if self._spherical:
            for part in row_slices(len(X), _BLOCK_ROWS):
                X[part] = unit_rows(X[part])


class _FarRows:
    """Rows drawn with a probability that grows with their squared distance, without replacement.

    The least of exponential variables with these rates are such a draw.
    """

    def __init__(self, most: int, dimension: int, rng: np.random.Generator) -> None:
        self._most, self._rng = most, rng
        self._rows = np.empty((0, dimension), np.float32)
        self._chances = np.empty(0)

    def add(self, X: NDArray[np.float32], distances: NDArray[np.float32]) -> None:
        """Draw among rows (n, d) too; those of distance 0 are left out."""
        apart = np.flatnonzero(distances > 0)
        chances = self._rng.exponential(size=len(apart)) / distances[apart].astype(np.float64) ** 2
        if len(self._chances) == self._most:
            below = chances < self._chances[-1]
            apart, chances = apart[below], chances[below]
        order = np.argsort(chances, kind="stable")[: self._most]
        chances = np.concatenate([self._chances, chances[order]])
        rows = np.concatenate([self._rows, X[apart[order]]])
        order = np.argsort(chances, kind="stable")[: self._most]
        self._chances, self._rows = chances[order], rows[order]

    def rows(self, n_rows: int) -> NDArray[np.float32]:
        """Return at most n distinct rows."""
        rows = self._rows[: max(0, n_rows)]
        distinct = {_digest(row): number for number, row in reversed(list(enumerate(rows)))}
        return rows[sorted(distinct.values())]


def _digest(row: NDArray[np.float32]) -> bytes:
    """Return 16 bytes that equal rows share; -0 equals 0."""
    return hashlib.blake2b((row + np.float32(0)).tobytes(), digest_size=16).digest()


def _assigned(
    X: NDArray[np.float32], points: NDArray[np.float32], groups: LandmarkGroups | None
) -> NDArray[np.intp]:
    """Return the nearest point of each row, intp (n,); approximately if there are many points."""
    result = np.empty(len(X), np.intp)

    def work(part: slice) -> None:
        if groups is None:
            result[part] = nearest_centres(X[part], points, 1)[0][:, 0]
        else:
            result[part] = groups.nearest(X[part])

    in_threads(work, len(X))
    return result
