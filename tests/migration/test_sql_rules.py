"""The rules that every function of ours keeps, read from the catalog and from sql/."""

import re
from pathlib import Path
from typing import Any

import pytest

from pg_hashindex.database import Connection
from pg_hashindex.index import HashIndex

SQL = Path(__file__).resolve().parents[2] / "sql"

# What evaluates layers: usable in indexes, generated columns and shards, so it reads no table.
PURE = {"project_with", "encode_with", "check_search_arguments"}


@pytest.fixture
def functions(index: HashIndex) -> list[dict[str, Any]]:
    cursor = index.connection.execute(
        """
        SELECT p.proname AS name, p.oid::regprocedure::text AS signature,
               p.provolatile AS volatility, p.proparallel AS parallel,
               p.proisstrict AS strict, p.prosecdef AS definer,
               p.proconfig AS config, p.prosqlbody IS NOT NULL AS parsed, l.lanname AS language,
               obj_description(p.oid, 'pg_proc') AS comment, p.prosrc AS source
        FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
        WHERE p.pronamespace = 'hashindex'::regnamespace
        """
    )
    assert cursor.description is not None
    names = [column.name for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def test_every_function_has_a_comment(functions: list[dict[str, Any]]) -> None:
    assert [f["signature"] for f in functions if not f["comment"]] == []


def test_none_runs_with_the_rights_of_its_owner(functions: list[dict[str, Any]]) -> None:
    assert [f["signature"] for f in functions if f["definer"]] == []


def test_names_resolve_the_same_for_every_caller(functions: list[dict[str, Any]]) -> None:
    """A pinned search_path that ends in pg_temp, or a body that was parsed when it was made."""
    for function in functions:
        path = [c for c in function["config"] or [] if c.startswith("search_path=")]
        assert function["parsed"] or path == ["search_path=pg_catalog, public, pg_temp"], function


def test_what_reads_tables_is_parallel_unsafe(functions: list[dict[str, Any]]) -> None:
    for function in functions:
        pure = function["name"] in PURE
        assert function["parallel"] == ("s" if pure else "u"), function["signature"]
        assert (function["volatility"] == "i") == pure, function["signature"]


def test_what_evaluates_layers_is_strict(functions: list[dict[str, Any]]) -> None:
    strict = {f["name"] for f in functions if f["strict"]}
    assert {"project_with", "encode_with", "project", "encode"} <= strict


def test_searching_is_stable(functions: list[dict[str, Any]]) -> None:
    volatility = {f["name"]: f["volatility"] for f in functions}
    for name in ("search", "search_items_idx", "exact_search", "encode", "project"):
        assert volatility[name] == "s", name


def test_sql_functions_read_no_user_table(functions: list[dict[str, Any]]) -> None:
    """LANGUAGE sql over a distributed table fails on Citus; parsed bodies name what they read."""
    for function in functions:
        if function["language"] == "sql":
            assert function["parsed"], function["signature"]
            assert "items" not in function["signature"]


def test_metadata_holds_no_oids(connection: Connection) -> None:
    """They differ between nodes and after a restore."""
    rows = connection.execute(
        """
        SELECT c.relname, a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        WHERE c.relnamespace = 'hashindex'::regnamespace AND c.relkind = 'r' AND a.attnum > 0
          AND a.atttypid::regtype::text ~ '^(oid|reg)'
        """
    ).fetchall()
    assert rows == []


def test_every_order_has_a_tie_break(functions: list[dict[str, Any]]) -> None:
    source = next(f["source"] for f in functions if f["name"] == "search_items_idx")
    orders = re.findall(r"ORDER BY ([^\n]+)", source)
    assert len(orders) == 2
    for order in orders:
        assert order.split(",")[-1].strip().rpartition(".")[2].strip('"') == "id"


def test_files_say_everything_about_each_function() -> None:
    """Volatility and parallel safety are written down, not left to the defaults."""
    for path in sorted(SQL.glob("*.sql")):
        for head in re.findall(
            r"^CREATE OR REPLACE FUNCTION hashindex\.(?:.|\n)*?(?=^AS |^RETURN |^BEGIN ATOMIC)",
            path.read_text(),
            re.MULTILINE,
        ):
            if "RETURNS trigger" not in head:
                assert re.search(r"\b(IMMUTABLE|STABLE|VOLATILE)\b", head), head
                assert re.search(r"\bPARALLEL (SAFE|UNSAFE)\b", head), head
