"""``pg-hashindex index distribute``, where there is no Citus."""

import pytest
from fixtures.checks import assert_fresh
from fixtures.indexes import indexed

pytestmark = pytest.mark.newest


def test_a_plain_database_says_so(on, connection, items, model):
    made = indexed(connection, "Its-1")
    for arguments in ([], ["--no-encode", "--json"]):
        failed = on("index", "distribute", "Its-1", *arguments, code=3)
        assert failed.stdout == ""
        assert failed.stderr.startswith(
            'Error: index "Its-1" cannot be distributed: Citus is not installed in database '
        )
        assert failed.stderr.count("\n") == 1
    assert_fresh(made)
    assert "index 'none' does not exist" in on("index", "distribute", "none", code=3).stderr
