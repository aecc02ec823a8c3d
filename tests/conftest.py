"""Fixtures by concern: tests/fixtures holds one file for each."""

import gc

from hypothesis import settings

# A busy machine is no failure.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

pytest_plugins = (
    "fixtures.books",
    "fixtures.canary",
    "fixtures.clusters",
    "fixtures.commands",
    "fixtures.servers",
    "fixtures.databases",
    "fixtures.deep",
    "fixtures.halves",
    "fixtures.items",
    "fixtures.work",
    "fixtures.known",
    "fixtures.landmarks",
    "fixtures.migrating",
    "fixtures.pages",
    "fixtures.poolers",
    "fixtures.queries",
    "fixtures.roles",
    "fixtures.tenants",
    "fixtures.usps",
    "fixtures.attackers",
)


def pytest_collection_finish():
    """Keep the garbage collector from going through thousands of tests and modules again."""
    gc.collect()
    gc.freeze()


def pytest_addoption(parser):
    parser.addoption(
        "--postgres",
        action="append",
        choices=["15", "16", "18"],
        help="PostgreSQL to run the database tests on; may be given again (default: 18); "
        "15 needs Debian's package postgresql-15, and ../shared/servers",
    )
