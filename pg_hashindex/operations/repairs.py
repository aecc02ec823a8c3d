"""Repair an index step by step; ``sql/147_repair.sql`` makes the changes.

Each step is a transaction that finds out by itself whether there is something to do, so the next
run continues an interrupted one. A missing table or column may have been renamed or dropped. The
repair does not guess which: the user calls `rebind` with the new names.
"""

from dataclasses import dataclass
from typing import LiteralString, TypeAlias

from ..db.connection import Connection, outside_transactions
from ..db.keys import KeyColumns, as_key_columns
from ..db.locks import retry_while_locked
from ..db.owners import prepare_schema
from ..db.server_errors import translated_errors
from ..db.sql_files import query
from ..db.statements import execute, one_row
from ..db.work import Work, claimed_work
from ..errors import InvalidInputError, LowerRecallError, TooLargeError
from ..index import sets
from ..index.access import catch_up, give_up_rebalance
from ..index.build import encode
from ..index.catalog import HasRow, IndexRow, read_row, swap_row
from ..index.landmarks.memory import as_bytes
from ..index.verifying import Verifier
from . import swaps
from .health import CodeChecks

#: A table, the column of its vectors, those of its key, and that of its tenants; None leaves one as
#: it is.
Names: TypeAlias = tuple[str | None, str | None, list[str] | None, str | None]

_REBIND = query("repairs.rebind")

_LASTING_FAULTS: LiteralString = """
    SELECT f.fault, f.advice FROM hashindex.index i, hashindex._table_faults(i) f
    WHERE i.name = $1 AND NOT f.repairable
"""

_TENANT_FAULT: LiteralString = """
    SELECT hashindex._tenant_fault(i) FROM hashindex.index i WHERE i.name = $1
"""

_MARK: LiteralString = """
    UPDATE hashindex.index SET unverified = $2 WHERE name = $1 AND unverified <> $2 RETURNING name
"""

_UNVERIFIED: LiteralString = "SELECT unverified FROM hashindex.index WHERE name = $1"

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

    It makes missing functions, triggers, codes and parts of the access path again, and enables
    triggers; deletes codes whose rows are gone, and codes that may be wrong since triggers were
    missing; encodes rows without a code; and finishes a rebalance and a swap. If all is well it
    changes nothing. Each step is committed, so an interrupted run can be repeated.

    Parameters
    ----------
    full
        Whether to compare every code with a fresh encoding; else a sample, and all codes of
        tables whose triggers were missing.
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
    if row.set is not None:
        done = sets.repair(row.connection, row.name, row.qualified_table, memory=as_bytes("1GB"))
        return Repaired(row.name, tuple(done))
    return _run(row, None, full=full, undo=undo)


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
    names = (table, column, as_key_columns(key_columns), tenant)
    if not any(names):
        raise InvalidInputError("name the table, the column or the key that the index has now")
    return _run(index.metadata, names)


def _run(
    index: IndexRow,
    names: Names | None,
    *,
    full: bool = False,
    undo: bool = False,
) -> Repaired:
    with (
        translated_errors(table=index.qualified_table),
        outside_transactions(index.connection, "a repair is made in many transactions"),
    ):
        if index.swap_of is not None:
            raise InvalidInputError(
                f"{index.name!r} is a part of index {index.swap_of!r}; run: pg-hashindex index "
                f"repair {index.swap_of}"
            )
        with claimed_work(index.connection, "repair", index.name) as work:
            return _Repairer(index, work, full=full).run(names, undo=undo)


