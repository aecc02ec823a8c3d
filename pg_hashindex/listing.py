"""The landmarks of an index: trained on a sample of its rows, and every row listed under two.

Once the landmarks are in the database, triggers list whatever is written. Rows that were there
before are read in pages, in the order of the key, and their entries gathered in a table aside;
a run that was cut off goes on behind the last of them. A row that changes after its page was read
gets a right entry from its trigger; the one from here is then stale, which does no harm.
"""

import math
import time
from typing import LiteralString

import numpy as np
import psycopg
from numpy.typing import NDArray
from pgvector import HalfVector, Vector
from psycopg import sql
from tqdm import tqdm

from .catalog import IndexEntry
from .errors import DatabaseStateError, InUseError, InvalidInputError
from .jobs import Job
from .landmark_tables import LandmarkTables
from .landmarks import (
    Landmarks,
    landmark_count,
    sign_mean,
    train_landmarks,
    training_rows,
)
from .pace import Pace

__all__ = ["build_landmarks"]

# What a halfvec holds at most.
_LARGEST = 65504.0

# Seconds that writers may keep us from having their triggers list what they write.
_PATIENCE = 60.0

_BATCH_ROWS = 10_000
_BATCH_VALUES = 4_000_000

# The same rows each time: landmarks are as reproducible as the table is.
_SEED = 0

_SAMPLE: LiteralString = """
    SELECT b.{id}::text, b.{column}, NULL::text
    FROM {table} b TABLESAMPLE BERNOULLI ($1) REPEATABLE ($3)
    WHERE b.{column} IS NOT NULL LIMIT $2
"""

_PAGE: LiteralString = """
    SELECT c.id::text, b.{column}, NULL::text FROM {codes} c JOIN {table} b ON b.{id} = c.id
    WHERE ($1::text IS NULL OR c.id > $1::text::{type}) AND b.{column} IS NOT NULL
    ORDER BY c.id LIMIT $2
"""

_TO_LIST: LiteralString = """
    SELECT count(*) FROM {codes} c WHERE $1::text IS NULL OR c.id > $1::text::{type}
"""

_LIST: LiteralString = """
    INSERT INTO {listed} (landmark, id, code)
    SELECT l.landmark, c.id, c.code
    FROM unnest($1::text[], $2::integer[], $3::integer[]) s(id, first, second)
    JOIN {codes} c ON c.id = s.id::{type}
    CROSS JOIN LATERAL (VALUES (s.first), (s.second)) l(landmark)
    -- Where there is one landmark, there is no second.
    WHERE l.landmark >= 0
"""


def build_landmarks(index: IndexEntry, job: Job, pace: Pace, progress: bool) -> bool:
    """Train landmarks and list every row that has a code, from where a run before has stopped.

    Parameters
    ----------
    index : IndexEntry
        On a connection in autocommit mode.
    job : Job
    pace : Pace
        Of listing.
    progress : bool
        Whether to draw bars on stderr.

    Returns
    -------
    bool
        Whether it is done; not where the table has no row to train on.

    Raises
    ------
    InvalidInputError
        If a landmark is too large for pgvector's halfvec.
    InUseError
        If transactions went on writing to the table for a minute.
    DatabaseStateError
        If the index was configured otherwise meanwhile, or dropped.
    """
    builder = _Builder(index, progress)
    if not builder.has_tables():
        job.phase("training landmarks")
        if not builder.train():
            return False
    job.phase("waiting for writers, to have triggers list what they write")
    builder.begin()
    builder.list_rows(job, pace)
    return True


