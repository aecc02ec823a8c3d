"""Codes in a column of the user's own table, filled in batches beside live writes.

A batch is read, encoded outside of any transaction, and written by one short transaction. A row is
written only if it is still the version that was read (its ``xmin``), so no row gets the code of a
vector that it no longer has. The transaction skips rows that others lock, so it neither waits for
writers nor deadlocks with them; these rows are read again at the end.
"""

import shlex
import time
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, LiteralString, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from ..db.batches import decode_vectors, dimension_of, rows_of_batch, stream
from ..db.citus import is_sharded
from ..db.connection import Connection, outside_transactions
from ..db.keys import KeyColumns
from ..db.owners import prepare_schema
from ..db.progress import Progress, is_shown
from ..db.server_errors import translated_errors
from ..db.sql_files import query
from ..db.statements import execute, one_row
from ..db.table_source import TableSource, find_relation
from ..db.throttle import Throttle
from ..errors import (
    DatabaseStateError,
    InvalidInputError,
    MissingRightsError,
    OtherModelWarning,
    SlowWritesWarning,
    TooLargeError,
)
from . import store
from .codes import CodeArray, RowCodes, code_bytes, send_code_arrays, unpack
from .model import Model

__all__ = ["EncodedColumn", "encode_column"]

# A perceptron takes 3 us a row and a convolutional network 30 ms: batches begin small, and grow
# until they take about this many seconds.
_FIRST_ROWS = 256
_SECONDS = 1.0
# More rows could exceed a gigabyte, the limit of a statement's parameters.
_MOST_BATCH_ROWS = 100_000
# Rows read at a time.
_BLOCK_ROWS = 1_000
# Rows left without a code that are named.
_MOST_NAMED = 100
# Rows with a code that are compared with the model's before others get one.
_COMPARED_ROWS = 50
# Seconds without progress, because others lock rows, before we give up.
_PATIENCE = 60.0


_UNKNOWN = "the model was not trained on it, and has codes only for rows that it was trained on"
_TOO_LARGE = "its numbers are too large for the model"


class _Row(NamedTuple):
    """A row: its key as text, its vector in binary form, and the transaction that wrote it."""

    key: str
    vector: bytes | None
    version: str


@dataclass(frozen=True)
class EncodedColumn:
    """The result of `encode_column`.

    Attributes
    ----------
    model
        The model as ``name:version``.
    written
        Rows that got a code, or lost one that they must not have.
    unchanged
        Rows that had the same code before.
    left_out
        Rows with a vector that the model cannot encode, whose code is NULL; and rows that a trigger
        of the table keeps as they are.
    reasons : dict of str to str
        The keys of the first hundred of these, and why.
    """

    model: str
    written: int
    unchanged: int
    left_out: int
    reasons: dict[str, str] = field(default_factory=dict)


