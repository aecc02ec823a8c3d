"""Bringing an index back into order, step by step; ``sql/147_repair.sql`` makes the changes.

Each step is one transaction that finds for itself whether there is something to do. A run that was
cut off has done some of them, and the next one does the others.
"""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

from psycopg import RawCursor, Rollback

from ..db.connection import Connection, outside_transactions, translated_errors
from ..db.jobs import Job
from ..db.locks import only_one, patiently
from ..errors import InvalidInputError, LowerRecallError
from ..index import swap as swapping
from ..index.access import encode, verifier_of
from ..index.catalog import HasRow, IndexRow, SwapState, drop_index, read_row
from .rebind import Binding, GoneError, find_binding

__all__ = ["Repaired", "repair"]

_WHY_OUTSIDE = "a repair is made in many transactions"

_REBIND: LiteralString = "SELECT hashindex._rebind($1, $2::text::regclass, $3, $4, $5)"

_RESTORE_TRIGGERS: LiteralString = "SELECT what, table_name FROM hashindex._restore_triggers($1)"

_MARK_UNVERIFIED: LiteralString = "SELECT hashindex._mark_unverified($1, $2::text::regclass)"
_MARK_VERIFIED: LiteralString = "SELECT hashindex._mark_verified($1, $2::text::regclass)"

_TRIGGERS = {
    "foreign": "dropped triggers{who} on {tables}: no part of the table",
    "disabled": "enabled triggers{who} on {tables}",
    "missing": "made triggers{who} on {tables}, which were missing",
}

_FUNCTIONS: LiteralString = """
    SELECT hashindex._function_texts(i) FROM hashindex.index i WHERE i.name = $1
"""

_CREATE_FUNCTIONS: LiteralString = """
    SELECT hashindex._create_functions(i) FROM hashindex.index i WHERE i.name = $1
"""


@dataclass(frozen=True)
class Repaired:
    """What a repair did.

    Parameters
    ----------
    name : str
    done : tuple of str
        What was changed, a sentence each; empty where all was well.
    left : tuple of str
        What is not in order still, and what to do about it.
    dropped : bool
        Whether the index was dropped, since its table or vector column is gone.
    """

    name: str
    done: tuple[str, ...]
    left: tuple[str, ...] = ()
    dropped: bool = False


def repair(
    index: HasRow,
    *,
    table: str | None = None,
    column: str | None = None,
    id_column: str | None = None,
    full: bool = False,
    undo: bool = False,
    progress: bool = False,
) -> Repaired:
    """Bring an index back into order; see `HashIndex.repair`."""
    index = index.row
    with translated_errors(), outside_transactions(index.connection, _WHY_OUTSIDE):
        if index.swap_of is not None:
            raise InvalidInputError(
                f"{index.name!r} is a part of index {index.swap_of!r}; run: pg-hashindex index "
                f"repair {shlex.quote(index.swap_of)}"
            )
        busy = f"index {index.name!r} is being repaired by another session; wait for it"
        with (
            only_one(index.connection, "repair", index.name, busy),
            Job(index.connection, "repair", index.name) as job,
        ):
            repairer = _Repairer(index, job, full=full, progress=progress)
            try:
                repairer.run(table=table, column=column, id_column=id_column, undo=undo)
            except GoneError as gone:
                repairer.drop(str(gone))
                return Repaired(index.name, tuple(repairer.done), dropped=True)
            return Repaired(index.name, tuple(repairer.done), tuple(repairer.left))


