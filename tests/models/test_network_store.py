"""Networks in the database: stored in parts, whole or not at all, and never evaluated by SQL."""

import numpy as np
import psycopg
import pytest

from pg_hashindex import store
from pg_hashindex.errors import DatabaseStateError
from pg_hashindex.hashers import FastH
from pg_hashindex.models.layers import normalize
from pg_hashindex.models.model import Model
from pg_hashindex.models.network import Network

pytestmark = pytest.mark.newest


def torch_model():
    arrays = {
        "conv.weight": np.random.default_rng(0).standard_normal((8, 3, 5)).astype(np.float32),
        "steps": np.array(7),
    }
    network = Network("torch", {"kind": "cnn-f", "rate": 1e22, "é": [None, -0.0]}, arrays, 12)
    return Model("net", "dpsh", 8, [normalize()], "cosine", network=network)


@pytest.mark.parametrize("part_bytes", [1, 100, 488, 8_000_000])
def test_round_trip(connection, monkeypatch, part_bytes):
    monkeypatch.setattr(store, "_PART_BYTES", part_bytes)
    model = torch_model()
    saved = store.save(connection, model)
    assert (saved.version, saved.n_bits) == (1, 12)
    loaded = store.load(connection, "net")
    assert loaded.checksum == saved.checksum == model.checksum
    assert [layer.kind for layer in loaded.layers] == ["normalize"]
    assert loaded.network is not None
    assert model.network is not None
    assert dict(loaded.network.config) == {"kind": "cnn-f", "rate": 1e22, "é": [None, 0]}
    for name, array in model.network.arrays.items():
        assert loaded.network.arrays[name].dtype == array.dtype
        assert loaded.network.arrays[name].tobytes() == array.tobytes()
    sizes = connection.execute(
        "SELECT part, octet_length(data) FROM hashindex.model_part ORDER BY part"
    ).fetchall()
    assert [part for part, _ in sizes] == list(range(-(-488 // part_bytes)))
    assert max(size for _, size in sizes) <= part_bytes
    assert sum(size for _, size in sizes) == 488


def test_known_rows_come_back(connection, known_model, vectors):
    store.save(connection, known_model)
    loaded = store.load(connection, "known")
    assert loaded.encode(vectors[:290]).tobytes() == known_model.encode(vectors[:290]).tobytes()
    assert store.save(connection, loaded).version == 2


def test_trees_come_back(connection):
    X = np.random.default_rng(0).standard_normal((80, 5))
    model = FastH(n_bits=4, n_trees=2, random_state=0).fit(X, X[:, 0] > 0).to_model("forest")
    store.save(connection, model)
    loaded = store.load(connection, "forest")
    assert loaded.checksum == model.checksum
    np.testing.assert_array_equal(loaded.encode(X), model.encode(X))
    (described,) = store.list_models(connection)
    assert (described.evaluated_in, described.network) == ("python", "trees")


def test_describe_says_where_it_is_evaluated(connection, lsh_model):
    for model in (torch_model(), lsh_model):
        store.save(connection, model)
    lsh, net = store.list_models(connection)
    assert (lsh.evaluated_in, lsh.network) == ("sql", None)
    assert (net.evaluated_in, net.network) == ("python", "torch")
    assert net.layer_kinds == ["normalize"]
    assert 488 < net.size_bytes < 1200
    assert store.describe(connection, "net") == net


def test_dropping_takes_the_parts_along(connection):
    for _ in range(2):
        store.save(connection, torch_model())
    store.drop(connection, "net:1")
    assert store.load(connection, "net").version == 2
    store.drop(connection, "net")
    assert connection.execute("SELECT count(*) FROM hashindex.model_part").fetchone() == (0,)


def test_a_network_is_saved_whole_or_not_at_all(connection, monkeypatch):
    def cut_off(network, size):
        yield b"abc"
        raise KeyboardInterrupt

    monkeypatch.setattr(Network, "parts", cut_off)
    with pytest.raises(KeyboardInterrupt):
        store.save(connection, torch_model())
    assert store.list_models(connection) == []
    assert connection.execute("SELECT count(*) FROM hashindex.model_part").fetchone() == (0,)


DAMAGE = [
    "DELETE FROM hashindex.model_part WHERE part = 1",
    "DELETE FROM hashindex.model_part",
    "UPDATE hashindex.model_part SET data = set_byte(data, 3, 77) WHERE part = 1",
    "UPDATE hashindex.model_part SET data = data || data WHERE part = 1",
    "UPDATE hashindex.model_part SET part = 20 WHERE part = 1",
    "UPDATE hashindex.model SET network = jsonb_set(network, '{config,rate}', '2')",
    "UPDATE hashindex.model SET network = jsonb_set(network, '{n_bits}', '11')",
    "UPDATE hashindex.model SET network = jsonb_set(network, '{kind}', '\"rows\"')",
    "UPDATE hashindex.model SET network = jsonb_set(network, '{arrays,0,dtype}', '\"O\"')",
    "UPDATE hashindex.model SET network = '{}'",
    "UPDATE hashindex.model SET network = '[]'",
    "UPDATE hashindex.model SET network = NULL, layers = layers[1:1]",
    "UPDATE hashindex.model SET layers = layers[2:2]",
]


def test_damage_is_noticed(connection, monkeypatch):
    monkeypatch.setattr(store, "_PART_BYTES", 100)
    store.save(connection, torch_model())
    for table in ("model", "model_part"):
        connection.execute(f"ALTER TABLE hashindex.{table} DISABLE TRIGGER immutable".encode())
    for damage in DAMAGE:
        with connection.transaction(force_rollback=True):
            connection.execute(damage.encode())
            with pytest.raises(DatabaseStateError, match="model 'net' is damaged.*import it again"):
                store.load(connection, "net")
            # It can still be seen, and got rid of.
            assert store.list_models(connection)[0].name == "net"
            store.drop(connection, "net")
    assert store.load(connection, "net").checksum == torch_model().checksum


def test_parts_are_immutable_and_not_compressed(connection):
    store.save(connection, torch_model())
    with pytest.raises(
        psycopg.errors.ObjectNotInPrerequisiteState,
        match=r'model "net" version 1 cannot be changed',
    ) as caught:
        connection.execute("UPDATE hashindex.model_part SET data = ''")
    assert "the next version" in str(caught.value.diag.message_hint)
    storage = connection.execute(
        "SELECT attstorage FROM pg_attribute "
        "WHERE attrelid = 'hashindex.model_part'::regclass AND attname = 'data'"
    ).fetchone()
    assert storage == ("e",)


def test_layers_say_where_python_goes_on(connection):
    """Or something that evaluates layers could take those before a network for the whole."""
    store.save(connection, torch_model())
    connection.execute("ALTER TABLE hashindex.model DISABLE TRIGGER immutable")
    for change in ("network = NULL", "layers = layers[1:1]", "layers = '{}', network = NULL"):
        with pytest.raises(psycopg.errors.CheckViolation):
            connection.execute(f"UPDATE hashindex.model SET {change}".encode())


def test_sql_refuses_to_evaluate_it(connection, known_model):
    for saved in (torch_model(), known_model):
        store.save(connection, saved)
    for call in (
        "encode(%(model)s, %(v)s)",
        "project(%(model)s, %(v)s)",
        "encode_with((hashindex.find_model(%(model)s)).layers, %(v)s)",
        "project_with((hashindex.find_model(%(model)s)).layers, %(v)s)",
    ):
        for model in ("net", "known"):
            with pytest.raises(
                psycopg.errors.FeatureNotSupported, match="is evaluated in Python, not in SQL"
            ) as caught:
                connection.execute(
                    f"SELECT hashindex.{call}".encode(), {"model": model, "v": "[1,2,3,4,5,6,7,8]"}
                )
            hint = str(caught.value.diag.message_hint)
            assert "pg-hashindex model encode" in hint
            assert "Model.encode in Python" in hint
    for function in ("project_with", "encode_with"):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="no layers to evaluate"):
            connection.execute(f"SELECT hashindex.{function}('{{}}', '[1,2]')".encode())
