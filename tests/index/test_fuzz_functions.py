"""Every function with NULL, nothing, the least and the greatest in each place."""

import psycopg
from fixtures.functions import functions
from fixtures.indexes import indexed

EXTREME = {
    "integer": ("-2147483648", "0", "2147483647"),
    "bigint": ("-9223372036854775808", "0", "9223372036854775807"),
    "double precision": ("'NaN'", "'-Infinity'", "'Infinity'", "1e308", "-1e-308"),
    "real": ("'NaN'", "'Infinity'"),
    "boolean": ("false",),
    "oid": ("4294967295",),
    "vector": ("'[0]'", "array_fill(3e38::real, ARRAY[8])", "array_fill(1, ARRAY[16000])"),
    "vector[]": ("'{}'", "'{NULL}'"),
    "halfvec[]": ("'{}'", "'{NULL}'"),
    "bit varying": ("''", "B'1'"),
    "bit varying[]": ("'{}'", "'{NULL}'"),
    "text": ("''",),
    "text[]": ("'{}'", "'{NULL}'", "'[5:6]={x,y}'"),
    "integer[]": ("'{}'", "'{NULL}'", "'{{1},{2}}'"),
    "jsonb": ("'null'", "'[]'", "'{}'", "'1'"),
    "regclass": ("0", "'pg_class'"),
    "hashindex.layer[]": ("'{}'", "ARRAY[NULL]::hashindex.layer[]"),
}
# Errors of statements that our functions write, which a wrong role, table or filter breaks.
SYNTAX_ERROR = {
    "_create_codes",
    "_create_log",
    "_create_triggers",
    "_draw_rows",
    "_estimate",
    "_exact_search",
    "_filter_of",
    "_list_candidates",
    "_lock_to_read",
    "_set_statement",
    "_true_neighbours",
    # The type's name is parsed as one, with an error of syntax on PostgreSQL 15.
    "_key_type",
    "_let_read",
    "_sample_ids",
    "candidates",
    "explain_search",
    "search",
    "search_items_idx",
}


def test_every_function(connection, items, model):
    indexed(connection, access="lists")
    answered = 0
    for function in list(functions(connection)):
        for position, parameter in enumerate(function.parameters):
            for value in ("NULL", *EXTREME.get(parameter.type, ())):
                call = function.call(position, f"{value}::{parameter.type}")
                state = sqlstate(connection, call)
                answered += state is None
                # Internal errors, crashes of the server, what fills it or never ends.
                assert (state or "")[:2] not in {"XX", "57", "58", "08", "53"}, (call, state)
                # Tables are named after their set.
                if function.name not in SYNTAX_ERROR and "NULL::hashindex.index_set" not in call:
                    assert state != "42601", call
    assert answered > 250
    assert connection.execute("SELECT count(*) FROM hashindex.index").fetchone() == (1,)


def sqlstate(connection, call):
    """Return the error of a call, which is rolled back."""
    with connection.transaction(force_rollback=True):
        try:
            with connection.transaction():
                connection.execute(f"SET LOCAL statement_timeout = '20s'; {call}".encode())
        except psycopg.Error as error:
            return error.sqlstate or "08000"
    return None
