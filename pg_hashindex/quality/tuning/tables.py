"""What the user's table is like, before rows are drawn from it."""

from dataclasses import replace

from psycopg import sql

from ...training.table_source import TableSource

__all__ = ["check_table", "counted"]

# Rows whose pages are counted, to know how many have a vector.
_COUNTED_ROWS = 100_000
# Of fewer that were met the table is counted.
_LEAST_COUNTED = 1000


def check_table(source: TableSource) -> bool:
    """Refuse a table that no index can be made of; return whether it has partitions.

    Raises
    ------
    psycopg.Error
        What the database says of it.
    """
    connection, vector = source.connection, sql.Identifier(source.vector)
    row = connection.execute(
        "SELECT a.atttypmod, c.relkind FROM pg_catalog.pg_attribute a "
        "JOIN pg_catalog.pg_class c ON c.oid = a.attrelid "
        "WHERE a.attrelid = %s::regclass::oid AND a.attname = %s AND a.attnum > 0",
        [source.name, source.vector],
    ).fetchone()
    assert row is not None  # noqa: S101
    dimension, kind = row
    if dimension == -1:
        first = connection.execute(
            sql.SQL("SELECT {0} FROM {1} WHERE {0} IS NOT NULL LIMIT 1").format(
                vector, source.table
            )
        ).fetchone()
        dimension = -1 if first is None else first[0].dimensions()
    connection.execute(
        "SELECT hashindex._check_vector_column(%s::regclass, %s, %s)",
        [source.name, source.vector, dimension],
    )
    return bool(kind == "p")


def counted(source: TableSource) -> tuple[TableSource, int]:
    """Estimate a table's rows, and those with a vector, from what it has now.

    Statistics may be those of a far smaller table, count rows without a vector, and are of no
    partition. The planner takes the pages that there are; of some of them rows are counted.

    Returns
    -------
    TableSource
        With all rows as its estimate.
    int
        Rows with a vector.
    """
    connection = source.connection
    expected = float(source.estimate)
    plan = connection.execute(
        "SELECT matching FROM hashindex._estimate(%s)",
        [sql.SQL("SELECT FROM {}").format(source.table).as_string(connection)],
    ).fetchone()
    if plan is not None:
        expected = max(expected, plan[0])
    share = min(1.0, _COUNTED_ROWS / max(expected, 1.0))
    sample = sql.SQL("" if share == 1 else "TABLESAMPLE SYSTEM ({}) REPEATABLE (0)").format(
        sql.Literal(100 * share)
    )
    row = connection.execute(
        sql.SQL("SELECT count(*), pg_catalog.count({}) FROM {} {}").format(
            sql.Identifier(source.vector), source.table, sample
        )
    ).fetchone()
    every, with_vector = (0, 0) if row is None else row
    if share < 1 and with_vector < _LEAST_COUNTED:
        # Too few were met to tell from them.
        condition = sql.SQL("{} IS NOT NULL").format(sql.Identifier(source.vector))
        return replace(source, estimate=round(expected)), source.count(condition)
    return replace(source, estimate=round(every / share)), round(with_vector / share)
