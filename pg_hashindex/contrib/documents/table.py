"""Documents, checked before they are written, and the table of a vector store."""

import json
import re
import reprlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from operator import itemgetter
from typing import Any, LiteralString, NamedTuple

import numpy as np
import sqlalchemy as sa
from numpy.typing import ArrayLike, NDArray
from pgvector import HalfVector, Vector
from psycopg import errors, sql
from sqlalchemy.dialects.postgresql import JSONB

from ...db.connection import Connection
from ...db.gate import UserTable, reading
from ...db.server_errors import translated_errors
from ...db.sql_files import query
from ...db.statements import execute, one_row
from ...errors import InvalidInputError
from ...index.filter_text import filter_text
from ...index.search import Hit, as_count, as_query
from ...models.model import Metric
from ...models.vectors import as_rows
from ...quality.systems import Exact, VectorColumn

#: The column of vectors.
COLUMN = "embedding"

# A statement is a round trip, so one writes many rows.
_BATCH_ROWS = 1_000

_COLUMNS = query("documents.columns")

# The value of a key, generated as (metadata ->> 'year') or (metadata ->> 'year')::bigint.
_KEY_OF_METADATA = re.compile(r"\(+metadata ->> '((?:[^']|'')*)'::text\)+(?:::(?:integer|bigint))?")

_CREATE: LiteralString = """
    CREATE TABLE {table} (
        id text PRIMARY KEY,
        content text NOT NULL,
        metadata jsonb NOT NULL DEFAULT '{{}}',
        embedding {type} NOT NULL
    )
"""

_WRITE = query("documents.write")

_READ: LiteralString = """
    SELECT id, content, metadata, {embedding} FROM {table} WHERE id = ANY ($1::text[])
"""

_MATCHING: LiteralString = "SELECT id FROM {table} WHERE {filter} ORDER BY id"

_BY_WORDS = query("documents.by_words")

_WORDS: LiteralString = """
    SELECT c::text, pg_catalog.websearch_to_tsquery(c, $1)::text
    FROM (SELECT coalesce($2::regconfig, pg_catalog.get_current_ts_config()) c) _
"""

# Types of columns that may be generated from keys of the metadata.
_TYPES: dict[str, Any] = {"text": sa.Text(), "int4": sa.Integer(), "int8": sa.BigInteger()}


class Entry(NamedTuple):
    """A document to be written, with its vector."""

    id: str
    content: str
    metadata: dict[str, Any]
    embedding: ArrayLike

    def checked(self) -> tuple[str, str, str]:
        """Return the id, the text and the metadata as JSON; refuse what PostgreSQL cannot store."""
        of_this = f"of document {self.id!r}"
        for what, value in (("an id", self.id), (f"the text {of_this}", self.content)):
            if not isinstance(value, str):
                raise InvalidInputError(f"{what} must be text, got {value!r}")
            as_json(what, value)
        if not isinstance(self.metadata, dict):
            raise InvalidInputError(
                f"the metadata {of_this} must be a dictionary, got {self.metadata!r}"
            )
        return self.id, self.content, as_json(f"the metadata {of_this}", self.metadata)


class Row(NamedTuple):
    """A document from the table, with its vector if that was requested."""

    id: str
    content: str
    metadata: dict[str, Any]
    embedding: Vector | HalfVector | None


def as_json(what: str, value: Any) -> str:
    """Write a value as JSON that PostgreSQL can store; ``what`` begins the message if it cannot."""
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"{what} has half of a surrogate pair: {error}") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"{what} cannot be stored as JSON: {error}") from None
    # Two backslashes are an escaped backslash.
    if "\\u0000" in text.replace("\\\\", ""):
        raise InvalidInputError(f"{what} has the character NUL, which PostgreSQL cannot store")
    return text


def as_vectors(entries: Sequence[Entry], dimension: int | None = None) -> NDArray[np.float32]:
    """Return the embeddings of documents (n, d); name one that differs from the others.

    Parameters
    ----------
    dimension
        That of the table; by default most embeddings have the right one.

    Raises
    ------
    InvalidInputError
        If an embedding cannot be stored, or not all have one dimension.
    """
    try:
        array = as_rows([entry.embedding for entry in entries])  # type: ignore[arg-type]
    except (InvalidInputError, TypeError) as error:
        _check_each(entries, dimension)
        raise InvalidInputError(f"the embeddings cannot be stored: {error}") from None
    return array.astype(np.float32)


def _check_each(entries: Sequence[Entry], dimension: int | None) -> None:
    """Raise an error that names the first embedding that cannot be stored with the others."""
    problems = [_problem_of(entry.embedding) for entry in entries]
    lengths = Counter(
        len(entry.embedding)  # type: ignore[arg-type]
        for entry, problem in zip(entries, problems, strict=True)
        if problem is None
    )
    usual = dimension or lengths.most_common(1)[0][0] if lengths else 0
    for place, (entry, problem) in enumerate(zip(entries, problems, strict=True)):
        if problem is None and (found := len(entry.embedding)) != usual:  # type: ignore[arg-type]
            problem = f"has {found} dimensions, not {usual}"
        if problem is not None:
            raise InvalidInputError(
                f"embedding {place}, of document {entry.id!r}, {problem}; nothing was written"
            )


