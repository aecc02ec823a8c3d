"""Checks of an index whose codes only Python can make."""

import numpy as np
import pytest
from fixtures.health import findings, profiled, set_code, troubles
from fixtures.indexes import create_index
from fixtures.known import OTHERS
from pgvector import Vector

from pg_hashindex import operations, store
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.models.model import Model

pytestmark = pytest.mark.newest


def index_of(connection, model):
    store.save(connection, model)
    created = create_index(connection, model=model.name)
    # Rows that the model does not know.
    connection.execute("DELETE FROM items WHERE id > 290")
    created.encode()
    return created


@pytest.fixture
def index(connection, items, vectors, known_model):
    return index_of(connection, profiled(known_model, vectors[:290], "known"))


def test_sql_looks_at_all_but_the_codes(index):
    rows = index.connection.execute(
        "SELECT check_name, status FROM hashindex.health('items_idx')"
    ).fetchall()
    in_python = {
        "wrong_codes", "projection_drift", "bits", "correlation", "bit_drift", "duplicates"
    }  # fmt: skip
    assert {name for name, _ in rows} == set(findings(index)) - in_python
    assert {status for _, status in rows} == {"ok"}


def test_wrong_codes(index):
    set_code(index, "~code", "id IN (3, 33)")
    for full in (False, True):
        found = findings(index, full=full)["wrong_codes"]
        assert (found.status, found.value) == ("broken", pytest.approx(2 / 290))
        assert found.detail == "2 of 290 codes are not what the model gives their rows"
    operations.repair(index, full=True)
    for full in (False, True):
        assert troubles(index, full=full) == {}


def test_drift(index):
    found = findings(index)["projection_drift"]
    assert (found.status, found.value) == ("ok", 0)
    # All rows become one of two that the model knows too.
    for number, row in enumerate(OTHERS[:2]):
        index.connection.execute(
            "UPDATE items SET embedding = %s WHERE id %% 2 = %s", [Vector(row), number]
        )
    index.encode()
    signs = index.loaded_model.project(OTHERS[:2]) > 0
    profile = index.loaded_model.profile
    wanted = []
    for bit in range(12):
        # Two of the ten parts hold all of +1 and -1.
        was = np.array([290 - profile.ones[bit], profile.ones[bit]])
        now = np.array([145 * (2 - signs[:, bit].sum()), 145 * signs[:, bit].sum()])
        a, b = (np.append(counts, [0] * 8) + 0.5 for counts in (was, now))
        a, b = a / 295, b / 295
        wanted.append(np.sum((b - a) * np.log(b / a)) - 9 * (1 / 290 + 1 / 290))
    for full in (False, True):
        found = findings(index, full=full)["projection_drift"]
        assert found.value == pytest.approx(np.mean(wanted))
        assert found.status == "warning"
        assert found.advice is not None


def test_without_torch(index, monkeypatch):
    def refuse(*_):
        raise InvalidInputError("this model is a neural network, which needs torch")

    monkeypatch.setattr(Model, "project", refuse)
    found = findings(index)
    for name in ("wrong_codes", "projection_drift"):
        assert (found[name].status, found[name].value) == ("unknown", None)
        assert found[name].detail.startswith("the model cannot be evaluated here: this model is a")


def test_without_a_table_nothing_is_computed(index):
    index.connection.execute("DROP TABLE items")
    assert set(findings(index)) == {"table", "functions", "rights"}
