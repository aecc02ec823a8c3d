"""Whatever names the table of an index has asked whose it is: by the texts of statements."""

import re

import pytest

from pg_hashindex.db import sql_files

SQL = sql_files.folder("sql")
#: Templates that are parts of others, or functions that these call: the gate is there.
WITHIN = {
    "exact_in_tenant": "search_parts",
    "refresh_codes": "refresh",
    "nearest_in_shard": "shards_nearest",
    "shards_nearest": "search_parts",
    "refresh": "sync_table",
    "forget": "sync_table",
    "shards_refresh": "shards_sync",
}
TEMPLATES = {file.stem: file.read_text() for file in (SQL / "templates").glob("*.sql")}
#: Functions that take an index's row of the catalog, and read its table in no statement.
BY_ROW = {"find_index", "_configure_index", "drop_unused", "drop_index", "revoke_reader", "health"}


#: Modules that name a table which is not in an index's row, and where who owns it is asked.
PYTHON = SQL.parent / "pg_hashindex"
ASKS = {
    "contrib/documents/table.py": ("contrib/documents/table.py", "check_owners(connection, table,"),
    "db/table_source.py": ("db/table_source.py", "check_owners(connection, oid)"),
    "training/edges.py": ("training/sampling.py", "TableSource.find("),
    "quality/systems.py": ("quality/doctor.py", "TableSource.find("),
    "quality/quickstart.py": ("quality/quickstart.py", "find_relation("),
    "operations/duplicates.py": ("operations/duplicates.py", "if not is_own:"),
}


def test_a_statement_of_python_asks_before_it_names_the_table():
    """`IndexRow.names` asks; what has other names is known."""
    others = set()
    for file in PYTHON.rglob("*.py"):
        text = file.read_text()
        names = re.search(r"(FROM|JOIN|UPDATE|INTO|TABLE|ONLY)\s+\{(table|leaf|relation)\}", text)
        if names and not re.search(r"\.names\b", text):
            others.add(str(file.relative_to(PYTHON)))
    assert others == set(ASKS)
    for where, gate in ASKS.values():
        assert gate in (PYTHON / where).read_text(), where
    catalog = (PYTHON / "index" / "catalog.py").read_text()
    assert re.search(r"def names\(self\).*?\n        self\.check_trust\(\)", catalog, re.DOTALL)


@pytest.mark.parametrize("name", [n for n, text in TEMPLATES.items() if "{table}" in text])
def test_a_template_asks_before_it_names_the_table(name):
    while name in WITHIN:
        name = WITHIN[name]
    text = TEMPLATES[name]
    asked = re.search(r"\{require_trust\}|_is_trusted\(", text)
    assert asked, name
    # Triggers name it after BEGIN alone; what a declaration holds is evaluated in its order.
    named = re.search(r"\{table\}|\{refresh\}\(|\{candidates\}\(|\{exact\}", text)
    assert named is None or asked.start() < named.start()


def test_every_generated_function_that_a_caller_names_asks():
    for name in ("search", "search_parts", "candidates", "within"):
        assert re.search(
            r"DECLARE\n    hashindex_trusted boolean := .*\{require_trust\};", TEMPLATES[name]
        )


def test_a_function_that_reads_the_catalog_without_asking_is_known():
    """The others call find_index, which asks."""
    found = set()
    for file in SQL.glob("*.sql"):
        for function in re.split(r"(?m)^CREATE OR REPLACE FUNCTION hashindex\.", file.read_text())[
            1:
        ]:
            if re.search(r":= hashindex\._row_of\(", function):
                found.add(re.match(r"\w+", function)[0])
    assert found == BY_ROW


def test_no_kept_name_of_a_role_decides():
    """A name can be made again: it counts together with the role's oid."""
    for file in (*SQL.glob("*.sql"), *(SQL / "queries").glob("*.sql")):
        text = file.read_text()
        assert not re.search(
            r"(?<!':', )(pg_get_userbyid\([\w.]+\)|\w+\.rolname)\S* (= ANY|<> ALL) \(", text
        ), file
