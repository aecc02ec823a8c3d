"""The numbers that checks go by, against NumPy."""

import itertools

import numpy as np
import pytest
from fixtures.code_indexes import fill, save_signs, vectors_of
from fixtures.health import findings, index_with_profile, set_code
from fixtures.indexes import indexed

from pg_hashindex import store
from pg_hashindex.hashers import LSH
from pg_hashindex.models import codes

pytestmark = pytest.mark.newest


def bits_of(index):
    """The codes that are stored, as 0 and 1."""
    rows = index.connection.execute("SELECT code::text FROM hashindex.set_1_codes").fetchall()
    return np.array([[float(bit) for bit in row[0]] for row in rows])


def psi(was, now, rows_was, rows_now):
    """The index of one bit, by its definition, half a row added to each part."""
    parts = len(was)
    a = [(n + 0.5) / (rows_was + 0.5 * parts) for n in was]
    b = [(n + 0.5) / (rows_now + 0.5 * parts) for n in now]
    found = sum((y - x) * np.log(y / x) for x, y in zip(a, b, strict=True))
    return found - (parts - 1) * (1 / rows_was + 1 / rows_now)


def test_shares_entropy_and_correlation(index):
    set_code(index, "code | B'000001000000'", "id % 5 > 0")
    bits = bits_of(index)
    found = findings(index)
    # All codes are drawn of so few.
    of_all = findings(index, full=True)
    assert of_all["bits"] == found["bits"]
    assert of_all["correlation"].value == pytest.approx(found["correlation"].value)
    shares = bits.mean(axis=0)
    entropy = -(shares * np.log2(shares) + (1 - shares) * np.log2(1 - shares))
    worst = int(entropy.argmin())
    assert worst == 5
    assert found["bits"].value == pytest.approx(entropy.min(), abs=1e-9)
    assert f"bit 5 tells the least: it is 1 in {100 * shares[5]:.1f} % of" in found["bits"].detail
    assert f"the mean is {entropy.mean():.3f}" in found["bits"].detail
    correlation = np.corrcoef(bits.T)
    pairs = sorted(itertools.combinations(range(12), 2), key=lambda pair: -abs(correlation[pair]))
    first, second = pairs[0]
    assert found["correlation"].value == pytest.approx(abs(correlation[first, second]), abs=1e-9)
    for first, second in pairs[:3]:
        assert f"{first} and {second} ({correlation[first, second]:.3f})" in (
            found["correlation"].detail
        )
    mean = np.mean([abs(correlation[pair]) for pair in pairs])
    assert f"the mean of all pairs is {mean:.3f}" in found["correlation"].detail


def test_duplicates(index):
    set_code(index, "B'111100001111'", "id <= 40")
    _, counts = np.unique(bits_of(index), axis=0, return_counts=True)
    for full in (False, True):
        found = findings(index, full=full)["duplicates"]
        assert found.value == pytest.approx(counts[counts > 1].sum() / 300)
        assert f"{counts.max()} rows the most common of 300 codes" in found.detail


def test_long_codes_that_agree_in_the_first_bits_are_no_duplicates(connection):
    """They are looked up by their first 64 bits."""
    rng = np.random.default_rng(2)
    bits = np.zeros((150, 70), dtype=bool)
    bits[:, 64:] = rng.random((150, 6)) < 0.5
    save_signs(connection, 70)
    fill(connection, "items", vectors_of(bits, rng))
    index = indexed(connection, model="signs")
    _, counts = np.unique(bits, axis=0, return_counts=True)
    found = findings(index)
    assert found["duplicates"].value == pytest.approx(counts[counts > 1].sum() / 150)
    # Bits that are the same for all rows tell nothing, and are copies of nothing.
    assert found["bits"].status == "warning"
    assert "64 bits are nearly the same for all rows" in found["bits"].detail
    assert found["correlation"].status == "ok"


def test_of_very_long_codes_some_pairs_of_bits_are_compared(connection):
    rng = np.random.default_rng(9)
    save_signs(connection, 600)
    fill(connection, "items", vectors_of(rng.random((120, 600)) < 0.5, rng))
    index = indexed(connection, model="signs")
    found = findings(index)["correlation"]
    assert found.status == "ok"
    assert found.detail.endswith("by 120 codes and 512 of 600 bits")
    # In full all of them are.
    correlation = np.abs(np.corrcoef(bits_of(index).T))
    np.fill_diagonal(correlation, 0)
    assert findings(index, full=True)["correlation"].value == pytest.approx(correlation.max())


