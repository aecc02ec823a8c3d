"""Every code block of the documents runs on PostgreSQL 15 for a role that is not a superuser."""

import psycopg
import pytest
from fixtures.pages import PAGES, blocks_of, runs


@pytest.mark.slow
@pytest.mark.newest
@pytest.mark.parametrize("page", list(filter(runs, PAGES)), ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run_for_an_owner(reader, page):
    for block in blocks_of(page):
        reader.follow(block)
    with psycopg.connect(reader.url) as connection:
        row = connection.execute(
            "SELECT current_setting('server_version_num')::int / 10000, r.rolsuper "
            "FROM pg_roles r WHERE r.rolname = current_user"
        ).fetchone()
    assert row == (15, False)
