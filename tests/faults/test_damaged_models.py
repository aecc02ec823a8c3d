"""Model rows that somebody changed or lost, past every trigger: refused, and nothing is written."""

import psycopg
import pytest
from faults.scenarios import after, create, encode
from faults.tables import BITS, VECTORS, check_all
from fixtures.faults import name_of, record

from pg_hashindex import store
from pg_hashindex.db.connection import connect
from pg_hashindex.errors import DatabaseStateError
from pg_hashindex.hashers import LSH
from pg_hashindex.models.layers import Layer
from pg_hashindex.models.model import Model

#: By name: what is done to the model of three layers normalize, affine, tanh.
LAYERS = {
    "no layers": "layers = '{}'",
    "the first layer cut off": "layers = layers[2:]",
    "the last but one cut off": "layers = layers[1:1] || layers[3:3]",
    "rows of weights cut off": (
        "layers[2] = ROW('affine', (layers[2]).weights[:5], (layers[2]).bias, NULL, NULL)"
        "::hashindex.layer"
    ),
    "no weights": "layers[2] = ROW('affine', NULL, (layers[2]).bias, NULL, NULL)::hashindex.layer",
    "no bias": "layers[2] = ROW('affine', (layers[2]).weights, NULL, NULL, NULL)::hashindex.layer",
    "another kind": (
        "layers[2] = ROW('affinity', (layers[2]).weights, NULL, NULL, NULL)::hashindex.layer"
    ),
    "an unknown kind": "layers[3] = ROW('sqrt', NULL, NULL, NULL, NULL)::hashindex.layer",
    "another checksum": "checksum = repeat('0', 64)",
}
#: Those that triggers can see; the others have the right shape, and the wrong numbers. Kinds
#: of layers are in a trigger's text, as they were when it was written.
SEEN_BY_TRIGGERS = [
    name
    for name in LAYERS
    if name not in {"the first layer cut off", "an unknown kind", "another checksum"}
]

PARTS = {
    "a part is gone": "DELETE FROM hashindex.model_part",
    "a part is cut": "UPDATE hashindex.model_part SET data = substring(data FROM 1 FOR 100)",
    "a byte is another": "UPDATE hashindex.model_part SET data = set_byte(data, 40, 7)",
    "a part twice": (
        "INSERT INTO hashindex.model_part SELECT model_id, part + 1, data FROM hashindex.model_part"
    ),
    "no network": "UPDATE hashindex.model SET network = NULL, layers = NULL WHERE name = 'known'",
    "another network": (
        "UPDATE hashindex.model SET network = network || '{\"n_bits\": 11}' WHERE name = 'known'"
    ),
}


def layered():
    lsh = LSH(n_bits=BITS, random_state=3, normalize="l2").fit(VECTORS).to_model("layered")
    assert [layer.kind for layer in lsh.layers] == ["normalize", "affine"]
    return Model("layered", "byhand", 8, [*lsh.layers, Layer("tanh")])


@pytest.fixture(scope="module")
def template(fault_server, installed):
    fault_server.up()
    url = fault_server.database(installed)
    with connect(url) as connection:
        store.save(connection, layered())
    return name_of(url)


@pytest.fixture
def damaged(fault_server, template):
    used = []

    def damage(statement, *steps):
        used.append(url := fault_server.database(template))
        after(create("layered"), *steps)(url)
        with psycopg.connect(url, autocommit=True) as session:
            checks = session.execute(
                "SELECT conname FROM pg_constraint WHERE conrelid = 'hashindex.model'::regclass "
                "AND contype = 'c'"
            ).fetchall()
            for (check,) in checks:
                session.execute(f'ALTER TABLE hashindex.model DROP CONSTRAINT "{check}"'.encode())
            # As a superuser may: no trigger, no constraint.
            session.execute("SET session_replication_role TO replica")
            session.execute(
                "ALTER TABLE hashindex.model ALTER layers DROP NOT NULL; " + statement  # type: ignore[operator]
            )
        return url

    yield damage
    for url in used:
        fault_server.drop(url)


@pytest.mark.parametrize("what", LAYERS)
def test_layers(damaged, what):
    url = damaged(
        f"UPDATE hashindex.model SET {LAYERS[what]} WHERE name = 'layered'", encode, lose_codes
    )
    with connect(url) as connection:
        with pytest.raises(DatabaseStateError, match="model 'layered(:1)?' is damaged: "):
            store.load(connection, "layered")
    with pytest.raises(DatabaseStateError, match="is damaged"):
        encode(url)
    with psycopg.connect(url, autocommit=True) as session:
        if what in SEEN_BY_TRIGGERS:
            for statement in (
                "UPDATE items SET embedding = %s::real[]::vector WHERE id = 7",
                "INSERT INTO items VALUES (9999, 'x', %s::real[]::vector)",
            ):
                with pytest.raises(psycopg.Error) as caught:
                    session.execute(statement.encode(), [[1.0] * 8])
                assert caught.value.sqlstate not in {None, "XX000"}
                assert str(caught.value)
        row = session.execute("SELECT count(*) FROM hashindex.set_1_codes").fetchone()
    assert row == (len(VECTORS) - 100,)
    record("damaged models", operations=4, faults=1, rows=0)


def lose_codes(url):
    """Delete codes, which an encoding makes again."""
    with psycopg.connect(url, autocommit=True) as session:
        session.execute("DELETE FROM hashindex.set_1_codes WHERE id <= 100")


@pytest.mark.parametrize("what", LAYERS)
def test_a_first_build_refuses_them(damaged, what):
    url = damaged(f"UPDATE hashindex.model SET {LAYERS[what]} WHERE name = 'layered'")
    with pytest.raises(DatabaseStateError, match="is damaged"):
        encode(url)
    with psycopg.connect(url, autocommit=True) as session:
        search = "SELECT FROM hashindex.search_items_idx(%s::real[]::vector, 10)"
        assert session.execute(search, [VECTORS[0].tolist()]).rowcount == 10
    record("damaged models", operations=1, faults=1, rows=0)


@pytest.mark.parametrize("what", PARTS)
def test_parts(damaged, what):
    url = damaged(PARTS[what])
    with connect(url) as connection:
        with pytest.raises(DatabaseStateError, match="is damaged"):
            store.load(connection, "known")
        # Other models are as they were.
        store.load(connection, "lsh")
    record("damaged models", operations=2, faults=1, rows=0)


def test_an_undamaged_model_is_not_refused(fault_server, damaged):
    """The steps for all of them, without the damage."""
    url = damaged("SELECT 1")
    encode(url)
    assert check_all(url, complete=True) == len(VECTORS)
