"""Commands say that an index is not yet encoded, and searches are exact until then."""

import json

from fixtures.indexes import create_index

SAID = "not yet encoded: exact"


def test_an_index_that_is_not_yet_encoded(on, connection, items, model):
    create_index(connection)
    assert SAID in on("index", "show").output
    assert SAID in on("index", "show", "items_idx").output
    assert json.loads(on("index", "show", "--json").output)[0]["encoded"] is False
    result = on("search", "items_idx", "--like", "1", "--json")
    assert SAID in result.stderr
    assert len(json.loads(result.stdout)) == 10
    result = on("evaluate", "items_idx", "--queries", "5")
    assert SAID in result.stderr
    result = on("search", "items_idx", "--like", "1", "--radius", "2", code=None)
    assert result.exit_code != 0
    assert "has no set in use yet; Build it: pg-hashindex index encode items_idx" in result.output
    on("index", "encode", "items_idx")
    for command in (("index", "show"), ("index", "show", "items_idx")):
        assert "not yet encoded" not in on(*command).output
    assert "not yet encoded" not in on("search", "items_idx", "--like", "1").output


def test_lists_of_tenants_that_are_being_built(on, connection, items, model):
    create_index(connection, access="lists", tenant="category")
    assert SAID in on("index", "show", "items_idx").output
    on("index", "configure", "items_idx", "--candidates", "50")
    assert SAID in on("evaluate", "items_idx", "--queries", "5").stderr
    refused = on("evaluate", "items_idx", "--queries", "5", "--save", code=3)
    assert "no set in use yet" in refused.output
