"""Commands that find all as it should be, or refuse at once, leave an index as it is."""

import pytest
from fixtures.citus import assert_fresh, faults, one

from pg_hashindex import operations
from pg_hashindex.errors import HashIndexError

pytestmark = pytest.mark.citus


@pytest.fixture
def spread(shared):
    """One index for all tests of each kind: none changes it."""
    return shared


@pytest.mark.parametrize("full", [False, True])
def test_check_finds_nothing(spread, full):
    assert faults(spread, full=full) == []


def test_repair_of_a_healthy_index_does_nothing(spread):
    assert operations.repair(spread).done == ()
    assert_fresh(spread)


def test_distributing_again_changes_nothing(spread):
    spread.distribute()
    assert spread.encode() == 0
    assert_fresh(spread)


def test_near_duplicates_are_refused_before_a_table_is_made(spread):
    message = "distributed" if spread.access == "landmarks" else "are found by lists"
    with pytest.raises(HashIndexError, match=message):
        operations.near_duplicates(spread, "twins", max_distance=0.1, radius=3)
    assert one(spread.connection, "SELECT to_regclass('twins')") is None
