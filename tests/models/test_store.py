"""Models in the database: they come back bit for bit, or not at all."""

import threading

import numpy as np
import psycopg
import pytest
from fixtures.indexes import begin_lists, create_index
from psycopg.types.json import Jsonb
from psycopg.types.string import TextLoader

from pg_hashindex import store
from pg_hashindex.db.connection import connect
from pg_hashindex.errors import (
    DatabaseStateError,
    InUseError,
    InvalidInputError,
    MissingSchemaError,
    UnknownModelError,
)
from pg_hashindex.hashers import LSH, SGH
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.models.layers import Layer, affine, normalize, rbf, shift
from pg_hashindex.models.model import Model

pytestmark = pytest.mark.newest

EXTREMES = [0.0, -0.0, 1e-45, 1.17549435e-38, 3.4028235e38, -3.4028235e38, 1 / 3, -1e-40]


def lsh(name, seed=0):
    rows = np.random.default_rng(1).standard_normal((30, 8)).astype(np.float32)
    return LSH(n_bits=12, random_state=seed).fit(rows).to_model(name)


def assert_same(found, saved):
    assert found.checksum == saved.checksum
    for name in ("name", "version", "method", "dimension", "n_bits", "metric"):
        assert getattr(found, name) == getattr(saved, name)
    assert dict(found.parameters) == dict(saved.parameters)
    assert dict(found.training) == dict(saved.training)
    assert len(found.layers) == len(saved.layers)
    for ours, theirs in zip(found.layers, saved.layers, strict=True):
        assert (ours.kind, ours.scale) == (theirs.kind, theirs.scale)
        for what in ("weights", "bias"):
            left, right = getattr(ours, what), getattr(theirs, what)
            assert (left is None) == (right is None)
            if left is not None:
                assert left.shape == right.shape
                assert left.tobytes() == right.tobytes()


@pytest.mark.parametrize(
    "layers",
    [
        [normalize()],
        [shift(np.array(EXTREMES))],
        [affine(np.array([EXTREMES, EXTREMES[::-1]]), np.array([1e-45, -3.4028235e38]))],
        [affine(np.arange(8)[None])],
        [rbf(np.eye(8)[:3], 1e-40), affine(np.ones((5, 3)))],
        [rbf(np.array([EXTREMES]), 3.4e38)],
        [Layer("relu"), Layer("tanh"), Layer("sin"), Layer("cos")] * 16,
    ],
    ids=lambda layers: layers[0].kind,
)
def test_round_trip(connection, layers):
    model = Model(
        "any",
        "byhand",
        8,
        layers,
        metric="ip",
        parameters={"a": 1, "b": [None, True, "é\u2028'\\"], "c": {"d": 1e-300}},
        training={"rows": 2**53, "text": "100 % $1"},
    )
    saved = store.save(connection, model)
    assert saved.version == 1
    assert_same(store.load(connection, "any"), saved)
    # An integer of NumPy is one too.
    again = Model("any", "byhand", np.int64(8), layers, metric="ip")
    assert Model.from_bytes(again.to_bytes()).dimension == 8


def test_round_trip_of_a_trained_model(connection, other, vectors):
    model = SGH(n_bits=12, n_anchors=20, random_state=0).fit(vectors).to_model("sgh")
    saved = store.save(connection, model)
    loaded = store.load(other, "sgh")
    assert_same(loaded, saved)
    assert loaded.encode(vectors).tobytes() == model.encode(vectors).tobytes()


@pytest.mark.parametrize("shape", [(1, 1), (16_000, 1), (1, 16_000)])
def test_largest_and_smallest(connection, shape):
    weights = np.random.default_rng(0).standard_normal(shape)
    saved = store.save(connection, Model("sized", "byhand", shape[1], [affine(weights)]))
    assert saved.n_bits == shape[0]
    assert_same(store.load(connection, "sized"), saved)


def test_versions(connection):
    first, second = (store.save(connection, lsh("m", seed)) for seed in (1, 2))
    assert (first.version, second.version) == (1, 2)
    assert store.save(connection, lsh("other")).version == 1
    assert_same(store.load(connection, "m:1"), first)
    assert_same(store.load(connection, "m:2"), second)
    assert_same(store.load(connection, "m"), second)
    # A version is never given twice while a later one is there.
    store.drop(connection, "m:1")
    assert store.save(connection, lsh("m", 3)).version == 3
    # A loaded model may be saved again.
    assert store.save(connection, store.load(connection, "m:2")).version == 4
    assert store.load(connection, "m:4").checksum == second.checksum


