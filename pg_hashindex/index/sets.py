"""Sets of an index: made, exchanged and dropped while the table is searched and written to.

``sql/152_build_sets.sql`` and ``sql/155_indexes.sql`` do the work; what needs transactions of its
own is here: CREATE INDEX CONCURRENTLY, which lets writers work, and builds of lists (`build`).
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial
from threading import Event, Thread
from typing import Any, LiteralString

import psycopg
from psycopg.conninfo import make_conninfo

from ..db.connection import Connection, outside_transactions
from ..db.locks import retry_while_locked
from ..db.owners import prepare_schema
from ..db.progress import Progress, is_listened_to, tell
from ..db.server_errors import translated_errors
from ..db.sql_files import query
from ..db.statements import execute, one_row
from ..db.throttle import Throttle
from ..db.work import Work, claimed_work
from ..errors import (
    DatabaseStateError,
    DuplicateNameError,
    InUseError,
    InvalidInputError,
    UnknownIndexError,
)
from .build import EXCHANGE, SetSwapped, build_lists, exchange, finish_swap, measure
from .catalog import IndexRow, read_row, read_set, read_sets
from .encoding import bring_up_to_date
from .landmarks.workers import Jobs
from .options import same_option

# Seconds between two looks at a build, and of a wait before the one that it waits for is named.
_LOOK_SECONDS = 0.5
_WAIT_SECONDS = 3.0
# Seconds for which a build that was stopped tries to drop its index.
_STOPPED_SECONDS = 2.0

_SETTINGS: LiteralString = """
    SELECT n, pg_catalog.current_setting(n) FROM pg_catalog.unnest($1::text[]) n
"""
_SET: LiteralString = "SELECT pg_catalog.set_config($1, $2, false)"
_WORKERS = "max_parallel_maintenance_workers"
# Else the server continues a build whose client was killed. Not every platform has it.
_CLIENT_CHECK = "client_connection_check_interval"

_BEGIN_CREATE: LiteralString = """
    SELECT (b.s).id, (b.s).state = 'ready' FROM hashindex._begin_create(
        $1, $2::regclass, $3, $4, $5, $6, $7, $8, $9, $10::text[], $11, $12, $13
    ) b
"""
_BEGIN_SWAP: LiteralString = """
    SELECT (b.s).id FROM hashindex._begin_swap($1, $2, $3, $4, $5, $6, $7) b
"""
_CHECK_FILLED: LiteralString = """
    SELECT hashindex._check_filled(i, $2) FROM hashindex.index i WHERE i.name = $1
"""
_BUILD = query("sets.build")
_REBIND: LiteralString = "SELECT hashindex._rebind_set($1)"
_LACKS: LiteralString = """
    SELECT s.access IS NOT NULL AND hashindex._serving_relation(i, s) IS NULL, s.id
    FROM hashindex.index i, hashindex._set_of(i.name) s WHERE i.name = $1
"""
_BUILDS: LiteralString = """
    SELECT p.blocks_done, p.blocks_total, (pg_catalog.pg_blocking_pids(a.pid))[1]
    FROM pg_catalog.unnest(ARRAY[%s::integer]) a(pid)
    LEFT JOIN pg_catalog.pg_stat_progress_create_index p ON p.pid = a.pid
"""
_BUILDER: LiteralString = """
    SELECT pid FROM pg_catalog.pg_stat_progress_create_index
    WHERE index_relid = pg_catalog.to_regclass($1)::oid
"""
_MEMORY: LiteralString = """
    SELECT pg_catalog.set_config('maintenance_work_mem', least($1, $2) || 'kB', false)
    WHERE pg_catalog.pg_size_bytes(pg_catalog.current_setting('maintenance_work_mem'))
        < 1024 * least($1, $2)
