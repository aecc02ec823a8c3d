"""Vectors that are not finite, or of any dimension and size: encoded as in Python, or refused."""

import math

import numpy as np
import psycopg
import pytest
from fixtures.fuzzing import FEW, ask, numbers, refused_rightly
from fixtures.indexes import begin_lists, indexed, with_access
from hypothesis import given
from hypothesis import strategies as st
from pgvector import Vector

from pg_hashindex import store
from pg_hashindex.errors import HashIndexError
from pg_hashindex.hashers import LSH
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.models.layers import shift
from pg_hashindex.models.model import Model

pytestmark = pytest.mark.newest

NOT_FINITE = [[math.nan] * 8, [math.inf] * 8, [1.0] * 7 + [-math.inf]]


@pytest.mark.parametrize("values", NOT_FINITE, ids=str)
def test_non_finite_values_are_refused(connection, items, model, values):
    """As text, as a binary parameter, by COPY of both kinds, and from Python."""
    index = indexed(connection)
    vector = Vector(values)
    for form in ("%s", "%b"):
        for call in ("search_items_idx({})", "within('items_idx', {}, 3)", "encode('lsh', {})"):
            with pytest.raises(psycopg.errors.DataError):
                connection.execute(f"SELECT hashindex.{call.format(form)}".encode(), [vector])
    for kind in ("", "WITH (FORMAT binary)"):
        with pytest.raises(psycopg.errors.DataError), connection.cursor() as cursor:
            with cursor.copy(f"COPY items (id, embedding) FROM STDIN {kind}".encode()) as copy:
                if kind:
                    copy.set_types(["int8", "vector"])
                copy.write_row((1001, vector))
    calls = [
        lambda: index.search(values),
        lambda: index.within(values, 3),
        lambda: model.project([values]),
        lambda: model.encode([values]),
    ]
    for run in calls:
        with pytest.raises(HashIndexError, match="finite"):
            run()
    assert index.summary().codes == 300


@pytest.mark.parametrize("dimension", [1, 2, 16_000])
def test_the_least_and_most_dimensions(connection, dimension):
    """The limits of dimensions of vectors, and of codes with a bit for each dimension."""
    rng = np.random.default_rng(dimension)
    rows = rng.standard_normal((12, dimension)).astype(np.float32)
    bits = min(dimension, 64)
    store.save(connection, LSH(n_bits=bits, random_state=1).fit(rows).to_model("m"))
    store.save(connection, _signs("wide", rng, dimension))
    connection.execute(f"CREATE TABLE t (id bigint PRIMARY KEY, v vector({dimension}))".encode())
    with connection.cursor() as cursor, cursor.copy("COPY t FROM STDIN") as copy:
        for number, row in enumerate(rows):
            copy.write_row((number, Vector(row)))
    for name, model in (("m_idx", "m"), ("w_idx", "wide")):
        begin_lists(connection, name, table="t", column="v", model=model).encode()
    connection.execute("UPDATE t SET v = %s WHERE id = 3", [Vector(rows[4] + 1)])
    rows[3] = rows[4] + 1
    for name in ("m_idx", "w_idx"):
        for access in ("lists",) if dimension < 100 else ("lists", "scan"):
            index = with_access(HashIndex.open(connection, name), access)  # type: ignore[arg-type]
            index.encode()
            hits = HashIndex.open(connection, name).search(rows[3], 12)
            near = np.argsort(np.linalg.norm(rows - rows[3], axis=1), kind="stable")
            assert [hit.id for hit in hits][:3] == near[:3].tolist()
            assert len(index.within(rows[0], index.n_bits)) == 12
    for wrong in {dimension - 1 or 2, min(dimension + 1, 15_000)}:
        with pytest.raises(psycopg.errors.DataError):
            connection.execute("SELECT hashindex.encode('m', %s)", [Vector([1.0] * wrong)])
        for call in ("search_m_idx(%s)", "within('m_idx', %s, 0)", "search('m_idx', %s)"):
            with pytest.raises(psycopg.errors.DataError, match="dimensions"):
                connection.execute(
                    f"SELECT * FROM hashindex.{call}".encode(), [Vector([1.0] * wrong)]
                )


def _signs(name, rng, dimension):
    """One bit for each dimension; a square of weights would not fit into a row."""
    return Model(name, "byhand", dimension, [shift(rng.standard_normal(dimension) * 0.1)])


@FEW
@given(
    values=st.lists(numbers, min_size=1, max_size=10),
    reference=st.sampled_from(["lsh", "lsh:1", "lsh:2", "", "x'", None]),
)
@pytest.mark.reads
def test_encode_and_project(connection, items, model, values, reference):
    rows, error = ask(
        connection,
        "SELECT hashindex.encode(%(m)s, %(v)s)::text, hashindex.project(%(m)s, %(v)s)",
        {"m": reference, "v": Vector(values)},
    )
    if error is not None:
        if reference in ("lsh", "lsh:1") and len(values) == 8:
            assert refused_rightly(error, values)
        else:
            assert error.sqlstate in {"22023", "42X01"}
        return
    row = rows[0]
    if reference is None:
        assert row == (None, None)
        return
    assert len(values) == 8
    ours = model.project([values])[0]
    scale = max(float(np.abs(ours).max()), 1e-30)
    theirs = row[1].to_numpy()
    np.testing.assert_allclose(theirs / scale, ours / scale, atol=1e-4)
    for bit, projection in zip(row[0], theirs, strict=True):
        assert (bit == "1") == (projection > 0)