def test_drift(connection, items, vectors, lsh_model):
    """A model trained on half of the rows, before and after the rows drift."""
    before = vectors[:150]
    index = index_with_profile(connection, lsh_model, before)
    for moved in (False, True):
        now = vectors
        if moved:
            now = vectors + np.float32([1, 0, 0, 0, 0, -1, 0, 0])
            connection.execute("UPDATE items SET embedding = embedding + '[1,0,0,0,0,-1,0,0]'")
        was_projected, now_projected = lsh_model.project(before), lsh_model.project(now)
        by_projection, by_ones = [], []
        for old, new in zip(was_projected.T, now_projected.T, strict=True):
            # The 15th, 30th, ... smallest of 150.
            edges = np.sort(old)[14:135:15]
            was = [np.sum([sum(edges <= x) == part for x in old]) for part in range(10)]
            is_now = [np.sum([sum(edges <= x) == part for x in new]) for part in range(10)]
            by_projection.append(psi(was, is_now, 150, 300))
            ones = [sum(old > 0), sum(new > 0)]
            by_ones.append(psi([150 - ones[0], ones[0]], [300 - ones[1], ones[1]], 150, 300))
        for full in (False, True):
            found = findings(index, full=full)
            # A row whose projection is that of an edge may fall on either side.
            assert found["projection_drift"].value == pytest.approx(
                max(0, np.mean(by_projection)), abs=1e-3
            )
            worst = int(np.argmax(by_projection))
            assert f"bit {worst} the most with" in found["projection_drift"].detail
            assert found["bit_drift"].value == pytest.approx(max(0, np.mean(by_ones)), abs=1e-9)
            status = "warning" if moved else "ok"
            assert found["projection_drift"].status == found["bit_drift"].status == status
            assert found["wrong_codes"].status == "ok"


def test_a_bit_that_falls_on_an_edge_for_many_rows_does_not_drift(connection):
    """A third of the rows are one and the same, and SQL rounds otherwise than NumPy."""
    rng = np.random.default_rng(8)
    rows = rng.standard_normal((600, 48)).astype(np.float32)
    rows[::3] = rows[0]
    fill(connection, "items", rows)
    model = LSH(n_bits=40, random_state=1).fit(rows).to_model("lsh")
    index = index_with_profile(connection, model, rows)
    found = findings(index)["projection_drift"]
    assert (found.status, found.value) == ("ok", 0)


def test_wrong_codes_are_counted(index):
    set_code(index, "~code", "id IN (3, 33, 299)")
    for full in (False, True):
        found = findings(index, full=full)["wrong_codes"]
        assert found.status == "broken"
        assert found.value == pytest.approx(3 / 300)
        assert found.detail.startswith("3 of 300 codes")


def test_one_wrong_bit_is_seen_unless_rounding_decides_it(connection):
    save_signs(connection, 8)
    rows = np.ones((5, 8), np.float32)
    rows[0, 3] = 1e-6
    rows[1, 3] = 0.1
    fill(connection, "items", rows)
    index = indexed(connection, model="signs")
    set_code(index, "code # B'00010000'", "id = 1")
    assert findings(index)["wrong_codes"].status == "ok"
    set_code(index, "code # B'00010000'", "id = 2")
    found = findings(index)["wrong_codes"]
    assert (found.status, found.value) == ("broken", pytest.approx(1 / 5))


def test_sql_computes_the_saved_values(connection, lsh_model):
    """The profile of a model in the database counts rows as that in Python does."""
    rng = np.random.default_rng(4)
    rows = rng.standard_normal((500, 8)).astype(np.float32)
    fill(connection, "items", rows)
    index = index_with_profile(connection, lsh_model, rows)
    loaded = store.load(connection, "profiled")
    assert loaded.profile is not None
    projections = lsh_model.project(rows)
    assert (loaded.profile.counted(projections) == loaded.profile.counts).all()
    ones = codes.unpack(lsh_model.encode(rows), 12).sum(axis=0)
    assert (loaded.profile.ones == ones).all()
    found = findings(index)
    # The very rows of the training: less than chance would give.
    assert found["projection_drift"].value == found["bit_drift"].value == 0
