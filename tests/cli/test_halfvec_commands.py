"""The way from a column of type halfvec to answers, by commands."""

import json
from collections.abc import Callable

import pytest
from click.testing import Result

pytestmark = pytest.mark.newest

Run = Callable[..., Result]


def test_from_a_halfvec_column_to_answers(on, connection):
    connection.execute(
        "CREATE TABLE docs (id int PRIMARY KEY, v halfvec(16)); "
        "INSERT INTO docs SELECT i, (SELECT array_agg(round(9 * sin(i * j)::numeric)) "
        "FROM generate_series(1, 16) j)::halfvec FROM generate_series(1, 1200) i"
    )
    how = ("--table", "docs", "--column", "v")
    on("model", "train", "m", "--method", "lsh", "--bits", 64, "--metric", "l2", *how)
    on("model", "train", "whole", "--method", "itq", "--bits", 16, "--all-rows", *how)
    on("index", "create", "docs_idx", "--model", "m", *how)
    shown = json.loads(on("index", "show", "docs_idx", "--json").stdout)
    assert (shown["rows"], shown["codes"]) == (1200, 1200)
    found = json.loads(
        on("search", "docs_idx", "--like", 7, "-k", 4, "--candidates", 1200, "--json").stdout
    )
    nearest = connection.execute(
        "SELECT b.id, b.v <-> a.v FROM docs a, docs b WHERE a.id = 7 AND b.id <> 7 "
        "ORDER BY 2, 1 LIMIT 4"
    ).fetchall()
    assert [(hit["id"], hit["distance"]) for hit in found] == nearest
    on("index", "swap", "docs_idx", "--model", "whole", "--force")
    assert json.loads(on("index", "check", "docs_idx", "--json").stdout)["status"] == "ok"
    evaluated = json.loads(on("evaluate", "docs_idx", "--queries", 20, "--json").stdout)
    assert evaluated["points"][-1]["recall"] > 0.9