def test_list_and_describe(connection, items):
    assert store.list_models(connection) == []
    for name in ("b", "a", "b"):
        store.save(connection, lsh(name))
    for name, model in (("two", "b:1"), ("one", "b:1"), ("three", "a")):
        create_index(connection, name, model=model)
    models = store.list_models(connection)
    assert [(m.name, m.version, m.indexes) for m in models] == [
        ("a", 1, ["three"]),
        ("b", 1, ["one", "two"]),
        ("b", 2, []),
    ]
    found = store.describe(connection, "b:1")
    assert found == models[1]
    assert (found.method, found.dimension, found.n_bits, found.metric) == ("lsh", 8, 12, "l2")
    assert found.layer_kinds == [layer.kind for layer in lsh("b").layers]
    assert found.checksum == lsh("b").checksum
    assert found.parameters == dict(lsh("b").parameters)
    assert found.training["rows"] == 30
    assert found.size_bytes > 12 * 8 * 4
    assert found.created_at.tzinfo is not None
    assert store.describe(connection, "b").version == 2


def test_drop(connection):
    for name in ("m", "m", "m", "other"):
        store.save(connection, lsh(name))
    assert [(m.name, m.version) for m in store.drop(connection, "m:2")] == [("m", 2)]
    assert [m.version for m in store.drop(connection, "m")] == [1, 3]
    assert [m.name for m in store.list_models(connection)] == ["other"]
    for drop_again in ("m", "m:1"):
        with pytest.raises(UnknownModelError, match="does not exist"):
            store.drop(connection, drop_again)


def test_drop_in_use_is_refused(connection, items):
    for _ in range(2):
        store.save(connection, lsh("m"))
    index = create_index(connection, "its-1", model="m:1")
    before = store.list_models(connection)
    for reference in ("m", "m:1"):
        with pytest.raises(InUseError, match=f"model '{reference}' is used by index its-1; give"):
            store.drop(connection, reference)
    assert store.list_models(connection) == before
    # PostgreSQL 18 calls it by another name.
    states = (psycopg.errors.ForeignKeyViolation, psycopg.errors.RestrictViolation)
    with pytest.raises(states):
        connection.execute("DELETE FROM hashindex.model")
    store.drop(connection, "m:2")
    index.drop()
    store.drop(connection, "m")


def test_drop_meets_an_index_that_is_being_made(connection, other, items):
    """Not seen yet when it looked: the foreign key refuses it all the same."""
    store.save(connection, lsh("m"))
    dropped = threading.Event()
    errors = []

    def drop():
        try:
            store.drop(other, "m")
        except BaseException as error:
            errors.append(error)
        dropped.set()

    thread = threading.Thread(target=drop)
    with connection.transaction():
        create_index(connection, "new", model="m")
        thread.start()
        # It waits for our lock on the model's row.
        while not connection.execute(
            "SELECT 1 FROM pg_locks WHERE NOT granted AND pid = %s", [other.info.backend_pid]
        ).fetchone():
            assert not dropped.is_set()
    thread.join(timeout=60)
    assert [type(error) for error in errors] == [InUseError]
    assert [m.indexes for m in store.list_models(connection)] == [["new"]]