class _Repairer:
    def __init__(self, index: IndexRow, work: Work, *, full: bool) -> None:
        self.index, self.work, self.full = index, work, full
        self.connection = index.connection
        self.done: list[str] = []
        self.left: list[str] = []

    def run(self, names: Names | None, *, undo: bool) -> Repaired:
        if undo:
            self.work.phase("giving up what was cut off")
            model = swaps.undo(self.index)
            if model is not None:
                self.done.append(f"gave up the swap to model {model}")
            for index in self._rows():
                if give_up_rebalance(index):
                    self.done.append(f"gave up the rebalance{_named(index)} that was cut off")
        self.work.phase("looking at the table")
        if names is not None:
            table = names[0] or self.index.qualified_table
            retry_while_locked(self.connection, lambda: self._rebind(names), table=table)
            self.index = read_row(self.connection, self.index.name)
            self.done.append(
                f"bound the index to {self.index.qualified_table}, column "
                f"{self.index.column_name!r}, key {self.index.key.name!r}"
            )
        for index in self._rows():
            self._refuse_faults(index)
        self.work.phase(f"looking at {self.index.name}")
        for index in self._rows():
            self._restore(index)
        for index in reversed(self._rows()):
            self.work.phase(f"looking at {index.name}")
            self._repair_codes(index)
        self._finish_swap()
        return Repaired(self.index.name, tuple(self.done), tuple(self.left))

    def _rows(self) -> list[IndexRow]:
        """Return the index, and the row beside it during or after a swap."""
        found = read_row(self.connection, self.index.name)
        other = swap_row(found)
        return [found] if other is None else [found, other]

    def _rebind(self, names: Names) -> None:
        table, column, key_columns, tenant = names
        for index in self._rows():
            execute(self.connection, "SELECT hashindex._bind($1)", [index.name])
            # Codes beside may be of a column of their own.
            moved = column if index.column_name == self.index.column_name else None
            given = [index.name, table, moved, key_columns, tenant]
            row = execute(self.connection, _REBIND, given).fetchone()
            read_row(self.connection, index.name).passed()
            if tenant is not None:
                (fault,) = one_row(self.connection, _TENANT_FAULT, [index.name])
                if fault is not None:
                    raise InvalidInputError(f"{fault}; name the column of the tenants")
            self._refuse_faults(index)
            assert row is not None  # noqa: S101
            # The codes may be those of another table or column.
            execute(self.connection, _MARK, [index.name, True])
        for index in self._rows():
            execute(self.connection, _CREATE_FUNCTIONS, [index.name])

    def _refuse_faults(self, index: IndexRow) -> None:
        """Refuse a table that is not what the index was made for; nothing is changed then."""
        for fault, advice in execute(self.connection, _LASTING_FAULTS, [index.name]):
            raise InvalidInputError(f"{fault}; {advice}")

    def _restore(self, index: IndexRow) -> None:
        """Make missing parts."""
        name, who = [index.name], _named(index)
        if index.change("SELECT hashindex._restore_codes($1)", name)[0][0]:
            self.done.append(f"recreated the codes{who}")
        restored = index.change("SELECT hashindex._restore_parts($1)", name)
        self.done += [f"{row[0]}{who}" for row in restored]

    def _repair_codes(self, index: IndexRow) -> None:
        who = _named(index)
        catch_up(index)
        verifier = Verifier(index, self.work)

        def drop_gone() -> int:
            gone = verifier.drop_gone()
            if gone:
                execute(self.connection, _MARK, [index.name, True])
            return gone

        gone = retry_while_locked(self.connection, drop_gone, table=index.qualified_table)
        if gone:
            self.done.append(f"removed {gone} codes{who} of rows that are gone or have no vector")
        # Triggers keep codes and rows alike, so writes went unseen.
        (unverified,) = one_row(self.connection, _UNVERIFIED, [index.name])
        unverified = self.full or unverified or index.waiting()
        wrong = 0
        if unverified:
            wrong = verifier.verify()
            index.change(_MARK, [index.name, False])
        if unverified and wrong:
            self.done.append(f"removed {wrong} codes{who} that were not those of their rows")
        elif not unverified:
            try:
                wrong, looked_at, *_ = CodeChecks(index, full=False).compare(index.loaded_model)
            except TooLargeError as error:
                self.left.append(f"codes{who} were not compared with fresh ones: {error}")
            if wrong:
                self.left.append(
                    f"{wrong} of {looked_at} codes{who} that were checked are not those of their "
                    f"rows: pg-hashindex index repair {self.index.name} --full"
                )
        if index.swap_state == "next":
            return  # the swap encodes
        if index.access == "lists":
            listed = verifier.list_missing()
            if listed:
                self.done.append(f"listed {listed} rows{who} that no landmark had")
        written = encode(index)
        if written:
            self.done.append(f"encoded {written} rows{who}")
        if without := read_row(self.connection, index.name).waiting():
            self.left.append(
                f"{without} rows{who} have no code, since their numbers are too large for the "
                "model; the warning names them: correct or remove them"
            )
        built = read_row(self.connection, index.name)
        if index.building is not None and built.building is None:
            if index.building == index.access:
                self.done.append(f"ended the rebalance{who} that was cut off")
            else:
                self.done.append(f"built the access path {built.access}{who}")

    def _finish_swap(self) -> None:
        try:
            swapped = swaps.resume(self.index)
        except LowerRecallError as error:
            self.left.append(str(error))
        else:
            if swapped is not None:
                self.done.append(f"finished the swap to model {swapped.model}")


def _named(index: IndexRow) -> str:
    if index.swap_of is None:
        return ""
    return f" of model {index.model_name}"