def _problem_of(embedding: Any) -> str | None:
    """Return why an embedding is not a finite vector, if it is not."""
    try:
        array = np.asarray(embedding)
        numbers = array.astype(np.float64) if array.dtype.kind in "biufO" else None
    except (TypeError, ValueError, OverflowError):
        numbers = None
    if embedding is None:
        return "is None"
    if numbers is None or numbers.ndim != 1:
        return f"is {reprlib.repr(embedding)}; vectors must be numbers, in a list"
    if not len(numbers):
        return "is empty"
    with np.errstate(over="ignore"):
        wrong = np.flatnonzero(~np.isfinite(numbers.astype(np.float32)))
    if len(wrong):
        place = wrong[0]
        return f"has {array[place]} in dimension {place}; numbers must be finite float32"
    return None


@dataclass(frozen=True)
class DocumentTable:
    """A table with columns id, content, metadata and embedding; it may have others.

    Made by `find`. ``extension`` is the schema of pgvector, ``vector_type`` "vector" or "halfvec",
    and ``dimension`` None where the column takes vectors of any dimension. ``keys`` are columns
    that are generated from keys of the metadata, with their types and these keys. Each use of the
    table asks who owns it.
    """

    schema: str
    name: str
    extension: str
    vector_type: str
    dimension: int | None
    keys: tuple[tuple[str, str, str], ...] = ()

    @classmethod
    def find(cls, connection: Connection, schema: str, name: str) -> "DocumentTable | None":
        """Find a table and check its columns; return None if there is no such table."""
        known = UserTable(schema, name)
        table = known.as_string(connection)
        with translated_errors():
            rows = execute(connection, _COLUMNS, [table]).fetchall()
        if not rows:
            return None
        with reading(connection, known):
            pass
        types = {row[0]: row[4] for row in rows}
        for column, kinds in {
            "id": ("text", "varchar"),
            "content": ("text", "varchar"),
            "metadata": ("jsonb",),
            COLUMN: ("vector", "halfvec"),
        }.items():
            if types.get(column) not in kinds:
                found = f"of type {types[column]}" if column in types else "missing"
                raise InvalidInputError(
                    f"column {column} of {table} is {found}; a table of documents has id text, "
                    "content text, metadata jsonb and embedding vector"
                )
        # Names from the catalog, since PostgreSQL may have shortened them.
        ((schema, name, extension, kind, length),) = [row[1:6] for row in rows if row[0] == COLUMN]
        keys = tuple(
            (row[0], row[4], key[1].replace("''", "'"))
            for row in rows
            if row[4] in _TYPES and (key := _KEY_OF_METADATA.fullmatch(row[6] or ""))
        )
        return cls(schema, name, extension, kind, length if length > 0 else None, keys)

    @classmethod
    def create(
        cls,
        connection: Connection,
        schema: str,
        name: str,
        dimension: int,
    ) -> None:
        """Create the table, unless it is there; one with other columns is refused."""
        with translated_errors(), connection.transaction():
            dimension = as_count("dimension", dimension)
            # A role that may write to the table need not have the right to create one.
            found = cls.find(connection, schema, name)
            if found is not None:
                found._check_dimension(dimension)
                return
            # pgvector's type with its schema.
            values = [connection.adapters.types["vector"].oid, dimension]
            (kind,) = one_row(connection, "SELECT format_type($1, $2)", values)
            names = {"table": sql.Identifier(schema, name), "type": sql.SQL(kind)}
            try:
                with connection.transaction():
                    execute(connection, _CREATE, names=names)
            except (errors.DuplicateObject, errors.DuplicateTable, errors.UniqueViolation):
                # Another session created it at the same time, unless a type has the name.
                found = cls.find(connection, schema, name)
                if found is None:
                    raise
                found._check_dimension(dimension)

    @property
    def identifier(self) -> UserTable:
        """The table, quoted."""
        return UserTable(self.schema, self.name)

    @property
    def columns(self) -> Any:
        """The columns id and metadata, and those generated from keys of it, for filters."""
        columns = sa.Column("id", sa.Text()), sa.Column("metadata", JSONB())
        generated = [
            sa.Column(name, _TYPES[kind], info={"key": key}) for name, kind, key in self.keys
        ]
        return sa.Table(self.name, sa.MetaData(), *columns, *generated, schema=self.schema).c

    def as_sql(self, connection: Connection) -> str:
        """Return the table as SQL writes it."""
        return self.identifier.as_string(connection)

    def write(self, connection: Connection, entries: Sequence[Entry]) -> None:
        """Write all documents or none; documents with the same ids are replaced."""
        if not entries:
            return
        array = as_vectors(entries, self.dimension)
        self._check_dimension(array.shape[1])
        # If an id occurs twice the last document counts, as if they were written one after the
        # other.
        last = {entry.id: (entry, vector) for entry, vector in zip(entries, array, strict=True)}
        rows = sorted(
            ((*entry.checked(), Vector(vector)) for entry, vector in last.values()),
            key=itemgetter(0),
        )
        with translated_errors(), connection.transaction():
            for start in range(0, len(rows), _BATCH_ROWS):
                batch = rows[start : start + _BATCH_ROWS]
                columns = [list(column) for column in zip(*batch, strict=True)]
                self._execute(connection, _WRITE, columns)

    def query(self, vector: ArrayLike) -> Vector:
        """Check that a vector can be searched for."""
        query = as_query(vector, None)
        self._check_dimension(query.dimensions())
        return query

    def _check_dimension(self, dimension: int) -> None:
        if self.dimension not in (None, dimension):
            raise InvalidInputError(
                f"the embeddings have {dimension} dimensions, and vectors of table "
                f'"{self.schema}"."{self.name}" {self.dimension}; embed with the same model as '
                "its documents, or keep others in another table"
            )

    def read(
        self, connection: Connection, ids: Sequence[str], *, with_embedding: bool = False
    ) -> list[Row]:
        """Read documents in the order of the ids; missing ones are left out."""
        ids = as_ids(ids)
        rows = self._execute(
            connection,
            _READ,
            [ids],
            embedding=sql.SQL("embedding" if with_embedding else "NULL"),
        ).fetchall()
        found = {row[0]: Row(row[0], row[1] or "", row[2] or {}, row[3]) for row in rows}
        for row in found.values():
            if not isinstance(row.metadata, dict):
                raise InvalidInputError(
                    f"the metadata of document {row.id!r} is {row.metadata!r}, not an object: "
                    f"correct it in table {self.as_sql(connection)}"
                )
        return [found[document] for document in dict.fromkeys(ids) if document in found]

    def delete(self, connection: Connection, ids: Sequence[str] | None) -> None:
        """Delete documents; all of them if ids is None."""
        with translated_errors(), connection.transaction():
            if ids is None:
                self._execute(connection, "DELETE FROM {table}", [])
            else:
                self._execute(
                    connection, "DELETE FROM {table} WHERE id = ANY ($1::text[])", [as_ids(ids)]
                )

    def delete_matching(self, connection: Connection, where: sa.ColumnElement[bool] | None) -> None:
        """Delete the documents that match a filter as they are deleted."""
        with translated_errors(), connection.transaction():
            text = self.filter(connection, where)
            self._execute(connection, "DELETE FROM {table} WHERE {filter}", [], filter=text)

    def matching(self, connection: Connection, where: sa.ColumnElement[bool] | None) -> list[str]:
        """Return the ids of documents that match a filter."""
        text = self.filter(connection, where)
        return [row[0] for row in self._execute(connection, _MATCHING, [], filter=text)]

    def by_words(
        self,
        connection: Connection,
        words: str,
        k: int,
        configuration: str | None,
        where: sa.ColumnElement[bool] | None,
    ) -> list[tuple[str, float]]:
        """Return the ids of the documents that hold words, with their ranks, the best first."""
        ((named, query),) = self._execute(connection, _WORDS, [words, configuration])
        document = sql.SQL("pg_catalog.to_tsvector({}::regconfig, content)").format(named)
        text = self.filter(connection, where)
        rows = self._execute(connection, _BY_WORDS, [query, k], document=document, filter=text)
        return list(rows)

    def filter(self, connection: Connection, where: sa.ColumnElement[bool] | None) -> sql.SQL:
        """Return a filter as SQL."""
        if where is None:
            return sql.SQL("true")
        # A line comment must not hide what follows it.
        text: Any = filter_text(connection, where, self.name, self.as_sql(connection))
        return sql.SQL(f"({text}\n)")

    @property
    def column(self) -> VectorColumn:
        """The column of embeddings, for statements that search it."""
        column, key, kind = sql.Identifier(COLUMN), sql.Identifier("id"), self.vector_type
        return VectorColumn(self.extension, self.identifier, column, kind, key, key, ties=", id")

    def nearest(
        self,
        connection: Connection,
        metric: Metric,
        query: Vector,
        k: int,
        where: sa.ColumnElement[bool] | None,
    ) -> list[Hit]:
        """Compare all documents with a vector."""
        text = None if where is None else self.filter(connection, where).as_string()
        search = Exact(self.column, metric).search(k, ["embedding IS NOT NULL", text])
        of_column = HalfVector(query.to_list()) if self.vector_type == "halfvec" else query
        hits = [Hit(*row) for row in execute(connection, search, [of_column]).fetchall()]
        # As in an index, a vector of zeros has no cosine, so no query with one finds it.
        return [hit for hit in hits if not isnan(hit.distance)] or hits

    def _execute(
        self, connection: Connection, statement: LiteralString, values: list[Any], **names: Any
    ) -> Any:
        return execute(connection, statement, values, names={"table": self.identifier, **names})


def as_ids(ids: Sequence[str]) -> list[str]:
    """Return ids of documents as a list; refuse what is not text."""
    # A text would count as a list of letters.
    given = [ids] if isinstance(ids, str) else list(ids)
    if isinstance(ids, str) or not all(isinstance(each, str) for each in given):
        raise InvalidInputError(f"ids are a list of text, got {reprlib.repr(ids)}")
    return given
