"""Tables that another role may change: their code does not run in whoever commands."""

import psycopg
import pytest
from fixtures.attackers import telling
from fixtures.checks import assert_fresh
from fixtures.indexes import indexed, with_access

from pg_hashindex import operations
from pg_hashindex.errors import HashIndexError
from pg_hashindex.index.handle import HashIndex

TRAP = (
    "CREATE FUNCTION mallory.trap() RETURNS trigger LANGUAGE plpgsql AS "
    "$$BEGIN PERFORM mallory.tells(0); RETURN NEW; END$$; "
    "CREATE TRIGGER a_trap BEFORE UPDATE ON public.items FOR EACH ROW "
    "EXECUTE FUNCTION mallory.trap()"
)


def test_no_work_writes_a_row(keeper, connection, mallory):
    """Triggers of the table would run as the administrator."""
    connection.execute("GRANT TRIGGER ON items TO mallory")
    mallory.execute(TRAP)
    with telling(keeper) as ran:
        index = indexed(keeper)
        connection.execute("UPDATE hashindex.set_1_codes SET code = ~code WHERE id > 290")
        connection.execute("DELETE FROM hashindex.set_1_codes WHERE id < 5")
        index.encode()
        operations.repair(index, full=True)
        operations.check(index, full=True)
        index.swap(access="lists", force=True)
    assert ran == []


def test_pairs_are_not_written_into_a_table_of_another_role(keeper, connection, as_role, mallory):
    """Whatever its comment says."""
    index = indexed(keeper)
    with_access(index, "lists")
    index = HashIndex.open(keeper, "items_idx")
    operations.near_duplicates(index, "public.pairs", max_distance=0.1, radius=2)
    connection.execute("ALTER TABLE pairs OWNER TO mallory")
    mallory.execute(
        "GRANT ALL ON pairs TO keeper; "
        "CREATE FUNCTION mallory.trap() RETURNS trigger LANGUAGE plpgsql AS "
        "$$BEGIN PERFORM mallory.tells(0); RETURN NEW; END$$; "
        "CREATE TRIGGER t BEFORE INSERT ON pairs FOR EACH STATEMENT "
        "EXECUTE FUNCTION mallory.trap()"
    )
    comment = connection.execute("SELECT obj_description('pairs'::regclass)").fetchone()
    again = comment[0].replace('"next": ', '"next": 0, "was": ').partition(', "was"')[0] + "}"
    mallory.execute(psycopg.sql.SQL("COMMENT ON TABLE pairs IS {}").format(again))
    with telling(keeper) as ran, pytest.raises(HashIndexError, match="belongs to another role"):
        operations.near_duplicates(index, "public.pairs", max_distance=0.1, radius=2)
    assert ran == []


@pytest.mark.parametrize("given", ["", "GRANT SELECT, UPDATE ON public.strange TO keeper"])
def test_a_failed_rebind_changes_nothing(keeper, connection, mallory, given):
    connection.execute("GRANT CREATE ON SCHEMA public TO mallory")
    mallory.execute(
        "CREATE TABLE public.strange (id bigint PRIMARY KEY, category text, embedding vector(8)); "
        "INSERT INTO public.strange VALUES (1, 'a', '[1,2,3,4,5,6,7,8]'); "
        "CREATE INDEX ON public.strange (id) WHERE mallory.tells(category)"
        + (given and "; " + given)
    )
    index = indexed(keeper)
    row = keeper.execute("SELECT * FROM hashindex.index").fetchone()
    with telling(keeper) as ran, pytest.raises(HashIndexError, match="mallory"):
        operations.rebind(index, table="public.strange")
    assert ran == []
    assert keeper.execute("SELECT * FROM hashindex.index").fetchone() == row
    assert_fresh(HashIndex.open(keeper, "items_idx"))