"""
_OWNED = query("sets.owned")


def create(
    connection: Connection,
    name: str,
    table: str,
    column: str,
    model: str | None,
    options: dict[str, Any],
    *,
    memory: int,
    jobs: int | None = None,
    patience: float | None = None,
) -> None:
    """Create an index; see `HashIndex.create`."""
    wanted = Jobs(jobs)
    with _only_worker(connection, name, table) as work:
        work.phase("learning a model" if model is None else "preparing")
        _give_up(connection, name, table)
        try:
            made = begin(connection, name, table, column, model, options, patience=patience)
        except DuplicateNameError as error:
            made = cut_off(connection, name, table, column, model, options, error)
        _build(made, work, None, memory, wanted)
        work.phase("measuring")
        if made.state == "used":
            return
        if made.is_lists:
            exchange(made)
        else:
            with connection.transaction():
                measure(made)
                execute(connection, EXCHANGE, [name, made.set_id])


def begin(
    connection: Connection,
    name: str,
    table: str,
    column: str,
    model: str | None,
    options: dict[str, Any],
    *,
    patience: float | None = None,
) -> IndexRow:
    """Make an index and its first set, which is yet to be built; lists of no rows are built."""
    values = [
        *(name, table, column, model, options.get("access"), options.get("store", False)),
        *(options.get("code_column"), options.get("metric"), options.get("tenant")),
        *(options.get("key_columns"), options.get("candidates"), options.get("effort")),
        options.get("reveal_anchors", False),
    ]

    def make() -> int:
        made, ready = one_row(connection, _BEGIN_CREATE, values)
        if ready:
            execute(connection, EXCHANGE, [name, made])
        return int(made)

    with translated_errors(table=table):
        prepare_schema(connection)
        return read_set(
            connection, retry_while_locked(connection, make, table=table, patience=patience)
        )


def cut_off(
    connection: Connection,
    name: str,
    table: str,
    column: str,
    model: str | None,
    options: dict[str, Any],
    error: DuplicateNameError,
) -> IndexRow:
    """Return the index that is there, if its first lists are not built yet; raise else.

    Its options must be those of the creation that continues it.
    """
    try:
        row = read_row(connection, name)
    except UnknownIndexError:
        # A function of the user's has the name.
        raise error from None
    if not row.is_lists or row.state == "used":
        raise error
    named = row.model if model is None or ":" not in model else row.model_name
    same = model in (None, named) and (column, options.get("access")) == (
        row.column_name,
        row.access,
    )
    same &= all(
        same_option(value, row.options.get(one))
        for one, value in options.items()
        if value and one != "reveal_anchors"
    )
    (of_table,) = one_row(
        connection,
        "SELECT pg_catalog.to_regclass($1) = pg_catalog.to_regclass($2)",
        [table, row.qualified_table],
    )
    if not (same and of_table):
        raise DuplicateNameError(
            f"{error}: its creation was cut off, with other options; continue it by "
            f"pg-hashindex index encode {name}, or drop it: pg-hashindex index drop {name}"
        ) from error
    return row


def swap(
    index: IndexRow,
    options: dict[str, Any],
    *,
    tolerance: float = 0.01,
    force: bool = False,
    memory: int,
    jobs: int | None = None,
    throttle: Throttle | None = None,
) -> SetSwapped:
    """Build another set beside the one in use, and exchange the two; see `HashIndex.swap`."""
    if not 0 <= tolerance <= 1:
        raise InvalidInputError(f"tolerance is {tolerance}; it must be 0 to 1")
    wanted = Jobs(jobs)
    connection, name, table = index.connection, index.name, index.qualified_table
    named = ("model", "access", "store", "column", "code_column")
    values = [name, *(options.get(one) for one in named), options.get("reveal_anchors", False)]
    with _only_worker(connection, name, table) as work:
        work.phase("preparing")
        _give_up(connection, name, table)
        # With force and nothing else, the set that is there.
        alone = force and all(options.get(one) is None for one in named)
        there = read_sets(connection, name, "building", "ready") if alone else []
        made = there[0] if there else read_set(connection, index.change(_BEGIN_SWAP, values)[0][0])
        if not force and not made.is_lists:
            # Before the build, which the next run would begin again.
            with _given_up_on_errors(made):
                execute(connection, _CHECK_FILLED, [name, made.column_name])
        _build(made, work, throttle, memory, wanted)
        work.phase("comparing")
        return finish_swap(made, work, tolerance, force=force)


def _build(made: IndexRow, work: Work, throttle: Throttle | None, memory: int, jobs: Jobs) -> None:
    """Build a set; one of pgvector's that is stopped is given up, and lists are continued later."""
    if made.state != "building":
        return
    if made.is_lists:
        build_lists(made, work, throttle or Throttle(None), memory, jobs)
        return
    with _given_up_on_errors(made):
        _build_relation(
            made.connection, made.name, made.set_id, made.qualified_table, memory, jobs.wanted
        )


