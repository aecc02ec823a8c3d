"""Whatever names the table of an index has asked whose it is: by the texts of statements."""

import re

import pytest

from pg_hashindex.db import sql_files

SQL = sql_files.folder("sql")
TEMPLATES = {file.stem: file.read_text() for file in (SQL / "templates").glob("*.sql")}
#: A search is a SELECT with the rights of its caller alone.
SEARCHES = ("search_pgvector", "search_lists")
#: Public functions that check no rights: they read what the caller may read, no index's tables.
OPEN = {
    *("project_with", "encode_with", "project", "encode", "find_model", "orphans"),
    # They do nothing but by functions that ask.
    *("find_index", "create_index", "configure_index"),
}
#: Those that ask for no owner of the table, since they read it in no statement.
UNREAD = {"drop_index", "revoke_reader", "health"}


#: Modules that name a table which is not in an index's row, and where its owner is checked.
PYTHON = SQL.parent / "pg_hashindex"
ASKS = {
    "contrib/documents/table.py": ("contrib/documents/table.py", "identifier(self) -> UserTable"),
    "db/table_source.py": ("db/table_source.py", "    table: UserTable\n"),
    "training/edges.py": ("training/sampling.py", "TableSource.find("),
    "quality/systems.py": ("quality/doctor.py", "TableSource.find("),
    "quality/quickstart.py": ("quality/quickstart.py", "find_relation("),
    "operations/duplicates.py": ("operations/duplicates.py", "if not is_own:"),
}


def test_a_statement_of_python_asks_before_it_names_the_table():
    """A `UserTable` is read behind the gate; other names than of `IndexRow.names` are known."""
    others = set()
    for file in PYTHON.rglob("*.py"):
        text = file.read_text()
        text += "".join(map(sql_files.query, re.findall(r'\bquery\("(\w+\.\w+)"\)', text)))
        names = re.search(r"(FROM|JOIN|UPDATE|INTO|TABLE|ONLY)\s+\{(table|leaf|relation)\}", text)
        if names and not re.search(r"\.names(_with_codes)?\b", text):
            others.add(str(file.relative_to(PYTHON)))
    assert others == set(ASKS)
    for where, gate in ASKS.values():
        assert gate in (PYTHON / where).read_text(), where
    catalog = (PYTHON / "index" / "catalog.py").read_text()
    assert '"table": self._kept_table if self.is_lists else self.table,' in catalog


#: They run functions that ask, searches with the caller's rights, or statements on other tables.
UNGATED = {
    *("quality/measuring.py", "quality/doctor_catalog.py"),
    *("operations/health.py", "index/landmarks/building.py", "server/demo.py"),
    "contrib/django/indexes.py",
}


def test_whatever_runs_a_statement_passes_the_gate_first():
    """Each cursor, but for those that are known to name no table of a user's."""
    ungated = set()
    for file in PYTHON.rglob("*.py"):
        where, text = str(file.relative_to(PYTHON)), file.read_text()
        for found in re.finditer(r"\bRawCursor\(|\.cursor\(", text):
            around = text[text.rfind("def ", 0, found.start()) : found.end() + 400]
            if not re.search(r"reading\(|pass_gate\(|step\.text", around):
                ungated.add(where)
    ungated -= {"db/gate.py"}
    assert ungated == UNGATED


@pytest.mark.parametrize(
    "name", [n for n, text in TEMPLATES.items() if "{table}" in text and n not in SEARCHES]
)
def test_a_template_asks_before_it_names_the_table(name):
    text = TEMPLATES[name].partition("$body$")[2]
    asked = re.search(r"\{is_readable\}", text)
    assert asked, name
    # Triggers name it after BEGIN alone; what a declaration holds is evaluated in its order.
    named = re.search(r"\{table\}", text)
    assert named is None or asked.start() < named.start()


def test_a_search_runs_as_its_caller_alone():
    for name in SEARCHES:
        assert "SECURITY DEFINER" not in TEMPLATES[name]


#: The first declaration, or the first statement.
GATE = re.compile(
    r"(?:DECLARE\n(?:    --.*\n)*    i hashindex\.index := |\nBEGIN\n    PERFORM )"
    r"hashindex\.(_require|_check_administrator)\((.*)\);"
)


def test_every_public_function_asks_first():
    """And what changes something asks for the administrator."""
    asked, unread = set(), set()
    for file in SQL.glob("*.sql"):
        for function in re.split(
            r"(?m)^CREATE OR REPLACE FUNCTION hashindex\.(?!_)", file.read_text()
        )[1:]:
            name = re.match(r"\w+", function)[0]
            head, _, body = function.partition("AS $$")
            if name in OPEN:
                continue
            found = GATE.search(body.split("$$;")[0])
            assert found, name
            gate, arguments = found.groups()
            assert gate != "_check_administrator" or "(index_name " not in head, name
            if "VOLATILE" in head and name not in ("recall", "explain_search"):
                assert gate != "_require" or "administers => true" in arguments, name
            asked.add(name)
            if "reads =>" in arguments:
                unread.add(name)
    assert len(asked) > 20
    assert unread == UNREAD
