"""Conditions: they go in before candidates are counted, however the search goes on."""

import numpy as np
import pytest
import sqlalchemy as sa
from fixtures.filters import look_codes_up
from fixtures.indexes import indexed

pytestmark = pytest.mark.newest

items_table = sa.Table(
    "items",
    sa.MetaData(),
    sa.Column("id", sa.BigInteger, primary_key=True),
    sa.Column("category", sa.Text),
)


def test_tables_and_functions_of_the_caller_s_path(connection, items, model):
    """Others of these names are on the path of our functions, where pgvector is."""
    connection.execute(
        "CREATE TABLE public.liked AS SELECT 1 AS id; "
        "CREATE FUNCTION public.is_liked(bigint) RETURNS boolean LANGUAGE sql RETURN false; "
        "CREATE SCHEMA mine; CREATE TABLE mine.liked AS SELECT n AS "
        "id FROM generate_series(5, 9) n;"
        "CREATE FUNCTION mine.is_liked(bigint) RETURNS boolean LANGUAGE sql "
        "RETURN $1 BETWEEN 5 AND 9; SET search_path TO mine, public"
    )
    index = indexed(connection)
    for codes_first in (False, True):
        if codes_first:
            look_codes_up(connection)
        for condition in ("id IN (SELECT id FROM liked)", "is_liked(id)", "Is_Liked (items.id)"):
            hits = index.search(np.ones(8), filter=condition, candidates=300)
            assert {hit.id for hit in hits} == {5, 6, 7, 8, 9}, condition


class Lowered(sa.TypeDecorator[str]):
    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value, dialect):
        return None if value is None else value.lower()


@pytest.mark.reads
def test_values_go_through_their_types(index, vectors):
    """As those of enumerations and of JSON do."""
    category = sa.type_coerce(items_table.c.category, Lowered())
    for condition in (category == "A", category.in_(["A", "X"])):
        hits = index.search(vectors[0], 5, where=condition)
        assert len(hits) == 5
        assert all(hit.id % 3 == 1 for hit in hits)