def encode_column(
    connection: Connection,
    model: str,
    table: str,
    column: str,
    into: str,
    *,
    key_columns: KeyColumns = None,
    missing: bool = False,
    codes: RowCodes | None = None,
    rows_per_second: float | None = None,
    batch_rows: int | None = None,
) -> EncodedColumn:
    """Write the codes of a table's vectors into a column of type ``bit(n)``, row by row.

    It reads and writes in the order of the key, and commits each batch. Writers do not wait. After
    a run that was cut off, run it again: rows that have their code are not written again. No run
    gives a row the code of a vector that it no longer has. Rows that are written later are the
    application's: have it set the code to NULL, or to that of `Model.encode`, whenever it writes
    another vector, and run again with ``missing``.

    Parameters
    ----------
    connection
        Not inside a transaction. Its role needs SELECT on the key and the vectors, and UPDATE on
        ``into``.
    model
        ``name`` or ``name:version``; any kind of model, whether SQL can evaluate it or not.
    table
        As SQL writes it, with a key.
    column
        Its column of type ``vector`` or ``halfvec``, by its bare name.
    into
        Its column of type ``bit(n)``, with the model's bits.
    key_columns
        The key: unique columns that are never NULL, the primary key by default.
    missing
        Only encode rows that have no code. Refused if most codes are not those of the model, so
        that a column does not mix the codes of two.
    codes
        With "learned" rows that the model was trained on get the codes that training gave them, and
        others are hashed. By default "hashed", or "learned" for a model that knows only the rows it
        was trained on.
    rows_per_second
        The most rows to encode in a second; no limit by default.
    batch_rows
        Rows of a batch. By default as many as take about a second.

    Returns
    -------
    EncodedColumn
        With the rows that the model could not encode, whose code is NULL.

    Raises
    ------
    UnknownModelError
        If there is no such model.
    InvalidInputError
        If the table has no key, or a column cannot be used; the message says what to do.
    MissingRightsError
        If the role lacks a right, or row security hides rows from it.
    DatabaseStateError
        If others lock or change rows for a minute; what was written stays.

    Warns
    -----
    OtherModelWarning
        Before the first row is written, if an index searches the column by codes of another model.
    SlowWritesWarning
        Before the first row is written, if triggers of the table fire, or an index on the column
        takes each code.
    """
    throttle = Throttle(rows_per_second)
    if batch_rows is not None and batch_rows < 1:
        raise InvalidInputError(f"batch_rows must be 1 or more, got {batch_rows}")
    why = "codes are written in transactions of their own"
    with translated_errors(table=table), outside_transactions(connection, why):
        prepare_schema(connection)
        loaded = store.load(connection, model)
        learned = _is_learned(loaded, codes)
        source = TableSource.find(connection, table, column)
        source = _checked(source, key_columns, into, loaded)
        run = _Run(source, into, loaded, learned, missing, throttle, batch_rows)
        run.check_before()
        _check_searched(source, into, loaded)
        _warn_of_slow_writes(source, into, missing)
        return run.run()


def _name(model: Model) -> str:
    return f"{model.name}:{model.version}"


def _is_learned(model: Model, wanted: RowCodes | None) -> bool:
    """Return whether rows get learned codes; refuse codes that the model does not have."""
    if wanted not in (*get_args(RowCodes), None):
        raise InvalidInputError(f"codes must be hashed or learned, got {wanted!r}")
    if wanted == "hashed" and _knows_only_rows(model):
        raise InvalidInputError(
            f"model {_name(model)} has codes only for the rows that it was trained on; use learned "
            "codes (--codes learned)"
        )
    if wanted == "learned" and model.learned is None and not _knows_only_rows(model):
        raise InvalidInputError(
            f"model {_name(model)} has no learned codes; use hashed ones, or train it again with "
            "--codes learned"
        )
    return wanted == "learned"


def _knows_only_rows(model: Model) -> bool:
    return model.network is not None and model.network.kind == "rows"


