"""Arguments at the ends of their types, by every access path: answers, or a clear error."""

import psycopg
import pytest
from fixtures.tenants import QUERY, ROWS
from pgvector import Vector

from pg_hashindex.index.handle import HashIndex

pytestmark = pytest.mark.newest

MOST = 2**31 - 1


@pytest.mark.parametrize("reads_codes", [False, True])
def test_the_largest_k(notes, connection, as_role, reads_codes):
    app = as_role("app")
    connection.execute("GRANT SELECT ON notes TO app")
    if reads_codes:
        notes.grant("app", reveal_codes=True)
    app.execute("SET app.tenant = 'few'")
    for session, rows in ((app, len(ROWS["few"])), (connection, 388)):
        for statement in (
            "SELECT id FROM hashindex.search_notes_idx(%(q)s, %(k)s)",
            "SELECT id FROM hashindex.search_notes_idx(%(q)s, 3, %(k)s)",
            "SELECT id FROM hashindex.candidates('notes_idx', %(q)s, %(k)s)",
            "SELECT id FROM hashindex.search('notes_idx', %(q)s, %(k)s)",
            "SELECT id FROM hashindex.search('notes_idx', %(q)s, %(k)s, filter => 'id > 0')",
            "SELECT id FROM hashindex.search('notes_idx', %(q)s, 3, %(k)s, filter => 'id > 0')",
            "SELECT id FROM hashindex.exact_search('notes_idx', %(q)s, %(k)s)",
        ):
            found = session.execute(statement.encode(), {"q": Vector(QUERY), "k": MOST}).fetchall()
            assert len(found) == (3 if " 3" in statement else rows), statement
            for wrong in (0, -1, -MOST):
                with pytest.raises(psycopg.errors.InvalidParameterValue, match="it must be 1"):
                    session.execute(statement.encode(), {"q": Vector(QUERY), "k": wrong})
        assert len(HashIndex.open(session, "notes_idx").search(QUERY, MOST - 1)) == rows