def rollback(connection: Connection, name: str, table: str) -> str:
    """Exchange the set in use with the former one; return what is in use then."""
    with _only_worker(connection, name, table) as work:
        for former in read_sets(connection, name, "former"):
            if former.is_lists:
                bring_up_to_date(former, Throttle(None), work)
        return str(_changed(connection, table, "SELECT hashindex.rollback_index($1)", name))


def prune(connection: Connection, name: str, table: str) -> int:
    """Drop the sets that are not in use; return how many."""
    with _only_worker(connection, name, table):
        _drop_relations(connection, name, table, ["building", "ready", "former"])
        return int(_changed(connection, table, "SELECT hashindex.prune_index($1)", name))


def repair(connection: Connection, name: str, table: str, *, memory: int) -> list[str]:
    """Find what was renamed, and make again what is missing; return what was done."""
    with _only_worker(connection, name, table) as work:
        work.phase("looking at the table")
        _give_up(connection, name, table)
        if not read_sets(connection, name, "building", "ready", "used", "former"):
            return ["gave up its first set, which was not built, and the index with it"]
        found = retry_while_locked(
            connection, lambda: execute(connection, _REBIND, [name]).fetchall(), table=table
        )
        done = [str(one) for (one,) in found]
        lacks, made = one_row(connection, _LACKS, [name])
        if lacks:
            _drop_relations(connection, name, table, ["used"])
            _build_relation(connection, name, made, table, memory, state="used")
            done.append("made the index of pgvector's again")
        return done


def rename(connection: Connection, name: str, table: str, new: str) -> None:
    """Give an index another name."""
    renamed: LiteralString = "SELECT hashindex.rename_index($1, $2)"
    with translated_errors(table=table):
        retry_while_locked(
            connection, lambda: execute(connection, renamed, [name, new]), table=table
        )


def _changed(connection: Connection, table: str, statement: LiteralString, name: str) -> Any:
    return retry_while_locked(
        connection, lambda: one_row(connection, statement, [name])[0], table=table
    )


@contextmanager
def _only_worker(connection: Connection, name: str, table: str) -> Iterator[Work]:
    with (
        translated_errors(table=table),
        outside_transactions(connection, "pgvector's index is built in many transactions"),
    ):
        prepare_schema(connection)
        with claimed_work(connection, "swap", name) as work:
            yield work


@contextmanager
def _given_up_on_errors(made: IndexRow) -> Iterator[None]:
    """Leave the index as it was if the block is stopped, by Ctrl-C too."""
    connection = made.connection
    try:
        yield
    except BaseException:
        if not connection.closed:
            # The next run drops the rest: DROP INDEX waits for what the build waited for.
            with (
                suppress(psycopg.Error, DatabaseStateError, InUseError),
                _kept_settings(connection, "lock_timeout"),
            ):
                execute(connection, _SET, ["lock_timeout", f"{_STOPPED_SECONDS:g}s"])
                _give_up(connection, made.name, made.qualified_table, _STOPPED_SECONDS)
        raise


@contextmanager
def _kept_settings(connection: Connection, *names: str) -> Iterator[None]:
    """Put settings of the session back."""
    before = execute(connection, _SETTINGS, [list(names)]).fetchall()
    try:
        yield
    finally:
        if not connection.closed:
            with suppress(psycopg.Error):
                for name, value in before:
                    execute(connection, _SET, [name, value])


def undo(connection: Connection, name: str, table: str) -> str | None:
    """Give up a set that is not in use yet; return it in words, or None if there is none."""
    with _only_worker(connection, name, table):
        _drop_relations(connection, name, table, ["building", "ready"])
        given_up = _changed(connection, table, "SELECT hashindex._give_up($1, true)", name)
        return None if given_up is None else str(given_up)


