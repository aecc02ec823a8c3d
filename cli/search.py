"""``pg-hashindex search`` and ``within``: the rows near a vector, or near a row."""

import json
from collections.abc import Sequence

import click
from psycopg import sql

from pg_hashindex.db.connection import execute, translated_errors
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.index.catalog import IndexRow
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.index.search import Hit

from ._shared import connected, database_option, json_option, print_json, print_table

# Characters of a column in a table; JSON has all.
_MOST_SHOWN = 60
# Columns of text in a table, if none are named.
_MOST_COLUMNS = 3


@click.command()
@click.argument("index")
@click.option("--query", metavar="'[...]'", help="Vector to search for, as pgvector writes it.")
@click.option("--like", metavar="ID", help="Search for the neighbours of the row with this key.")
@click.option("-k", type=int, default=10, show_default=True, help="Answers wanted.")
@click.option("--candidates", type=int, help="Rows kept by code.  [default: the index's]")
@click.option("--probes", type=int, help="Landmarks whose lists are read.  [default: the index's]")
@click.option(
    "--filter",
    "filter_",
    metavar="SQL",
    help="Search only rows that match this filter, such as n > 5.",
)
@click.option(
    "--columns",
    metavar="COLUMN,...",
    help="Show these columns of the rows as text.  [default: the first 3 columns of text; none in "
    "JSON]",
)
@database_option
@json_option
def search(
    database_url: str,
    index: str,
    query: str | None,
    like: str | None,
    k: int,
    candidates: int | None,
    probes: int | None,
    filter_: str | None,
    columns: str | None,
    as_json: bool,
) -> None:
    """Search INDEX for the rows nearest to a vector, or to another row (left out itself)."""
    if (query is None) == (like is None):
        raise click.UsageError("give either --query or --like")
    with connected(database_url) as connection:
        opened = HashIndex.open(connection, index)
        if query is not None:
            hits = opened.search(
                _vector(query), k, candidates=candidates, probes=probes, filter=filter_
            )
        else:
            hits = opened.search_like(like, k, candidates=candidates, probes=probes, filter=filter_)
        if columns is not None:
            names = [name.strip() for name in columns.split(",") if name.strip()]
        else:
            names = [] if as_json else _text_columns(opened.row)
        shown = _columns(opened.row, hits, names)
    if as_json:
        print_json(
            [
                hit._asdict() | ({"columns": dict(zip(names, row, strict=True))} if names else {})
                for hit, row in zip(hits, shown, strict=True)
            ]
        )
    else:
        print_table(
            ["id", "distance", *names],
            [[*hit, *map(_short, row)] for hit, row in zip(hits, shown, strict=True)],
        )


@click.command()
@click.argument("index")
@click.option("--query", metavar="'[...]'", help="Vector to search for, as pgvector writes it.")
@click.option("--like", metavar="ID", help="Search for rows like the one with this key.")
@click.option(
    "--radius", type=int, required=True, help="Bits in which codes may differ from the query's."
)
@database_option
@json_option
def within(
    database_url: str,
    index: str,
    query: str | None,
    like: str | None,
    radius: int,
    as_json: bool,
) -> None:
    """Find every row of INDEX whose code is within a Hamming radius of a vector's, or of a row's.

    Fast with access path lookup and a small radius; else a scan of all codes. With --like, the row
    itself is left out.
    """
    if (query is None) == (like is None):
        raise click.UsageError("give either --query or --like")
    with connected(database_url) as connection:
        opened = HashIndex.open(connection, index)
        if query is not None:
            hits = opened.within(_vector(query), radius)
        else:
            hits = opened.within_like(like, radius)
    if as_json:
        print_json([hit._asdict() for hit in hits])
    else:
        print_table(["id", "distance"], hits)


def _text_columns(index: IndexRow) -> list[str]:
    """Return the first columns of text that the role may read, but for the key."""
    rows = execute(
        index.connection,
        "SELECT a.attname FROM pg_catalog.pg_attribute a "
        "JOIN pg_catalog.pg_type t ON t.oid = a.atttypid "
        "WHERE a.attrelid = $1::regclass::oid AND a.attnum > 0 AND NOT a.attisdropped "
        "AND t.typcategory = 'S' AND a.attname <> $2 "
        "AND pg_catalog.has_column_privilege(a.attrelid, a.attnum, 'SELECT') "
        "ORDER BY a.attnum LIMIT $3",
        [index.qualified_table, index.id_column, _MOST_COLUMNS],
    ).fetchall()
    return [name for (name,) in rows]


def _columns(index: IndexRow, hits: Sequence[Hit], names: list[str]) -> list[list[str | None]]:
    """Read columns of the rows found, as text; a row that is gone since has none."""
    if not names:
        return [[] for _ in hits]
    with translated_errors(index):
        rows = execute(
            index.connection,
            sql.SQL(
                "SELECT {columns} FROM pg_catalog.unnest($1::text[]) WITH ORDINALITY s(id, n) "
                "LEFT JOIN {table} b ON b.{id} = s.id::{type} ORDER BY s.n"
            ).format(
                columns=sql.SQL(", ").join(
                    sql.SQL("b.{}::text").format(sql.Identifier(name)) for name in names
                ),
                table=index.table,
                id=sql.Identifier(index.id_column),
                type=sql.SQL(index.key_type),
            ),
            [[str(hit.id) for hit in hits]],
        ).fetchall()
    return [list(row) for row in rows]


def _short(text: str | None) -> str:
    if text is None:
        return ""
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."


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
