"""Tables that another role may change: their code does not run in whoever commands."""

import psycopg
import pytest
from fixtures.attackers import telling
from fixtures.checks import assert_fresh
from fixtures.indexes import create_index, indexed

from pg_hashindex import operations
from pg_hashindex.errors import HashIndexError, MissingRightsError
from pg_hashindex.index.handle import HashIndex

TRAP = (
    "CREATE FUNCTION mallory.trap() RETURNS trigger LANGUAGE plpgsql AS "
    "$$BEGIN PERFORM mallory.tells(0); RETURN NEW; END$$; "
    "CREATE TRIGGER a_trap BEFORE UPDATE ON public.items FOR EACH ROW "
    "EXECUTE FUNCTION mallory.trap()"
)


def create(keeper):
    return create_index(keeper, layout="column")


@pytest.mark.parametrize("granted", ["while", "before"])
def test_a_role_that_may_create_triggers(keeper, connection, mallory, granted):
    """With codes in a column, the administrator writes rows: the triggers of all would run as him.

    Refused while a role has the right, and after it was revoked while its trigger is there.
    """
    connection.execute("GRANT TRIGGER ON items TO mallory")
    mallory.execute(TRAP)
    message = "role mallory may create triggers on public.items"
    if granted == "before":
        connection.execute("REVOKE TRIGGER ON items FROM mallory")
        message = "trigger a_trap on public.items calls function mallory.trap of role mallory"
    with telling(keeper) as ran, pytest.raises(MissingRightsError, match=message):
        create(keeper)
    assert ran == []
    connection.execute("REVOKE TRIGGER ON items FROM mallory; DROP TRIGGER a_trap ON items")
    create(keeper).encode()


@pytest.mark.parametrize(
    "work",
    [
        lambda index: index.encode(),
        lambda index: operations.repair(index, full=True),
        lambda index: operations.swap(index, "lsh", access="landmarks", force=True),
        lambda index: index.connection.execute("SELECT hashindex.encode_rows('items_idx')"),
    ],
    ids=["encode", "repair", "swap", "encode_rows"],
)
def test_a_trigger_that_is_made_later(keeper, connection, mallory, work):
    index = create(keeper)
    index.encode()
    # Codes that are wrong or missing have to be written.
    connection.execute(
        "ALTER TABLE items DISABLE TRIGGER USER; UPDATE items SET items_idx_code = NULL "
        "WHERE id < 9; UPDATE items SET items_idx_code = ~items_idx_code WHERE id > 290; "
        "ALTER TABLE items ENABLE TRIGGER USER; GRANT TRIGGER ON items TO mallory"
    )
    mallory.execute(TRAP)
    with (
        telling(keeper) as ran,
        pytest.raises((MissingRightsError, psycopg.errors.InsufficientPrivilege), match="mallory"),
    ):
        work(index)
    assert ran == []
    faults = [
        f for f in operations.check(index).findings if f.check == "rights" and f.status != "ok"
    ]
    assert "role mallory may create triggers on public.items" in faults[0].detail
    connection.execute("DROP TRIGGER a_trap ON items; REVOKE TRIGGER ON items FROM mallory")
    operations.repair(index, full=True)
    assert_fresh(HashIndex.open(keeper, "items_idx"))


def test_layout_table_writes_no_row(keeper, connection, mallory):
    connection.execute("GRANT TRIGGER ON items TO mallory")
    mallory.execute(TRAP)
    with telling(keeper) as ran:
        index = indexed(keeper)
        operations.repair(index, full=True)
        operations.check(index, full=True)
    assert ran == []


def test_pairs_are_not_written_into_a_table_of_another_role(keeper, connection, as_role, mallory):
    """Whatever its comment says."""
    index = create_index(keeper)
    index.configure(access="landmarks").encode()
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
