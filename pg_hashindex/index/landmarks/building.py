"""A set of lists built beside searches and writers: read the table once, and put codes in order.

As pg_repack does, a build writes tables of its own. Before the first row is read, triggers begin to
log the keys that are written, and at its end the build applies them. So others wait only for two
short locks. ``sql/142_lists.sql`` is the part in SQL.

Rows are read by ranges of pages. The list of ranges is a table. The codes of a range are written in
one transaction, which marks the range, so it is written whole or not at all, and an interrupted run
reads those that are left. `Workers` has other processes read some of the ranges. Another thread
reads the next block while the codes and landmarks of this one are computed. If the table was
rewritten (VACUUM FULL, TRUNCATE), its rows have other places, and it is read again from the start.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import compress
from typing import Any, Literal, LiteralString, TypeVar

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from ...db.locks import retry_while_locked
from ...db.progress import Progress
from ...db.rows import by_place
from ...db.sql_files import query
from ...db.throttle import Throttle
from ...db.work import Work
from ...errors import DatabaseStateError, InUseError, InvalidInputError
from ...hashers.numerics.rows import row_slices
from ...hashers.numerics.threads import one_blas_thread
from ...models.codes import pack
from ...models.quantization import quantize
from ...models.vectors import are_trainable
from ..catalog import IndexRow
from ..encoding import balance, catch_up
from .assignment import Landmarks, ListSums
from .memory import bytes_of_build
from .reading import Heap, MovedError, TableReader
from .space import in_threads, row_lengths, unit_rows
from .table_blocks import (
    Block,
    copy_format,
    landmarks_in_copy_format,
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
from .training import Centres, Halves, Part, Round, landmark_count, train_by_blocks, training_rows
from .workers import Jobs, Pass, Range, Ranges, Workers

T = TypeVar("T")

#: None where a set has none: all of its codes are ranked.
AnyLandmarks = Landmarks | TenantLandmarks | None

# The tables of a set of lists that is built.
_PARTS = ("codes", "landmarks", "log", "staged", "ranges")

# The largest number of a halfvec.
_LARGEST = 65504.0
# A fixed seed: equal tables get equal landmarks.
_SEED = 0

# How often a build begins again because the table was emptied or rewritten.
_MOST_STARTS = 5

# The next step of a run: train landmarks, read rows, or apply the keys that were logged.
_Step = Literal["begin", "read", "apply"]

_LARGE_TENANTS = query("landmarks.large_tenants")

_TENANTS_OF_LANDMARKS: LiteralString = """
    SELECT l.tenant::text, count(*) FROM {landmarks} l GROUP BY l.tenant
    ORDER BY pg_catalog.min(l.landmark)
"""

_ROWS_OF_TENANT: LiteralString = """
    SELECT {key_text}, 0::integer, b.{column} FROM {table} b
    WHERE b.{tenant} = {value}::{tenant_type} AND b.{column} IS NOT NULL
"""

_SIZE_OF_TENANT = query("landmarks.size_of_tenant")

_LANDMARKS_OF_TENANTS = query("landmarks.of_tenants")

_LIST_RANGES = query("landmarks.list_ranges")

_LEFT: LiteralString = """
    SELECT r.number, r.first_page, r.end_page FROM {ranges} r WHERE NOT r.written ORDER BY r.number
