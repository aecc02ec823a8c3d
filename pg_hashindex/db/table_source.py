"""A table to learn from: its vectors, their labels and keys, checked and read in the database."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import LiteralString, NamedTuple

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg import sql

from ..errors import HashIndexError, InvalidInputError
from . import rows as rows_of
from .batches import decode_vectors, dimension_of, keep_binary
from .citus import SHOW_SHARDS
from .connection import EXTENSION, Connection
from .gate import UserTable, reading
from .keys import Key, KeyColumns, as_key_columns
from .owners import ask_schema
from .progress import Progress
from .sql_files import query
from .statements import execute, one_row

#: Samples, and several passes, go by the order of rows; the scan of a large table would start where
#: another session's stands.
IN_ORDER: LiteralString = "SET LOCAL synchronize_seqscans = off"

# Counting the rows of a smaller table is cheap.
_SMALL_TABLE = 10_000
_FETCH_ROWS = 1_000
_BLOCK_ROWS = 4_096

_INTEGERS = ("smallint", "integer", "bigint")
_NAMES = ("text", "character varying", "bpchar", "name", "boolean", "date", "uuid")


class TableRow(NamedTuple):
    """A row: its vector in binary form, its label and key as text."""

    vector: bytes
    label: str | list[str | None] | None
    key: str | None


def find_relation(connection: Connection, name: str) -> tuple[UserTable, str, int]:
    """Find a table or view: its full name, its kind as in pg_class, and its estimated rows.

    Refuses one whose owner could do more as the caller, so that nothing reads it.
    """
    try:
        row = execute(
            connection,
            "SELECT n.nspname, c.relname, c.relkind, c.reltuples::bigint "
            "FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
            "WHERE c.oid = $1::regclass::oid",
            [name],
        ).fetchone()
    except (psycopg.ProgrammingError, psycopg.NotSupportedError, psycopg.DataError) as error:
        reason = error.diag.message_primary or str(error)
        raise InvalidInputError(f"{name!r} is not a table: {reason}") from error
    if row is None:
        raise InvalidInputError(
            f"{name!r} is a shard, which Citus hides; to have it shown, set {SHOW_SHARDS}"
        )
    schema, name, kind, rows = row
    table = UserTable(schema, name)
    with reading(connection, table):
        return table, kind, rows


@dataclass(frozen=True)
class TableSource:
    """A table and its columns; made by `find`.

    ``name`` is the table as the caller wrote it, ``estimate`` its rows, roughly. ``vector`` names
    the column of vectors, ``labels`` that of labels, which are ``several`` a row or one, and
    ``numbered`` if they are integers.
    """

    connection: Connection
    name: str
    table: UserTable
    estimate: int
    vector: str
    vector_type: str = "vector"
    key: Key | None = None
    labels: str | None = None
    several: bool = False
    numbered: bool = False

    @classmethod
    def find(cls, connection: Connection, name: str, vector: str) -> "TableSource":
        """Find a table, check its column of vectors, and estimate its rows."""
        table, kind, estimate = find_relation(connection, name)
        if kind not in ("r", "p", "m"):
            raise InvalidInputError(f"{name} is neither a table nor a materialised view")
        found = cls(connection, name, table, estimate, vector)
        column_type, *_ = found._type_of(vector)
        vector_type = column_type.rpartition(".")[2]
        if vector_type not in ("vector", "halfvec"):
            raise InvalidInputError(
                f"column {vector!r} of {name} is of type {column_type}, not vector or halfvec"
            )
        found = replace(found, vector_type=vector_type)
        if estimate < _SMALL_TABLE:
            # The table was never analysed, or is small: count its rows.
            found = replace(found, estimate=found.count(sql.SQL("true")))
        return found

    def with_key(self, columns: KeyColumns) -> "TableSource":
        """Read the key too: unique columns that are never NULL, the primary key by default."""
        ask_schema(self.connection)
        statement = "SELECT key_columns FROM hashindex._find_key($1::regclass, $2::text[])"
        (found,) = one_row(self.connection, statement, [self.name, as_key_columns(columns)])
        # Without a length: a cast to varchar(4) could make two keys equal.
        types, _, collations = zip(*map(self._type_of, found), strict=True)
        return replace(self, key=Key(tuple(found), types, collations))

    @property
    def known_key(self) -> Key:
        """The key, which `with_key` has found."""
        assert self.key is not None  # noqa: S101
        return self.key

    def large_keys(self, length: float, most: int) -> list[str]:
        """Return keys of rows whose vectors are longer; none if the table has no key."""
        try:
            with self.connection.transaction():
                keyed = self if self.key is not None else self.with_key(None)
        except (psycopg.Error, HashIndexError):
            return []
        (schema, _) = one_row(self.connection, EXTENSION)
        names = {
            "key": keyed.known_key.exact_text(keyed.known_key.parts()),
            "table": self.table,
            "schema": sql.Identifier(schema),
            "vector": sql.Identifier(self.vector),
        }
        statement = (
            "SELECT {key} FROM {table} WHERE {schema}.vector_norm({vector}::{schema}.vector) >= $1 "
            "ORDER BY 1 LIMIT $2"
        )
        return [row[0] for row in execute(self.connection, statement, [length, most], names=names)]

    def with_labels(self, column: str) -> "TableSource":
        """Read labels too."""
        full_type, category, _ = self._type_of(column)
        element = full_type.removesuffix("[]")
        if element not in (*_INTEGERS, *_NAMES) and category != "E":
            raise InvalidInputError(
                f"column {column!r} of {self.name} is of type {full_type}; labels are integers, "
                "text, an enum, booleans, dates or uuids, or arrays of these"
            )
        return replace(
            self, labels=column, several=element != full_type, numbered=element in _INTEGERS
        )

    def _type_of(self, column: str) -> tuple[str, str, sql.Identifier | None]:
        """Return a column's type, domains resolved, its elements' category, and its collation."""
        row = execute(
            self.connection,
            query("table_source.type"),
            [self.name, column],
        ).fetchone()
        if row is None:
            raise InvalidInputError(f"table {self.name} has no column {column!r}")
        name, category, *collation = row
        return name, category, None if None in collation else sql.Identifier(*collation)

    def has_label(self) -> sql.Composable:
        """Return the condition that a row has a label; true or false, never NULL."""
        if self.labels is None:
            return sql.SQL("false")
        condition = "{} IS NOT NULL"
        if self.several:
            condition = (
                "EXISTS (SELECT FROM pg_catalog.unnest({}::text[]) hashindex_label(name) "
                "WHERE hashindex_label.name IS NOT NULL"
                + " AND hashindex_label.name <> '-1'" * self.numbered
                + ")"
            )
        elif self.numbered:
            condition = "coalesce({} <> -1, false)"
        return sql.SQL(condition).format(sql.Identifier(self.labels))

    def has_key(self, keys: list[str]) -> sql.Composable:
        """Return the condition that a row's key is one of some, given as text."""
        texts = sql.SQL("{}::text[]").format(sql.Literal(keys))
        return self.known_key.among(self.known_key.of(), texts)

    def count(self, condition: sql.Composable) -> int:
        """Count the rows for which a condition holds."""
        names = {"table": self.table, "condition": condition}
        statement = "SELECT count(*) FROM {table} WHERE {condition}"
        return int(one_row(self.connection, statement, names=names)[0])

    def read(
        self, condition: sql.Composable, share: float = 1, seed: int = 0
    ) -> Iterator[TableRow]:
        """Read the rows that have a vector and for which a condition holds, or a share of them.

        A share of 1 or more reads all.
        """
        label: sql.Composable = sql.SQL("NULL")
        if self.labels is not None:
            # An array may have several dimensions; unnest gives its elements.
            label = sql.SQL(
                "ARRAY(SELECT pg_catalog.unnest({}::text[]))" if self.several else "{}::text"
            ).format(sql.Identifier(self.labels))
        key: sql.Composable = sql.SQL("NULL::text")
        if self.key is not None:
            key = self.key.exact_text(self.key.parts())
        with (
            reading(self.connection, self.table),
            self.connection.cursor(name="pg_hashindex_sample") as cursor,
        ):
            keep_binary(cursor)
            cursor.itersize = _FETCH_ROWS
            cursor.execute(
                sql.SQL(
                    "SELECT {vector}, {label}, {key} FROM {table} {part} "
                    "WHERE {vector} IS NOT NULL AND {condition}"
                ).format(
                    vector=sql.Identifier(self.vector),
                    label=label,
                    key=key,
                    table=self.table,
                    part=rows_of.part(share, seed, rows=self.estimate),
                    condition=condition,
                ),
                binary=True,
            )
            yield from map(TableRow._make, cursor)

    def vectors_of(self, rows: Sequence[TableRow]) -> NDArray[np.float32]:
        """Return the vectors of rows, (n, d); refuse several dimensions."""
        dimensions = {dimension_of(row.vector) for row in rows}
        if len(dimensions) > 1:
            raise InvalidInputError(
                f"column {self.vector!r} of {self.name} holds vectors of dimensions "
                f"{', '.join(map(str, sorted(dimensions)))}; a model takes one"
            )
        vectors = np.empty((len(rows), *dimensions), np.float32)
        decode_vectors([row.vector for row in rows], vectors)
        return vectors

    def blocks(self) -> Iterator[NDArray[np.float32]]:
        """Read all vectors, in blocks (b, d)."""
        rows = self.read(sql.SQL("true"))
        while block := list(islice(rows, _BLOCK_ROWS)):
            yield self.vectors_of(block)

    def draw(
        self,
        condition: sql.Composable,
        rows: int,
        total: int,
        seed: int,
        progress: Progress | None = None,
    ) -> list[TableRow]:
        """Draw rows with a vector for which a condition holds.

        Returns all of them where there are no more than ``rows``; ``total`` is how many there are,
        roughly. ``progress`` counts the rows that are read.
        """
        bar = progress or Progress("reading")
        before = bar.n

        def read(share: float) -> Iterator[TableRow]:
            bar.update(before - bar.n)
            for row in self.read(condition, share, seed):
                yield row
                bar.update()

        return rows_of.draw(read, rows, total, seed)
