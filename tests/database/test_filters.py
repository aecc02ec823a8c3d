"""Conditions: they go in before candidates are counted, however the search goes on."""

from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from fixtures.filters import look_codes_up
from numpy.typing import NDArray

from pg_hashindex.codes import hamming_distances
from pg_hashindex.database import Connection
from pg_hashindex.index import HashIndex, Ranking
from pg_hashindex.model import Model

items_table = sa.Table(
    "items",
    sa.MetaData(),
    sa.Column("id", sa.BigInteger, primary_key=True),
    sa.Column("category", sa.Text),
)


@pytest.fixture
def large(connection: Connection, index: HashIndex) -> NDArray[np.float32]:
    """3,000 rows, of which every third is of category a, and one in a hundred of category rare."""
    connection.execute(
        "INSERT INTO items SELECT n, CASE WHEN n % 100 = 0 THEN 'rare' ELSE chr(97 + n % 3) END, "
        "ARRAY(SELECT sin(n * d) FROM generate_series(1, 8) d)::vector "
        "FROM generate_series(301, 3000) n"
    )
    rows = connection.execute("SELECT embedding FROM items ORDER BY id").fetchall()
    return np.stack([row[0].to_numpy() for row in rows])


@pytest.mark.parametrize("share", [1.0, 0.3, 0.01])
@pytest.mark.parametrize("ranking", ["hamming", "asymmetric"])
def test_candidates_are_of_the_rows_that_match(
    index: HashIndex, model: Model, large: NDArray[np.float32], share: float, ranking: Ranking
) -> None:
    """Whatever the planner expected: with all too few rows looked up, all are joined."""
    look_codes_up(index.connection, share)
    matching = np.arange(4, 3000, 3)
    condition = (items_table.c.id % 3 == 2) & (items_table.c.id > 4)
    for query in large[[7, 400]] + np.float32(0.1):
        hamming = hamming_distances(model.encode(query[None]), model.encode(large[matching]))[0]
        order = matching[np.lexsort((matching, hamming))]
        exact = np.linalg.norm(large - query, axis=1)
        for candidates in (5, 30):
            hits = index.search(query, 5, candidates=candidates, ranking=ranking, where=condition)
            found = [hit.id - 1 for hit in hits]
            assert set(found) <= set(matching)
            if ranking == "hamming":
                kept = order[:candidates]
                assert found == kept[np.argsort(exact[kept], kind="stable")[:5]].tolist()
        # With as many candidates as rows match, the order of candidates does not matter.
        hits = index.search(query, 5, candidates=2000, ranking=ranking, where=condition)
        wanted = matching[np.argsort(exact[matching], kind="stable")[:5]]
        assert [hit.id - 1 for hit in hits] == wanted.tolist()


@pytest.mark.parametrize("share", [None, 1.0, 0.001])
def test_rare_rows_are_all_found(
    index: HashIndex, large: NDArray[np.float32], share: float | None
) -> None:
    if share is not None:
        look_codes_up(index.connection, share)
    for k in (1, 27, 100):
        hits = index.search(large[0], k, where=items_table.c.category == "rare")
        assert len(hits) == min(k, 27)
        assert all(hit.id % 100 == 0 for hit in hits)
        rows = index.connection.execute(
            "SELECT id::bigint, distance FROM hashindex.search('items_idx', %s, %s, "
            """where_equals => '{"category": "rare"}')""",
            [index.connection.execute("SELECT embedding FROM items WHERE id = 1").fetchone()[0], k],  # type: ignore[index]
        ).fetchall()
        assert rows == hits
    assert index.search(large[0], 5, where=items_table.c.category == "none") == []


@pytest.mark.parametrize(
    ("matching", "cost", "rows", "expected"),
    [
        # 1 % of 300,000 by an index; without one; a tenth by an index; half.
        (3_000, 9_000, 300_000, None),
        (3_000, 65_000, 300_000, 0.01),
        (30_000, 50_000, 300_000, 0.1),
        (150_000, 66_000, 300_000, 0.5),
        # Few rows are soon compared.
        (50, 20, 300, None),
        (0, 8, 300_000, None),
        # A table that was never analysed.
        (10, 5, -1, None),
    ],
)
def test_when_all_that_match_are_compared(
    connection: Connection, matching: float, cost: float, rows: float, expected: float | None
) -> None:
    row = connection.execute(
        "SELECT hashindex.kept_share(%s, %s, %s, 200)", [matching, cost, rows]
    ).fetchone()
    assert row == (expected,)


def test_a_condition_under_the_caller_s_path(
    connection: Connection, index: HashIndex, vectors: NDArray[np.float32]
) -> None:
    """Its functions and types are found where the caller's other queries find them."""
    connection.execute(
        "CREATE SCHEMA mine; CREATE FUNCTION mine.is_a(text) RETURNS boolean LANGUAGE sql "
        "RETURN $1 = 'a'; SET search_path TO mine, public"
    )
    condition: Any = sa.func.is_a(items_table.c.category)
    for share in (None, 0.5):
        if share is not None:
            look_codes_up(connection, share)
        hits = index.search(vectors[0], 5, where=condition)
        assert len(hits) == 5
        assert all(hit.id % 3 == 1 for hit in hits)


class Lowered(sa.TypeDecorator[str]):
    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        return None if value is None else value.lower()


def test_values_go_through_their_types(index: HashIndex, vectors: NDArray[np.float32]) -> None:
    """As those of enumerations and of JSON do."""
    category = sa.type_coerce(items_table.c.category, Lowered())
    for condition in (category == "A", category.in_(["A", "X"])):
        hits = index.search(vectors[0], 5, where=condition)
        assert len(hits) == 5
        assert all(hit.id % 3 == 1 for hit in hits)
