"""Encoding at a limited rate: small batches and a pause after each, by a simulated clock."""

import math

import numpy as np
import pytest
from fixtures.checks import assert_fresh
from fixtures.indexes import create_index, without_codes
from fixtures.landmarks import assert_listed

from pg_hashindex.db import throttle
from pg_hashindex.db.throttle import Throttle
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.index.handle import HashIndex

pytestmark = pytest.mark.newest


class Clock:
    """Time that passes while somebody sleeps, and only then."""

    def __init__(self):
        self.now = 1000.0
        self.sleeps = []
        #: Called before each sleep.
        self.look = lambda: None

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.look()
        self.sleeps.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(throttle, "time", made)
    return made


def count(connection, table):
    row = connection.execute(f"SELECT count(*) FROM hashindex.{table}".encode()).fetchone()
    return row[0]


def test_so_many_rows_a_second(unencoded, other, clock):
    """100 rows a second are 50 each half, and the last ones need no pause."""
    written = []
    clock.look = lambda: written.append(count(other, f"set_{unencoded.metadata.set_id}_codes"))
    unencoded.connection.execute("DELETE FROM items WHERE id > 280")
    assert unencoded.encode(rows_per_second=100) == 280
    assert written == [50, 100, 150, 200, 250]
    assert clock.sleeps == pytest.approx([0.5] * 5)
    assert_fresh(unencoded)


def test_batches_are_never_larger_than_asked_for(unencoded, other, clock):
    written = []
    clock.look = lambda: written.append(count(other, f"set_{unencoded.metadata.set_id}_codes"))
    unencoded.encode(batch_rows=120, rows_per_second=1e9)
    assert written == [120, 240]
    clock.sleeps.clear()
    without_codes(unencoded)
    unencoded.encode(batch_rows=60, rows_per_second=400)
    # 60 rows take 0.15 s; only the page after the last full one is empty.
    assert clock.sleeps == pytest.approx([0.15] * 5)


def test_time_that_encoding_took_is_not_slept_again(clock):
    slowed = Throttle(100)
    assert slowed.batch_size(10_000) == 50
    clock.now += 0.2
    slowed.wait(50, lambda: None)
    assert clock.sleeps == pytest.approx([0.3])
    # No catching up after a stall.
    clock.now += 7
    slowed.wait(50, lambda: None)
    assert clock.sleeps == pytest.approx([0.3])
    slowed.wait(50, lambda: None)
    assert clock.sleeps == pytest.approx([0.3, 0.5])


def test_a_long_pause_is_made_of_short_ones(clock):
    """So that slow work says that it is alive."""
    slowed = Throttle(0.25)
    beats = []
    assert slowed.batch_size(10_000) == 1
    slowed.wait(1, lambda: beats.append(clock.now))
    assert clock.sleeps == pytest.approx([1, 1, 1, 1])
    assert beats == pytest.approx([1000, 1001, 1002, 1003])


def test_no_pause_without_a_limit(unencoded, clock):
    unencoded.encode(batch_rows=10)
    assert clock.sleeps == []
    assert Throttle(None).batch_size(10_000) == 10_000


def test_a_build_is_slowed_too(listed, other, clock):
    """3,000 rows at 1,200 a second: about 600 at a time, of whole pages."""
    place = {"model": listed.model, "metric": listed.metric, "access": "lists"}
    listed.drop()
    listed = create_index(listed.connection, **place)
    read = []
    clock.look = lambda: read.append(count(other, f"set_{listed.metadata.set_id}_staged"))
    listed.encode(rows_per_second=1200)
    assert read[-1] == 3000
    steps = np.diff([0, *read])
    assert steps.max() <= 1.2 * 600
    assert clock.sleeps == pytest.approx(steps / 1200)
    assert_listed(HashIndex.open(listed.connection, "items_idx"))


@pytest.mark.parametrize("rate", [0, -1, math.nan, math.inf])
def test_refused(bare, rate):
    with pytest.raises(InvalidInputError, match=f"rows_per_second .*{rate}"):
        bare.encode(rows_per_second=rate)
    assert bare.waiting() == 300