def test_savers_of_one_name_at_once(url):
    start = threading.Barrier(6)
    versions = []

    def work(seed):
        try:
            with connect(url) as connection:
                start.wait()
                for _ in range(4):
                    versions.append(store.save(connection, lsh("m", seed)).version)
        except BaseException as error:
            versions.append(error)

    threads = [threading.Thread(target=work, args=[seed]) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert sorted(versions, key=str) == sorted(range(1, 25), key=str)


def test_saving_is_part_of_the_caller_s_transaction(connection, other):
    with connection.transaction(force_rollback=True):
        assert store.save(connection, lsh("m")).version == 1
        assert store.list_models(other) == []
    assert store.list_models(connection) == []


NAMES = [
    'a "quoted" name',
    "it's; DROP TABLE hashindex.model; --",
    " leading and trailing ",
    "Ünïcode ☃ 日本 \U0001f600",
    "%s %% %(name)s $1 {x} \\n",
    "é" * 63,
    "\U0001f600" * 63,
    "m" * 63,
    "\x7f\x80\xa0\u2028",
    "NULL",
    "-",
]


def test_valid_names(connection, items):
    for name in NAMES:
        saved = store.save(connection, lsh(name))
        for reference in (name, f"{name}:1"):
            assert_same(store.load(connection, reference), saved)
            assert store.describe(connection, reference).name == name
        create_index(connection, "i", model=name).drop()
        bits = connection.execute(
            "SELECT length(hashindex.encode(%s, '[1,2,3,4,5,6,7,8]'))", [name]
        ).fetchone()
        assert bits == (12,)
        assert [m.name for m in store.drop(connection, name)] == [name]


def test_a_hasher_is_not_a_model(connection):
    with pytest.raises(InvalidInputError, match=r"got LSH; a hasher's is hasher.to_model"):
        store.save(connection, LSH(n_bits=8))


@pytest.mark.parametrize(
    "name", ["", ":", "a:1", "m" * 64, "é" * 64, "a\nb", "a\n", "\t", "\x01", "\x1f"]
)
@pytest.mark.reads
def test_invalid_names(connection, name):
    """The same ones in Python and in SQL, where others may write."""
    with pytest.raises(InvalidInputError, match="cannot name a model"):
        lsh(name)
    with pytest.raises(psycopg.errors.CheckViolation, match="model_name_check"):
        connection.execute(
            "INSERT INTO hashindex.model (name, version, method, dimension, n_bits, metric, "
            "parameters, training, layers, checksum) VALUES (%s, 1, 'x', 1, 1, 'l2', '{}', '{}', "
            "ARRAY[ROW('relu', NULL, NULL, NULL, NULL)::hashindex.layer], '')",
            [name],
        )


def test_rows_that_may_not_be(connection):
    store.save(connection, lsh("m"))
    connection.execute("ALTER TABLE hashindex.model DISABLE TRIGGER immutable")
    for change in (
        *("version = 0", "dimension = 0", "dimension = 16001", "n_bits = 0", "n_bits = 16001"),
        *("metric = 'l1'", "layers = '{}'", "layers = array_fill(layers[1], ARRAY[65])"),
    ):
        with pytest.raises(psycopg.errors.CheckViolation):
            connection.execute(f"UPDATE hashindex.model SET {change}".encode())


def test_a_saved_model_never_changes(connection):
    saved = store.save(connection, lsh("m"))
    refused = psycopg.errors.ObjectNotInPrerequisiteState
    for change in ("layers = layers", "name = 'other'", "metric = 'ip'", "training = '{}'"):
        with pytest.raises(refused, match='model "m" version 1 cannot be changed') as caught:
            connection.execute(f"UPDATE hashindex.model SET {change}".encode())
        assert "the next version" in str(caught.value.diag.message_hint)
    with pytest.raises(refused):
        connection.execute(
            "INSERT INTO hashindex.model (name, version, method, dimension, n_bits, metric, "
            "parameters, training, layers, checksum) SELECT name, version, method, dimension, "
            "n_bits, metric, parameters, training, layers, checksum FROM hashindex.model "
            "ON CONFLICT (name, version) DO UPDATE SET metric = 'ip'"
        )
    assert_same(store.load(connection, "m"), saved)


def test_damage_is_noticed(connection):
    store.save(connection, lsh("m"))
    connection.execute("ALTER TABLE hashindex.model DISABLE TRIGGER immutable")
    for damage in (
        "layers = layers[1:1] || ROW('relu', NULL, NULL, NULL, NULL)::hashindex.layer",
        "layers[1].bias = (SELECT l2_normalize(l.bias) FROM unnest(layers) l LIMIT 1)",
        "layers[1].weights = NULL",
        "layers[1].weights = (layers[1]).weights[2:3]",
        "layers[1].bias = '[1,2,3]'",
        "layers[1].kind = 'other'",
        "layers[1].kind = NULL",
        "layers[1].scale = 3",
        "layers[1] = NULL",
        "dimension = 9",
        "checksum = 'else'",
        "name = name, checksum = upper(checksum)",
    ):
        with connection.transaction(force_rollback=True):
            connection.execute(f"UPDATE hashindex.model SET {damage}".encode())
            with pytest.raises(DatabaseStateError, match="model 'm' is damaged.*import it again"):
                store.load(connection, "m")
            # It can still be seen, and got rid of.
            assert store.list_models(connection)[0].name == "m"
            store.drop(connection, "m")


@pytest.mark.reads
@pytest.mark.parametrize(
    ("reference", "error", "message"),
    [
        ("nothing", UnknownModelError, 'model "nothing" does not exist'),
        ("lsh:2", UnknownModelError, 'model "lsh:2" does not exist'),
        ("LSH", UnknownModelError, 'model "LSH" does not exist'),
        ("", UnknownModelError, 'model "" does not exist'),
        (":1", UnknownModelError, 'model ":1" does not exist'),
        ("lsh:999999999", UnknownModelError, 'model "lsh:999999999" does not exist'),
        ("lsh:", InvalidInputError, "is not a number"),
        ("lsh:x", InvalidInputError, 'version "x" of model reference "lsh:x" is not a number'),
        ("lsh:1:1", InvalidInputError, 'version "1:1"'),
        ("lsh:0", InvalidInputError, 'version "0"'),
        ("lsh:-1", InvalidInputError, 'version "-1"'),
        ("lsh: 1", InvalidInputError, 'version " 1"'),
        ("lsh:99999999999", InvalidInputError, "is not a number; Write it as name or name:version"),
        ("lsh:1\n", InvalidInputError, "is not a number"),
    ],
)
def test_unknown_references(connection, model, reference, error, message):
    for use in (store.load, store.describe, store.drop):
        with pytest.raises(error, match=message):
            use(connection, reference)


def test_without_the_schema(empty_url):
    uses = [
        lambda c: store.save(c, lsh("m")),
        lambda c: store.load(c, "m"),
        lambda c: store.describe(c, "m"),
        lambda c: store.drop(c, "m"),
        store.list_models,
        lambda c: HashIndex.open(c, "i"),
        lambda c: begin_lists(c, "i", table="pg_class", column="x", model="m"),
    ]
    with connect(empty_url) as connection:
        for use in uses:
            with pytest.raises(MissingSchemaError, match="Run: pg-hashindex schema upgrade"):
                use(connection)


def test_on_a_connection_of_the_caller_s_own(url):
    """Neither in autocommit mode nor with pgvector's types."""
    for factory in (psycopg.rows.tuple_row, psycopg.rows.namedtuple_row):
        with psycopg.connect(url, row_factory=factory) as own:
            saved = store.save(own, lsh("m"))
            assert_same(store.load(own, "m"), saved)
            assert [m.version for m in store.drop(own, "m")] == [1]
    with psycopg.connect(url, row_factory=psycopg.rows.dict_row) as own:
        with pytest.raises(InvalidInputError, match="row_factory of its own"):
            store.list_models(own)


@pytest.mark.reads
def test_an_unknown_kind_of_layer_is_an_error_in_sql(connection):
    with pytest.raises(psycopg.Error):
        connection.execute(
            "SELECT hashindex.project_with("
            "ARRAY[ROW('other', NULL, NULL, NULL, NULL)::hashindex.layer], '[1,2]')"
        )


def test_null_and_json_in_a_row(connection):
    """Any JSON that others wrote into parameters and training is read unchanged."""
    store.save(connection, lsh("m"))
    connection.execute("ALTER TABLE hashindex.model DISABLE TRIGGER immutable")
    connection.execute(
        "UPDATE hashindex.model SET training = %s, parameters = %s",
        [Jsonb({"deep": [{"x": None}]}), Jsonb({})],
    )
    assert store.load(connection, "m").training == {"deep": [{"x": None}]}


def test_a_connection_that_reads_jsonb_as_text(connection):
    """As those of Django do."""
    saved = store.save(connection, lsh("texts"))
    connection.adapters.register_loader("jsonb", TextLoader)
    assert_same(store.load(connection, "texts"), saved)