def _give_up(connection: Connection, name: str, table: str, patience: float | None = None) -> None:
    """Drop what a run that was cut off has left; an INVALID index is named by `_OWNED` too."""
    _drop_relations(connection, name, table, ["building"], patience)
    given_up: LiteralString = "SELECT hashindex._give_up($1)"
    retry_while_locked(
        connection, lambda: execute(connection, given_up, [name]), table=table, patience=patience
    )


def _drop_relations(
    connection: Connection,
    name: str,
    table: str,
    states: list[str],
    patience: float | None = None,
) -> None:
    for relation, kind in execute(connection, _OWNED, [name, states]).fetchall():
        if (builder := execute(connection, _BUILDER, [relation]).fetchone()) is not None:
            raise InUseError(f"process {builder[0]} is building index {relation}: wait for it")
        if kind == "i":
            connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {relation}")
        else:
            # It locks the table and all of its partitions.
            drop = partial(connection.execute, f"DROP INDEX IF EXISTS {relation}")
            retry_while_locked(connection, drop, table=table, patience=patience)


def _build_relation(
    connection: Connection,
    name: str,
    made: int,
    table: str,
    memory: int,
    jobs: int | None = None,
    *,
    state: str = "building",
) -> None:
    """Make pgvector's index of a set, with a bar."""
    statements = execute(connection, _BUILD, [made, state]).fetchall()
    if not statements:
        return
    with _kept_settings(connection, "maintenance_work_mem", _WORKERS, _CLIENT_CHECK):
        execute(connection, _MEMORY, [memory // 1024, statements[0][1]])
        with suppress(psycopg.Error):
            execute(connection, _SET, [_CLIENT_CHECK, "500ms"])
        if jobs is not None:
            execute(connection, _SET, [_WORKERS, str(jobs - 1)])
        try:
            _run(connection, statements, table)
        except (psycopg.errors.DiskFull, psycopg.errors.InsufficientResources):
            # Parallel workers found too little shared memory: /dev/shm of a container has 64 MB.
            execute(connection, _SET, [_WORKERS, "0"])
            _drop_relations(connection, name, table, [state])
            _run(connection, statements, table)


def _run(connection: Connection, statements: list[Any], table: str) -> None:
    for statement, _ in statements:
        run = partial(connection.execute, statement)
        with _watched(connection, table):
            if statement.startswith("CREATE INDEX CONCURRENTLY "):
                run()
            else:
                retry_while_locked(connection, run, table=table)


def _another(connection: Connection) -> psycopg.Connection[Any]:
    """Connect to the same place, to look at a build."""
    info = connection.info
    given = info.get_parameters() | {
        "host": info.host, "port": str(info.port), "password": info.password,
        "application_name": "pg-hashindex, which looks at a build",
    }  # fmt: skip
    named = {name: value for name, value in given.items() if value}
    if "," in named.get("hostaddr", ""):
        # It has one for each of several hosts; host is that of this connection.
        del named["hostaddr"]
    return psycopg.connect(make_conninfo(**named), autocommit=True)


@contextmanager
def _watched(connection: Connection, table: str) -> Iterator[None]:
    """Show how far the build is, and which process it waits for, as another connection sees it."""
    pid, ended = connection.info.backend_pid, Event()
    with Progress(f"indexing {table}", unit="block") as bar:

        def watch() -> None:
            named, looks = None, 0
            with suppress(psycopg.Error), _another(connection) as watcher:
                while not ended.wait(_LOOK_SECONDS):
                    row = watcher.execute(_BUILDS, [pid]).fetchone()
                    done, total, blocker = row or (0, 0, None)
                    if total:
                        bar.total = total
                        bar.update(max(done - bar.n, 0))
                    looks = 0 if blocker is None else looks + 1
                    if looks * _LOOK_SECONDS >= _WAIT_SECONDS and blocker != named:
                        named = blocker
                        tell(
                            f"the index of {table} waits for the transaction of process {blocker}"
                            if blocker
                            else f"the index of {table} waits for a prepared transaction"
                        )

        if not is_listened_to():
            yield
            return

        # The listener is a variable of this context.
        watching = Thread(target=copy_context().run, args=(watch,), daemon=True)
        watching.start()
        try:
            yield
        finally:
            ended.set()
            watching.join()
