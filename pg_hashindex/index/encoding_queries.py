"""The statements of bulk encoding, for codes in a table and codes in a column."""

from typing import LiteralString

from .catalog import Layout

__all__ = ["FIRST_MISSING", "PAGE", "PAGES_OF_TABLE", "PRUNE", "SAMPLED_MISSING", "WRITE"]

# $1 is a key, $2 the most rows. Bounded on both sides of the anti-join, so that no page looks at
# what earlier ones did.
PAGE: dict[Layout, LiteralString] = {
    "table": """
        SELECT b.{id}::text, b.{column}, {version} FROM {table} b
        WHERE b.{id} {comparison} $1::text::{type} AND b.{column} IS NOT NULL
          AND NOT EXISTS (
              SELECT FROM {codes} c WHERE c.id = b.{id} AND c.id >= $1::text::{type}
          )
        ORDER BY b.{id} LIMIT $2
    """,
    "column": """
        SELECT b.{id}::text, b.{column}, {version} FROM {table} b
        WHERE b.{id} {comparison} $1::text::{type} AND b.{column} IS NOT NULL
          AND b.{code} IS NULL
        ORDER BY b.{id} LIMIT $2
    """,
}

# The keys alone are compared first, in the two indexes: where no row is missing, none is read.
FIRST_MISSING: dict[Layout, LiteralString] = {
    "table": """
        SELECT b.{id}::text FROM (
            SELECT k.{id} AS id FROM {table} k
            WHERE NOT EXISTS (SELECT FROM {codes} c WHERE c.id = k.{id})
            ORDER BY k.{id} OFFSET 0
        ) missing JOIN {table} b ON b.{id} = missing.id
        WHERE b.{column} IS NOT NULL
        ORDER BY b.{id} LIMIT 1
    """,
    "column": """
        SELECT b.{id}::text FROM {table} b
        WHERE b.{column} IS NOT NULL AND b.{code} IS NULL
        ORDER BY b.{id} LIMIT 1
    """,
}

# To count all that is missing takes as long as encoding a few rows in a hundred.
PAGES_OF_TABLE: LiteralString = """
    SELECT greatest(
        pg_relation_size({table_name}::regclass),
        (SELECT sum(pg_relation_size(p.relid)) FROM pg_partition_tree({table_name}::regclass) p)
    )::bigint / current_setting('block_size')::integer
"""

# $1 is how many pages in a hundred are read.
SAMPLED_MISSING: dict[Layout, LiteralString] = {
    "table": """
        SELECT count(*) FROM {table} b TABLESAMPLE SYSTEM ($1)
        WHERE b.{column} IS NOT NULL AND NOT EXISTS (SELECT FROM {codes} c WHERE c.id = b.{id})
    """,
    "column": """
        SELECT count(*) FROM {table} b TABLESAMPLE SYSTEM ($1)
        WHERE b.{column} IS NOT NULL AND b.{code} IS NULL
    """,
}

# $1, $2 and $3 are the keys, versions and codes of a page; a cast of the third to bit[] would cut
# each code down to one bit. What is asked of the index holds until the end: our lock on where the
# codes go keeps it from being dropped, and is taken before the statement's snapshot. Of several
# arrays unnest is PostgreSQL's own under any search_path; pg_catalog.unnest takes one.
WRITE: dict[Layout, LiteralString] = {
    "table": """
        WITH present AS (
            SELECT b.{id} AS id, s.code{filter_values}
            FROM unnest($1::text[], $2::text[], $3) s(id, version, code)
            JOIN {table} b ON b.{id} = s.id::{type}
            WHERE b.{column} IS NOT NULL AND {unchanged} AND {current}
            FOR SHARE OF b SKIP LOCKED
        )
        INSERT INTO {codes} (id, code{filter_targets})
        SELECT * FROM present p
        ON CONFLICT (id) DO NOTHING
    """,
    "column": """
        WITH present AS (
            SELECT b.{id} AS id, s.code
            FROM unnest($1::text[], $2::text[], $3) s(id, version, code)
            JOIN {table} b ON b.{id} = s.id::{type}
            WHERE b.{column} IS NOT NULL AND b.{code} IS NULL AND {unchanged} AND {current}
            FOR NO KEY UPDATE OF b SKIP LOCKED
        )
        UPDATE {table} b SET {code} = p.code FROM present p
        WHERE b.{id} = p.id AND b.{code} IS NULL
    """,
}

# Rows that went with a detached partition, or while triggers were off. Who does not see every row
# must not take the others for gone. An array: DELETE with the condition itself would read both
# tables where the two indexes say it all.
PRUNE: LiteralString = """
    DELETE FROM {codes} c WHERE c.id = ANY (ARRAY(
        SELECT k.id FROM {codes} k
        WHERE NOT row_security_active({table_name}) AND {current}
          AND NOT EXISTS (SELECT FROM {table} b WHERE b.{id} = k.id)
    ))
"""
