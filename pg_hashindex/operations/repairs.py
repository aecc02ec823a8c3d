"""Repair an index step by step; ``sql/147_repair.sql`` makes the changes.

Each step is a transaction that finds out by itself whether there is something to do, so the next
run continues an interrupted one. A missing table or column may have been renamed or dropped. The
repair does not guess which: the user calls `rebind` with the new names.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import LiteralString

from ..db.connection import Connection, outside_transactions
from ..db.keys import KeyColumns, as_key_columns
from ..db.locks import retry_while_locked
from ..db.owners import prepare_schema
from ..db.server_errors import translated_errors
from ..db.sql_files import query
from ..db.statements import execute, one_row
from ..db.throttle import Throttle
from ..db.work import Work, claimed_work
from ..errors import InvalidInputError, LowerRecallError, TooLargeError
from ..index import sets
from ..index.build import encode, is_rebalance, rebalance
from ..index.catalog import HasRow, IndexRow, read_row, read_set, read_sets
from ..index.encoding import catch_up, encode_missing
from ..index.landmarks.memory import DEFAULT_MEMORY, as_bytes
from ..index.verifying import Verifier
from .health import CodeChecks

_REBIND = query("repairs.rebind")

_LASTING_FAULTS: LiteralString = """
    SELECT f.fault, f.advice FROM hashindex._lists_of($1) l, hashindex._table_faults(l.i, l.s) f
    WHERE NOT f.repairable
"""

_TENANT_FAULT: LiteralString = """
    SELECT hashindex._tenant_fault(l.i, l.s) FROM hashindex._lists_of($1) l
"""

_MARK: LiteralString = """
    UPDATE hashindex.index_set SET unverified = $2 WHERE id = $1 AND unverified <> $2 RETURNING id
"""

_UNVERIFIED: LiteralString = "SELECT unverified FROM hashindex.index_set WHERE id = $1"

_CREATE_FUNCTIONS: LiteralString = """
    SELECT hashindex._create_functions(i) FROM hashindex.index i WHERE i.name = $1
