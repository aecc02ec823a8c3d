"""Landmarks built beside searches and writers: read the table once, and put its codes in order.

As pg_repack does, a build writes a second codes table. Before the first row is read, triggers begin
to log the keys that are written, and at its end the build applies them. So others wait only for two
short locks. ``sql/142_landmarks.sql`` is the part in SQL.

Rows are read by ranges of pages, each in a transaction of its own, so no statement relies on an
order that the planner chooses. The list of ranges is a table. The codes of a range are written
together with the place where its reading ended, so an interrupted run continues there. `Workers`
has other processes read some of the ranges. Another thread reads the next block while the codes and
landmarks of this one are computed. If the table was rewritten
(VACUUM FULL, TRUNCATE) or its partitions changed, its rows have other places, and it is read again
from the start.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import compress
from typing import Any, Literal, LiteralString, NamedTuple

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from ...db.connection import EXTENSION
from ...db.locks import retry_while_locked
from ...db.progress import Progress
from ...db.sql_files import query
from ...db.statements import execute
from ...db.throttle import Throttle
from ...db.work import Work
from ...errors import InUseError, InvalidInputError
from ...hashers.numerics.rows import row_slices
from ...hashers.numerics.threads import one_blas_thread
from ...models.vectors import are_trainable
from ..access import catch_up, configured_otherwise, drop_unused
from ..catalog import IndexRow
from .assignment import Landmarks, ListSums
from .memory import refuse_too_little
from .space import in_threads, row_lengths, unit_rows
from .table_blocks import (
    Block,
    WrongDimensionError,
    copy_format,
    landmarks_in_copy_format,
    read_block,
    read_blocks,
    texts_of,
)
from .tenants import (
    TRAINED_SHARE,
    TenantLandmarks,
    TenantRows,
    Tenants,
    leaders_of,
    train_within,
)
from .training import landmark_count, train_by_blocks
from .workers import Jobs, Range, Ranges, Workers

# The largest number of a halfvec.
_LARGEST = 65504.0
# A fixed seed: equal tables get equal landmarks.
_SEED = 0

# The most rows and numbers of a block: 8 MB of vectors.
_BLOCK_VALUES = 2_000_000
_BLOCK_ROWS = 10_000

# How often a build begins again because the table was emptied or rewritten.
_MOST_STARTS = 5

# Pages of the first block and of the largest, 512 MB; no page of 32 kB holds more rows.
_FIRST_PAGES, _MOST_PAGES, _MOST_ROWS_OF_PAGE = 64, 65_536, 1_200

# The next step of a run: train landmarks, read rows, or apply the keys that were logged.
_Step = Literal["begin", "read", "apply"]

_LEAVES = query("landmarks.leaves")

_PAGES_OF_LEAF: LiteralString = """
    SELECT pg_relation_size($1::bigint::oid)
        / pg_catalog.current_setting('block_size')::bigint
"""

_ROWS: LiteralString = """
    SELECT {key}, {tenant_number}b.{column} FROM ONLY {leaf} b{tenants}
    WHERE {pages} AND b.{column} IS NOT NULL {part}
"""

_CODED_ROWS = query("landmarks.coded_rows")

_EVERY_ROW = sql.SQL("")
_PAGES: LiteralString = "b.ctid >= {first}::tid AND b.ctid < {end}::tid"

# A random share of the rows, chosen by their place.
_SHARE_OF_ROWS: LiteralString = """
      AND (pg_catalog.hashtidextended(b.ctid, {seed}) OPERATOR(pg_catalog.&) 1048575)
          OPERATOR(pg_catalog.<) {share}
"""
_SHARES = 1 << 20

_LARGE_TENANTS = query("landmarks.large_tenants")

_TENANTS_OF_LANDMARKS: LiteralString = """
    SELECT l.tenant::text, count(*) FROM {landmarks} l GROUP BY l.tenant
    ORDER BY pg_catalog.min(l.landmark)
"""

# The tenants with landmarks by their numbers. They are hashed, and the rows come in their order.
_NUMBERED_TENANTS: LiteralString = """
    LEFT JOIN pg_catalog.unnest({names}::text[]) WITH ORDINALITY t(tenant, number)
    ON t.tenant::{tenant_type} = b.{tenant}
