"""Bits of an index's codes, by codes that are drawn."""

import numpy as np
import pytest
from fixtures.code_indexes import fill, save_signs, vectors_of
from fixtures.indexes import create_index, indexed

from pg_hashindex.operations.report import gathering
from pg_hashindex.operations.report.charts import of_bits

pytestmark = pytest.mark.newest


def test_a_sample_of_large_tables(connection, items, model, monkeypatch):
    index = create_index(connection, "i")
    connection.execute(
        "INSERT INTO items SELECT n, 'a', ARRAY(SELECT sin(n * d) FROM generate_series(1, 8) d) "
        "FROM generate_series(1000, 4000) n"
    )
    index.encode()
    monkeypatch.setattr(gathering, "_PAGES", 8)
    drawn = [gathering.read_bits(index, seed) for seed in (1, 1, 2)]
    counts = [0 if one is None else one.codes for one in drawn]
    assert 100 < counts[0] < 3000
    assert counts[0] == counts[1] != counts[2]
    ones = [one.ones.tolist() for one in drawn if one is not None]
    assert ones[0] == ones[1] != ones[2]
    # Fewer than there are on a page, by what they hash to.
    monkeypatch.setattr(gathering, "_MOST_CODES", 50)
    monkeypatch.setattr(gathering, "_PAGES", 1e6)
    few = [gathering.read_bits(index, seed) for seed in (1, 1, 2)]
    assert [one.codes for one in few if one is not None] == [50, 50, 50]
    ones = [one.ones.tolist() for one in few if one is not None]
    assert ones[0] == ones[1] != ones[2]


def test_of_many_bits_some_are_correlated(connection, monkeypatch):
    monkeypatch.setattr(gathering, "_MOST_CORRELATED", 8)
    rng = np.random.default_rng(3)
    codes = rng.random((60, 20)) < 0.4
    codes[:, 19] = codes[:, 0]
    save_signs(connection, 20)
    fill(connection, "t", vectors_of(codes, rng))
    index = indexed(connection, "i", table="t", model="signs", layout="column")
    found = gathering.read_bits(index)
    assert (found.codes, len(found.numbers)) == (60, 8)
    assert found.ones == pytest.approx(codes.mean(axis=0))
    expected = np.corrcoef(codes[:, found.numbers], rowvar=False)
    assert found.correlation == pytest.approx(expected, abs=1e-6)
    _, chart = of_bits(found)
    assert tuple(chart.rows[0][:2]) == (0, 19)
    assert chart.rows[0][2] == pytest.approx(1)
    assert "8 of 20 bits are shown" in chart.description
