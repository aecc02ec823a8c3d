"""``pg-hashindex search --radius``: every row within a Hamming radius."""

import json
from collections.abc import Callable

import pytest
from click.testing import Result

pytestmark = pytest.mark.newest

Run = Callable[..., Result]


def test_within_a_radius(on, index):
    wanted = index.within_like(5, 3)
    found = json.loads(on("search", "items_idx", "--like", 5, "--radius", 3, "--json").stdout)
    assert found == [hit._asdict() for hit in wanted]
    query = "[1,2,3,4,5,6,7,8]"
    lines = on("search", "items_idx", "--query", query, "--radius", 4).stdout.splitlines()
    assert lines[0].split() == ["id", "distance", "category"]
    assert [tuple(map(int, line.split()[:2])) for line in lines[1:]] == index.within(
        json.loads(query), 4
    )


@pytest.mark.reads
@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--radius", "3", "--like", "5", "-k", "10"], 2, "leave out -k, --candidates, --effort"),
        (["--radius", "3", "--like", "5", "--filter", "true"], 2, "leave out -k"),
        (["--radius", "3"], 2, "give either --query or --like"),
        (["--radius", "3", "--query", "[1]", "--like", "5"], 2, "give either --query or --like"),
        (["--radius", "13", "--like", "5"], 3, "radius is 13; it must be 0 to 12"),
        (["--radius", "-1", "--like", "5"], 3, "radius is -1; it must be 0 to 12"),
        (["--radius", "3", "--like", "5000"], 3, "no row with id = 5000"),
        (["--radius", "3", "--query", "[1]"], 3, "expected 8"),
    ],
)
def test_refused(on, index, options, code, message):
    assert message in on("search", "items_idx", *options, code=code).output


@pytest.mark.parametrize("option", [["--query", "[1]"], ["--query", "[1]", "--json"]])
@pytest.mark.parametrize("radius", [[], ["--radius", "3"]])
def test_a_renamed_table_is_reported_before_the_query(on, index, radius, option):
    """A query of a wrong dimension is not what is wrong first."""
    index.connection.execute("ALTER TABLE items RENAME TO things")
    said = on("search", "items_idx", *radius, *option, code=3).stderr
    assert 'relation "public.items" does not exist' in said
    assert "run pg-hashindex index check items_idx" in said