class _Builder(LandmarkTables):
    def __init__(self, index: IndexEntry, progress: bool) -> None:
        super().__init__(index)
        self.progress = progress

    def has_tables(self) -> bool:
        row = self.execute(
            "SELECT to_regclass($1) IS NOT NULL",
            [self.names["listed"].as_string(self.index.connection)],
        ).fetchone()
        if not row[0]:
            return False
        # A crash empties the tables of one that is unlogged.
        (trained,) = self.execute("SELECT EXISTS (SELECT FROM {landmarks})").fetchone()
        return bool(trained)

    def train(self) -> bool:
        (rows,) = self.execute("SELECT count(*) FROM {codes}").fetchone()
        sample = self._sample(rows)
        if not len(sample):
            return False
        with tqdm(unit="round", desc="training landmarks", disable=not self.progress) as bar:

            def show(done: int, rounds: int) -> None:
                bar.total = rounds
                bar.update(done - bar.n)

            centres = train_landmarks(
                sample,
                landmark_count(rows),
                spherical=self.spherical,
                random_state=_SEED,
                on_round=show,
            )
        largest = float(np.abs(centres).max())
        if largest > _LARGEST:
            raise InvalidInputError(
                f"landmarks have values of up to {largest:g}, and pgvector's halfvec holds "
                f"{_LARGEST:g} at most; scale the vectors down, or use another access path"
            )
        mean = sign_mean(Landmarks(centres, spherical=self.spherical), sample)
        with self.index.connection.transaction():
            row = self.execute(
                "SELECT FROM hashindex.index WHERE name = $1 AND building = 'landmarks' FOR UPDATE",
                [self.index.name],
            ).fetchone()
            if row is None:
                raise DatabaseStateError(
                    f"index {self.index.name!r} was configured otherwise while its landmarks were "
                    "trained, or dropped; see: pg-hashindex index show"
                )
            self.execute("SELECT hashindex.create_landmarks($1)", [self.index.name])
            copy = sql.SQL("COPY {landmarks} FROM STDIN (FORMAT binary)").format(**self.names)
            with self.index.connection.cursor() as cursor, cursor.copy(copy) as target:
                target.set_types(["int4", "halfvec"])
                for number, centre in enumerate(centres):
                    target.write_row((number, HalfVector(centre)))
            self.execute(
                "UPDATE hashindex.index SET trained_rows = $2 WHERE name = $1",
                [self.index.name, rows],
            )
            self.execute(
                "SELECT hashindex.index_landmarks($1, $2)",
                [self.index.name, None if mean is None else Vector(mean)],
            )
        return True

    def begin(self) -> None:
        """Have triggers list what is written; no writer is kept waiting for long."""
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                with self.index.connection.transaction():
                    self.execute("SET LOCAL lock_timeout = '500ms'")
                    self.execute("SELECT hashindex.begin_listing($1)", [self.index.name])
            except psycopg.errors.LockNotAvailable:
                if time.monotonic() > until:
                    raise InUseError(
                        f"transactions have been writing to {self.index.qualified_table} for "
                        f"{_PATIENCE:.0f} s; run the encoding again when they have ended"
                    ) from None
                time.sleep(0.5)
            else:
                return

    def _sample(self, rows: int) -> NDArray[np.float32]:
        wanted = min(rows, training_rows(landmark_count(rows)))
        if not wanted:
            return np.empty((0, self.index.dimension), np.float32)
        # A draw of each row by itself: almost never more than so many.
        most = math.ceil(wanted + 5 * math.sqrt(wanted))
        with self.index.connection.transaction():
            page = self.page(_SAMPLE, [100 * wanted / rows, most, _SEED], most)
        return page.vectors

    def list_rows(self, job: Job, pace: Pace) -> None:
        landmarks = Landmarks(self._landmarks(), spherical=self.spherical)
        # By the column, which bare would be the text.
        row = self.execute(
            "SELECT e.id::text FROM {listed} e ORDER BY e.id DESC LIMIT 1"
        ).fetchone()
        last = None if row is None else row[0]
        (rows,) = self.execute(_TO_LIST, [last]).fetchone()
        job.phase("listing rows by landmarks", rows)
        batch = pace.batch(max(1, min(_BATCH_ROWS, _BATCH_VALUES // self.index.dimension)))
        with tqdm(
            total=rows, unit="row", unit_scale=True, desc="listing", disable=not self.progress
        ) as bar:
            while True:
                with self.index.connection.transaction():
                    page = self.page(_PAGE, [last, batch], batch)
                if len(page):
                    first, second = landmarks.assign(page.vectors).T.tolist()
                    self.execute(_LIST, [page.ids, first, second])
                    last = page.ids[-1]
                    bar.update(len(page))
                    job.advance(len(page))
                if len(page) < batch:
                    return
                pace.keep(len(page), job.advance)

    def _landmarks(self) -> NDArray[np.float32]:
        # As the database rounded them, so that triggers and pages assign alike.
        found = self.execute("SELECT centre FROM {landmarks} ORDER BY landmark").fetchall()
        return np.stack([row[0].to_numpy() for row in found]).astype(np.float32)
