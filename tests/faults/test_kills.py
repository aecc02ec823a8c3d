"""Commands cut off at any moment: nothing wrong is left, and the same command completes it."""

import contextlib
import os
import random
import re
import signal
from dataclasses import dataclass

import psycopg
import pytest
from faults.scenarios import SCENARIOS, Scenario
from faults.tables import Writer, check_all
from fixtures.catalog import Catalog, catalog
from fixtures.faults import MOMENTS, Client, eventually, name_of, record

from pg_hashindex.errors import HashIndexError

FAULTS = ("client", "server", "terminate", "backend", "cut")

# In a row of the catalog of indexes, what depends on when or on which rows: settings are measured.
_INDEX_ROWS = """
    SELECT to_jsonb(i) - 'created_at' || to_jsonb(s)
        - '{id,created_at,model_id,trained_rows,generation,table_oid,codes_oid}'::text[]
        - '{candidates,effort}'::text[]
        || jsonb_build_object('bound', hashindex._is_bound(i, s), 'model', m.name)
    FROM hashindex.index i JOIN hashindex.index_set s ON s.index_name = i.name
    JOIN hashindex.model m ON m.id = s.model_id ORDER BY i.name, s.state
"""


# The same in a search function.
_MEASURED = re.compile(r"(coalesce\(\$[34], |_candidates_for\(\$2, )\d+")


@dataclass(frozen=True)
class Prepared:
    """A scenario's database before the command, and what the command makes of it."""

    scenario: Scenario
    template: str
    statements: int
    before: Catalog
    wanted: Catalog


@pytest.fixture(scope="session")
def prepared(fault_server, installed):
    made = {}

    def prepare(name):
        if name not in made:
            fault_server.up()
            scenario = SCENARIOS[name]
            template = fault_server.database(installed)
            scenario.prepare(template)
            url = fault_server.database(name_of(template))
            before = holds(url)
            client = Client(scenario.act, url)
            _, statements, problem, _ = client.end()
            assert problem is None
            made[name] = Prepared(scenario, name_of(template), statements, before, holds(url))
            fault_server.drop(url)
        return made[name]

    return prepare


@pytest.fixture
def url(fault_server):
    used = []
    yield used
    fault_server.up()
    for each in used:
        fault_server.drop(each)


def holds(url):
    """Return what a database holds, but for what depends on the moment."""
    with psycopg.connect(url, autocommit=True) as connection:
        found = catalog(connection)
        found["functions"] = [
            (name, _MEASURED.sub(r"\1N", body), *others)
            for name, body, *others in found["functions"]
        ]
        if ("hashindex.index",) in {row[:1] for row in found["relations"]}:
            found["rows of index"] = connection.execute(_INDEX_ROWS).fetchall()
    return found


def strike(server, client, fault):
    """Do what the test is about."""
    match fault:
        case "client":
            client.kill()
        case "server":
            server.kill()
        case "backend":
            for pid in server.backends():
                # A parallel worker may have ended since it was listed.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        case "terminate":
            server.admin(*(f"SELECT pg_terminate_backend({pid})" for pid in server.backends()))


@pytest.mark.slow
@pytest.mark.parametrize("moment", range(MOMENTS))
@pytest.mark.parametrize("name", SCENARIOS)
def test_cut_off(fault_server, prepared, url, name, moment):
    found = prepared(name)
    fault_server.up()
    url.append(fault_server.database(found.template))
    (database,) = url
    rng = random.Random(f"{name} {moment}")
    at = int((moment + rng.random()) * found.statements / MOMENTS)
    fault = FAULTS[(list(SCENARIOS).index(name) + moment) % len(FAULTS)]
    # Stopped, it is struck between two statements; going on, within one, or a little later.
    waits = fault == "cut" or rng.random() < 0.5
    writer = Writer(database, moment) if found.scenario.writes else None
    client = Client(found.scenario.act, database, at, waits=waits)
    statement = client.reached()
    strike(fault_server, client, fault)
    if fault != "client":
        client.resume(fault)
        _, _, problem, ours = client.end()
        # It may have gone through before it was struck.
        assert problem is None or ours, f"{fault} before {statement}: {problem}"
        if waits and statement is not None:
            assert problem is not None
    fault_server.up()
    eventually(fault_server.is_quiet)
    if fault in {"server", "backend"} and writer is not None:
        writer.stop()
    with contextlib.nullcontext() if writer is None else writer.pause:
        if found.scenario.atomic:
            assert holds(database) in (found.before, found.wanted)
        # Nothing is there yet, or functions that are not of this release.
        checked = 0 if name in {"install", "upgrade"} else check_all(database, complete=False)
    found.scenario.second(database)
    if writer is not None:
        writer.stop()
    if "lists" in name:
        settle(database)
    if name != "install":
        checked += check_all(database, complete=name != "create")
    lost = 0 if writer is None else writer.lost(database)
    assert lost == 0
    if not found.scenario.undone:
        assert holds(database) == found.wanted
    else:
        assert holds(database) in (found.before, found.wanted)
    record(
        f"{name} cut off",
        operations=at + (writer.operations if writer else 0),
        faults=1,
        rows=checked,
        lost=lost,
    )


def settle(url):
    from faults.tables import indexes

    from pg_hashindex.db.connection import connect

    with connect(url) as connection:
        for index in indexes(connection):
            try:
                index.encode()
            except HashIndexError as error:
                raise AssertionError(index.name) from error
