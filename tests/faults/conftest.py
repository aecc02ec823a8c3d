import pytest
from faults.tables import install
from fixtures.faults import _watched_statements, fault_server, name_of

__all__ = ["_watched_statements", "fault_server"]


@pytest.fixture(scope="session")
def installed(fault_server):
    """A template with the schema, models and rows."""
    fault_server.up()
    url = fault_server.database()
    install(url)
    return name_of(url)


@pytest.fixture
def database(fault_server):
    """Make databases of a template, and drop them after the test."""
    used = []

    def make(template):
        used.append(fault_server.database(template))
        return used[-1]

    yield make
    fault_server.up()
    for url in used:
        fault_server.drop(url)