def _checked(source: TableSource, key: KeyColumns, into: str, model: Model) -> TableSource:
    """Return a table with its key; refuse a column that codes cannot be written to."""
    connection, table = source.connection, source.name
    relation, kind, generated, never_null, index, is_ours, inherited, is_hidden, dimension = (
        one_row(connection, query("columns.target"), [table, into, source.vector])
    )
    place, wanted = f"column {into!r} of {table}", f"bit({model.n_bits})"

    def alter(change: LiteralString) -> str:
        names = {"into": sql.Identifier(into), "wanted": sql.SQL(wanted)}
        text = sql.SQL("ALTER TABLE {} {}").format(source.table, sql.SQL(change).format(**names))
        return text.as_string(connection)

    another = f"run: {alter('ADD COLUMN NAME {wanted}')}, and name that column"
    if relation == "m":
        raise InvalidInputError(f"{table} is a materialised view; encode the table behind it")
    source = source.with_key(key)
    if is_sharded(connection, table):
        raise InvalidInputError(
            f"Citus distributes table {table}, and locks no rows of it in batches; use a function "
            f"of the model (pg-hashindex model functions {shlex.quote(_name(model))}), or write "
            "the codes of Model.encode with the rows"
        )
    if is_ours:
        raise InvalidInputError(f"{table} is a table of pg_hashindex; use a table of your own")
    if kind is None:
        raise InvalidInputError(
            f"{table} has no column {into!r}; run: {alter('ADD COLUMN {into} {wanted}')}"
        )
    if into in source.known_key.columns:
        raise InvalidInputError(f"{place} is a part of its key; {another}")
    if index is not None:
        raise InvalidInputError(f"{place} is read by index {index}; {another}")
    if generated:
        raise InvalidInputError(
            f"{place} is generated, so that only PostgreSQL writes to it; {another}"
        )
    if kind != wanted:
        raise InvalidInputError(
            f"{place} is of type {kind}, and codes of model {_name(model)} are {wanted}; {another}"
        )
    if never_null:
        raise InvalidInputError(
            f"{place} is NOT NULL, and rows without a vector have no code; run: "
            f"{alter('ALTER COLUMN {into} DROP NOT NULL')}"
        )
    if inherited:
        raise InvalidInputError(
            f"other tables inherit from {table}, so that its key is not unique; make them "
            "partitions, or move their rows into tables of their own"
        )
    if is_hidden:
        raise MissingRightsError(
            f"row security of {table} hides rows from this role, which would stay without codes; "
            "connect as a role that it does not restrict"
        )
    if dimension not in (-1, model.dimension):
        raise InvalidInputError(
            f"column {source.vector!r} of {table} has {dimension} dimensions, model "
            f"{_name(model)} takes {model.dimension}; use a model that was trained on this column"
        )
    return source


def _check_searched(source: TableSource, into: str, model: Model) -> None:
    """Warn of an index that searches the column by another model; refuse one that SQL lacks."""
    values = [source.name, into, _name(model)]
    for index, searched in execute(source.connection, query("columns.searched"), values):
        if model.network is not None:
            raise InvalidInputError(
                f"index {index} searches column {into!r} of {source.name} by model {searched}, and "
                f"SQL does not evaluate {_name(model)}: write into another column, or drop it"
            )
        command = shlex.join(
            ["pg-hashindex", "index", "swap", index, "--model", _name(model), "--code-column", into]
        )
        warnings.warn(
            f"index {index} searches column {into!r} of {source.name} by codes of model "
            f"{searched}, and finds fewer of the nearest rows by those of {_name(model)}; when "
            f"they are written, run: {command}",
            OtherModelWarning,
            stacklevel=4,
        )


def _warn_of_slow_writes(source: TableSource, into: str, missing: bool) -> None:
    indexes, triggers = one_row(source.connection, query("columns.slowed"), [source.name, into])
    if indexes and not missing:
        warnings.warn(
            f"index {', '.join(indexes)} has column {into!r} of {source.name}, so that each code "
            "is inserted into it too; it takes less time to drop the index, write the codes, and "
            "make it again",
            SlowWritesWarning,
            stacklevel=4,
        )
    if triggers:
        warnings.warn(
            f"trigger {', '.join(triggers)} of {source.name} fires for each code that is written; "
            f"if it need not: ALTER TABLE {source.name} DISABLE TRIGGER {triggers[0]}, and ENABLE "
            "it afterwards",
            SlowWritesWarning,
            stacklevel=4,
        )


