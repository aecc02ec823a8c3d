"""Writers, an encoder, access paths, swaps and searches interleaved at random."""

import collections
import os
import random

import pytest
from faults.machine import Machine, install_models
from fixtures.faults import record
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from pg_hashindex.db import locks
from pg_hashindex.index import encoding

#: Runs for each kind of table and of model, and steps of a run.
EXAMPLES = int(os.environ.get("PG_HASHINDEX_EXAMPLES", "4"))
STEPS = int(os.environ.get("PG_HASHINDEX_STEPS", "50"))
#: Seed of runs that differ from those of each day: a number, or "random" for one that is printed.
SEED = os.environ.get("PG_HASHINDEX_SEED")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "two keys"])
def test_whatever_happens(fault_server, installed, monkeypatch, kind):
    # Everything is one thread here: who holds a lock will not let go of it while we wait.
    monkeypatch.setattr(encoding, "_PATIENCE", 0.0)
    monkeypatch.setattr("pg_hashindex.index.encoding.time.sleep", lambda seconds: None)
    monkeypatch.setattr(locks, "PATIENCE", 0.0)
    monkeypatch.setattr(locks, "LOCK_MS", 20)
    monkeypatch.setattr(locks, "_PAUSE", 0.0)
    fault_server.up()
    url = fault_server.database(installed)
    install_models(url)
    counts = collections.Counter()
    machine = type(
        "One",
        (Machine,),
        {
            "url": url,
            "keys": "part, id" if kind == "two keys" else "id",
            "model_names": ("lsh", "other"),
            "counts": counts,
        },
    )
    chosen = random.SystemRandom().randrange(1 << 32) if SEED == "random" else SEED
    if chosen is not None:
        print(f"\nrun it again with PG_HASHINDEX_SEED={chosen}")
        machine = seed(int(chosen))(machine)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            # The same runs each time; other ones where many are asked for.
            derandomize=chosen is None and "PG_HASHINDEX_EXAMPLES" not in os.environ,
            phases=[Phase.generate] if "PG_HASHINDEX_EXAMPLES" in os.environ else tuple(Phase),
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    record(
        f"state machine, {kind}",
        operations=counts["writes"] + counts["operations"] + counts["searches"],
        faults=counts["refused"] + counts["told"],
        rows=counts["rows"],
    )
    assert counts["writes"] > EXAMPLES
    assert counts["operations"] > EXAMPLES
    fault_server.drop(url)
