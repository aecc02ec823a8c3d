"""Landmarks built beside searches and writers: read the table once, and put its codes in order.

As pg_repack does, a build writes a second codes table. Before the first row is read, triggers begin
to log the keys that are written, and at its end the build applies them. So others wait only for two
short locks. ``sql/142_landmarks.sql`` is the part in SQL.

Rows are read by ranges of pages, partition after partition, each range in a transaction of its own,
so no statement relies on an order that the planner chooses. The codes of a range are written
together with the place where it ended, so an interrupted run continues there. Another thread reads
the next block while the codes and landmarks of this one are computed. If the table was rewritten
(VACUUM FULL, TRUNCATE) or its partitions changed, its rows have other places, and it is read again
from the start.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import compress
from typing import Any, LiteralString, NamedTuple

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
from ...models.vectors import are_trainable
from ..access import FEW_KEYS, MOST_APPLIED, catch_up_once, configured_otherwise, drop_unused
from ..catalog import IndexRow
from .assignment import Landmarks, ListMeans
from .memory import refuse_too_little
from .space import row_lengths, unit_rows
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

# The largest number of a halfvec.
_LARGEST = 65504.0
# A fixed seed: equal tables get equal landmarks.
_SEED = 0

# The most rows and numbers of a block: 16 MB of vectors.
_BLOCK_VALUES = 4_000_000
_BLOCK_ROWS = 20_000

# How often a build begins again because the table was emptied or rewritten.
_MOST_STARTS = 5

# Pages of the first block and of the largest, 512 MB; no page of 32 kB holds more rows.
_FIRST_PAGES, _MOST_PAGES, _MOST_ROWS_OF_PAGE = 64, 65_536, 1_200

# The progress of a build as one number, partition and page; or all read and put in order.
_START, _IN_ORDER = 0, -1

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
    """One run; the index must keep these values in the catalog meanwhile."""

    def __init__(
        self,
        index: IndexRow,
        work: Work,
        throttle: Throttle,
        *,
        access: str | None = None,
        building: str | None = "landmarks",
        memory: int,
    ) -> None:
        self.index, self.work, self.throttle = index, work, throttle
        self.connection = index.connection
        self._access, self._building = access, building
        self._memory = memory
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
            for part in ("staged", "touched")
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
        place = self._left_off()
        for _ in range(_MOST_STARTS):
            if place is None:
                try:
                    if not self._begin():
                        return None
                except _MovedError:
                    continue
                place = _START
            if place != _IN_ORDER:
                if not self._read_rows(place):
                    place = None
                    continue
                self._put_in_order()
            rows = self._take_over()
            if rows is not None:
                return rows
            place = None
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

    def _left_off(self) -> int | None:
        """Return the place that a previous run has reached, None if there was no run."""
        row = self._execute(
            "SELECT i.next_generation, i.built_pages, i.code_table FROM hashindex.index i "
            # If the index was swapped since it was opened, its name stands for other tables.
            "WHERE i.name = $1 AND i.storage = $2",
            [self.index.name, self.index.storage],
        ).fetchone()
        if row is None:
            raise configured_otherwise(self.index)
        generation, place, table = row
        self._names["codes"] = sql.Identifier("hashindex", table)
        if generation is None or place is None:
            return None
        self._set_generation(generation)
        parts = [
            self._names[part].as_string(self.connection)
            for part in ("staged", "touched", "codes_in_order", "landmarks")
        ]
        (lacking,) = self._execute(
            "SELECT pg_catalog.count(*) FROM pg_catalog.unnest($1::text[]) n "
            "WHERE to_regclass(n) IS NULL",
            [parts],
        ).fetchone()
        if lacking:
            return None
        row = self._execute(
            "SELECT EXISTS (SELECT FROM {landmarks}), EXISTS (SELECT FROM {staged})"
        ).fetchone()
        # A crash empties unlogged tables, the log of keys too.
        return place if row == (True, True) or (row == (True, False) and place == _START) else None

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
        refuse_too_little(self._memory, n_landmarks, dimension, compared)

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
        refuse_too_little(self._memory, sum(wanted), dimension, compared)
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
            page: int | None = 0
            while page is not None:
                block, page = self._read_pages(leaves, leaf, page, part=_part(share, seed))
                yield block
        # The next reader may want every row of a page.
        self._pages = max(1, round(share * self._pages))

    def _read_pages(
        self,
        leaves: list[_Leaf],
        leaf: _Leaf,
        first: int,
        *,
        coded: bool = False,
        part: sql.Composable = _EVERY_ROW,
    ) -> tuple[Block, int | None]:
        """Read a block of a leaf from a page on, ``coded`` with its codes.

        Returns its rows, in any order, and the page after them, None at the end of the leaf.
        """
        statement: LiteralString = _CODED_ROWS if coded else _ROWS
        most = max(2 * self._block_rows, _MOST_ROWS_OF_PAGE)
        with self.connection.transaction():
            # Rows that are written into later pages are logged by triggers.
            (pages,) = self._execute(_PAGES_OF_LEAF, [leaf.oid]).fetchone()
            while True:
                end = min(first + self._pages, pages)
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
                self._pages = max(1, (end - first) // 2)
            # Read under the same lock as the rows.
            if self._leaves() != leaves:
                raise _MovedError
        if end > first:
            fitting = (end - first) * self._block_rows // max(1, len(block))
            self._pages = max(1, min(fitting, 4 * self._pages, _MOST_PAGES))
        return block, end if end < pages else None

    def _begin_logging(self) -> None:
        self._lock_table()
        self._lock_entry()
        self._execute("SELECT hashindex._begin_build($1)", [self.index.name])
        row = self._execute(
            "UPDATE hashindex.index SET built_from = $2 WHERE name = $1 "
            "RETURNING next_generation, code_table",
            [self.index.name, _fingerprint(self._leaves())],
        ).fetchone()
        self._set_generation(row[0])
        self._names["codes"] = sql.Identifier("hashindex", row[1])

    def _lock_entry(self) -> None:
        """Lock the index in the catalog; refuse one that was configured otherwise meanwhile."""
        row = self._execute(
            "SELECT FROM hashindex.index i WHERE i.name = $1 "
            "AND ($2::text IS NULL OR i.access = $2) AND i.building IS NOT DISTINCT FROM $3 "
            "FOR UPDATE",
            [self.index.name, self._access, self._building],
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

    def _read_rows(self, place: int) -> bool:
        """Write landmark and code of every row; return False if rows have moved to other places."""
        leaves = self._leaves()
        (began_with,) = self._execute(
            "SELECT i.built_from FROM hashindex.index i WHERE i.name = $1", [self.index.name]
        ).fetchone()
        if _fingerprint(leaves) != began_with:
            return False
        # Rounded as in the database, so that triggers and blocks assign alike.
        points = read_block(
            self.connection,
            sql.SQL(_LANDMARKS).format(**self._names),
            dimension=self._n_projections or self.index.dimension,
        ).vectors.astype(np.float16)
        landmarks: Landmarks | TenantLandmarks
        if self._has_tenants:
            large = self._execute(_TENANTS_OF_LANDMARKS).fetchall()
            starts = np.concatenate([[0], np.array([n for _, n in large], np.intp).cumsum()])
            self._tenants = Tenants([name for name, _ in large], starts)
            self._number(self._tenants.names)
            landmarks = TenantLandmarks(points, starts)
        else:
            landmarks = Landmarks(points)
        # A continued run has not seen all rows, so it does not move the landmarks.
        means = (
            ListMeans(len(landmarks.points), self.index.dimension, spherical=self._spherical)
            if place == _START
            else None
        )
        (rows,) = self._execute(
            "SELECT (SELECT pg_catalog.count({column}) FROM {table}) "
            "- (SELECT count(*) FROM {staged})"
        ).fetchone()
        self.work.phase("reading rows", max(0, rows))
        try:
            self._stage(leaves, place, landmarks, means, max(0, rows))
        except _MovedError:
            return False
        self._index_landmarks(landmarks.points, means)
        return True

    def _stage(
        self,
        leaves: list[_Leaf],
        place: int,
        landmarks: Landmarks | TenantLandmarks,
        means: ListMeans | None,
        rows: int,
    ) -> None:
        """Read block after block; the next one is read while this one is computed."""
        read: Block | None = None
        with (
            ThreadPoolExecutor(1) as reader,
            Progress("reading", rows, work=self.work) as bar,
        ):
            while True:
                ended, more = place, place >> 32 < len(leaves)
                # The other thread uses the connection until its result is there.
                coming = reader.submit(self._next_block, leaves, place) if more else None
                computed = None
                if read is not None and len(read):
                    computed = self._computed(read, landmarks, means)
                if coming is not None:
                    following, place = coming.result()
                if computed is not None and read is not None:
                    self._write(computed, ended)
                    bar.update(len(read))
                    self.throttle.wait(len(read), self.work.advance)
                if coming is None:
                    return
                read = following

    def _next_block(self, leaves: list[_Leaf], place: int) -> tuple[Block, int]:
        """Read a block; return it and the place where it ends."""
        number, page = place >> 32, place & 0xFFFFFFFF
        coded = self.index.encoded_in == "python"
        block, following = self._read_pages(leaves, leaves[number], page, coded=coded)
        return block, number + 1 << 32 if following is None else number << 32 | following

    def _computed(
        self, block: Block, landmarks: Landmarks | TenantLandmarks, means: ListMeans | None
    ) -> bytes:
        projections, codes = None, block.codes
        if codes is None:
            # The encoder, which comes after the build, names the rows that are left out.
            projections, taken = self._model.project_taken(block.vectors)
            block = block.select(taken)
            codes = self._model.row_codes(block.vectors, projections)
        points = self._points(block.vectors, projections)
        if isinstance(landmarks, TenantLandmarks):
            assert block.tenants is not None  # noqa: S101
            places = landmarks.assign(points, block.tenants)
        else:
            places = landmarks.assign(points)
        if means is not None:
            moderate = are_trainable(block.vectors) & (places >= 0)
            means.add(block.select(moderate).vectors, places[moderate])
        return copy_format(
            block.keys, places, codes, self.index.n_bits, key_columns=self._key_columns
        )

    def _write(self, rows: bytes, place: int) -> None:
        copy = sql.SQL("COPY {staged} FROM STDIN (FORMAT binary)")
        with self.connection.transaction():
            # No need to wait for the disk: a crash empties these tables anyway.
            self._execute("SET LOCAL synchronous_commit TO off")
            with (
                self.connection.cursor() as cursor,
                cursor.copy(copy.format(**self._names)) as target,
            ):
                target.write(rows)
            self._keep_place(place)

    def _keep_place(self, place: int) -> None:
        kept = self._execute(
            "UPDATE hashindex.index SET built_pages = $2 WHERE name = $1 AND next_generation = $3",
            [self.index.name, place, self._generation],
        )
        if not kept.rowcount:
            raise configured_otherwise(self.index)

    def _index_landmarks(self, points: NDArray[np.float16], means: ListMeans | None) -> None:
        self.work.phase("indexing landmarks")
        with self.connection.transaction():
            if means is not None:
                centres, moved = means.centres()
                for part in row_slices(len(points), self._block_rows):
                    points[part][moved[part]] = self._points(centres[part][moved[part]])
                # No search reads them yet.
                self._execute("TRUNCATE {landmarks}")
                self._write_landmarks(points)
            self._execute("SELECT hashindex._index_landmarks($1)", [self.index.name])

    def _put_in_order(self) -> None:
        self.work.phase("putting codes in the order of landmarks")
        with self.connection.transaction():
            self._execute("SELECT hashindex._order_build($1)", [self.index.name])
            self._keep_place(_IN_ORDER)

    def _take_over(self) -> int | None:
        """Apply logged keys; return the number of rows, None if the table was emptied."""
        self.work.phase("applying writes made meanwhile")
        for _ in range(MOST_APPLIED):
            with self.connection.transaction():
                self._execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
                applied = catch_up_once(self.index)
            self.work.advance(max(0, applied))
            if applied < 0:
                return None
            if applied < FEW_KEYS:
                break
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
        while applied := catch_up_once(self.index):
            if applied < 0:
                return False
        self._execute("SELECT hashindex._finish_build($1, $2)", [self.index.name, rows])
        return True

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


def _fingerprint(leaves: list[_Leaf]) -> str:
    """Return a text that changes when the rows of a table move to other places."""
    return hashlib.sha256(repr([(leaf.oid, leaf.file) for leaf in leaves]).encode()).hexdigest()
