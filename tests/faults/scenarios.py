"""An interruption: a command from a prepared database to a complete one, and its second run."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from fixtures.indexes import create_index
from fixtures.outdated import outdate

from pg_hashindex import operations, schema
from pg_hashindex.db.connection import connect, create_engine
from pg_hashindex.db.server_errors import translated_errors
from pg_hashindex.errors import DatabaseStateError, DuplicateNameError, UnknownIndexError
from pg_hashindex.index.handle import HashIndex

BATCH = 100
QUERIES = 8

Step = Callable[[str], Any]


@dataclass(frozen=True)
class Scenario:
    """A command that is cut off.

    Parameters
    ----------
    name : str
    prepare : callable
        Brings a database with table items and models to where the command begins.
    act : callable
        The command.
    again : callable, optional
        What an operator runs after it was cut off; the command itself by default.
    writes : bool
        Whether somebody writes to the table meanwhile.
    atomic : bool
        Whether it changes everything or nothing.
    undone : bool
        Whether what is run again may leave all as it was before the command.
    """

    name: str
    prepare: Step
    act: Step
    again: Step | None = None
    writes: bool = True
    atomic: bool = False
    undone: bool = False

    @property
    def second(self):
        return self.again or self.act


def create(model, access="scan"):
    def step(url):
        with connect(url) as connection:
            create_index(connection, model=model, access=access)

    return step


def encode(url):
    with connect(url) as connection:
        HashIndex.open(connection, "items_idx").encode(batch_rows=BATCH)


def change_access(access):
    def step(url):
        with connect(url) as connection:
            index = HashIndex.open(connection, "items_idx")
            if index.access != access:
                index.swap(access=access, force=True)

    return step


def swap(model, access=None):
    def step(url):
        with connect(url) as connection:
            index = HashIndex.open(connection, "items_idx")
            # Run again after it went through, it would begin a swap to the model that is there.
            if index.model != model:
                index.swap(model=model, access=access, force=True)

    return step


def prune(url):
    with connect(url) as connection:
        # The second run of one that went through.
        with contextlib.suppress(DatabaseStateError):
            HashIndex.open(connection, "items_idx").prune()


def rollback_from(model):
    def step(url):
        with connect(url) as connection:
            index = HashIndex.open(connection, "items_idx")
            if index.model == model:
                index.rollback()

    return step


def drop(url):
    with connect(url) as connection, contextlib.suppress(UnknownIndexError):
        HashIndex.open(connection, "items_idx").drop()


def create_again(model):
    def step(url):
        with contextlib.suppress(DuplicateNameError):
            create(model)(url)

    return step


def create_whole(url):
    """A second run continues the first; one of an index that is complete is refused."""
    with connect(url) as connection, contextlib.suppress(DuplicateNameError):
        HashIndex.create(
            connection, "items_idx", table="items", column="embedding", model="lsh", access="lists"
        )


def rebalance(url):
    with connect(url) as connection:
        HashIndex.open(connection, "items_idx").rebalance()


def repair(url):
    """A swap that finds fewer rows is refused to repair, which does not know that it was forced."""
    with connect(url) as connection:
        index = HashIndex.open(connection, "items_idx")
        left = operations.repair(index).left
        if left:
            (told,) = left
            assert "keeps its set" in told
            assert "index swap items_idx --force" in told
            index.swap(force=True)
            left = operations.repair(index).left
        assert not left, left


def give_up(url):
    with connect(url) as connection:
        assert not operations.repair(HashIndex.open(connection, "items_idx"), undo=True).left


def disorder(url):
    """Give rows other landmarks, and many rows the same one."""
    with connect(url) as connection:
        connection.execute("UPDATE items SET embedding = embedding + embedding WHERE id % 3 = 0")
        rng = np.random.default_rng(5)
        near = 9 + 0.1 * rng.standard_normal((300, 8))
        connection.cursor().executemany(
            "INSERT INTO items VALUES (%s, 'n', %s::real[]::vector)",
            [(9_000 + n, row.tolist()) for n, row in enumerate(near)],
        )


def upgrade(url):
    engine = create_engine(url)
    with translated_errors(), engine.begin() as connection:
        schema.upgrade(connection)
    engine.dispose()


def uninstall(url):
    engine = create_engine(url)
    with engine.begin() as connection:
        schema.downgrade(connection, drop_models=True)
    engine.dispose()


def make_old(url):
    with connect(url) as connection:
        outdate(connection)


def after(*steps):
    def step(url):
        for each in steps:
            each(url)

    return step


def keyed(url):
    """Give the table a primary key of two columns, without a change of what writers write."""
    with connect(url) as connection:
        connection.execute(
            "ALTER TABLE items DROP CONSTRAINT items_pkey, ADD UNIQUE (id), "
            "ADD tenant integer GENERATED ALWAYS AS ((id % 3)::integer) STORED, "
            "ADD PRIMARY KEY (tenant, id)"
        )


PLAIN = after(create("lsh"), encode)
LISTED = after(create("lsh", access="lists"), encode)

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("create", after(), create("lsh"), create_again("lsh"), atomic=True),
        Scenario("create-lists", after(), create_whole),
        Scenario("encode", create("lsh"), encode),
        Scenario("encode-keys", after(keyed, create("lsh")), encode),
        Scenario("lists", PLAIN, change_access("lists")),
        Scenario("landmarks-keys", after(keyed, PLAIN), change_access("lists")),
        Scenario("landmarks-to-scan", LISTED, change_access("scan")),
        Scenario("rebalance", after(LISTED, disorder), rebalance, writes=False),
        Scenario("swap", PLAIN, swap("other")),
        Scenario("swap-to-landmarks", PLAIN, swap("other", "lists")),
        Scenario("rollback", after(PLAIN, swap("other")), rollback_from("other"), atomic=True),
        Scenario("prune", after(PLAIN, swap("other")), prune, atomic=True),
        Scenario("encode-repaired", create("lsh"), encode, repair),
        Scenario("landmarks-repaired", PLAIN, change_access("lists"), repair, undone=True),
        Scenario("swap-given-up", PLAIN, swap("other", "lists"), give_up, undone=True),
        Scenario("drop", LISTED, drop, atomic=True),
        Scenario("install", uninstall, upgrade, writes=False, atomic=True),
        Scenario("upgrade", after(PLAIN, make_old), upgrade, writes=False, atomic=True),
    )
}
