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
