"""The catalog of indexes: rows of ``hashindex.index``, and the size and state of each index."""

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Literal, LiteralString, Protocol, Self, cast

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row

from ..db import rows
from ..db.connection import Connection
from ..db.gate import UserTable, reading
from ..db.keys import Key
from ..db.locks import retry_while_locked
from ..db.owners import (
    prepare_schema,
    schema_owner_steps,
)
from ..db.server_errors import translated_errors
from ..db.sql_files import query
from ..db.statements import Statement, Steps, check_text, execute, one_row, read_as, run
from ..errors import (
    DatabaseStateError,
    InvalidInputError,
    RowsLeftOutWarning,
    UnknownIndexError,
)
from ..models import store
from ..models.model import Metric, Model

Access = Literal["hnsw", "ivfflat", "lists", "scan"]
#: The state of a set: it is built, ready to come into use, in use, or was in use before.
SetState = Literal["building", "ready", "used", "former"]

_CATALOG = query("catalog.indexes")
_NAMED: LiteralString = "WHERE i.name = $1"
_REFUSE: LiteralString = "SELECT hashindex._refuse_unknown($1)"
_IN_STATES: LiteralString = "s.state = ANY ($2::text[])"
# The set that a row of the catalog shows: the one in use, or the first, which is being built.
_SHOWN: LiteralString = """
    s.id = (SELECT x.id FROM hashindex.index_set x WHERE x.index_name = i.name
            ORDER BY x.state = 'used' DESC, x.id LIMIT 1)
"""

_CURRENT = query("catalog.current")

_WAITING: LiteralString = """
    SELECT count(*) FROM {table} b {part}
    WHERE b.{column} IS NOT NULL {fits} AND {has_no_code}
"""

FIRST_MISSING = query("catalog.first_missing")

# Keys that a warning names.
_MOST_NAMED = 5

_LISTS_BYTES = query("catalog.lists_bytes")

_LANDMARK_BYTES = query("catalog.landmark_bytes")

_SUMMARY = query("catalog.summary")

_LISTS = query("catalog.lists")


@dataclass(frozen=True)
class IndexSummary:
    """How many rows of an index are encoded, and its size.

    Parameters
    ----------
    rows
        Rows of the table whose vector is not NULL.
    codes
        Rows that have a code.
    code_bytes
        Size on disk of the codes with their key index.
    access_bytes
        Size on disk of the access path, also of one that is being built.
    vector_bytes
        Size of the vectors themselves.
    waiting
        Rows that have a vector but no code.
    """

    rows: int
    codes: int
    code_bytes: int
    access_bytes: int
    vector_bytes: int
    waiting: int


@dataclass(frozen=True)
class ListSummary:
    """The lists of an index's landmarks: how many codes they have, and the longest of them.

    ``unlisted`` codes are in no list: not yet, or since their tenant is small. ``trained_rows``
    had a vector when the landmarks were trained.
    """

    landmarks: int
    codes: int
    longest: int
    unlisted: int
    trained_rows: int

    @property
    def mean(self) -> float:
        """The mean number of codes in a list."""
        return (self.codes - self.unlisted) / max(1, self.landmarks)


class HasRow(Protocol):
    """An index: a `HashIndex`, or its row in the catalog."""

    @property
    def row(self) -> "IndexRow":
        """The index's row in the catalog, for what reads its table too."""

    @property
    def metadata(self) -> "IndexRow":
        """The index's row in the catalog, for what does not read its table."""


