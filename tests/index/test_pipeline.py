"""In psycopg's pipeline mode statements are sent before earlier results have come."""

import asyncio

import psycopg
import pytest
from fixtures.indexes import with_access

from pg_hashindex import AsyncHashIndex, HashIndex
from pg_hashindex.errors import HashIndexError, InvalidInputError

SEARCHES = {
    "search": lambda index, query: [hit.id for hit in index.search(query, k=5)],
    "filter": lambda index, query: [hit.id for hit in index.search(query, k=5, filter="id > 5")],
    "search_like": lambda index, query: [hit.id for hit in index.search_like(3, k=5)],
    "within": lambda index, query: sorted(hit.id for hit in index.within(query, 4)),
    "row": lambda index, query: index.row.name,
    "waiting": lambda index, query: index.waiting(),
}


@pytest.mark.reads
@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_answers_in_a_pipeline(index, vectors, search):
    expected = search(index, vectors[2])
    assert expected or search is SEARCHES["waiting"]
    with index.connection.pipeline():
        assert search(index, vectors[2]) == expected


def test_open_in_a_pipeline(index, url):
    with psycopg.connect(url, autocommit=True) as fresh, fresh.pipeline():
        assert HashIndex.open(fresh, index.name).row.table_name == "items"


def test_async_answers_in_a_pipeline(index, vectors, url):
    expected = [hit.id for hit in index.search(vectors[2], k=5)]

    async def search():
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            opened = await AsyncHashIndex.open(connection, index.name)
            async with connection.pipeline():
                return [hit.id for hit in await opened.search(vectors[2], k=5)]

    assert asyncio.run(search()) == expected


def test_an_error_in_a_pipeline_is_that_of_a_search(index, vectors):
    with index.connection.pipeline():
        with pytest.raises(InvalidInputError, match="nowhere"):
            index.search(vectors[2], k=5, filter="nowhere = 1")
        assert len(index.search(vectors[2], k=5)) == 5


@pytest.mark.parametrize("index_template", ["table"], indirect=True)
def test_builds_in_a_pipeline(index):
    """They copy rows, which no pipeline can: psycopg's message says so, and nothing changes."""
    with_access(index, "lists")
    index.encode()
    before = index.row.codes
    with index.connection.pipeline(), pytest.raises(HashIndexError, match="pipeline"):
        index.rebalance()
    assert HashIndex.open(index.connection, index.name).row.codes == before
    index.rebalance()
