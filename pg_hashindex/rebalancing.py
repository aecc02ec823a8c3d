"""Lists of landmarks brought back into good order, while searches and writers go on."""

from typing import LiteralString, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pgvector import HalfVector
from tqdm import tqdm

from .access import WHY_OUTSIDE, only_builder
from .catalog import IndexEntry, long_list
from .database import outside_transactions, translated_errors
from .errors import InvalidInputError
from .jobs import Job
from .landmark_tables import LandmarkTables
from .landmarks import Landmarks, train_landmarks

__all__ = ["Rebalanced", "rebalance"]

# Lists that are written anew in one transaction.
_BATCH_LISTS = 200
# Pieces of a list are not made smaller than this.
_LEAST_ENTRIES = 50

_LISTS: LiteralString = """
    SELECT l.landmark, sum(cardinality(l.ids)) FROM {lists} l GROUP BY l.landmark
    ORDER BY l.landmark
"""

_MEMBERS: LiteralString = """
    SELECT b.{id}::text, b.{column}, NULL::text FROM {table} b
    WHERE b.{column} IS NOT NULL AND b.{id} IN (
        SELECT unnest(l.ids) FROM {lists} l WHERE l.landmark = $1
    )
    LIMIT $2
"""


class Rebalanced(NamedTuple):
    """What was done.

    Attributes
    ----------
    stale : int
        Entries taken out, of rows that had changed or gone.
    split : int
        Lists that were divided.
    landmarks : int
        Landmarks added.
    """

    stale: int
    split: int
    landmarks: int


def rebalance(index: IndexEntry, *, progress: bool = False) -> Rebalanced:
    """Take stale entries out and divide long lists; see `HashIndex.rebalance`."""
    with (
        translated_errors(index),
        outside_transactions(index.connection, WHY_OUTSIDE),
        index.noticing_drops(),
        only_builder(index),
    ):
        index.check_current()
        # As it is now: it may have been configured since it was opened.
        row = index.connection.execute(
            "SELECT access FROM hashindex.index WHERE name = %s", [index.name]
        ).fetchone()
        if row is None or row[0] != "landmarks":
            raise InvalidInputError(
                f"index {index.name!r} has the access path {row and row[0]}; lists are of landmarks"
            )
        with Job(index.connection, "rebalance", index.name) as job:
            return _Rebalancer(index, progress).run(job)


class _Rebalancer(LandmarkTables):
    def __init__(self, index: IndexEntry, progress: bool) -> None:
        super().__init__(index)
        self.progress = progress

    def run(self, job: Job) -> Rebalanced:
        before = self._lists()
        numbers = list(before)
        # Counted are entries, which are rows of lists.
        job.phase("compacting lists", sum(before.values()))
        with tqdm(
            total=len(numbers), unit="list", desc="compacting", disable=not self.progress
        ) as bar:
            for start in range(0, len(numbers), _BATCH_LISTS):
                part = numbers[start : start + _BATCH_LISTS]
                self.execute("SELECT hashindex.compact_lists($1, $2)", [self.index.name, part])
                bar.update(len(part))
                job.advance(sum(before[number] for number in part))
        after = self._lists()
        # Fewer where writers have added some meanwhile.
        stale = max(0, sum(before.values()) - sum(after.values()))
        mean = sum(after.values()) / max(1, len(after))
        long = [n for n, size in after.items() if size > long_list(mean)]
        job.phase("dividing long lists", sum(after[number] for number in long))
        added = []
        for number in tqdm(long, unit="list", desc="splitting", disable=not self.progress):
            added.append(self._split(number, after[number], mean))
            job.advance(after[number])
        return Rebalanced(stale, sum(n > 0 for n in added), sum(added))

    def _split(self, number: int, size: int, mean: float) -> int:
        """Divide a list; return how many landmarks are new."""
        with self.index.connection.transaction():
            page = self.page(_MEMBERS, [number, size], size)
            if not len(page):
                return 0
            centres = train_landmarks(
                page.vectors,
                max(2, round(size / max(mean, _LEAST_ENTRIES))),
                spherical=self.spherical,
                random_state=number,
            ).astype(np.float16)
            if len(centres) < 2:
                return 0  # all of its rows are one
            pieces = Landmarks(centres, spherical=self.spherical).nearest(page.vectors, 1)[:, 0]
            self.execute(
                "SELECT hashindex.split_list($1, $2, $3, $4, $5)",
                [self.index.name, number, _half(centres), page.ids, pieces.tolist()],
            )
        return len(centres) - 1

    def _lists(self) -> dict[int, int]:
        return {number: int(size) for number, size in self.execute(_LISTS).fetchall()}


def _half(centres: NDArray[np.float16]) -> list[HalfVector]:
    return [HalfVector(centre) for centre in centres]
