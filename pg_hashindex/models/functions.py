"""Functions of a model, and the statements that use them in pgvector's own index.

``hashindex.create_functions`` (``sql/126_functions.sql``) makes them; see docs/functions.md.
"""

from dataclasses import dataclass
from typing import LiteralString

from ..db.connection import Connection
from ..db.owners import prepare_schema
from ..db.server_errors import translated_errors
from ..db.statements import execute, one_row
from ..errors import InvalidInputError
from . import store
from .model import OPERATORS
from .store import StoredModel

#: Rows that a search fetches by code and compares exactly.
CANDIDATES = 60

_COLUMN: LiteralString = """
    SELECT c.oid::regclass::text, c.relkind = 'p', quote_ident(a.attname), t.typname, a.atttypmod,
           coalesce((
               SELECT string_agg(quote_ident(k.attname), ', ' ORDER BY array_position(i.indkey, k.attnum))
               FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute k
                   ON k.attrelid = i.indrelid AND k.attnum = ANY (i.indkey)
               WHERE i.indrelid = c.oid AND i.indisprimary
           ), '*')
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid
    JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
    WHERE c.oid = $1::text::regclass AND a.attname = $2 AND NOT a.attisdropped
"""  # noqa: E501


@dataclass(frozen=True)
class ModelFunctions:
    """The functions of a model, by the name of ``code_NAME`` as SQL writes it."""

    model: StoredModel
    code: str

    @property
    def is_expensive(self) -> bool:
        """Whether a code costs more than a few microseconds, so that it is better stored."""
        return not {"normalize", "shift"}.issuperset(self.model.layer_kinds)


def create(connection: Connection, reference: str) -> ModelFunctions:
    """Make the functions of a model, or make them again.

    Raises
    ------
    UnknownModelError
        If there is no such model.
    DatabaseStateError
        If the model cannot be a function, or another has taken its name.
    """
    with translated_errors():
        prepare_schema(connection)
        (code,) = one_row(connection, "SELECT hashindex.create_functions($1)", [reference])
    return ModelFunctions(store.describe(connection, reference), code)


def statements(
    connection: Connection, functions: ModelFunctions, table: str, column: str
) -> dict[str, str]:
    """Return the statements that index a column by a model's code, and the query of the nearest.

    Parameters
    ----------
    table
        As SQL writes it.

    Returns
    -------
    dict
        ``column`` if the code is to be stored, ``index`` and ``query``; ``$1`` is the vector.

    Raises
    ------
    InvalidInputError
        If there is no such column, or the model does not take its vectors.
    """
    model = functions.model
    with translated_errors():
        row = execute(connection, _COLUMN, [table, column]).fetchone()
    if row is None:
        raise InvalidInputError(f"{table} has no column {column!r}")
    table, divided, column, kind, dimension, key = row
    if kind not in ("vector", "halfvec") or dimension not in (-1, model.dimension):
        size = f"({dimension})" if dimension > 0 else ""
        raise InvalidInputError(
            f"column {column} of {table} is of type {kind}{size}; model {model.name} takes vector "
            f"or halfvec of {model.dimension} dimensions"
        )
    code = f"{functions.code}({column})"
    found = {}
    if functions.is_expensive:
        stored = functions.code.removeprefix("hashindex.")
        found["column"] = (
            f"ALTER TABLE {table} ADD COLUMN {stored} bit({model.n_bits})\n"
            f"    GENERATED ALWAYS AS ({code}) STORED;"
        )
        by = indexed = stored
    else:
        by = f"{code}::bit({model.n_bits})"
        indexed = f"({by})"
    found["index"] = (
        f"CREATE INDEX {'' if divided else 'CONCURRENTLY '}ON {table} USING hnsw\n"
        f"    ({indexed} bit_hamming_ops) WITH (ef_construction = 128);"
    )
    inner = key if key == "*" else f"{key}, {column}"
    found["query"] = (
        f"SET hnsw.ef_search = {CANDIDATES};\n"  # noqa: S608
        f"SELECT {key} FROM (\n"
        f"    SELECT {inner} FROM {table}\n"
        f"    ORDER BY {by} <~> (SELECT {functions.code}($1::{kind}))\n"
        f"    LIMIT {CANDIDATES}\n"
        f") c ORDER BY {column} {OPERATORS[model.metric]} $1::{kind} LIMIT 10;"
    )
    return found
