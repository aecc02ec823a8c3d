"""Building access paths that are indexes of PostgreSQL over the codes, and taking them down."""

from typing import Any

import numpy as np
import pytest
from fixtures.catalog import catalog
from fixtures.code_indexes import save_signs
from numpy.typing import NDArray

from pg_hashindex.db.connection import Connection, connect
from pg_hashindex.errors import DatabaseStateError, InUseError
from pg_hashindex.index import build as building
from pg_hashindex.index.catalog import IndexRow
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.models.model import Model

PATHS = ("lookup", "hnsw")

STATEMENTS = """
    SELECT c.create_statement FROM hashindex.index i, hashindex._code_indexes(i, i.building) c
"""

ASKED = {"lookup": ["chunk_1"], "hnsw": ["hnsw"]}


def built(connection: Connection) -> dict[str, bool]:
    """The indexes over codes, and whether PostgreSQL may use them."""
    rows = connection.execute(
        "SELECT indexrelid::regclass::text, indisvalid FROM pg_index "
        "WHERE indexrelid::regclass::text ~ 'hashindex_'"
    ).fetchall()
    return {name.replace('"', "").removeprefix("hashindex."): valid for name, valid in rows}


def paths(connection: Connection, name: str = "items_idx") -> tuple[str, str | None]:
    found = HashIndex.open(connection, name)
    return found.access, found.building


@pytest.mark.newest
@pytest.mark.parametrize("path", PATHS)
def test_a_path_is_built_by_encode_and_then_used(index: HashIndex, path: Any) -> None:
    connection = index.connection
    before = index.search(np.ones(8))
    index = index.configure(access=path)
    assert paths(connection) == ("scan", path)
    assert built(connection) == {}
    assert index.search(np.ones(8)) == before
    assert index.encode() == 0
    assert paths(connection) == (path, None)
    assert built(connection) == {f"hashindex_items_idx_{part}": True for part in ASKED[path]}
    assert HashIndex.open(connection, "items_idx").chunks == (1 if path == "lookup" else None)
    assert index.building is None
    assert index.configure(access=path).building is None
    assert index.encode() == 0
    assert paths(connection) == (path, None)


def test_switching_takes_the_path_before_down(index: HashIndex) -> None:
    connection = index.connection
    before = catalog(connection)
    for path in ("lookup", "hnsw", "lookup", "scan"):
        index.configure(access=path)  # type: ignore[arg-type]
        index.encode()
        assert paths(connection) == (path, None)
        assert len(built(connection)) == (path != "scan")
    assert catalog(connection) == before


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("layout", ["table", "column"])
def test_drop_leaves_nothing(
    connection: Connection, items: str, model: Model, layout: Any, path: Any
) -> None:
    before = catalog(connection)
    for encoded in (True, False):
        index = HashIndex.create(
            connection,
            "A-b",
            table=items,
            column="embedding",
            model=model.name,
            layout=layout,
            access=path,
        )
        if encoded:
            index.encode()
        index.drop()
        assert catalog(connection) == before


@pytest.mark.parametrize("path", PATHS)
def test_a_run_that_was_cut_off_goes_on(
    connection: Connection, items: str, lsh_model: Model, path: Any
) -> None:
    """Two chunks, of which one was made and one left INVALID, as PostgreSQL does; or a graph."""
    connection.execute("ALTER TABLE items ADD COLUMN long vector(40)")
    connection.execute("UPDATE items SET long = array_fill(id % 2 - 0.5, ARRAY[40])::vector")
    save_signs(connection, 40)
    index = HashIndex.create(
        connection, "items_idx", table=items, column="long", model="signs", access=path
    )
    connection.execute("UPDATE hashindex.index SET chunks = 2")
    statements = connection.execute(STATEMENTS).fetchall()
    for (statement,) in statements:
        assert " CONCURRENTLY " in statement
        connection.execute(statement)
    oids = dict(
        connection.execute(
            "SELECT relname, oid FROM pg_class WHERE relname ~ '^hashindex_items_idx'"
        ).fetchall()
    )
    last = max(oids)
    connection.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = %s", [oids[last]])
    index.encode()
    assert paths(connection) == (path, None)
    assert built(connection) == dict.fromkeys(oids, True)
    for name, oid in oids.items():
        row = connection.execute("SELECT oid FROM pg_class WHERE relname = %s", [name]).fetchone()
        assert row is not None
        assert (row[0] == oid) == (name != last)


