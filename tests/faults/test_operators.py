"""Two operators do something at once: one wins, the other gets an error, and the end is right."""

import random
import re
import threading
from dataclasses import dataclass

import pytest
from faults.scenarios import (
    LISTED,
    PLAIN,
    Step,
    after,
    change_access,
    create,
    disorder,
    encode,
    make_old,
    swap,
    upgrade,
)
from faults.tables import check_all, indexes
from fixtures.catalog import catalog
from fixtures.faults import MOMENTS, name_of, record, watch
from psycopg.pq import TransactionStatus

from pg_hashindex.db.connection import connect
from pg_hashindex.errors import (
    DatabaseStateError,
    DuplicateNameError,
    HashIndexError,
    InUseError,
    UnknownIndexError,
)
from pg_hashindex.index.handle import HashIndex

#: Messages about PostgreSQL's catalogs, which no operator understands; and wrong ones.
UNCLEAR = re.compile(
    "tuple concurrently|cache lookup|with OID|duplicate key value|"
    "schema hashindex is missing or old|"
    'trigger ".*" (for|does)|current transaction is aborted'
)

GONE = (UnknownIndexError, DatabaseStateError, InUseError)


def method(name):
    def step(url):
        with connect(url) as connection:
            index = HashIndex.open(connection, "items_idx")
            getattr(index, name)()

    step.__name__ = name
    return step


@dataclass(frozen=True)
class Pair:
    """The actions of two operators, the error of the second, and the expected state."""

    prepare: Step
    first: Step
    second: Step
    told: tuple[type[HashIndexError], ...]
    #: Whether the index is gone in the end.
    gone: bool = False
    #: Commands that complete the work of the operator who got the error.
    finish: Step | None = None


PAIRS = {
    "two creates": Pair(
        after(), create("lsh"), create("other"), (DuplicateNameError,), finish=encode
    ),
    "two encodes": Pair(create("lsh"), encode, encode, (InUseError,)),
    "two swaps": Pair(PLAIN, swap("other"), swap("other"), (InUseError,)),
    "swaps to two models": Pair(PLAIN, swap("other"), swap("third"), (InUseError,)),
    "two drops": Pair(PLAIN, method("drop"), method("drop"), GONE, gone=True),
    "swap and drop": Pair(PLAIN, swap("other"), method("drop"), GONE, gone=True),
    "drop and swap": Pair(PLAIN, method("drop"), swap("other"), GONE, gone=True),
    "encode and drop": Pair(create("lsh"), encode, method("drop"), GONE, gone=True),
    "encode of landmarks and drop": Pair(
        create("lsh", access="lists"), encode, method("drop"), GONE, gone=True
    ),
    "drop and encode": Pair(create("lsh"), method("drop"), encode, GONE, gone=True),
    "encode and change of access": Pair(
        create("lsh", access="lists"), encode, change_access("scan"),
        (InUseError, DatabaseStateError), finish=encode,
    ),
    "two changes of access": Pair(
        PLAIN, change_access("scan"), change_access("lists"), (InUseError, DatabaseStateError),
        finish=encode,
    ),
    "two rebalances": Pair(
        after(LISTED, disorder), method("rebalance"), method("rebalance"), (InUseError,)
    ),
    "rebalance and drop": Pair(
        after(LISTED, disorder), method("rebalance"), method("drop"), GONE, gone=True
    ),
    "rebalance and swap": Pair(
        after(LISTED, disorder), method("rebalance"), swap("other"),
        (InUseError, DatabaseStateError),
    ),
    "two upgrades": Pair(after(PLAIN, make_old), upgrade, upgrade, ()),
    "upgrade and drop": Pair(after(PLAIN, make_old), upgrade, method("drop"), (HashIndexError,)),
    "two prunes": Pair(
        after(PLAIN, swap("other")), method("prune"), method("prune"),
        (DatabaseStateError, InUseError),
    ),
    "rollback and prune": Pair(
        after(PLAIN, swap("other")), method("rollback"), method("prune"),
        (DatabaseStateError, InUseError),
    ),
    "encode and swap": Pair(
        create("lsh", access="lists"), encode, swap("other"), (InUseError, DatabaseStateError),
        finish=encode,
    ),
}  # fmt: skip


@pytest.fixture(scope="session")
def before_pairs(fault_server, installed):
    """Make the database that a pair begins with; return it, and the first one's statements."""
    made = {}

    def prepare(name):
        if name not in made:
            fault_server.up()
            url = fault_server.database(installed)
            PAIRS[name].prepare(url)
            scratch = fault_server.database(name_of(url))
            count = 0

            def counting(number, *_):
                nonlocal count
                count = number + 1

            with watch(counting):
                PAIRS[name].first(scratch)
            fault_server.drop(scratch)
            made[name] = (name_of(url), count)
        return made[name]

    return prepare


class Operator(threading.Thread):
    """One of the two; stops before one of its statements until it may continue."""

    def __init__(self, step, url, at=None):
        super().__init__(daemon=True)
        self.step, self.url, self.at = step, url, at
        self.there, self.may_continue = threading.Event(), threading.Event()
        self.problem = None
        self.start()

    def run(self):
        def before(number, *_):
            if number == self.at:
                self.there.set()
                self.may_continue.wait(30)

        try:
            with watch(before):
                self.step(self.url)
        except BaseException as error:
            self.problem = error
        self.there.set()


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
def test_two_at_once(fault_server, installed, before_pairs, database, name):
    pair = PAIRS[name]
    template, statements = before_pairs(name)
    places = max(1, MOMENTS // 2)
    for place in range(places):
        # Another one for each pair.
        share = (place + random.Random(name).random()) / places
        url = database(template)
        first = Operator(pair.first, url, at=int(share * statements))
        assert first.there.wait(30)
        second = Operator(pair.second, url)
        # It ends, or waits for the first one.
        second.join(0.2)
        first.may_continue.set()
        for operator in (first, second):
            operator.join(60)
            assert not operator.is_alive()
        problems = [each.problem for each in (first, second) if each.problem is not None]
        for problem in problems:
            assert isinstance(problem, pair.told), f"{name} {share}: {problem!r}"
            assert not UNCLEAR.search(str(problem)), f"{name} {share}: {problem}"
        # Neither wins where one has changed what the other was at, and waits for its lock.
        assert len(problems) < 2 or pair.finish is not None
        if pair.finish is not None:
            pair.finish(url)
        checked = 0
        if pair.gone:
            # Whichever came first: what the other had made is gone too.
            with connect(url) as connection:
                if indexes(connection):
                    HashIndex.open(connection, "items_idx").drop()
                left = catalog(connection)
            untouched = database(installed)
            with connect(untouched) as connection:
                assert left == catalog(connection)
        else:
            checked = check_all(url, complete=True)
            assert checked or name == "upgrade and drop"
        record("two operators", operations=2, faults=1, rows=checked)


def test_a_drop_in_the_middle_of_encoding_is_reported(fault_server, before_pairs, database):
    """As the second operator sees it: not that the schema is missing."""
    url = database(before_pairs("encode and drop")[0])
    with connect(url) as connection:
        index = HashIndex.open(connection, "items_idx")
        dropped = []

        def before(number, statement, _):
            # Not while the encoder's own transaction keeps the table in use.
            if (
                number >= 12
                and not dropped
                and connection.info.transaction_status == TransactionStatus.IDLE
            ):
                dropped.append(number)
                method("drop")(url)

        with pytest.raises(DatabaseStateError, match="dropped (or recreated meanwhile|the lists)"):
            with watch(before):
                index.encode(batch_rows=100)
