"""The command line with a model that only Python evaluates."""

import json

from fixtures.known import OTHERS
from pgvector import Vector

from pg_hashindex import store


def test_the_way_of_an_index_encoded_in_python(on, connection, items, known_model, tmp_path):
    store.save(connection, known_model)
    create = ["index", "create", "i", "--table", items, "--column", "embedding"]
    created = on(*create, "--model", "known", "--no-encode")
    assert "rows written from now on wait for: pg-hashindex index encode i" in created.stderr
    assert "300 rows have no code: pg-hashindex index encode" in created.stderr
    encoded = on("index", "encode", "i")
    assert "encoded 290 rows" in encoded.stderr
    assert "10 rows wait without a code: model known" in encoded.stderr
    assert "train it again with them" in encoded.stderr
    connection.execute("INSERT INTO items VALUES (1000, 'a', %s)", [Vector(OTHERS[0])])
    assert json.loads(on("index", "show", "i", "--json").stdout)["waiting"] == 11
    shown = on("index", "show", "i")
    assert "encoded in  Python" in shown.stdout
    assert "290 of 301 rows, 11 wait" in shown.stdout
    assert "query_code => $2" in shown.stdout
    assert "11 rows have no code: pg-hashindex index encode" in shown.stderr
    assert json.loads(on("index", "encode", "i", "--json").stdout) == {
        "name": "i",
        "encoded": 1,
        "waiting": 10,
        "access": "scan",
    }
    listed = on("index", "list").stdout.splitlines()
    assert listed[0].split() == ["name", "table", "column", "model", "access", "work"]
    assert listed[1].endswith("10 rows wait")
    (entry,) = json.loads(on("index", "list", "--json").stdout)
    assert (entry["encoded_in"], entry["waiting"]) == ("python", 10)
    hits = json.loads(on("search", "i", "--like", "7", "-k", "3", "--json").stdout)
    assert len(hits) == 3
    refused = on("search", "i", "--like", "300", code=3)
    assert "codes only of the rows that it was trained on" in refused.stderr
    assert json.loads(on("evaluate", "i", "--queries", "5", "--json").stdout)["queries"] == 5

    shown = on("model", "show", "known").stdout
    assert "network of kind rows" in shown
    assert "evaluated in  Python" in shown
    assert "Python" in on("model", "list").stdout
    (entry,) = json.loads(on("model", "list", "--json").stdout)
    assert (entry["evaluated_in"], entry["network"]) == ("python", "rows")
    file = tmp_path / "known.npz"
    on("model", "export", "known", str(file))
    assert "imported model known:2" in on("model", "import", str(file)).stderr
    assert store.load(connection, "known:2").checksum == known_model.checksum
    # An index whose table is gone is listed all the same.
    connection.execute("DROP TABLE items")
    assert json.loads(on("index", "list", "--json").stdout)[0]["waiting"] is None
