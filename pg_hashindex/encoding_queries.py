"""The statements of bulk encoding, for codes in a table and codes in a column."""

from typing import LiteralString

from .catalog import Layout

__all__ = ["FIRST_MISSING", "PAGE", "PRUNE", "WRITE"]

# Bounded on both sides of the anti-join, so that no page looks at what earlier ones did.
PAGE: dict[Layout, LiteralString] = {
    "table": """
        SELECT b.{id}::text, b.{column}, {version} FROM {table} b
        WHERE b.{id} {comparison} {start}::text::{type} AND b.{column} IS NOT NULL
          AND NOT EXISTS (
              SELECT FROM {codes} c WHERE c.id = b.{id} AND c.id >= {start}::text::{type}
          )
        ORDER BY b.{id} LIMIT {limit}
    """,
    "column": """
        SELECT b.{id}::text, b.{column}, {version} FROM {table} b
        WHERE b.{id} {comparison} {start}::text::{type} AND b.{column} IS NOT NULL
          AND b.{code} IS NULL
        ORDER BY b.{id} LIMIT {limit}
    """,
}

FIRST_MISSING: dict[Layout, LiteralString] = {
    "table": """
        SELECT b.{id}::text FROM {table} b
        WHERE b.{column} IS NOT NULL AND NOT EXISTS (SELECT FROM {codes} c WHERE c.id = b.{id})
        ORDER BY b.{id} LIMIT 1
    """,
    "column": """
        SELECT b.{id}::text FROM {table} b
        WHERE b.{column} IS NOT NULL AND b.{code} IS NULL
        ORDER BY b.{id} LIMIT 1
    """,
}

# What is asked of the index holds until the end: our lock on where the codes go keeps it from being
# dropped, and is taken before the statement's snapshot.
WRITE: dict[Layout, LiteralString] = {
    "table": """
        WITH present AS (
            SELECT b.{id} AS id, s.code FROM {batch} s JOIN {table} b ON b.{id} = s.id::{type}
            WHERE b.{column} IS NOT NULL AND {unchanged} AND {current}
            FOR SHARE OF b SKIP LOCKED
        )
        INSERT INTO {codes} (id, code) SELECT p.id, p.code FROM present p
        ON CONFLICT (id) DO NOTHING
    """,
    "column": """
        WITH present AS (
            SELECT b.{id} AS id, s.code FROM {batch} s JOIN {table} b ON b.{id} = s.id::{type}
            WHERE b.{column} IS NOT NULL AND b.{code} IS NULL AND {unchanged} AND {current}
            FOR NO KEY UPDATE OF b SKIP LOCKED
        )
        UPDATE {table} b SET {code} = p.code FROM present p
        WHERE b.{id} = p.id AND b.{code} IS NULL
    """,
}

# Rows that went with a detached partition, or while triggers were off. Who does not see every row
# must not take the others for gone.
PRUNE: LiteralString = """
    DELETE FROM {codes} c
    WHERE NOT row_security_active({table_name}) AND {current}
      AND NOT EXISTS (SELECT FROM {table} b WHERE b.{id} = c.id)
"""