@dataclass(frozen=True)
class IndexRow:
    """An index's row in the catalog with that of a set, and the connection they were read on.

    The set is the one in use; the first, as long as it is being built; or one beside the one in use
    (`read_set`).
    """

    connection: Connection
    name: str
    model: str
    model_version: int
    method: str
    n_bits: int
    cuts: list[float]
    dimension: int
    model_id: int
    schema_name: str
    table_name: str
    column_name: str
    key_columns: list[str]
    #: As the table declares them, such as ``character varying(10)``.
    key_types: list[str]
    #: The same without domains and lengths.
    base_types: list[str]
    metric: Metric
    created_at: datetime
    access: Access
    candidates: int
    effort: int | None
    set_id: int
    state: SetState
    #: Whether searches use the set, and do not compare all rows.
    encoded: bool
    #: How many rows had a vector when the landmarks were trained; None if there are none.
    trained_rows: int | None
    tenant_column: str | None
    tenant_type: str | None
    #: All options, by their names, as creation takes them.
    options: dict[str, Any]
    #: The set in words.
    set: str
    #: The index of pgvector's.
    relation: str | None
    #: Why nothing may read the table, if its owner lacks the administrator's rights.
    remedy: str

    @property
    def row(self) -> "IndexRow":
        """The row itself, so that functions take it where they take a `HashIndex`."""
        return self

    @property
    def metadata(self) -> "IndexRow":
        """The row itself, as `row`."""
        return self

    @property
    def is_lists(self) -> bool:
        """Whether the set is kept by lists, and not by pgvector."""
        return self.access in ("lists", "scan")

    def relation_bytes(self) -> int:
        """Measure the index of pgvector's, with those of partitions."""
        size = (
            "SELECT coalesce(hashindex._relation_bytes(i, s), 0) FROM hashindex.index i "
            "JOIN hashindex.index_set s ON s.index_name = i.name WHERE s.id = $1"
        )
        with translated_errors(self):
            row = execute(self.connection, size, [self.set_id]).fetchone()
        return 0 if row is None else int(row[0])

    def candidates_for(self, k: int) -> int:
        """Return how many candidates a search for k answers keeps if it names no number."""
        return max(min(self.candidates * max(k, 10) // 10, 2**31 - 2), k)

    @property
    def model_name(self) -> str:
        """The model as ``name:version``, or none where the vectors are searched."""
        if not self.model_id:
            return "none"
        return f"{self.model}:{self.model_version}"

    @property
    def table(self) -> sql.Identifier:
        """The searched table, quoted."""
        return sql.Identifier(self.schema_name, self.table_name)

    @property
    def _kept_table(self) -> UserTable:
        columns = [*self.key_columns, self.column_name, *filter(None, [self.tenant_column])]
        return UserTable(self.schema_name, self.table_name).kept_for(columns, self.remedy)

    @property
    def qualified_table(self) -> str:
        """The searched table as SQL writes it."""
        return self.table.as_string(self.connection)

    @property
    def names(self) -> dict[str, sql.Composable]:
        """The names of the table and of its columns, as statements have them in brackets.

        ``key``, ``key_text`` and ``as_ids`` are of a row b of the table, ``code_key`` is of a row c
        of the codes, ``ids`` are its columns, ``whole_key`` is one value of it; ``given_key`` is
        read from the text ``s.id``; ``fits`` leaves out tenants that an index cannot hold. A table
        that lists are of is read behind its gate; a set of pgvector's, as its caller reads it.
        """
        return {
            "table": self._kept_table if self.is_lists else self.table,
            "table_name": sql.Literal(self.qualified_table),
            "column": sql.Identifier(self.column_name),
            "fits": sql.SQL("" if self.tenant_column is None else "AND hashindex._fits({})").format(
                self._tenant_text
            ),
        } | self._key_names

    @property
    def names_with_codes(self) -> dict[str, sql.Composable]:
        """`names`, and those of the tables of a set that is kept by lists."""
        return self.names | {
            "has_no_code": self.has_no_code(self.codes),
            **{part: self.part(part) for part in ("codes", "landmarks")},
        }

    def has_no_code(self, codes: sql.Composable) -> sql.Composed:
        """Return the condition that a row b of the table has no code among these."""
        return sql.SQL("NOT EXISTS (SELECT FROM {codes} c WHERE ({code_key}) = ({key}))").format(
            codes=codes, **self._key_names
        )

    @property
    def everywhere(self) -> Any:
        """The options of a search of all rows: an index with tenants wants one, or a filter."""
        return {} if self.tenant_column is None else {"all_tenants": True}

    @property
    def _tenant_text(self) -> sql.Composed:
        return sql.SQL("b.{}::text").format(sql.Identifier(self.tenant_column or ""))

    @cached_property
    def _key_names(self) -> dict[str, sql.Composable]:
        key = self.key
        return {
            "key": key.of("b"),
            "key_text": key.text(key.of("b")),
            "as_ids": key.as_ids("b"),
            "code_key": key.ids_of("c"),
            "ids": key.ids,
            "whole_key": key.whole(
                key.ids_of("c"), sql.Identifier("hashindex", f"{self.name}_key")
            ),
            "gone_key": key.ids_of("gone"),
            "given_key": key.from_text(sql.SQL("s.id")),
        }

    @cached_property
    def key(self) -> Key:
        """The key of the table."""
        return Key(tuple(self.key_columns), tuple(self.base_types))

    @property
    def key_shown(self) -> str:
        """The columns of the key with their types."""
        named = zip(self.key_columns, self.key_types, strict=True)
        return ", ".join(f"{column} {kind}" for column, kind in named)

    @property
    def search_function(self) -> str:
        """The index's own search function as SQL writes it."""
        return sql.Identifier("hashindex", f"search_{self.name}").as_string(self.connection)

    def has_part(self, state: str, message: str) -> bool:
        """Return whether what does not exist, by an error of PostgreSQL, is a part of the index."""
        if state == "42883":
            return _is_named(f"search_{self.name}", message)
        if state == "42703":
            columns = (self.column_name, *self.key_columns, "code")
            return any(_is_named(name, message) for name in columns)
        if state == "3F000":
            return _is_named(self.schema_name, message)
        table = f"{self.schema_name}.{self.table_name}"
        return f"hashindex.set_{self.set_id}_" in message or _is_named(table, message)

    @cached_property
    def loaded_model(self) -> Model:
        """The index's model, read from the database once: neither ever changes."""
        return store.load(self.connection, self.model_name)

    @property
    def is_current(self) -> sql.Composed:
        """SQL for whether the set is there, and is of the same vectors."""
        return sql.SQL(_CURRENT).format(
            set_id=sql.Literal(self.set_id),
            schema_name=sql.Literal(self.schema_name),
            table_name=sql.Literal(self.table_name),
            column_name=sql.Literal(self.column_name),
            key_columns=sql.Literal(self.key_columns),
        )

    def check_current(self) -> None:
        """Check that the index was not dropped or recreated since this row was read."""
        with translated_errors():
            (is_current,) = one_row(self.connection, sql.SQL("SELECT ") + self.is_current)
        if not is_current:
            raise DatabaseStateError(
                f"index {self.name!r} was dropped or recreated meanwhile; run the command again"
            )

    def require_lists(self, instead: str) -> None:
        """Refuse an index that pgvector keeps, for work on lists."""
        if not self.is_lists:
            raise InvalidInputError(
                f"index {self.name!r} is kept by pgvector ({self.set}), not by lists: {instead}"
            )

    def passed(self) -> Self:
        """Return the row, once its table has passed the gate; whatever reads it passes again."""
        idle = self.connection.info.transaction_status == TransactionStatus.IDLE
        # It leaves no transaction open that it began.
        own = self.connection.transaction() if idle else nullcontext()
        with translated_errors(self), own, reading(self.connection, self.names["table"]):
            return self

    def change(
        self, statement: LiteralString, values: Sequence[Any], *, patience: float | None = None
    ) -> list[tuple[Any, ...]]:
        """Run a statement that changes the index, again while it is locked; return its rows."""
        return retry_while_locked(
            self.connection,
            lambda: execute(self.connection, statement, values).fetchall(),
            table=self.qualified_table,
            patience=patience,
        )

    @contextmanager
    def reporting_drops(self) -> Iterator[None]:
        """Raise an error that says so if the block fails since the index itself is gone."""
        try:
            yield
        except (
            psycopg.ProgrammingError,
            psycopg.InternalError,
            InvalidInputError,
            UnknownIndexError,
        ):
            if self.connection.info.transaction_status == TransactionStatus.IDLE:
                self.check_current()
            raise

    def waiting(self, *, share: float = 1.0) -> int:
        """Count the rows that have a vector and no code, and so are not found by searches.

        With ``share`` in that part of the pages alone.
        """
        with translated_errors(self):
            names = self._counted_names | {"part": rows.part(share)}
            (count,) = one_row(self.connection, _WAITING, names=names)
        return int(count)

    def warn_of_long_tenants(self) -> None:
        """Name rows that have no code because their tenant is longer than an index holds."""
        if self.tenant_column is None:
            return
        names = self.names_with_codes | {
            "fits": sql.SQL("AND NOT hashindex._fits({})").format(self._tenant_text),
            "most": sql.Literal(_MOST_NAMED + 1),
        }
        with translated_errors(self), self.connection.transaction():
            query = sql.SQL(FIRST_MISSING).format(**names)
            keys = [key for (key,) in execute(self.connection, query).fetchall()]
        if keys:
            more = ", ..." if len(keys) > _MOST_NAMED else ""
            warnings.warn(
                f"left out rows of {self.qualified_table} whose tenant is longer than an index "
                f"holds, 2,000 bytes: key {', '.join(keys[:_MOST_NAMED])}{more}; searches within "
                "such a tenant compare its rows exactly",
                RowsLeftOutWarning,
                stacklevel=3,
            )

    def summary(self) -> IndexSummary:
        """Count rows and codes, and measure their size; reads the whole table."""
        names = self._counted_names
        codes_name = sql.Literal(self.codes.as_string(self.connection))
        lists = sql.SQL(_LISTS_BYTES).format(codes_name=codes_name)
        with translated_errors(self):
            (found,) = read_as(
                IndexSummary,
                self.connection,
                sql.SQL(_SUMMARY).format(
                    **names,
                    n_codes=sql.SQL(
                        "0" if self.state == "building" else "(SELECT count(*) FROM {codes})"
                    ).format(**names),
                    codes_name=codes_name,
                    lists=lists,
                    landmark_bytes=sql.SQL(_LANDMARK_BYTES).format(
                        codes_name=codes_name, name=sql.Literal(self.name), lists=lists
                    ),
                    waiting=sql.SQL(_WAITING).format(**names, part=rows.part(1)),
                ),
            )
        return found

    @property
    def _counted_names(self) -> dict[str, sql.Composable]:
        """Names by which codes are counted: none are, as long as the first set is built."""
        if self.state != "building":
            return self.names_with_codes
        return self.names_with_codes | {"has_no_code": sql.SQL("true")}

    def lists(self) -> ListSummary | None:
        """Count the codes in the lists of landmarks; reads all codes. None without landmarks."""
        if self.trained_rows is None or self.state == "building":
            return None
        with translated_errors(self), self.connection.transaction():
            names = self.names_with_codes
            return read_as(
                ListSummary, self.connection, sql.SQL(_LISTS).format(**names), [self.trained_rows]
            )[0]

    def part(self, part: str) -> sql.Identifier:
        """Return the name of a table of the set: its codes, landmarks, log, staged or ranges."""
        return sql.Identifier("hashindex", f"set_{self.set_id}_{part}")

    @property
    def codes(self) -> sql.Identifier:
        """The table of codes."""
        return self.part("codes")


def _is_named(name: str, message: str) -> bool:
    """Return whether a message of the server, in any language, has a name."""
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", message) is not None


def read_rows(
    connection: Connection,
    which: LiteralString,
    values: Sequence[Any] = (),
    *,
    of: LiteralString = _SHOWN,
) -> list[IndexRow]:
    """Read rows of the catalog; ``which`` is the end of the query, with parameters $1, $2, ...

    ``of`` says which sets.
    """
    with translated_errors():
        prepare_schema(connection)
        idle = connection.info.transaction_status == TransactionStatus.IDLE
        # Not in autocommit mode, the statement begins a transaction, which this block ends.
        with connection.transaction() if idle and not connection.autocommit else nullcontext():
            return run(connection, _rows_steps(connection, which, values, of))


def _rows_steps(
    connection: psycopg.BaseConnection[Any],
    which: LiteralString,
    values: Sequence[Any],
    of: LiteralString = _SHOWN,
) -> Steps[list[IndexRow]]:
    # A search needs only a connection's settings and adapters, which both kinds have.
    used = cast(Connection, connection)
    # As binary, since psycopg reads times as text only if DateStyle is ISO.
    statement = "\n".join([_CATALOG.replace("{of}", of), which])
    rows = yield Statement(statement, values, rows=dict_row, binary=True)
    return [IndexRow(connection=used, **row) for row in rows]


def read_row(connection: Connection, name: str) -> IndexRow:
    """Read an index's row in the catalog."""
    check_text("the name of an index", name)
    found = read_rows(connection, _NAMED, [name])
    if not found:
        idle = connection.info.transaction_status == TransactionStatus.IDLE
        # Not in autocommit mode, the error would leave an aborted transaction open.
        with translated_errors(), connection.transaction() if idle else nullcontext():
            execute(connection, _REFUSE, [name])
    return found[0]


def read_sets(connection: Connection, name: str, *states: SetState) -> list[IndexRow]:
    """Read the rows of an index with each of its sets in some states."""
    return read_rows(connection, "WHERE i.name = $1", [name, list(states)], of=_IN_STATES)


def read_set(connection: Connection, set_id: int) -> IndexRow:
    """Read the row of an index with one of its sets, by the number of the set."""
    found = read_rows(connection, "", [set_id], of="s.id = $1")
    if not found:
        raise DatabaseStateError(
            "the set that this run worked on was dropped meanwhile; see: pg-hashindex index show"
        )
    return found[0]


def row_steps(connection: psycopg.BaseConnection[Any], name: str) -> Steps[IndexRow]:
    """Read the row of an index to search, on a prepared connection; the gate of its table too."""
    check_text("the name of an index", name)
    with translated_errors():
        yield from schema_owner_steps()
        found = yield from _rows_steps(connection, _NAMED, [name])
        if not found:
            yield Statement(_REFUSE, [name])
        yield Statement(
            "SELECT hashindex._require_read(i) FROM hashindex.index i WHERE i.name = $1", [name]
        )
    return found[0]


def check_index_name(name: object) -> None:
    """Refuse what cannot be the name of an index, as `hashindex.create_index` does."""
    if not isinstance(name, str) or not re.fullmatch("[A-Za-z0-9_][A-Za-z0-9_-]{0,39}", name):
        raise InvalidInputError(
            f"index name {name!r} is not 1 to 40 letters a to z, digits, _ and -; choose another"
        )


def default_index_name(name: str) -> str:
    """Make a name that an index can have, and SQL takes without quotes, from one of a table."""
    return re.sub("[^a-z0-9_]", "_", name.lower())[:40]