@pytest.mark.parametrize("path", PATHS)
def test_a_path_that_is_given_up_goes(index: HashIndex, path: Any) -> None:
    connection = index.connection
    before = catalog(connection)
    index.configure(access=path)
    connection.execute("UPDATE hashindex.index SET chunks = 1 WHERE building = 'lookup'")
    (statement,) = connection.execute(STATEMENTS).fetchall()
    connection.execute(statement[0])
    assert len(built(connection)) == 1
    index.configure(access="scan")
    assert paths(connection) == ("scan", None)
    assert HashIndex.open(connection, "items_idx").chunks is None
    assert catalog(connection) == before


@pytest.mark.parametrize("path", PATHS)
def test_configured_otherwise_while_it_is_built(
    index: HashIndex, other: Connection, monkeypatch: pytest.MonkeyPatch, path: Any
) -> None:
    build = building.build_code_indexes

    def and_then_give_up(built: IndexRow, *arguments: Any, **options: Any) -> None:
        HashIndex.open(other, built.name).configure(access="scan")
        build(built, *arguments, **options)

    monkeypatch.setattr(building, "build_code_indexes", and_then_give_up)
    before = catalog(index.connection)
    with pytest.raises(DatabaseStateError, match=f"otherwise while its access path {path} was"):
        index.configure(access=path).encode()
    assert paths(index.connection) == ("scan", None)
    assert catalog(index.connection) == before


def test_two_sessions_do_not_build_at_once(
    index: HashIndex, other: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = building.build_code_indexes

    def while_another_tries(built: IndexRow, *arguments: Any, **options: Any) -> None:
        with pytest.raises(InUseError, match="is being built by another session; its rows are"):
            HashIndex.open(other, built.name).encode()
        build(built, *arguments, **options)

    monkeypatch.setattr(building, "build_code_indexes", while_another_tries)
    index.configure(access="lookup").encode()
    assert paths(index.connection) == ("lookup", None)


@pytest.mark.parametrize("path", PATHS)
def test_of_no_rows_and_on_a_connection_that_begins_transactions(
    url: str, connection: Connection, model: Model, path: Any
) -> None:
    connection.execute("CREATE TABLE nothing (id uuid PRIMARY KEY, embedding vector(8))")
    with connect(url) as session:
        session.autocommit = False
        index = HashIndex.create(
            session, "i", table="nothing", column="embedding", model=model.name, access=path
        )
        session.commit()
        assert index.encode() == 0
        assert session.autocommit is False
        assert paths(session, "i") == (path, None)
        assert index.search(np.ones(8)) == []
        assert index.within(np.ones(8), 12) == []
        session.commit()
    connection.execute("INSERT INTO nothing VALUES (gen_random_uuid(), '[1,1,1,1,1,1,1,1]')")
    assert len(HashIndex.open(connection, "i").search(np.ones(8))) == 1
    assert len(HashIndex.open(connection, "i").within(np.ones(8), 0)) == 1


@pytest.mark.parametrize("path", PATHS)
def test_partitions_of_a_code_column(
    connection: Connection, model: Model, vectors: NDArray[np.float32], path: Any
) -> None:
    """Those that are there, of any depth and with any name, and those that come."""
    long = "p" * 63
    connection.execute(
        "CREATE TABLE parts (id int PRIMARY KEY, embedding vector(8)) PARTITION BY RANGE (id);"
        f"CREATE TABLE {long} PARTITION OF parts FOR VALUES FROM (0) TO (100);"
        "CREATE TABLE upper PARTITION OF parts FOR VALUES FROM (100) TO (300) "
        "PARTITION BY RANGE (id);"
        "CREATE TABLE upper_1 PARTITION OF upper FOR VALUES FROM (100) TO (200);"
        "CREATE TABLE upper_2 PARTITION OF upper FOR VALUES FROM (200) TO (300)"
    )
    connection.cursor().executemany(
        "INSERT INTO parts VALUES (%s, %s)", list(enumerate(vectors[:300].tolist()))
    )
    before = catalog(connection)
    name = "n" * 40
    index = HashIndex.create(
        connection,
        name,
        table="parts",
        column="embedding",
        model=model.name,
        layout="column",
        access=path,
    )
    wanted = index.encode(), index.within(vectors[3], 3), index.search(vectors[3], 300)
    assert wanted[0] == 300
    assert len(built(connection)) == 5
    assert all(built(connection).values())
    connection.execute("CREATE TABLE more PARTITION OF parts FOR VALUES FROM (300) TO (400)")
    row = connection.execute("SELECT count(*) FROM pg_index WHERE indrelid = 'more'::regclass")
    assert row.fetchone() == (2,)
    connection.execute("SET enable_seqscan TO off; DISCARD PLANS")
    assert index.within(vectors[3], 3) == wanted[1]
    assert index.search(vectors[3], 300) == wanted[2]
    connection.execute("DROP TABLE more")
    index.drop()
    assert catalog(connection) == before