"""

_MARK_WRITTEN = query("landmarks.mark_written")

_IS_WRITTEN: LiteralString = "SELECT r.written FROM {ranges} r WHERE r.number = $1"

_STATE = query("landmarks.state_of_build")

_LANDMARKS: LiteralString = "SELECT l.landmark, l.centre FROM {landmarks} l {which} ORDER BY 1"


class ListBuild(TableReader):
    """One run over the set of lists in a row of the catalog, which is in state building."""

    def __init__(
        self,
        index: IndexRow,
        work: Work,
        throttle: Throttle,
        *,
        memory: int,
        jobs: Jobs,
    ) -> None:
        super().__init__(index, throttle)
        self.work = work
        self._memory, self._jobs = memory, jobs
        # The other processes of a run, and what ends them.
        self._workers: Workers | None = None
        self._open = ExitStack()
        #: How large numbers of vectors may be for the means of rows; unknown in a continued run.
        self.largest: float | None = None
        self._rows = 0
        # The number of the attempt: another one makes the tables again.
        self._generation: int | None = None
        # The tenants with landmarks, in an index that has tenants.
        self._tenants = Tenants([], np.zeros(1, np.intp))
        #: Whether only directions count in means of rows.
        self._spherical = index.metric != "l2"
        self._model = index.loaded_model
        self._names |= {part: index.part(part) for part in _PARTS}
        # The projections that are compared with landmarks; None if vectors are.
        (self._n_projections,) = self._execute(
            "SELECT hashindex._list_projections(m, $2) FROM hashindex.model m WHERE m.id = $1",
            [index.model_id, index.metric],
        ).fetchone()
        #: The dimensions in which rows are compared with landmarks.
        self._compared = self._n_projections or index.dimension

    def run(self) -> int:
        """Train landmarks, put codes in their order, and have the set ready; return its rows.

        Continues where a previous run has stopped.
        """
        with ExitStack() as self._open:
            step = self._left_off()
            for _ in range(_MOST_STARTS):
                try:
                    if step == "begin":
                        self._begin()
                    if step != "apply":
                        self._read_rows()
                except MovedError:
                    self._end_workers()
                    step = "begin"
                    continue
                if step != "apply":
                    self._put_in_order()
                rows = self._finished()
                if rows is not None:
                    return rows
                step = "begin"
        raise InUseError(
            f"{self.index.qualified_table} was emptied or rewritten "
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
        if self.index.trained_rows is None:
            verb = "swap" if self.index.access == "scan" else "rebalance"
            raise DatabaseStateError(
                f"index {self.index.name!r} has no landmarks of tenants; run: pg-hashindex index "
                f"{verb} {self.index.name}{' --access lists' if verb == 'swap' else ''}"
            )
        self.work.phase("training landmarks")
        rows, wanted, before, _ = self._execute(_SIZE_OF_TENANT, [tenant]).fetchone()
        if not rows:
            raise InvalidInputError(
                f"{self.index.qualified_table} has no row of tenant {tenant!r}; the function "
                f"hashindex.tenants('{self.index.name}') lists tenants"
            )
        query = sql.SQL(_ROWS_OF_TENANT).format(**self._names, value=sql.Literal(tenant))

        def draw(number: int) -> Iterator[TenantRows]:
            part = by_place(TRAINED_SHARE, _SEED + number)
            return _trainable(self._blocks(query + part, self._block_rows))

        centres = self._trained_within(draw, [tenant], [wanted])
        after = len(centres)

        def exchange() -> int:
            self._lock_table()
            # Whoever lists codes meanwhile would put them into the former lists.
            self._execute("LOCK TABLE {codes} IN SHARE ROW EXCLUSIVE MODE")
            used = "SELECT FROM hashindex.index_set s WHERE s.id = $1 AND s.state = 'used'"
            if self._execute(used, [self.index.set_id]).fetchone() is None:
                raise self._given_up()
            self.work.phase("putting codes in the order of landmarks")
            _, _, _, first = self._execute(_SIZE_OF_TENANT, [tenant]).fetchone()
            points = self._halves(centres)
            self._write_landmarks(points, first)
            landmarks = TenantLandmarks(points, self._tenants.starts)
            keys: list[str] = []
            lists: list[int] = []
            for block in self._blocks(query, self._block_rows):
                if not len(block):
                    continue
                projections, taken, _ = self._encoded(block.vectors)
                block = block.select(taken)
                assert block.tenants is not None  # noqa: S101
                places = landmarks.assign(self._points(block.vectors, projections), block.tenants)
                keys += texts_of(block.keys, self.connection.info.encoding)
                lists += np.where(places >= 0, places + first, -1).tolist()
            (moved,) = self._execute(
                "SELECT hashindex._exchange_lists($1, $2, $3, $4, $5)",
                [self.index.name, tenant, first, keys, lists],
            ).fetchone()
            return int(moved)

        moved = retry_while_locked(self.connection, exchange, table=self.index.qualified_table)
        return moved, int(before), after

    def _left_off(self) -> _Step:
        """Return the step that a previous run has reached, the first one if there was no run."""
        row = self._execute(
            "SELECT s.generation FROM hashindex.index_set s "
            "WHERE s.id = $1 AND s.state = 'building'",
            [self.index.set_id],
        ).fetchone()
        if row is None:
            raise self._given_up()
        (self._generation,) = row
        (lacking,) = self._execute(
            "SELECT pg_catalog.count(*) FROM pg_catalog.unnest($1::text[]) n "
            "WHERE to_regclass(n) IS NULL",
            [[self._names[part].as_string(self.connection) for part in _PARTS]],
        ).fetchone()
        if lacking:
            return "begin"
        codes = self._names["codes"].as_string(self.connection)
        filled, begun, staged, in_order = self._execute(_STATE, [codes]).fetchone()
        # A crash empties unlogged tables, the log of keys too.
        if not filled or (begun and not staged):
            return "begin"
        return "apply" if in_order else "read"

    def _given_up(self) -> DatabaseStateError:
        return DatabaseStateError(
            f"another session gave up or dropped the lists of index {self.index.name!r} while they "
            "were built; see: pg-hashindex index show"
        )

    def _begin(self) -> None:
        """Train landmarks, if there are to be some, and have triggers log written keys."""
        self.work.phase("training landmarks")
        (rows,) = self._execute("SELECT pg_catalog.count({column}) FROM {table}").fetchone()
        self._rows = rows
        centres = None if self.index.access == "scan" else self._train(rows)
        self.largest = None if centres is None else centres.largest
        self.work.phase("waiting for a lock to start logging writes")
        retry_while_locked(self.connection, self._begin_logging, table=self.index.qualified_table)
        with self.connection.transaction():
            if centres is not None:
                self._write_landmarks(self._halves(centres))
            # Rows that are written into later pages are logged by triggers. Ranges are the same
            # whatever number of processes reads them, and so are the blocks that are computed.
            heap, pages = self._heap(), self._count_pages()
            self._execute(_LIST_RANGES, [heap.file, pages, self._fitting(pages, self._rows)])

    def _train(self, rows: int) -> Centres | None:
        """Train landmarks on rows that each round draws; return None if the table has none."""
        if not rows:
            return None
        if self._has_tenants:
            return self._train_within()
        dimension, n_landmarks = self.index.dimension, landmark_count(rows)
        self._refuse_too_little(n_landmarks)
        self._started_workers(rows, n_landmarks)

        def draw(wanted: int, number: int) -> Iterator[NDArray[np.float32]]:
            for block in self._drawn(min(1, wanted / rows), _SEED + number):
                yield block.select(are_trainable(block.vectors)).vectors

        def read(round_: Round, number: int) -> None:
            self._read_round(round_, min(1, training_rows(n_landmarks) / rows), _SEED + number)

        with _shown_rounds() as show:
            return train_by_blocks(
                draw,
                read,
                n_landmarks,
                dimension,
                spherical=self._spherical,
                seed=_SEED,
                on_round=show,
            )

    def _read_round(self, round_: Round, share: float, seed: int) -> None:
        """Add a share of the rows to a round."""
        heap, pages = self._heap(), self._count_pages()
        size = self._fitting(pages, math.ceil(share * self._rows))
        task = {"share": share, "seed": seed, "heap": heap, "round": round_.task()}
        ranges = [
            Range(number, first, min(first + size, pages))
            for number, first in enumerate(range(0, pages, size))
        ]
        workers = self._started_workers(self._rows, len(round_.sums))
        while True:
            pass_ = workers.begin(Pass(ranges, task, round_.arrays, round_.merge))
            self._add_rows(round_, task, pass_)
            if pass_.complete:
                break
            # Rows were lost with a process.
            round_.forget()

    def _add_rows(self, round_: Round, task: dict[str, Any], ranges: Ranges) -> None:
        heap, part = Heap(*task["heap"]), by_place(task["share"], task["seed"])
        self._refuse_moved(heap)

        def compute(block: Block) -> None:
            round_.add(block.select(are_trainable(block.vectors)).vectors)

        self._each_block(
            ranges, lambda place: self._read_pages(heap, place.first, place.end, part=part),
            compute, lambda computed, place: None,
        )  # fmt: skip

    def _refuse_too_little(self, n_landmarks: int) -> None:
        """Refuse memory that does not hold what one process takes."""
        if self._memory < (least := self._bytes(n_landmarks)):
            raise InvalidInputError(
                f"{n_landmarks} landmarks of {self.index.dimension} dimensions are not built in "
                f"{self._memory >> 20}MB of memory; the least is --memory {least >> 20}MB"
            )

    def _bytes(self, n_landmarks: int) -> int:
        """Return the memory that a process takes."""
        return bytes_of_build(
            n_landmarks,
            self.index.dimension,
            self._compared,
            spherical=self._spherical,
            within=self.index.tenant_column is not None,
        )

    def _train_within(self) -> Centres:
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
    ) -> Centres:
        """Train the wanted number of landmarks for each of some tenants, which become ours."""
        self._refuse_too_little(sum(wanted))
        with _shown_rounds() as show:
            centres, starts = train_within(
                draw, np.array(wanted, np.intp), self.index.dimension,
                spherical=self._spherical, random_state=_SEED, on_round=show,
            )  # fmt: skip
        self._tenants = Tenants(names, starts)
        return centres

    def _begin_logging(self) -> None:
        self._lock_table()
        self._execute("SELECT hashindex._begin_lists($1)", [self.index.set_id])
        (self._generation,) = self._execute(
            "SELECT s.generation FROM hashindex.index_set s WHERE s.id = $1", [self.index.set_id]
        ).fetchone()

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

    def _halves(self, centres: Centres) -> Halves:
        """Return what is compared with rows, in the precision of the database."""
        return Halves(len(centres), lambda part: self._points(centres[part]))

    def _write_landmarks(self, points: Halves, first: int = 0) -> None:
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
            for part in landmarks_in_copy_format(points, self._compared):
                rows.write(part)
        if self._has_tenants:
            # A tenant without landmarks would have the number of the next one.
            there = np.diff(self._tenants.starts) > 0
            names = list(compress(self._tenants.names, there))
            firsts = self._tenants.starts[:-1][there].tolist()
            leaders = leaders_of(points, self._tenants.starts).tolist()
            self._execute(_LANDMARKS_OF_TENANTS, [names, firsts, leaders, first])

    def _read_rows(self) -> None:
        """Write landmark and code of every row."""
        # Rows that move to other places are in another file.
        (file,) = self._execute("SELECT r.file FROM {ranges} r LIMIT 1").fetchone()
        heap = self._heap()._replace(file=file)
        self._refuse_moved(heap)
        landmarks = self._stored_landmarks()
        ranges = [Range(*row) for row in self._execute(_LEFT).fetchall()]
        # A continued run has not seen all rows, so it does not move the landmarks.
        sums = self._new_sums(landmarks, self.largest)
        (rows,) = self._execute(
            "SELECT (SELECT pg_catalog.count({column}) FROM {table}) "
            "- (SELECT count(*) FROM {staged})"
        ).fetchone()
        rows = max(0, rows)
        self.work.phase("reading rows", rows)
        workers = self._started_workers(rows, 0 if landmarks is None else len(landmarks))
        task = {"heap": heap, "largest": self.largest, "generation": self._generation}
        merge = None if sums is None else sums.merge
        pass_ = workers.begin(Pass(ranges, task, list, merge))
        with Progress("reading", rows, work=self.work) as bar:

            def show(done: int) -> None:
                bar.update(done)
                self.throttle.wait(done, self.work.advance)

            pass_.show = show
            self._stage(landmarks, sums, heap, pass_)
        self._end_workers()
        if landmarks is not None:
            del landmarks
            self._index_landmarks(sums if pass_.complete else None)

    def _started_workers(self, rows: int, n_landmarks: int) -> Workers:
        """Return the processes of this run, which start when they are first needed."""
        if self._workers is None:
            # A throttle counts the rows of one process. Other sessions may see other rows of a
            # table with row security, whose policies may read any setting of this one.
            (hides_rows,) = self._execute(
                "SELECT pg_catalog.row_security_active($1::regclass)", [self.index.qualified_table]
            ).fetchone()
            jobs = 1
            if not (self.throttle.limits or hides_rows):
                jobs = self._jobs.count(rows, self._memory, self._bytes(n_landmarks))
            self._workers = self._open.enter_context(Workers(self.index, jobs))
        return self._workers

    def _end_workers(self) -> None:
        self._open.close()
        self._workers = None

    def _new_sums(self, landmarks: AnyLandmarks, largest: float | None) -> ListSums | None:
        if landmarks is None or largest is None:
            return None
        return ListSums(
            len(landmarks), self.index.dimension, spherical=self._spherical, largest=largest
        )

    def help(
        self, ranges: Ranges, task: dict[str, Any], arrays: list[NDArray[Any]]
    ) -> Iterator[NDArray[Any]]:
        """Read ranges for a build of another process; return the sums of their rows."""
        if "round" in task:
            round_ = Round.of(task["round"], arrays, spherical=self._spherical)
            ranges.ready()
            self._add_rows(round_, task, ranges)
            return round_.parts()
        self._generation = task["generation"]
        self._check_building()
        landmarks, largest = self._stored_landmarks(), task["largest"]
        sums = self._new_sums(landmarks, largest)
        ranges.ready()
        self._stage(landmarks, sums, Heap(*task["heap"]), ranges)
        return iter(()) if sums is None else sums.parts()

    def _stored_points(self, numbers: NDArray[np.intp] | None = None) -> NDArray[np.float16]:
        """Read landmarks, all or some, rounded as triggers see them."""
        (count,) = self._execute("SELECT count(*) FROM {landmarks}").fetchone()
        which = sql.SQL("" if numbers is None else "WHERE l.landmark = ANY ({})").format(
            sql.Literal([] if numbers is None else numbers.tolist())
        )
        size = count if numbers is None else len(numbers)
        points, end = np.empty((size, self._compared), np.float16), 0
        for block in read_blocks(
            self.connection,
            sql.SQL(_LANDMARKS).format(**self._names, which=which),
            self._block_rows,
            dimension=self._compared,
        ):
            points[end : end + len(block)] = block.vectors
            end += len(block)
        return points

    def _stored_landmarks(self) -> AnyLandmarks:
        points = self._stored_points()
        if self._has_tenants:
            large = self._execute(_TENANTS_OF_LANDMARKS).fetchall()
            starts = np.concatenate([[0], np.array([n for _, n in large], np.intp).cumsum()])
            self._tenants = Tenants([name for name, _ in large], starts)
            self._number(self._tenants.names)
        # Sums of a product depend on the number of threads.
        with one_blas_thread():
            if self._has_tenants:
                return TenantLandmarks(points, self._tenants.starts)
            return Landmarks(points) if len(points) else None

    def _stage(
        self,
        landmarks: AnyLandmarks,
        sums: ListSums | None,
        heap: Heap,
        ranges: Ranges,
    ) -> None:
        """Write the landmark and the code of each row of ranges."""
        self._refuse_moved(heap)
        self._each_block(
            ranges, lambda place: self._read_pages(heap, place.first, place.end),
            lambda block: self._computed(block, landmarks, sums), self._write,
        )  # fmt: skip

    def _each_block(
        self,
        ranges: Ranges,
        read: Callable[[Range], tuple[Block, int]],
        compute: Callable[[Block], T],
        write: Callable[[list[T], Range], None],
    ) -> None:
        """Read block after block; the next one is read while this one is computed.

        What is computed of a range is written when all of the range has been read.
        """
        at_hand: tuple[Block, Range, int] | None = None
        place: Range | None = None
        page, rows = 0, 0
        computed: list[T] = []
        with ThreadPoolExecutor(1) as reader:
            while True:
                if place is None and (place := ranges.take(wait=at_hand is None)) is not None:
                    page = place.first
                # The other thread uses the connection until its result is there.
                coming = None if place is None else reader.submit(read, place._replace(first=page))
                if at_hand is not None and len(at_hand[0]):
                    computed.append(compute(at_hand[0]))
                    rows += len(at_hand[0])
                following = None if coming is None else coming.result()
                if at_hand is not None and at_hand[2] >= at_hand[1].end:
                    write(computed, at_hand[1])
                    ranges.done(rows)
                    computed, rows = [], 0
                if following is None and at_hand is None:
                    return
                at_hand = None
                if following is not None and place is not None:
                    block, page = following
                    at_hand = block, place, page
                    place = place if page < place.end else None

    def _encoded(
        self, vectors: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_], NDArray[np.uint8]]:
        """Return projections and codes of the rows that the model takes, and which these are."""
        found: dict[int, tuple[Any, ...]] = {}

        def work(part: slice) -> None:
            projections, taken = self._model.project_taken(vectors[part])
            codes = pack(quantize(projections, self._model.cuts))
            found[part.start] = projections, taken, codes

        in_threads(work, len(vectors))
        projections, taken, codes = zip(*(found[start] for start in sorted(found)), strict=True)
        return np.concatenate(projections), np.concatenate(taken), np.concatenate(codes)

    def _computed(self, block: Block, landmarks: AnyLandmarks, sums: ListSums | None) -> bytes:
        # The encoder, which comes after the build, names the rows that are left out.
        projections, taken, codes = self._encoded(block.vectors)
        block = block.select(taken)
        if isinstance(landmarks, TenantLandmarks):
            assert block.tenants is not None  # noqa: S101
            places = landmarks.assign(self._points(block.vectors, projections), block.tenants)
        elif landmarks is not None:
            places = landmarks.assign(self._points(block.vectors, projections))
        else:
            places = np.full(len(block), -1, np.intp)
        if sums is not None:
            moderate = are_trainable(block.vectors) & (places >= 0)
            sums.add(block.select(moderate).vectors, places[moderate])
        return copy_format(
            block.keys, places, codes, self.index.n_bits, key_columns=self._key_columns
        )

    def _write(self, blocks: list[bytes], place: Range) -> None:
        """Write the rows of a range, and that it is written, unless it is already."""
        copy = sql.SQL("COPY {staged} FROM STDIN (FORMAT binary)").format(**self._names)
        with self.connection.transaction():
            # No need to wait for the disk: a crash empties these tables anyway.
            self._execute("SET LOCAL synchronous_commit TO off")
            values = [place.number, self.index.set_id, self._generation]
            if not self._execute(_MARK_WRITTEN, values).rowcount:
                self._check_building()
                # The server has written them for a process that was killed before it knew.
                if self._execute(_IS_WRITTEN, [place.number]).fetchone() == (True,):
                    return
                raise self._given_up()
            for rows in blocks:
                with self.connection.cursor() as cursor, cursor.copy(copy) as target:
                    target.write(rows)

    def _check_building(self) -> None:
        """Refuse to continue a build that another session gave up."""
        row = self._execute(
            "SELECT FROM hashindex.index_set s "
            "WHERE s.id = $1 AND s.state = 'building' AND s.generation = $2",
            [self.index.set_id, self._generation],
        ).fetchone()
        if row is None:
            raise self._given_up()

    def _index_landmarks(self, sums: ListSums | None) -> None:
        self.work.phase("indexing landmarks")
        with self.connection.transaction():
            self._check_building()
            if sums is not None:
                points = self._moved(sums)
                # No search reads them yet.
                self._execute("TRUNCATE {landmarks}")
                self._write_landmarks(points)
            self._execute("SELECT hashindex._index_landmarks($1)", [self.index.set_id])

    def _moved(self, sums: ListSums) -> Halves:
        """Return the means of rows, and landmarks of few rows as they are stored."""
        # Without any if all tenants are small.
        moved = np.zeros(len(sums), dtype=bool)
        for part in row_slices(len(sums), self._block_rows):
            moved[part] = sums.means(part)[1]
        left = np.flatnonzero(~moved)
        stored = self._stored_points(left)

        def compute(part: Part) -> NDArray[np.float32]:
            result = self._points(sums.means(part)[0])
            numbers = np.arange(len(sums))[part]
            kept = ~moved[numbers]
            result[kept] = stored[np.searchsorted(left, numbers[kept])]
            return result

        return Halves(len(sums), compute)

    def _put_in_order(self) -> None:
        self.work.phase("putting codes in the order of landmarks")
        with self.connection.transaction():
            (landmarks,) = self._execute("SELECT EXISTS (SELECT FROM {landmarks})").fetchone()
            trained = landmarks or (self._has_tenants and self.index.access == "lists")
            (rows,) = self._execute("SELECT count(*) FROM {staged}").fetchone()
            order = "SELECT hashindex._order_lists($1, $2)"
            self._execute(order, [self.index.set_id, rows if trained and rows else None])

    def _finished(self) -> int | None:
        """Apply logged keys; return the number of rows, None if the table was emptied."""
        self.work.phase("applying writes made meanwhile")
        if not catch_up(self.index, self.work):
            return None
        if balance(self.index, self.throttle, self.work):
            self.work.phase("applying writes made meanwhile")
            if not catch_up(self.index, self.work):
                return None
        (rows,) = self._execute("SELECT count(*) FROM {codes}").fetchone()
        self.work.phase("waiting for a lock to end the build")
        if not retry_while_locked(self.connection, self._finish, table=self.index.qualified_table):
            return None
        return int(rows)

    def _finish(self) -> bool:
        self._lock_table()
        finish = "SELECT hashindex._finish_lists($1)"
        (finished,) = self._execute(finish, [self.index.set_id]).fetchone()
        return bool(finished)


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
