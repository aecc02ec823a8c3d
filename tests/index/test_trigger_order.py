"""With layout column, a trigger that fires after ours could change a vector unseen."""

import pytest
from fixtures.checks import assert_fresh
from fixtures.health import findings, troubles
from fixtures.indexes import indexed

from pg_hashindex import operations
from pg_hashindex.errors import InvalidInputError

pytestmark = pytest.mark.newest

DOUBLING = """
    CREATE FUNCTION flip() RETURNS trigger LANGUAGE plpgsql AS
    $$BEGIN NEW.embedding := (SELECT array_agg(-x) FROM unnest(NEW.embedding::real[]) x)::vector;
    RETURN NEW; END$$;
    CREATE TRIGGER {} BEFORE INSERT OR UPDATE ON items FOR EACH ROW EXECUTE FUNCTION flip()
"""
NAMED = "trigger zzz_last on public.items fires after the one that writes codes"


def create(connection, name="items_idx"):
    return indexed(connection, name, layout="column")


def test_refused_at_creation(connection, items, model):
    connection.execute(DOUBLING.format("zzz_last").encode())
    with pytest.raises(InvalidInputError, match=NAMED) as refused:
        create(connection)
    assert "ALTER TRIGGER zzz_last ON public.items RENAME TO" in str(refused.value)
    assert connection.execute("SELECT count(*) FROM hashindex.index").fetchone() == (0,)
    connection.execute("ALTER TRIGGER zzz_last ON items RENAME TO first")
    assert_fresh(create(connection))
    # Our own triggers change no vector, whatever their names.
    assert_fresh(create(connection, "later"))


def test_one_that_came_later_is_named(connection, items, model):
    index = create(connection)
    connection.execute(DOUBLING.format("zzz_last").encode())
    connection.execute("UPDATE items SET category = 'x' WHERE id < 100")
    found = findings(index)["table"]
    assert found.status == "broken"
    assert NAMED in found.detail
    with pytest.raises(InvalidInputError, match=NAMED):
        operations.repair(index, full=True)
    # The advice works as it stands.
    advice = found.advice or ""
    rename, then = advice.split("; ")
    connection.execute(rename.encode())
    assert then == "then pg-hashindex index repair items_idx --full"
    operations.repair(index, full=True)
    assert troubles(index, full=True) == {}
    assert_fresh(index)


def test_triggers_that_cannot_change_a_vector(connection, items, model):
    connection.execute(DOUBLING.format("aaa").encode())
    connection.execute(
        "CREATE TRIGGER zzz_after AFTER UPDATE ON items FOR EACH ROW EXECUTE FUNCTION flip();"
        "CREATE TRIGGER zzz_delete BEFORE DELETE ON items FOR EACH ROW EXECUTE FUNCTION flip();"
        "CREATE TRIGGER zzz_whole BEFORE UPDATE ON items FOR EACH STATEMENT EXECUTE FUNCTION flip()"
    )
    assert findings(create(connection))["table"].status == "ok"