"""


@dataclass(frozen=True)
class Repaired:
    """The result of a repair.

    Parameters
    ----------
    done
        The changes, a sentence each; empty if all was well.
    left
        What is still wrong, and what to do about it.
    """

    name: str
    done: tuple[str, ...]
    left: tuple[str, ...] = ()


@dataclass(frozen=True)
class Orphan:
    """An object that was made for an index that no longer exists.

    Parameters
    ----------
    kind
        ``trigger``, ``column``, ``function`` or ``table``.
    object
        As SQL writes it.
    """

    kind: str
    object: str


def list_orphans(connection: Connection) -> list[Orphan]:
    """Return objects that belong to no index."""
    return _orphans(connection, "SELECT kind, object FROM hashindex.orphans()")


def drop_orphans(connection: Connection) -> list[Orphan]:
    """Drop what `list_orphans` lists, in one transaction, and return it."""
    return _orphans(connection, "SELECT kind, object FROM hashindex.drop_orphans()")


def _orphans(connection: Connection, statement: LiteralString) -> list[Orphan]:
    with translated_errors():
        prepare_schema(connection)
        with connection.transaction():
            return [Orphan(*row) for row in execute(connection, statement).fetchall()]


def repair(index: HasRow, *, full: bool = False, undo: bool = False) -> Repaired:
    """Repair the index after changes that its triggers did not see.

    It makes missing functions, triggers, codes and landmarks again, and enables triggers; deletes
    codes whose rows are gone, and codes that may be wrong since triggers were missing; encodes rows
    without a code; and finishes a rebalance and a swap. If all is well it changes nothing. Each
    step is committed, so an interrupted run can be repeated.

    Parameters
    ----------
    full
        Whether to compare every code with a fresh encoding; else a sample, and all codes where one
        of these is wrong or triggers were missing.
    undo
        Whether to give up an unfinished swap or rebalance instead of finishing it.

    Returns
    -------
    Repaired
        What was done.

    Raises
    ------
    InvalidInputError
        If the table, the vector column or the key is gone, or has another type or dimension;
        `rebind` names others, `drop` drops the index.
    InUseError
        If another session is repairing or encoding it, or transactions kept the table in use
        for a minute.
    """
    row = index.metadata
    done: list[str] = []
    if undo:
        given_up = sets.undo(row.connection, row.name, row.qualified_table)
        if given_up is not None:
            done.append(f"gave up a set that was not in use: {given_up}")
            if row.state != "used":
                return Repaired(row.name, tuple(done))
    if not row.is_lists:
        done += sets.repair(
            row.connection, row.name, row.qualified_table, memory=as_bytes(DEFAULT_MEMORY)
        )
        if not _lists_of(row):
            return Repaired(row.name, tuple(done))
    with _repairer(row, full=full) as repairer:
        repaired = repairer.run()
    return replace(repaired, done=(*done, *repaired.done))


def rebind(
    index: HasRow,
    *,
    table: str | None = None,
    column: str | None = None,
    key_columns: KeyColumns = None,
    tenant: str | None = None,
) -> Repaired:
    """Name the table and columns of the index after they were renamed, and repair it.

    Every code is compared with a fresh encoding, so the index may also move to another table or
    column.

    Parameters
    ----------
    table
        The searched table, as SQL writes it; by default the name that the catalog has.
    column, key_columns
        Its column of vectors, and the column or columns of its key, by bare names; by default those
        that the catalog has.
    tenant
        The column of the tenants, if it was renamed.

    Returns
    -------
    Repaired
        What was done.

    Raises
    ------
    InvalidInputError
        If no name is given, a named object does not exist, the type of the key or of the tenants or
        the dimension of the vectors differs, or the index has no tenants. Nothing is changed then.
    InUseError
        As `repair`.
    """
    if tenant is not None and index.metadata.tenant_column is None:
        raise InvalidInputError(
            f"index {index.metadata.name!r} has no tenants; leave out tenant {tenant!r}"
        )
    index.metadata.require_lists("repair finds the names of others by itself")
    key = as_key_columns(key_columns)
    if not any((table, column, key, tenant)):
        raise InvalidInputError("name the table, the column or the key that the index has now")
    with _repairer(index.metadata) as repairer:
        repairer.bind(table, column, key, tenant)
        return repairer.run()


@contextmanager
def _repairer(index: IndexRow, *, full: bool = False) -> Iterator["_Repairer"]:
    """Claim the work on an index, and begin it."""
    with (
        translated_errors(table=index.qualified_table),
        outside_transactions(index.connection, "a repair is made in many transactions"),
        claimed_work(index.connection, "repair", index.name) as work,
    ):
        work.phase("looking at the table")
        yield _Repairer(index, work, full=full)


def _lists_of(index: IndexRow) -> list[IndexRow]:
    """Return the sets of an index that are kept by lists and are built."""
    found = read_sets(index.connection, index.name, "used", "ready", "former")
    return [row for row in found if row.is_lists]


class _Repairer:
    def __init__(self, index: IndexRow, work: Work, *, full: bool) -> None:
        self.index, self.work, self.full = index, work, full
        self.connection = index.connection
        self.done: list[str] = []
        self.left: list[str] = []
        self._lost_landmarks = False

    def bind(
        self,
        table: str | None,
        column: str | None,
        key_columns: list[str] | None,
        tenant: str | None,
    ) -> None:
        """Give the index the names that its table and columns have now; None leaves one."""
        retry_while_locked(
            self.connection,
            lambda: self._rebind(table, column, key_columns, tenant),
            table=table or self.index.qualified_table,
        )
        self.index = read_row(self.connection, self.index.name)
        self.done.append(
            f"bound the index to {self.index.qualified_table}, column "
            f"{self.index.column_name!r}, key {self.index.key.name!r}"
        )

    def run(self) -> Repaired:
        """Make the steps of a repair, and return what was done."""
        for index in self._rows():
            self._refuse_faults(index)
        self.work.phase(f"looking at {self.index.name}")
        for index in self._rows():
            self._restore(index)
        self.index.change("SELECT hashindex._drop_outgrown($1)", [self.index.name])
        for index in reversed(self._rows()):
            self._repair_codes(index)
        self._finish()
        return Repaired(self.index.name, tuple(self.done), tuple(self.left))

    def _rows(self) -> list[IndexRow]:
        """Return the rows of the sets that are kept by lists, the one in use first."""
        return sorted(_lists_of(self.index), key=lambda row: row.state != "used")

    def _rebind(
        self,
        table: str | None,
        column: str | None,
        key_columns: list[str] | None,
        tenant: str | None,
    ) -> None:
        for index in self._rows():
            execute(self.connection, "SELECT hashindex._bind($1)", [index.set_id])
        given = [self.index.name, table, column, key_columns, tenant]
        row = execute(self.connection, _REBIND, given).fetchone()
        read_row(self.connection, self.index.name).passed()
        assert row is not None  # noqa: S101
        for index in self._rows():
            if tenant is not None:
                (fault,) = one_row(self.connection, _TENANT_FAULT, [index.set_id])
                if fault is not None:
                    raise InvalidInputError(f"{fault}; name the column of the tenants")
            self._refuse_faults(index)
            # The codes may be those of another table or column.
            execute(self.connection, _MARK, [index.set_id, True])
        execute(self.connection, _CREATE_FUNCTIONS, [self.index.name])

    def _refuse_faults(self, index: IndexRow) -> None:
        """Refuse a table that is not what the index was made for; nothing is changed then."""
        for fault, advice in execute(self.connection, _LASTING_FAULTS, [index.set_id]):
            raise InvalidInputError(f"{fault}; {advice}")

    def _restore(self, index: IndexRow) -> None:
        """Make missing parts."""
        of, who = [index.set_id], _named(index)
        if index.change("SELECT hashindex._restore_codes($1)", of)[0][0]:
            self.done.append(f"recreated the codes{who}")
        restored = index.change("SELECT hashindex._restore_parts($1)", of)
        self.done += [f"{row[0]}{who}" for row in restored]
        if index.state == "used" and index.trained_rows is not None:
            restored_set = read_set(self.connection, index.set_id)
            self._lost_landmarks = restored_set.trained_rows is None

    def _repair_codes(self, index: IndexRow) -> None:
        who = _named(index)
        index = read_set(self.connection, index.set_id)
        if index.state != "used":
            catch_up(index)
        verifier = Verifier(index, self.work)

        def drop_gone() -> int:
            gone = verifier.drop_gone()
            if gone:
                execute(self.connection, _MARK, [index.set_id, True])
            return gone

        gone = retry_while_locked(self.connection, drop_gone, table=index.qualified_table)
        if gone:
            self.done.append(f"removed {gone} codes{who} of rows that are gone or have no vector")
        # Triggers keep codes and rows alike, so writes went unseen.
        (unverified,) = one_row(self.connection, _UNVERIFIED, [index.set_id])
        if self.full or unverified or _without_code(index) or self._is_wrong(index, who):
            wrong = verifier.verify()
            index.change(_MARK, [index.set_id, False])
            if wrong:
                self.done.append(f"removed {wrong} codes{who} that did not belong to their rows")
        listed = verifier.list_missing()
        if listed:
            self.done.append(f"listed {listed} rows{who} that no landmark had")
        written = encode_missing(index, Throttle(None))
        if written:
            self.done.append(f"encoded {written} rows{who}")
        if without := _without_code(index):
            self.left.append(
                f"{without} rows{who} have no code, since their numbers are too large for the "
                "model; the warning names them: correct or remove them"
            )

    def _is_wrong(self, index: IndexRow, who: str) -> bool:
        """Return whether a code of a sample is wrong: ALTER TYPE fires no trigger."""
        try:
            return CodeChecks(index, full=False).compare(index.loaded_model)[0] > 0
        except TooLargeError as error:
            self.left.append(f"codes{who} were not compared with fresh ones: {error}")
            return False

    def _finish(self) -> None:
        """Continue what was cut off: a first build, a rebalance, a swap."""
        used = read_row(self.connection, self.index.name)
        if self._lost_landmarks and used.waiting() < used.summary().rows:
            rebalance(used)
            self.done.append("built the landmarks again")
        # A set that is ready beside another was found worse, unless it is of a rebalance.
        coming = [
            one
            for one in read_sets(self.connection, self.index.name, "building", "ready")
            if one.is_lists
            and (one.state == "building" or used.state != "used" or is_rebalance(used, one))
        ]
        if not coming:
            return
        try:
            encode(self.index)
        except LowerRecallError as error:
            self.left.append(str(error))
        else:
            self.done.append(f"finished a set that was being built: {coming[0].set}")


def _without_code(index: IndexRow) -> int:
    """Count the rows that have no code, and that a set which is not in use has no key of."""
    if index.state == "used":
        return index.waiting()
    books = "SELECT b.missing FROM hashindex._books_of($1) b"
    return int(one_row(index.connection, books, [index.set_id])[0])


def _named(index: IndexRow) -> str:
    return "" if index.state == "used" else f" of the {index.state} set"