"""

_ROWS_OF_TENANT: LiteralString = """
    SELECT {key_text}, 0::integer, b.{column} FROM {table} b
    WHERE b.{tenant} = {value}::{tenant_type} AND b.{column} IS NOT NULL
"""

_SIZE_OF_TENANT = query("landmarks.size_of_tenant")

_LANDMARKS_OF_TENANTS = query("landmarks.of_tenants")

_LIST_RANGES = query("landmarks.list_ranges")

_LEFT: LiteralString = """
    SELECT r.number, r.leaf, r.next_page, r.end_page FROM {ranges} r
    WHERE r.next_page < r.end_page ORDER BY r.number
"""

_KEEP_PLACE: LiteralString = """
    UPDATE {ranges} SET next_page = $4 WHERE number = $1 AND leaf = $2 AND next_page = $3
      AND EXISTS (SELECT FROM hashindex.index i WHERE i.name = $5 AND i.next_generation = $6)
"""

_STATE = query("landmarks.state_of_build")

_LANDMARKS: LiteralString = "SELECT l.landmark, l.centre FROM {landmarks} l ORDER BY 1"

_WRONG_ROW: LiteralString = """
    SELECT {key_text}, {schema}.vector_dims(b.{column}) FROM {table} b
    WHERE {schema}.vector_dims(b.{column}) <> $1 LIMIT 1
