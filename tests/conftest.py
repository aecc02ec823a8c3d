"""Fixtures by concern: tests/fixtures holds one file for each."""

import gc

from hypothesis import settings

# A busy machine is not a failure.
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
    "fixtures.roles",
    "fixtures.tenants",
    "fixtures.usps",
    "fixtures.attackers",
)


#: Folders and files of tests that other jobs than `make test` run.
JOBS = {
    "faults": {"citus", "faults", "moving", "server", "servers"},
    "documents": {
        *("package_search", "pglite"),
        *("test_benchmarks.py", "test_examples.py", "test_tutorial.py"),
        *("test_scores_on_usps.py", "test_presets_on_usps.py"),
    },
}


def pytest_collection_modifyitems(items):
    """Mark the tests of other jobs; `make test` cuts off each command once."""
    for item in items:
        moment = item.callspec.params.get("moment") if hasattr(item, "callspec") else None
        places = item.nodeid.partition("::")[0].split("/")
        for job in JOBS:
            if moment != 0 and not JOBS[job].isdisjoint(places):
                item.add_marker(job)


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
