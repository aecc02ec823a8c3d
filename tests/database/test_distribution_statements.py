"""The statements by which an index is brought to the shards of its table, as Citus runs them.

What stands here was put together by hand, from Citus's documentation and its own tests.
"""

import pytest
from fixtures.citus import distribute_here, say_distributed

from pg_hashindex.database import Connection
from pg_hashindex.index import HashIndex
from pg_hashindex.model import Model

pytestmark = pytest.mark.newest


def statements(index: HashIndex) -> list[str]:
    row = index.connection.execute(
        "SELECT hashindex.distribution_statements(%s)", [index.name]
    ).fetchone()
    assert row is not None
    return list(row[0])


SETTINGS = [
    "SET LOCAL citus.enable_unsafe_triggers TO on",
    "SET LOCAL citus.multi_shard_modify_mode TO sequential",
]
FUNCTIONS = [
    f"SELECT create_distributed_function('hashindex.{function}')"
    for function in (
        "_bias_of(bigint,integer)",
        "_layer_problem(hashindex.layer,integer)",
        "_layers_of(bigint)",
        "_quantize(vector,integer)",
        "_refuse_vector(vector,integer)",
        "_weights_of(bigint,integer)",
        "project_with(hashindex.layer[],vector)",
        "encode_with(hashindex.layer[],vector,integer)",
    )
]


def test_statements_of_a_code_table(connection: Connection, items: str, model: Model) -> None:
    index = HashIndex.create(connection, "It's", table=items, column="embedding", model="lsh")
    assert statements(index) == [
        *SETTINGS,
        'DROP TRIGGER "hashindex_It\'s_delete" ON public.items',
        'DROP TRIGGER "hashindex_It\'s_insert" ON public.items',
        'DROP TRIGGER "hashindex_It\'s_truncate" ON public.items',
        'DROP TRIGGER "hashindex_It\'s_update" ON public.items',
        "SELECT create_reference_table('hashindex.model')",
        *FUNCTIONS,
        'TRUNCATE hashindex."It\'s_codes"',
        "SELECT create_distributed_table('hashindex.\"It''s_codes\"', 'id', "
        "colocate_with => 'public.items')",
        'CREATE TRIGGER "0_hashindex_It\'s" AFTER INSERT OR UPDATE OR DELETE ON public.items '
        'FOR EACH ROW EXECUTE FUNCTION hashindex."sync_It\'s"()',
    ]


def test_statements_of_a_code_column(connection: Connection, items: str, model: Model) -> None:
    index = HashIndex.create(
        connection, "i", table=items, column="embedding", model="lsh", layout="column"
    )
    # Its trigger is one of rows on a plain table too.
    assert statements(index) == [
        *SETTINGS,
        "SELECT create_reference_table('hashindex.model')",
        *FUNCTIONS,
    ]
    connection.execute("DROP TRIGGER zz_hashindex_i ON items")
    assert statements(index)[-2:] == [
        "UPDATE public.items SET i_code = NULL WHERE i_code IS NOT NULL",
        "CREATE TRIGGER zz_hashindex_i BEFORE INSERT OR UPDATE ON public.items "
        "FOR EACH ROW EXECUTE FUNCTION hashindex.sync_i()",
    ]


def test_what_is_done_is_not_done_again(index: HashIndex) -> None:
    spread = distribute_here(index)
    say_distributed(spread.connection, "items", "hashindex.model", "hashindex.items_idx_codes")
    assert statements(spread) == [*SETTINGS, *FUNCTIONS]