"""


class _Leaf(NamedTuple):
    oid: int
    schema: str
    name: str
    file: int


class _MovedError(Exception):
    """The rows of the table have moved to other places during a build."""


class LandmarkBuild:
    """One run; landmarks must stay the access path that is in use or wanted."""

    def __init__(
        self,
        index: IndexRow,
        work: Work,
        throttle: Throttle,
        *,
        memory: int,
        jobs: Jobs,
    ) -> None:
        self.index, self.work, self.throttle = index, work, throttle
        self.connection = index.connection
        self._memory, self._jobs = memory, jobs
        #: How large numbers of vectors may be for the means of rows; unknown in a continued run.
        self.largest: float | None = None
        self._rows = 0
        self._generation: int | None = None
        # The tenants with landmarks, in an index that has tenants.
        self._tenants = Tenants([], np.zeros(1, np.intp))
        #: Whether only directions count in means of rows.
        self._spherical = index.metric != "l2"
        self._model = index.loaded_model
        self._block_rows = throttle.batch_size(
            max(1, min(_BLOCK_ROWS, _BLOCK_VALUES // index.dimension))
        )
        # Pages to read next, as many as their rows fit in a block.
        self._pages = _FIRST_PAGES
        self._key_columns = len(index.key_columns)
        self._names = index.names | {
            part: sql.Identifier("hashindex", f"{index.storage}_{part}")
            for part in ("staged", "touched", "ranges")
        }
        self._names |= {"tenant_number": sql.SQL(""), "tenants": sql.SQL("")}
        self._has_tenants = index.tenant_column is not None
        if index.tenant_column is not None:
            self._names["tenant"] = sql.Identifier(index.tenant_column)
            self._names["tenant_type"] = sql.SQL(index.tenant_type or "")
        # The projections that are compared with landmarks; None if vectors are.
        (self._n_projections,) = self._execute(
            "SELECT hashindex._list_projections(m, $2) FROM hashindex.model m WHERE m.id = $1",
            [index.model_id, index.metric],
        ).fetchone()

    def run(self) -> int | None:
        """Train landmarks, put codes in their order, and have searches use them.

        Continues where a previous run has stopped. Returns the number of rows; None if there is
        none to train on.
        """
        step = self._left_off()
        for _ in range(_MOST_STARTS):
            if step == "begin":
                try:
                    if not self._begin():
                        return None
                except _MovedError:
                    continue
                step = "read"
            if step == "read":
                step = "begin"
                if not self._read_rows():
                    continue
                self._put_in_order()
            rows = self._take_over()
            if rows is not None:
                return rows
            step = "begin"
        raise InUseError(
            f"{self.index.qualified_table} was emptied, rewritten or given other partitions "
            f"{_MOST_STARTS} times while landmarks were built; run the command again when that is "
            "over"
        )

    def run_tenant(self, tenant: str) -> tuple[int, int, int]:
        """Train the landmarks of one tenant again, and have searches use them.

        Writers wait while its rows are read once more. Returns the rows that were put in order, and
        its landmarks before and after.
        """
        if self.index.tenant_column is None:
            raise InvalidInputError(
                f"index {self.index.name!r} has no tenants; leave out tenant {tenant!r}"
            )
        if self.index.distributed:
            raise InvalidInputError(
                f"index {self.index.name!r} is on a distributed table; rebalance all of it"
            )
        self.work.phase("training landmarks")
        table = self.index.landmarks
        assert table is not None  # noqa: S101
        self._names |= {"landmarks": table, "codes": self.index.codes}
        rows, wanted, before, _ = self._execute(_SIZE_OF_TENANT, [tenant]).fetchone()
        if not rows:
            raise InvalidInputError(
                f"{self.index.qualified_table} has no row of tenant {tenant!r}; the function "
                f"hashindex.tenants('{self.index.name}') lists tenants"
            )
        query = sql.SQL(_ROWS_OF_TENANT).format(**self._names, value=sql.Literal(tenant))

        def draw(number: int) -> Iterator[TenantRows]:
            part = _part(TRAINED_SHARE, _SEED + number)
            return _trainable(self._blocks_of_tenant(query + part))

        centres = self._trained_within(draw, [tenant], [wanted])
        after = len(centres)

        def exchange() -> int:
            self._lock_table()
            # Whoever lists codes meanwhile would put them into the former lists.
            self._execute("LOCK TABLE {codes} IN SHARE ROW EXCLUSIVE MODE")
            self._lock_entry()
            self.work.phase("putting codes in the order of landmarks")
            _, _, _, first = self._execute(_SIZE_OF_TENANT, [tenant]).fetchone()
            points = self._halves(centres)
            self._write_landmarks(points, first)
            landmarks = TenantLandmarks(points, self._tenants.starts)
            keys: list[str] = []
            lists: list[int] = []
            for block in self._blocks_of_tenant(query):
                assert block.tenants is not None  # noqa: S101
                block_points = self._points(block.vectors)
                places = landmarks.assign(block_points, block.tenants)
                keys += texts_of(block.keys)
                lists += np.where(places >= 0, places + first, -1).tolist()
            (moved,) = self._execute(
                "SELECT hashindex._exchange_lists($1, $2, $3, $4, $5)",
                [self.index.name, tenant, first, keys, lists],
            ).fetchone()
            return int(moved)

        moved = retry_while_locked(self.connection, exchange, table=self.index.qualified_table)
        return moved, int(before), after

    def _blocks_of_tenant(self, query: sql.Composable) -> Iterator[Block]:
        try:
            yield from read_blocks(
                self.connection, query, self._block_rows,
                dimension=self.index.dimension, has_tenants=True,
            )  # fmt: skip
        except WrongDimensionError:
            raise self._wrong_dimension() from None

    def count_landmarks(self) -> int:
        """Count the landmarks that the index uses."""
        table = self.index.landmarks
        if table is None:
            return 0
        (count,) = self._execute("SELECT count(*) FROM {counted}", counted=table).fetchone()
        return int(count)

    def _continues(self, *parts: str) -> bool:
        """Return whether a previous run was cut off, and these tables of it are there."""
        row = self._execute(
            "SELECT i.next_generation, i.code_table FROM hashindex.index i "
            # If the index was swapped since it was opened, its name stands for other tables.
            "WHERE i.name = $1 AND i.storage = $2",
            [self.index.name, self.index.storage],
        ).fetchone()
        if row is None:
            raise configured_otherwise(self.index)
        generation, table = row
        self._names["codes"] = sql.Identifier("hashindex", table)
        if generation is None:
            return False
        self._set_generation(generation)
        (lacking,) = self._execute(
            "SELECT pg_catalog.count(*) FROM pg_catalog.unnest($1::text[]) n "
            "WHERE to_regclass(n) IS NULL",
            [[self._names[part].as_string(self.connection) for part in parts]],
        ).fetchone()
        return not lacking

    def _left_off(self) -> _Step:
        """Return the step that a previous run has reached, the first one if there was no run."""
        if not self._continues("codes_in_order", "landmarks", "staged", "touched", "ranges"):
            return "begin"
        codes = self._names["codes_in_order"].as_string(self.connection)
        filled, begun, staged, in_order = self._execute(_STATE, [codes]).fetchone()
        # A crash empties unlogged tables, the log of keys too.
        if not filled or (begun and not staged):
            return "begin"
        return "apply" if in_order else "read"

    def _set_generation(self, generation: int) -> None:
        self._generation = generation
        for name, part in (("landmarks", "landmarks"), ("codes_in_order", "codes")):
            table = f"{self.index.storage}_{part}_{generation}"
            self._names[name] = sql.Identifier("hashindex", table)

    def _begin(self) -> bool:
        """Train landmarks, and have triggers log written keys; return False if there is no row."""
        self.work.phase("training landmarks")
        (rows,) = self._execute("SELECT pg_catalog.count({column}) FROM {table}").fetchone()
        centres = self._train(rows)
        if centres is None:
            return False
        self._rows, self.largest = rows, ListSums.largest_of(centres)
        self.work.phase("waiting for a lock to start logging writes")
        retry_while_locked(self.connection, self._begin_logging, table=self.index.qualified_table)
        with self.connection.transaction():
            self._write_landmarks(self._halves(centres))
        return True

    def _train(self, rows: int) -> NDArray[np.float32] | None:
        """Train landmarks on rows that each round draws; return None if the table has none."""
        if not rows:
            return None
        if self._has_tenants:
            return self._train_within()
        dimension, n_landmarks = self.index.dimension, landmark_count(rows)
        compared = self._n_projections or dimension
        refuse_too_little(self._memory, n_landmarks, dimension, compared, spherical=self._spherical)

        def draw(wanted: int, number: int) -> Iterator[NDArray[np.float32]]:
            for block in self._drawn(min(1, wanted / rows), _SEED + number):
                yield block.select(are_trainable(block.vectors)).vectors

        with _shown_rounds() as show:
            return train_by_blocks(
                draw,
                n_landmarks,
                dimension,
                spherical=self._spherical,
                random_state=_SEED,
                on_round=show,
            )

    def _train_within(self) -> NDArray[np.float32]:
        """Train landmarks within large tenants."""
        large = self._execute(_LARGE_TENANTS).fetchall()
        names = [name for name, _ in large]
        self._number(names)

        def draw(number: int) -> Iterator[TenantRows]:
            return _trainable(self._drawn(TRAINED_SHARE, _SEED + number))

        return self._trained_within(draw, names, [wanted for _, wanted in large])

    def _trained_within(
        self,
        draw: Callable[[int], Iterator[TenantRows]],
        names: list[str],
        wanted: list[int],
    ) -> NDArray[np.float32]:
        """Train the wanted number of landmarks for each of some tenants, which become ours."""
        dimension = self.index.dimension
        compared = self._n_projections or dimension
        refuse_too_little(self._memory, sum(wanted), dimension, compared, spherical=self._spherical)
        with _shown_rounds() as show:
            centres, starts = train_within(
                draw, np.array(wanted, np.intp), dimension,
                spherical=self._spherical, random_state=_SEED, on_round=show,
            )  # fmt: skip
        self._tenants = Tenants(names, starts)
        return centres

    def _number(self, tenants: list[str]) -> None:
        """Have blocks tell the tenants of their rows by these numbers, 0 and up; -1 for others."""
        self._names["tenant_number"] = sql.SQL("coalesce(t.number - 1, -1)::integer, ")
        self._names["tenants"] = sql.SQL(_NUMBERED_TENANTS).format(
            **self._names, names=sql.Literal(tenants)
        )

    def _drawn(self, share: float, seed: int) -> Iterator[Block]:
        """Read a random share of the rows, each block in a transaction of its own."""
        leaves = self._leaves()
        for leaf in leaves:
            page, pages = 0, self._count_pages(leaf)
            while page < pages:
                first, end = page, min(page + self._pages, pages)
                block, page = self._read_pages(leaves, leaf, first, end, part=_part(share, seed))
                self._pages = max(
                    1, min(self._fitting(page - first, len(block)), 4 * self._pages, _MOST_PAGES)
                )
                yield block
        # The next reader may want every row of a page.
        self._pages = max(1, round(share * self._pages))

    def _read_pages(
        self,
        leaves: list[_Leaf],
        leaf: _Leaf,
        first: int,
        end: int,
        *,
        coded: bool = False,
        part: sql.Composable = _EVERY_ROW,
    ) -> tuple[Block, int]:
        """Read pages of a leaf, or the first ones if all hold too many rows for a block.

        Returns the rows, in any order, ``coded`` with their codes, and the page after them.
        """
        statement: LiteralString = _CODED_ROWS if coded else _ROWS
        most = max(2 * self._block_rows, _MOST_ROWS_OF_PAGE)
        with self.connection.transaction():
            while True:
                range_of_pages = sql.SQL(_PAGES).format(
                    first=sql.Literal(f"({first},0)"), end=sql.Literal(f"({end},0)")
                )
                query = sql.SQL(statement + " LIMIT {most}").format(
                    **self._names,
                    leaf=sql.Identifier(leaf.schema, leaf.name),
                    pages=range_of_pages,
                    part=part,
                    most=sql.Literal(most + 1),
                )
                block = self._read(query, coded=coded)
                if len(block) <= most:
                    break
                end = first + max(1, (end - first) // 2)
            # Read under the same lock as the rows.
            if self._leaves() != leaves:
                raise _MovedError
        return block, end

    def _count_pages(self, leaf: _Leaf) -> int:
        (pages,) = self._execute(_PAGES_OF_LEAF, [leaf.oid]).fetchone()
        return int(pages)

    def _fitting(self, pages: int, rows: int) -> int:
        """Return how many pages hold the rows of a block, if these hold this number of rows."""
        return pages * self._block_rows // max(1, rows)

    def _begin_logging(self) -> None:
        self._lock_table()
        self._lock_entry()
        self._execute("SELECT hashindex._begin_build($1)", [self.index.name])
        leaves = self._leaves()
        # Rows that are written into later pages are logged by triggers. Ranges are the same
        # whatever number of processes reads them, and so are the blocks that are computed.
        pages = [self._count_pages(leaf) for leaf in leaves]
        size = max(1, min(self._fitting(sum(pages), self._rows), _MOST_PAGES))
        oids, files = [leaf.oid for leaf in leaves], [leaf.file for leaf in leaves]
        self._execute(_LIST_RANGES, [oids, files, pages, size])
        row = self._execute(
            "SELECT i.next_generation, i.code_table FROM hashindex.index i WHERE i.name = $1",
            [self.index.name],
        ).fetchone()
        self._set_generation(row[0])
        self._names["codes"] = sql.Identifier("hashindex", row[1])

    def _lock_entry(self) -> None:
        """Lock the index in the catalog; refuse one that was configured otherwise meanwhile."""
        row = self._execute(
            "SELECT FROM hashindex.index i "
            "WHERE i.name = $1 AND 'landmarks' IN (i.access, i.building) FOR UPDATE",
            [self.index.name],
        ).fetchone()
        if row is None:
            raise configured_otherwise(self.index)

    def _lock_table(self) -> None:
        # After waiting for the lock, the transaction must see what was written until then.
        self._execute(
            "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; "
            "LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE"
        )

    def _points(
        self, vectors: NDArray[np.float32], projections: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """Return what is compared with landmarks: projections (n, p), or vectors (n, d)."""
        points = vectors
        if self._n_projections:
            points = self._model.project(vectors) if projections is None else projections
        if self._spherical and not self._n_projections:
            return unit_rows(points)
        # As in SQL: a halfvec holds no longer ones.
        long = row_lengths(points) >= _LARGEST
        return np.where(long[:, None], unit_rows(points), points) if long.any() else points

    def _halves(self, centres: NDArray[np.float32]) -> NDArray[np.float16]:
        """Return what is compared with rows, in the precision of the database."""
        result = np.empty((len(centres), self._n_projections or self.index.dimension), np.float16)
        for part in row_slices(len(centres), self._block_rows):
            result[part] = self._points(centres[part])
        return result

    def _write_landmarks(self, points: NDArray[np.float16], first: int = 0) -> None:
        target: LiteralString = "{landmarks}"
        if self._has_tenants:
            self._execute(
                "CREATE TEMP TABLE hashindex_centres ON COMMIT DROP AS "
                "SELECT landmark, centre FROM {landmarks} WITH NO DATA"
            )
            target = "pg_temp.hashindex_centres"
        copy = sql.SQL("COPY " + target + " (landmark, centre) FROM STDIN (FORMAT binary)")
        with (
            self.connection.cursor() as cursor,
            cursor.copy(copy.format(**self._names)) as rows,
        ):
            for part in landmarks_in_copy_format(points):
                rows.write(part)
        if self._has_tenants:
            # A tenant without landmarks would have the number of the next one.
            there = np.diff(self._tenants.starts) > 0
            names = list(compress(self._tenants.names, there))
            firsts = self._tenants.starts[:-1][there].tolist()
            leaders = leaders_of(points, self._tenants.starts).tolist()
            self._execute(_LANDMARKS_OF_TENANTS, [names, firsts, leaders, first])

    def _read_rows(self) -> bool:
        """Write landmark and code of every row; return False if rows have moved to other places."""
        leaves = self._leaves()
        began_with = self._execute("SELECT DISTINCT r.leaf, r.file FROM {ranges} r").fetchall()
        # Rows that move to other places are in another file.
        if {(leaf.oid, leaf.file) for leaf in leaves} != set(began_with):
            return False
        landmarks = self._stored_landmarks()
        ranges = [Range(*row) for row in self._execute(_LEFT).fetchall()]
        # A continued run has not seen all rows, so it does not move the landmarks.
        sums = None if self.largest is None else self._new_sums(landmarks, self.largest)
        (rows,) = self._execute(
            "SELECT (SELECT pg_catalog.count({column}) FROM {table}) "
            "- (SELECT count(*) FROM {staged})"
        ).fetchone()
        rows = max(0, rows)
        self.work.phase("reading rows", rows)
        with (
            Progress("reading", rows, work=self.work) as bar,
            Workers(self, ranges, sums, self._count_jobs(rows, len(landmarks.points))) as workers,
        ):

            def show(done: int) -> None:
                bar.update(done)
                self.throttle.wait(done, self.work.advance)

            workers.show = show
            try:
                self.stage(leaves, landmarks, sums, workers)
            except _MovedError:
                return False
        self._index_landmarks(landmarks.points, sums if workers.complete else None)
        return True

    def _count_jobs(self, rows: int, n_landmarks: int) -> int:
        """Return how many processes read rows, this one included."""
        # A throttle counts the rows of one process. Other sessions may see other rows of a table
        # with row security, whose policies may read any setting of this one.
        (hides_rows,) = self._execute(
            "SELECT pg_catalog.row_security_active($1::regclass)", [self.index.qualified_table]
        ).fetchone()
        if self.throttle.limits or hides_rows or self.index.encoded_in != "sql":
            return 1
        compared = self._n_projections or self.index.dimension
        return self._jobs.count(
            rows, self._memory, n_landmarks, self.index.dimension, compared,
            spherical=self._spherical,
        )  # fmt: skip

    def _new_sums(self, landmarks: Landmarks | TenantLandmarks, largest: float) -> ListSums:
        return ListSums(
            len(landmarks.points), self.index.dimension, spherical=self._spherical, largest=largest
        )

    def help(self, ranges: Ranges, largest: float | None) -> ListSums | None:
        """Write landmarks and codes of ranges for a build of another process.

        Returns the sums of their rows, if ``largest`` says that the build needs them.
        """
        self._left_off()
        if self._generation is None:
            raise configured_otherwise(self.index)
        landmarks = self._stored_landmarks()
        sums = None if largest is None else self._new_sums(landmarks, largest)
        ranges.ready()
        self.stage(self._leaves(), landmarks, sums, ranges)
        return sums

    def _stored_landmarks(self) -> Landmarks | TenantLandmarks:
        # Rounded as in the database, so that triggers and blocks assign alike.
        points = read_block(
            self.connection,
            sql.SQL(_LANDMARKS).format(**self._names),
            dimension=self._n_projections or self.index.dimension,
        ).vectors.astype(np.float16)
        if self._has_tenants:
            large = self._execute(_TENANTS_OF_LANDMARKS).fetchall()
            starts = np.concatenate([[0], np.array([n for _, n in large], np.intp).cumsum()])
            self._tenants = Tenants([name for name, _ in large], starts)
            self._number(self._tenants.names)
            # Sums of a product depend on the number of threads.
            with one_blas_thread():
                return TenantLandmarks(points, starts)
        with one_blas_thread():
            return Landmarks(points)

    def stage(
        self,
        leaves: list[_Leaf],
        landmarks: Landmarks | TenantLandmarks,
        sums: ListSums | None,
        ranges: Ranges,
    ) -> None:
        """Read block after block; the next one is read while this one is computed."""
        read: tuple[Block, Range, int] | None = None
        rest: Range | None = None
        with ThreadPoolExecutor(1) as reader:
            while True:
                place = rest or ranges.take(wait=read is None)
                # The other thread uses the connection until its result is there.
                coming = None if place is None else reader.submit(self._next_block, leaves, place)
                computed = None
                if read is not None and len(read[0]):
                    computed = self._computed(read[0], landmarks, sums)
                following = None if coming is None else coming.result()
                if read is not None:
                    block, done, page = read
                    self._write(computed, done._replace(end=page))
                    ranges.done(len(block), done, page)
                if following is None and read is None:
                    return
                read, rest = None, None
                if following is not None and place is not None:
                    block, page = following
                    read = block, place, page
                    rest = place._replace(first=page) if page < place.end else None

    def _next_block(self, leaves: list[_Leaf], place: Range) -> tuple[Block, int]:
        """Read a block; return it and the page where it ends."""
        leaf = next((leaf for leaf in leaves if leaf.oid == place.leaf), None)
        if leaf is None:
            raise _MovedError
        coded = self.index.encoded_in == "python"
        return self._read_pages(leaves, leaf, place.first, place.end, coded=coded)

    def _encoded(
        self, vectors: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_], NDArray[np.uint8]]:
        """Return projections and codes of the rows that the model takes, and which these are."""
        found: dict[int, tuple[Any, ...]] = {}

        def work(part: slice) -> None:
            projections, taken = self._model.project_taken(vectors[part])
            codes = self._model.row_codes(vectors[part][taken], projections)
            found[part.start] = projections, taken, codes

        in_threads(work, len(vectors))
        projections, taken, codes = zip(*(found[start] for start in sorted(found)), strict=True)
        return np.concatenate(projections), np.concatenate(taken), np.concatenate(codes)

    def _computed(
        self, block: Block, landmarks: Landmarks | TenantLandmarks, sums: ListSums | None
    ) -> bytes:
        projections, codes = None, block.codes
        if codes is None:
            # The encoder, which comes after the build, names the rows that are left out.
            projections, taken, codes = self._encoded(block.vectors)
            block = block.select(taken)
        points = self._points(block.vectors, projections)
        if isinstance(landmarks, TenantLandmarks):
            assert block.tenants is not None  # noqa: S101
            places = landmarks.assign(points, block.tenants)
        else:
            places = landmarks.assign(points)
        if sums is not None:
            moderate = are_trainable(block.vectors) & (places >= 0)
            sums.add(block.select(moderate).vectors, places[moderate])
        return copy_format(
            block.keys, places, codes, self.index.n_bits, key_columns=self._key_columns
        )

    def _write(self, rows: bytes | None, place: Range) -> None:
        """Write the rows of some pages, if there are any, and that these have been read."""
        copy = sql.SQL("COPY {staged} FROM STDIN (FORMAT binary)")
        with self.connection.transaction():
            # No need to wait for the disk: a crash empties these tables anyway.
            self._execute("SET LOCAL synchronous_commit TO off")
            kept = self._execute(_KEEP_PLACE, [*place, self.index.name, self._generation])
            if not kept.rowcount:
                # The server has written them for a process that was killed before it knew.
                self._check_generation()
            if not kept.rowcount or rows is None:
                return
            with (
                self.connection.cursor() as cursor,
                cursor.copy(copy.format(**self._names)) as target,
            ):
                target.write(rows)

    def _check_generation(self) -> None:
        """Refuse to continue a build that another session gave up."""
        row = self._execute(
            "SELECT FROM hashindex.index i WHERE i.name = $1 AND i.next_generation = $2",
            [self.index.name, self._generation],
        ).fetchone()
        if row is None:
            raise configured_otherwise(self.index)

    def _index_landmarks(self, points: NDArray[np.float16], sums: ListSums | None) -> None:
        self.work.phase("indexing landmarks")
        with self.connection.transaction():
            self._check_generation()
            if sums is not None:
                for part in row_slices(len(points), self._block_rows):
                    centres, moved = sums.means(part)
                    points[part][moved] = self._points(centres[moved])
                # No search reads them yet.
                self._execute("TRUNCATE {landmarks}")
                self._write_landmarks(points)
            self._execute("SELECT hashindex._index_landmarks($1)", [self.index.name])

    def _put_in_order(self) -> None:
        self.work.phase("putting codes in the order of landmarks")
        with self.connection.transaction():
            self._execute("SELECT hashindex._order_build($1)", [self.index.name])

    def _take_over(self) -> int | None:
        """Apply logged keys; return the number of rows, None if the table was emptied."""
        self.work.phase("applying writes made meanwhile")
        if not catch_up(self.index, self.work):
            return None
        (rows,) = self._execute("SELECT count(*) FROM {codes_in_order}").fetchone()
        self.work.phase("waiting for a lock to switch to the new landmarks")
        if not retry_while_locked(
            self.connection, lambda: self._finish(rows), table=self.index.qualified_table
        ):
            return None
        drop_unused(self.index)
        return int(rows)

    def _finish(self, rows: int) -> bool:
        self._lock_table()
        finish = "SELECT hashindex._finish_build($1, $2)"
        (finished,) = self._execute(finish, [self.index.name, rows]).fetchone()
        return bool(finished)

    def _leaves(self) -> list[_Leaf]:
        return [_Leaf(*row) for row in self._execute(_LEAVES).fetchall()]

    def _read(self, query: sql.Composable, *, coded: bool) -> Block:
        try:
            return read_block(
                self.connection,
                query,
                dimension=self.index.dimension,
                code_bits=self.index.n_bits if coded else None,
                has_tenants=self._has_tenants,
                key_columns=self._key_columns,
            )
        except WrongDimensionError:
            raise self._wrong_dimension() from None

    def _wrong_dimension(self) -> InvalidInputError:
        schema, _ = self._execute(EXTENSION).fetchone()
        row = self._execute(
            _WRONG_ROW, [self.index.dimension], schema=sql.Identifier(schema)
        ).fetchone()
        key, dimension = row or ("?", "other")
        return InvalidInputError(
            f"row {key} of {self.index.qualified_table} has {dimension} dimensions, "
            f"the model takes {self.index.dimension}; fix or delete the row"
        )

    def _execute(
        self, statement: LiteralString, values: list[Any] | None = None, **more: sql.Composable
    ) -> Any:
        """Run a statement; its parameters are ``$1``, ``$2``, ..."""
        query = sql.SQL(statement).format(**self._names, **more)
        return execute(self.connection, query, values)


def _trainable(blocks: Iterable[Block]) -> Iterator[TenantRows]:
    """Yield the rows of blocks that landmarks of tenants are trained on."""
    for block in blocks:
        usable = block.select(are_trainable(block.vectors))
        assert usable.tenants is not None  # noqa: S101
        yield usable.vectors, usable.tenants


@contextmanager
def _shown_rounds() -> Iterator[Callable[[int, int], None]]:
    """Show the rounds of training; give the function that is called after each."""
    with Progress("training landmarks", None, "round") as bar:

        def show(done: int, rounds: int) -> None:
            bar.total = rounds
            bar.update(done - bar.n)

        yield show


def _part(share: float, seed: int) -> sql.Composed:
    """Return the condition on a random share of the rows."""
    below = math.ceil(share * _SHARES)
    return sql.SQL(_SHARE_OF_ROWS).format(seed=sql.Literal(seed), share=sql.Literal(below))