class _Run:
    """One run over one column."""

    def __init__(
        self,
        source: TableSource,
        into: str,
        model: Model,
        learned: bool,
        missing: bool,
        throttle: Throttle,
        batch_rows: int | None,
    ) -> None:
        self.source, self.model, self.learned, self.throttle = source, model, learned, throttle
        self.connection, self.key = source.connection, source.known_key
        send_code_arrays(self.connection)
        self.into, self.missing = into, missing
        most = rows_of_batch(model.dimension) if batch_rows is None else batch_rows
        self.most_rows = throttle.batch_size(min(most, _MOST_BATCH_ROWS))
        self.adapts = batch_rows is None
        self.batch_rows = min(_FIRST_ROWS, self.most_rows) if self.adapts else self.most_rows
        self.written = self.unchanged = self.left_out = 0
        self.reasons: dict[str, str] = {}
        column, target = sql.Identifier(source.vector), sql.Identifier(into)
        wanted = "b.{into} IS NULL AND b.{column} IS NOT NULL"
        if not missing:
            # The code of a row without a vector is set to NULL.
            wanted = "(b.{into} IS NOT NULL OR b.{column} IS NOT NULL)"
        self.names: dict[str, sql.Composable] = {
            "table": source.table,
            "column": column,
            "into": target,
            "wanted": sql.SQL(wanted).format(into=target, column=column),
            "key": self.key.of("b"),
            "key_text": self.key.text(self.key.of("b")),
            "as_ids": self.key.as_ids("b"),
            "found_key": self.key.ids_of("f"),
            "given_key": self.key.from_text(sql.SQL("g.key_text")),
        }

    def check_before(self) -> None:
        """Refuse what would fail at the first batch, and codes of another model beside new ones."""
        execute(self.connection, query("columns.touch"), names=self.names)
        if not self.missing:
            return
        rows = self._read(query("columns.coded"), [_COMPARED_ROWS])
        made = self._encoded(rows)
        bits = unpack(made.codes, self.model.n_bits).astype(int).astype(str)
        # Their codes are in the place of the versions.
        other = sum(row.version != "".join(own) for row, own in zip(rows, bits, strict=True))
        # A few may differ: codes of former vectors, or a number that is rounded in another way.
        if 2 * other > len(rows):
            raise InvalidInputError(
                f"column {self.into!r} of {self.source.name} has other codes than model "
                f"{_name(self.model)}; name the model that they are of (NAME:VERSION) and its kind "
                "of codes, or encode all rows again, without --missing"
            )

    def run(self) -> EncodedColumn:
        """Write the codes of all rows."""
        with Progress(f"encoding {self.source.name}", self._total()) as bar:
            again: list[str] = []
            for rows in self._batches():
                again += self._encode(rows)
                bar.update(len(rows))
                self.throttle.wait(len(rows), lambda: None)
            self._encode_again(again)
        return EncodedColumn(
            _name(self.model), self.written, self.unchanged, self.left_out, self.reasons
        )

    def _total(self) -> int | None:
        if not self.missing:
            return self.source.estimate
        if not is_shown():
            return None
        statement = "SELECT count(*) FROM {table} b WHERE {wanted}"
        return int(one_row(self.connection, statement, names=self.names)[0])

    def _batches(self) -> Iterator[list[_Row]]:
        """Read the rows in the order of the key."""
        start: sql.Composable = sql.SQL("true")
        values: list[str] = []
        while True:
            wanted, began = self.batch_rows, time.monotonic()
            rows = self._read(query("columns.rows"), [wanted, *values], start=start)
            if rows:
                yield rows
            if len(rows) < wanted:
                return
            seconds = max(time.monotonic() - began, 1e-3)
            if self.adapts:
                paced = int(wanted * _SECONDS / seconds)
                self.batch_rows = max(1, min(paced, 4 * wanted, self.most_rows))
            start = sql.SQL("({key}) > ({last})").format(
                key=self.names["key"], last=self.key.from_text(sql.SQL("$2::text"))
            )
            values = [rows[-1].key]

    def _encode_again(self, keys: list[str]) -> None:
        """Encode rows that were locked, or that changed before their code was written."""
        since = time.monotonic()
        among = self.key.among(self.names["key"], sql.SQL("$2::text[]"))
        while keys:
            left: list[str] = []
            for start in range(0, len(keys), self.most_rows):
                some = keys[start : start + self.most_rows]
                left += self._encode(
                    self._read(query("columns.rows"), [len(some), some], start=among)
                )
            if len(left) < len(keys):
                since = time.monotonic()
            elif time.monotonic() - since > _PATIENCE:
                raise DatabaseStateError(
                    f"row {left[0]} of {self.source.name} has been locked or changed by others for "
                    f"{_PATIENCE:.0f} s; {self.written} codes were written: run it again"
                    f"{' with --missing' if self.missing else ''} when they have ended"
                )
            else:
                time.sleep(0.1)
            keys = left

    def _encode(self, rows: list[_Row]) -> list[str]:
        """Write the codes of some rows; return the keys of those that have to be read again."""
        if not rows:
            return []
        made = self._encoded(rows)
        values = [
            [row.key for row in rows],
            [row.version for row in rows],
            CodeArray(made.codes, self.model.n_bits),
            made.has_code.tolist(),
        ]
        with self._transaction():
            # No join reads the whole table.
            execute(
                self.connection,
                "SET LOCAL enable_hashjoin TO off; SET LOCAL enable_mergejoin TO off",
            )
            found = execute(
                self.connection, query("columns.write"), values, names=self.names
            ).fetchall()
        keys: dict[str, set[str]] = {"right": set(), "found": set(), "written": set()}
        for key, state in found:
            keys[state].add(key)
        self.written += len(keys["written"])
        for key in keys["found"] - keys["written"]:
            made.reasons[key] = "a trigger keeps it from being written"
        reached = keys["right"] | keys["found"]
        named = {key: why for key, why in made.reasons.items() if key in reached}
        self.unchanged += len(keys["right"] - named.keys())
        self.left_out += len(named)
        for key, why in named.items():
            if len(self.reasons) < _MOST_NAMED:
                self.reasons[key] = why
        return [row.key for row in rows if row.key not in reached]

    def _encoded(self, rows: list[_Row]) -> "_Codes":
        """Compute the codes of some rows."""
        why: dict[int, str] = {}
        there: list[int] = []
        for place, row in enumerate(rows):
            if row.vector is None:
                continue
            dimension = dimension_of(row.vector)
            if dimension == self.model.dimension:
                there.append(place)
            else:
                why[place] = (
                    f"it has {dimension} dimensions, the model takes {self.model.dimension}"
                )
        places = np.array(there, np.intp)
        X = np.empty((len(places), self.model.dimension), np.float32)
        decode_vectors([rows[place].vector or b"" for place in there], X)
        if _knows_only_rows(self.model) and self.model.network is not None:
            _, known = self.model.network.places(X)
            places, X = _without(places, X, known, why, _UNKNOWN)
        try:
            made = self._model_codes(X)
        except TooLargeError:
            _, taken = self.model.project_taken(X)
            places, X = _without(places, X, taken, why, _TOO_LARGE)
            made = self._model_codes(X)
        codes = np.zeros((len(rows), code_bytes(self.model.n_bits)), np.uint8)
        codes[places] = made
        has_code = np.zeros(len(rows), bool)
        has_code[places] = True
        return _Codes(codes, has_code, {rows[place].key: said for place, said in why.items()})

    def _model_codes(self, X: NDArray[np.float32]) -> NDArray[np.uint8]:
        return self.model.row_codes(X) if self.learned else self.model.encode(X)

    def _read(
        self, statement: LiteralString, values: list[Any], **names: sql.Composable
    ) -> list[_Row]:
        text = sql.SQL(statement).format(**self.names, **names)
        with (
            self._transaction(),
            closing(stream(self.connection, text, values, _BLOCK_ROWS)) as blocks,
        ):
            return [_Row(*row) for row in chain.from_iterable(blocks)]

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self.connection.transaction():
            # The newest version of a row is locked.
            execute(self.connection, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            # The table may have another owner by now, whose code would run.
            find_relation(self.connection, self.source.name)
            yield


@dataclass(frozen=True, eq=False)
class _Codes:
    """Codes of rows (n, width), which of the rows have one, and why others have none, by key."""

    codes: NDArray[np.uint8]
    has_code: NDArray[np.bool_]
    reasons: dict[str, str]


def _without(
    places: NDArray[np.intp],
    X: NDArray[np.float32],
    kept: NDArray[np.bool_],
    why: dict[int, str],
    reason: str,
) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """Leave out rows for a reason."""
    why |= dict.fromkeys(places[~kept].tolist(), reason)
    return places[kept], X[kept]
