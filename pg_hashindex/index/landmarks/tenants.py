"""Landmarks within tenants: a row is compared with those of its own tenant alone.

The landmarks of a tenant have numbers that follow each other. They are few enough to be compared
one by one. A small tenant has none: a search ranks all of its codes. The function
``hashindex._tenant_landmarks`` tells how many a tenant should have.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...hashers.numerics.kmeans import nearest_centres
from ...hashers.numerics.rows import row_slices
from .assignment import LEAST_ROWS, ListSums
from .groups import place_means
from .space import BLOCK_ROWS, Points, in_threads, placed
from .training import Centres, Halves, usable_rows

_ROUNDS = 3
_GROUPS_PER_ROOT, _GROUP_ROUNDS = 2, 4
#: The share of the rows that a round reads: 9 for each landmark.
TRAINED_SHARE = 9 / 20

#: Rows (n, d) and the number of the tenant of each; -1 for one without landmarks.
TenantRows: TypeAlias = tuple[NDArray[np.float32], NDArray[np.intp]]


class Tenants(NamedTuple):
    """Tenants that have landmarks: their values as text, and where the landmarks of each begin.

    ``starts`` (n + 1,) ends with the number of landmarks.
    """

    names: list[str]
    starts: NDArray[np.intp]


class TenantLandmarks:
    """Landmarks (m, d) of tenants, prepared for assigning rows to them in batches."""

    def __init__(
        self,
        points: Points,
        starts: NDArray[np.intp],
        *,
        spherical: bool = False,
    ) -> None:
        self._starts, self._count = starts, len(points)
        if len(points):
            self._space, self._points = placed(points, spherical=spherical, reduces=True)

    def __len__(self) -> int:
        return self._count

    def assign(self, X: NDArray[np.float32], tenants: NDArray[np.intp]) -> NDArray[np.intp]:
        """Find the nearest landmark of each row (n, d) within its tenant; -1 where it has none."""
        result = np.full(len(X), -1, np.intp)

        def work(part: slice) -> None:
            rows = self._space(X[part])
            for tenant, members in _by_tenant(tenants[part]):
                own = slice(self._starts[tenant], self._starts[tenant + 1])
                if own.start < own.stop:
                    places = nearest_centres(rows[members], self._points[own], 1)[0][:, 0]
                    result[part.start + members] = own.start + places

        if len(self):
            in_threads(work, len(X))
        return result


def train_within(
    draw: Callable[[int], Iterable[TenantRows]],
    wanted: NDArray[np.intp],
    dimension: int,
    *,
    spherical: bool,
    random_state: int,
    on_round: Callable[[int, int], None] | None = None,
) -> tuple[Centres, NDArray[np.intp]]:
    """Train the wanted number of landmarks for each tenant (n,), by k-means within it.

    ``draw`` reads about `TRAINED_SHARE` of the rows, block by block; another number gives other
    rows. Landmarks that lose all their rows are dropped, and in the end those of fewer than three,
    so that no landmark reveals a single row.

    Returns m landmarks, tenant after tenant, and where those of each begin (n + 1,).
    """
    rng = np.random.default_rng(random_state)
    first, starts = _first_rows(draw(0), wanted, dimension, spherical, rng)
    largest = ListSums.largest_of(first)
    landmarks = TenantLandmarks(first, starts, spherical=spherical)
    del first
    for done in range(_ROUNDS):
        sums = ListSums(len(landmarks), dimension, spherical=spherical, largest=largest)
        for block, tenants in draw(1 + done):
            rows, kept = usable_rows(block, spherical)
            places = landmarks.assign(rows, tenants[kept])
            sums.add(rows[places >= 0], places[places >= 0])
        last = done + 1 == _ROUNDS
        full = np.zeros(len(sums), np.bool_)
        for part in row_slices(len(sums), BLOCK_ROWS):
            full[part] = sums.means(part, LEAST_ROWS if last else 1)[1]
        centres = Centres(sums, np.flatnonzero(full))
        starts = _starts_of(full, starts)
        if not last:
            landmarks = TenantLandmarks(centres, starts, spherical=spherical)
        if on_round is not None:
            on_round(done + 1, _ROUNDS)
    return centres, starts


def leaders_of(points: Halves, starts: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the leader of each landmark (m,): a landmark of its tenant at the middle of a group.

    A written row is compared with the leaders of its tenant, and then with the landmarks that the
    nearest eight of them lead. That finds the nearest of 2,106 landmarks for 92 rows in 100 by 345
    comparisons; with as many groups as the root of the landmarks, for 86 by 286, from four leaders.
    """
    result = np.empty(len(points), np.intp)
    for start, end in pairwise(starts.tolist()):
        own = points[start:end].astype(np.float32)
        n_groups = min(len(own), math.ceil(_GROUPS_PER_ROOT * math.sqrt(len(own))))
        if not n_groups:
            continue
        own -= own.mean(axis=0)
        centres = own[np.arange(n_groups) * len(own) // n_groups]
        for _ in range(_GROUP_ROUNDS):
            labels = nearest_centres(own, centres, 1)[0][:, 0]
            means, counts = place_means(
                own, labels, n_groups, np.arange(len(own)), np.ones(len(own), np.float32)
            )
            centres[counts > 0] = means[counts > 0]
        leaders = np.unique(nearest_centres(centres, own, 1)[0][:, 0])
        result[start:end] = start + leaders[nearest_centres(own, own[leaders], 1)[0][:, 0]]
        # A leader leads itself, even if another leader is equal to it.
        result[start + leaders] = start + leaders
    return result


def _first_rows(
    blocks: Iterable[TenantRows],
    wanted: NDArray[np.intp],
    dimension: int,
    spherical: bool,
    rng: np.random.Generator,
) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
    """Choose random rows of each tenant: those with the least of random numbers."""
    starts = np.concatenate([[0], wanted.cumsum()])
    rows = np.empty((starts[-1], dimension), np.float32)
    least = np.full(starts[-1], np.inf)
    for block, tenants in blocks:
        usable, kept = usable_rows(block, spherical)
        numbers = rng.random(len(usable))
        for tenant, members in _by_tenant(tenants[kept]):
            own = slice(starts[tenant], starts[tenant + 1])
            both = np.concatenate([least[own], numbers[members]])
            size = own.stop - own.start
            chosen = np.argpartition(both, size - 1)[:size] if size else np.empty(0, np.intp)
            added = chosen[chosen >= size]
            freed = own.start + np.setdiff1d(np.arange(size), chosen)
            rows[freed] = usable[members[added - size]]
            least[freed] = both[added]
    there = np.isfinite(least)
    return rows if there.all() else rows[there], _starts_of(there, starts)


def _starts_of(kept: NDArray[np.bool_], starts: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return where the landmarks of each tenant begin among those that are kept."""
    return np.concatenate([[0], kept.cumsum()])[starts]


def _by_tenant(tenants: NDArray[np.intp]) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Yield each tenant that has landmarks, with the places of its rows."""
    if not len(tenants):
        return
    order = np.argsort(tenants, kind="stable")
    present, firsts = np.unique(tenants[order], return_index=True)
    for tenant, members in zip(present.tolist(), np.split(order, firsts[1:]), strict=True):
        if tenant >= 0:
            yield tenant, members
