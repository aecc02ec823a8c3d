"""``pg-hashindex search``: the rows near a vector, or near a row."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click
from psycopg import sql

from pg_hashindex.db.server_errors import translated_errors
from pg_hashindex.db.sql_files import query
from pg_hashindex.db.statements import execute
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.index.catalog import IndexRow
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.index.search import Hit

from ._index_options import index_options
from ._shared import (
    note_not_encoded,
    of_name,
    opened,
    print_json,
    print_table,
    refuse_columns,
    tenant_option,
    words,
)

# Characters of a column in a table; JSON has all.
_MOST_SHOWN = 60
# Columns of text in a table, if none are named.
_MOST_COLUMNS = 3


@click.command()
@click.option("--query", metavar="'[...]'", help="Vector to search for, as pgvector writes it.")
@click.option(
    "--like",
    metavar="ID",
    help="Search for rows like the one with this key; of several columns: '[7, 12]'.",
)
@click.option("-k", type=int, help="Answers wanted.  [default: 10]")
@index_options(["candidates", "effort"], new=False)
@click.option("--filter", metavar="SQL", help="Search only rows that match this filter: n > 5.")
@tenant_option("Search only rows of this tenant.")
@click.option("--all-tenants", is_flag=True, help="Search the rows of all tenants.")
@click.option(
    "--radius",
    type=int,
    metavar="BITS",
    help="Find every row whose code differs from the query's in this number of bits, or fewer. All "
    "codes are compared; the distance is in bits.",
)
@click.option(
    "--columns",
    callback=words,
    metavar="COLUMN,...",
    help="Show these columns of the rows as text.  [default: the first 3 columns of text; none in "
    "JSON]",
)
@of_name
def search(
    database_url: str,
    name: str,
    query: str | None,
    like: str | None,
    k: int | None,
    tenant: str | None,
    all_tenants: bool,
    radius: int | None,
    columns: list[str] | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Search index NAME for rows near a vector or a row, or within a radius of bits."""
    if radius is not None and any(value is not None for value in (k, *options.values())):
        raise click.UsageError(
            "--radius finds every row by its code: leave out -k, --candidates, --effort, --filter"
        )
    within: dict[str, Any] = {"all_tenants": True} if all_tenants else {}
    if tenant is not None:
        within["tenant"] = tenant
    with _searched(database_url, name, query, like) as (found, vector):
        if columns:
            refuse_columns(found.connection, found.row.qualified_table, columns, "--columns")
        most = 10 if k is None else k
        if radius is None and vector is not None:
            hits = found.search(vector, most, **options, **within)
        elif radius is None:
            with _checking_key(found, like):
                hits = found.search_like(like, most, **options, **within)
        elif vector is not None:
            hits = found.within(vector, radius, **within)
        else:
            with _checking_key(found, like):
                hits = found.within_like(like, radius, **within)
        if columns is None:
            columns = [] if as_json else _text_columns(found.row)
        shown = _columns(found.row, hits, columns)
    if as_json:
        print_json(
            [
                hit._asdict()
                | ({"columns": dict(zip(columns, row, strict=True))} if columns else {})
                for hit, row in zip(hits, shown, strict=True)
            ]
        )
    else:
        print_table(
            ["id", "distance", *columns],
            [
                [_shown(hit.id), hit.distance, *map(_short, row)]
                for hit, row in zip(hits, shown, strict=True)
            ],
        )


@contextmanager
def _searched(
    url: str, name: str, query: str | None, like: str | None
) -> Iterator[tuple[HashIndex, list[float] | None]]:
    """Open an index whose table is there; read the vector to search for, None for a row."""
    if (query is None) == (like is None):
        raise click.UsageError("give either --query or --like")
    with opened(url, name) as found:
        with translated_errors(row := found.row):
            execute(found.connection, "SELECT $1::regclass", [row.qualified_table])
        note_not_encoded(row)
        yield found, None if query is None else _vector(query)


@contextmanager
def _checking_key(index: HashIndex, like: str | None) -> Iterator[None]:
    """Name the key's type where --like cannot be one."""
    try:
        yield
    except InvalidInputError as error:
        found = re.match('invalid input syntax for type (.+?): "(.*)"', str(error), re.DOTALL)
        # A filter or a tenant may have the wrong value.
        if found is None or (found[2] != like and f'"{found[2]}"' not in (like or "")):
            raise
        raise InvalidInputError(
            f"--like {like!r} is not a key: {index.row.key.name} is of type {found[1]}"
        ) from error


def _text_columns(index: IndexRow) -> list[str]:
    """Return the first columns of text that the role may read, but for the key."""
    rows = execute(
        index.connection,
        query("search.text_columns"),
        [index.qualified_table, index.key_columns, _MOST_COLUMNS],
    ).fetchall()
    return [name for (name,) in rows]


def _columns(index: IndexRow, hits: Sequence[Hit], names: list[str]) -> list[list[str | None]]:
    """Read columns of the rows found, as text; a row that is gone since has none."""
    if not names:
        return [[] for _ in hits]
    with translated_errors(index):
        columns = sql.SQL(", ").join(
            sql.SQL("b.{}::text").format(sql.Identifier(name)) for name in names
        )
        rows = execute(
            index.connection,
            "SELECT {columns} FROM pg_catalog.unnest($1::text[]) WITH ORDINALITY s(id, n) "
            "LEFT JOIN {table} b ON ({key}) = ({given_key}) ORDER BY s.n",
            [[index.key.written(hit.id) for hit in hits]],
            names={**index.names, "columns": columns},
        ).fetchall()
    return [list(row) for row in rows]


def _shown(key: Any) -> Any:
    """Return a key as a cell of a table: the values of several columns in one."""
    if isinstance(key, tuple):
        return ", ".join(map(str, key))
    # A cell would round numbers, and cut times.
    return key if isinstance(key, int) else str(key)


def _short(text: str | None) -> str | None:
    return text if text is None or len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."


def _vector(text: str) -> list[float]:
    try:
        value = json.loads(text)
        if not isinstance(value, list):
            raise TypeError
        return [float(element) for element in value]
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise InvalidInputError(
            f"--query is not a vector: {text[:60]!r}; write it as '[0.1, 0.2, ...]'"
        ) from error