class _Repairer:
    def __init__(self, index: IndexRow, job: Job, *, full: bool, progress: bool) -> None:
        self.index, self.job, self.full, self.progress = index, job, full, progress
        self.connection = index.connection
        self.done: list[str] = []
        self.left: list[str] = []

    def run(
        self, *, table: str | None, column: str | None, id_column: str | None, undo: bool
    ) -> None:
        if undo:
            self.job.phase("giving the swap up")
            model = swapping.undo(self.index)
            if model is not None:
                self.done.append(f"gave the swap to model {model} up")
        self.job.phase("looking at the table")
        self._follow(table, column, id_column)
        for index in self._rows():
            self.job.phase(f"looking at {index.name}")
            # Of what was written while triggers were away nobody knows.
            unseen = self._restore(index)
            if self.full:
                unseen = [index.qualified_table]
            self._mend_codes(read_row(self.connection, index.name), unseen)
        self._finish_swap()

    def _rows(self) -> list[IndexRow]:
        """Return the index, and what stands beside it while or after its model is swapped."""
        found = [read_row(self.connection, self.index.name)]
        sides: tuple[list[SwapState], ...] = (["previous"], ["next", "ready"])
        for states in sides:
            name = swapping.beside(found[0], states)
            if name is not None:
                found.append(read_row(self.connection, name))
        return found

    def _follow(self, table: str | None, column: str | None, id_column: str | None) -> None:
        """Follow what was renamed."""
        found = find_binding(
            self.index, table=table, column=column, id_column=id_column, full=self.full
        )
        rows = self._rows()
        bindings = [
            find_binding(
                row,
                table=found.table.as_string(self.connection),
                column=found.column_name,
                id_column=found.id_column,
                full=self.full,
            )
            for row in rows
        ]
        changed = [(r, b) for r, b in zip(rows, bindings, strict=True) if b != Binding.of(r)]

        def rebind() -> None:
            for row, binding in changed:
                self._execute(
                    _REBIND,
                    [row.name, binding.table.as_string(self.connection), binding.column_name,
                     binding.id_column, binding.code_column],
                )  # fmt: skip
                # Where it was not found by its triggers and its codes.
                if self.full or table is not None:
                    self._execute(
                        _MARK_UNVERIFIED, [row.name, binding.table.as_string(self.connection)]
                    )

        patiently(self.connection, rebind, table=found.table.as_string(self.connection))
        for row, binding in changed:
            self.done += _renamed(row, Binding.of(row), binding, self.connection)
        self.index = read_row(self.connection, self.index.name)
        for row in rows:
            self._execute(
                "SELECT hashindex._check_binding(i) FROM hashindex.index i WHERE i.name = $1",
                [row.name],
            )

    def _restore(self, index: IndexRow) -> list[str]:
        """Make what is missing; return the tables whose triggers were."""
        name, who = [index.name], _named(index)
        if self._patiently(index, "SELECT hashindex._restore_codes($1)", name)[0][0]:
            self.done.append(f"made the codes{who} anew, which were missing")
        self.done += [
            f"{row[0]}{who}"
            for row in self._patiently(index, "SELECT hashindex._restore_access($1)", name)
        ]
        with self.connection.transaction():
            self._execute("SELECT FROM hashindex.index WHERE name = $1 FOR UPDATE", name)
            before = self._execute(_FUNCTIONS, name).fetchone()
            self._execute(_CREATE_FUNCTIONS, name)
            if self._execute(_FUNCTIONS, name).fetchone() == before:
                raise Rollback
            self.done.append(f"made the functions{who} anew")
        triggers = self._patiently(index, _RESTORE_TRIGGERS, name)
        for what, said in _TRIGGERS.items():
            tables = list(dict.fromkeys(row[1] for row in triggers if row[0] == what))
            if tables:
                self.done.append(said.format(who=who, tables=", ".join(tables)))
        return list(dict.fromkeys(row[1] for row in triggers if row[0] != "foreign"))

    def _mend_codes(self, index: IndexRow, unseen: Sequence[str]) -> None:
        who = _named(index)
        verifier = verifier_of(index)(index, self.job, progress=self.progress)
        gone = verifier.drop_gone()
        if gone:
            self.done.append(f"removed {gone} codes{who} of rows that are gone or have no vector")
        wrong = 0
        for table in unseen:
            wrong += verifier.verify(table)
            self._patiently(index, _MARK_VERIFIED, [index.name, table])
        if wrong:
            self.done.append(f"removed {wrong} codes{who} that were not those of their rows")
        elif not unseen:
            wrong, looked_at = verifier.sample()
            if wrong:
                self.left.append(
                    f"{wrong} of {looked_at} codes{who} that were looked at are not those of their "
                    f"rows: pg-hashindex index repair {shlex.quote(self.index.name)} --full"
                )
        if index.swap_state in ("next", "ready"):
            return  # the swap encodes
        if index.access == "landmarks":
            listed = verifier.list_missing()
            if listed:
                self.done.append(f"listed {listed} rows{who} that no landmark had")
        written = encode(index, progress=self.progress)
        if written:
            self.done.append(f"encoded {written} rows{who}")
        built = read_row(self.connection, index.name)
        if index.building is not None and built.building is None:
            self.done.append(f"built the access path {built.access}{who}")

    def _finish_swap(self) -> None:
        try:
            swapped = swapping.resume(self.index, progress=self.progress)
        except LowerRecallError as error:
            self.left.append(str(error))
        else:
            if swapped is not None:
                self.done.append(f"finished the swap to model {swapped.model}")

    def drop(self, gone: str) -> None:
        """Drop the index with all that was made for it."""
        drop_index(self.index)
        self.done.append(f"dropped the index: {gone} is gone")

    def _patiently(
        self, index: IndexRow, statement: LiteralString, values: Sequence[str]
    ) -> list[Any]:
        rows: list[Any] = patiently(
            self.connection,
            lambda: self._execute(statement, values).fetchall(),
            table=index.qualified_table,
        )
        return rows

    def _execute(self, statement: LiteralString, values: Sequence[str]) -> Any:
        # Raw: to psycopg's other cursors a % in a name is the start of a placeholder.
        return RawCursor(self.connection).execute(statement, values)


def _named(index: IndexRow) -> str:
    if index.swap_of is None:
        return ""
    return f" of model {index.model}:{index.model_version}"


def _renamed(
    row: IndexRow, before: Binding, after: Binding, connection: Connection
) -> Iterator[str]:
    who = _named(row)
    shown = [binding.table.as_string(connection) for binding in (before, after)]
    if shown[0] != shown[1]:
        yield f"followed the table{who} from {shown[0]} to {shown[1]}"
    for what, field in (("vectors", "column_name"), ("key", "id_column"), ("codes", "code_column")):
        old, new = getattr(before, field), getattr(after, field)
        if old != new:
            yield f"followed the {what}{who} from column {old!r} to {new!r}"
