"""Declared indexes that pgvector keeps: by SQLAlchemy and alembic."""

import pytest
import sqlalchemy as sa
from fixtures.migrating import body
from pgvector.sqlalchemy import BIT, VECTOR
from test_sets import ROWS, docs, search  # noqa: F401 (a fixture)

from pg_hashindex.contrib.alembic.comparing import _as_known, _model_sizes, existing_indexes
from pg_hashindex.contrib.sqlalchemy import HashIndex
from pg_hashindex.contrib.sqlalchemy.declared import declared_on
from pg_hashindex.contrib.sqlalchemy.specification import (
    Configure,
    Create,
    Drop,
    IndexSpec,
    Swap,
)
from pg_hashindex.db.connection import create_engine


def declared(**options):
    table = sa.Table(
        "docs", sa.MetaData(), sa.Column("id", sa.BigInteger, primary_key=True),
        sa.Column("account", sa.Integer), sa.Column("embedding", VECTOR(32)),
    )  # fmt: skip
    return HashIndex("docs", table.c.embedding, **options)


def _changes(transaction, index):
    (found,) = existing_indexes(transaction, "public").values()
    return _as_known(index.spec(), found, _model_sizes(transaction)).changes_from(found.spec)


def test_a_declared_set_is_complete(connection, docs, url):  # noqa: F811
    connection.execute("SELECT hashindex.train('texts', 'docs', 'embedding')")
    with create_engine(url).begin() as transaction:
        declared(model="texts", access="hnsw", candidates=60).create(transaction)
    assert len(search(connection, docs[0], 30)) == 30
    with create_engine(url).begin() as transaction:
        (found,) = existing_indexes(transaction, "public").values()
        assert found.spec.model == "texts:1"
        assert found.spec.options["access"] == "hnsw"
        declared(model="texts", access="hnsw").drop(transaction)
    assert connection.execute("SELECT count(*) FROM hashindex.index_set").fetchone() == (0,)


def test_vectors_and_another_model(connection, docs, url):  # noqa: F811
    with create_engine(url).begin() as transaction:
        declared(model="none").create(transaction)
        (found,) = existing_indexes(transaction, "public").values()
        assert found.spec.model == "none"
    connection.execute("SELECT hashindex.train('texts', 'docs', 'embedding')")
    assert connection.execute(
        "SELECT hashindex._declare_swap('docs', model => 'texts')"
    ).fetchone() == (True,)
    assert connection.execute(
        "SELECT state, model_id IS NOT NULL FROM hashindex.index_set ORDER BY id"
    ).fetchall() == [("former", False), ("used", True)]
    assert len(search(connection, docs[0], 30)) == 30


def test_a_model_that_was_trained_again_is_seen(connection, docs, url):  # noqa: F811
    connection.execute("SELECT hashindex.train('texts', 'docs', 'embedding')")
    with create_engine(url).begin() as transaction:
        index = declared(model="texts", access="hnsw")
        index.create(transaction)
        assert _changes(transaction, index) == []
    connection.execute("SELECT hashindex.train('texts', 'docs', 'embedding', seed => 1)")
    with create_engine(url).begin() as transaction:
        assert _changes(transaction, index) == [Swap({"model": "texts:2"}, {"model": "texts:1"})]


def table(*columns, **options):
    """Table docs, with an index if a model or an option is stated."""
    metadata = sa.MetaData()
    declared_table = sa.Table(
        "docs", metadata, sa.Column("id", sa.BigInteger, primary_key=True),
        sa.Column("account", sa.Integer), sa.Column("embedding", VECTOR(32)), *columns,
    )  # fmt: skip
    if options:
        HashIndex("docs", declared_table.c.embedding, **options)
    return metadata


def sets(connection):
    return connection.execute(
        "SELECT s.state, coalesce(m.name || ':' || m.version, 'none'), s.access, s.stores "
        "FROM hashindex.index_set s LEFT JOIN hashindex.model m ON m.id = s.model_id ORDER BY s.id"
    ).fetchall()


@pytest.mark.parametrize(
    ("stated", "written", "now"),
    [
        (
            {"access": "ivfflat"},
            "access='ivfflat', existing={'access': 'hnsw'}",
            ("texts:1", "ivfflat", False),
        ),
        ({"store": True}, "store=True, existing={'store': False}", ("texts:1", "hnsw", True)),
        (
            {"model": "none"},
            "model='none', existing={'model': 'texts:1'}",
            ("none", "hnsw", False),
        ),
    ],
)
def test_another_set_is_a_swap(project, connection, docs, stated, written, now):  # noqa: F811
    first = ("texts:1", "hnsw", False)
    connection.execute("SELECT hashindex.train('texts', 'docs', 'embedding')")
    project.declares(table(model="texts"))
    assert body(project.generate(), "upgrade") == [
        "op.create_hash_index('docs', 'docs', 'embedding', model='texts')"
    ]
    project.upgrade()
    project.check()
    assert sets(connection) == [("used", *first)]
    project.declares(table(**{"model": "texts", **stated}))
    assert body(project.generate("swap"), "upgrade") == [f"op.swap_hash_index('docs', {written})"]
    project.upgrade()
    # Pgvector's indexes and the column of codes are not proposed to be dropped.
    project.check()
    assert sets(connection) == [("former", *first), ("used", *now)]
    assert len(search(connection, docs[0], 30)) == 30
    project.downgrade()
    assert sets(connection) == [("used", *first), ("former", *now)]
    # It is built again after a prune, and is not where it is there already.
    first_revision = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    connection.execute("SELECT hashindex.prune_index('docs')")
    project.upgrade()
    made = connection.execute("SELECT max(id) FROM hashindex.index_set").fetchone()
    connection.execute("SELECT hashindex.prune_index('docs')")
    connection.execute("UPDATE alembic_version SET version_num = %s", first_revision)
    project.upgrade()
    assert connection.execute("SELECT max(id) FROM hashindex.index_set").fetchone() == made
    project.declares(table())
    project.generate("none")
    project.upgrade()
    assert sets(connection) == []
    project.check()


def test_settings_come_with_another_set(project, connection, docs):  # noqa: F811
    connection.execute("SELECT hashindex.train('texts', 'docs', 'embedding')")
    project.declares(table(model="texts", candidates=60))
    project.generate()
    project.upgrade()
    connection.execute("SELECT hashindex.train('texts', 'docs', 'embedding', seed => 1)")
    text = project.generate("again")
    assert body(text, "upgrade") == [
        "op.swap_hash_index('docs', model='texts:2', candidates=60, "
        "existing={'model': 'texts:1', 'candidates': 60})"
    ]
    project.upgrade()
    project.check()
    candidates = "SELECT candidates FROM hashindex.index_set WHERE state = 'used'"
    assert connection.execute(candidates).fetchone() == (60,)
    project.declares(table(model="texts", candidates=70, effort=90))
    assert "op.configure_hash_index('docs', candidates=70, effort=90" in project.generate("more")
    project.upgrade()
    project.check()


def test_a_table_comes_back_with_its_stored_codes(project, connection, docs):  # noqa: F811
    connection.execute("SELECT hashindex.train('texts', 'docs', 'embedding')")
    project.declares(table(model="texts", store=True))
    project.generate()
    project.upgrade()
    project.declares(sa.MetaData())
    text = project.generate("gone")
    assert [line.partition("(")[0] for line in body(text, "upgrade")] == [
        "op.drop_hash_index",
        "op.drop_table",
    ]
    assert "docs_code" not in text
    project.upgrade()
    project.downgrade()
    assert sets(connection) == [("used", "texts:1", "hnsw", True)]
    columns = "SELECT column_name FROM information_schema.columns WHERE table_name = 'docs'"
    assert {row[0] for row in connection.execute(columns)} == {
        *("id", "account", "embedding", "docs_code")
    }


def test_a_column_of_codes_belongs_to_its_set(project, connection, docs):  # noqa: F811
    connection.execute("SELECT hashindex.train('texts', 'docs', 'embedding')")
    connection.execute("SELECT hashindex.create_functions('texts')")
    connection.execute(
        "ALTER TABLE docs "
        "ADD code bit(96) GENERATED ALWAYS AS (hashindex.code_texts(embedding)) STORED"
    )
    filled = sa.Column(
        "code", BIT(96), sa.Computed("hashindex.code_texts(embedding)", persisted=True)
    )
    project.declares(table(filled, model="texts", code_column="code"))
    assert body(project.generate(), "upgrade") == [
        "op.create_hash_index('docs', 'docs', 'embedding', model='texts', code_column='code')"
    ]
    project.upgrade()
    project.check()
    project.declares(table(model="texts", code_column="code"))
    project.check()
    project.declares(table(model="texts", store=True))
    assert "existing={'store': False, 'code_column': 'code'})" in project.generate("store")
    project.upgrade()
    assert sets(connection)[-1] == ("used", "texts:1", "hnsw", True)
    project.downgrade()
    connection.execute("SELECT hashindex.prune_index('docs')")
    project.upgrade()
    connection.execute("SELECT hashindex.prune_index('docs')")
    project.downgrade()
    codes = "SELECT code_column FROM hashindex.index_set WHERE state = 'used'"
    assert connection.execute(codes).fetchone() == ("code",)


def test_a_generated_column_of_another_model_is_named(project, connection, docs):  # noqa: F811
    connection.execute("SELECT hashindex.train('texts', 'docs', 'embedding')")
    connection.execute("SELECT hashindex.create_functions('texts')")
    connection.execute(
        "ALTER TABLE docs "
        "ADD code bit(96) GENERATED ALWAYS AS (hashindex.code_texts(embedding)) STORED"
    )

    def declare(function):
        computed = sa.Computed(f"hashindex.{function}(embedding)", persisted=True)
        project.declares(table(sa.Column("code", BIT(96), computed)))
        project.check()

    declare("code_texts")
    with pytest.warns(UserWarning, match="column code of docs keeps the codes of .*code_texts,"):
        declare("code_texts_2")


def test_an_index_without_a_model_has_the_vectors_of_a_small_table(connection, url):
    with create_engine(url).begin() as transaction:
        metadata = table(candidates=33)
        metadata.create_all(transaction)
        (found,) = existing_indexes(transaction, "public").values()
        assert found.spec.model == "none"
        (index,) = declared_on(metadata.tables["docs"]).values()
        assert _changes(transaction, index) == []
        metadata.drop_all(transaction)
    assert sets(connection) == []


LISTS, SET = {"access": "lists"}, {"access": "hnsw", "store": False, "candidates": 50}
KEPT = {"key_columns": ["id"], "metric": "cosine"}


@pytest.mark.parametrize(
    ("model", "stated", "was", "changes"),
    [
        (None, {}, SET, []),
        ("m", {}, SET, []),
        ("m:1", {"metric": "cosine", "key_columns": ["id"], "candidates": 50}, SET, []),
        ("m:2", {}, SET, [Swap({"model": "m:2"}, {"model": "m:1"})]),
        ("none", {}, SET, [Swap({"model": "none"}, {"model": "m:1"})]),
        ("m", {"candidates": 9}, SET, [Configure({"candidates": 9}, {"candidates": 50})]),
        ("m", {"effort": 9}, SET, [Configure({"effort": 9}, {"effort": 50})]),
        ("m", {"reveal_anchors": True}, SET, []),
        (
            "n",
            {"reveal_anchors": True, "candidates": 50},
            SET,
            [
                Swap(
                    {"model": "n", "reveal_anchors": True, "candidates": 50},
                    {"model": "m:1", "candidates": 50},
                )
            ],
        ),
        ("m", {"store": True}, SET, [Swap({"store": True}, {"store": False})]),
        (
            "m",
            {"code_column": "c"},
            {**SET, "store": True},
            [Swap({"code_column": "c", "store": False}, {"store": True})],
        ),
        (
            "m",
            {"store": True},
            {**SET, "code_column": "c"},
            [Swap({"store": True}, {"store": False, "code_column": "c"})],
        ),
        (
            "n",
            {"code_column": "c"},
            {**SET, "code_column": "c"},
            [
                Swap(
                    {"model": "n", "code_column": "c", "store": False},
                    {"model": "m:1", "code_column": "c", "store": False},
                )
            ],
        ),
        ("m", {"access": "scan"}, LISTS, [Swap({"access": "scan"}, {"access": "lists"})]),
        ("m", {"access": "scan"}, SET, None),
        ("m", {"access": "ivfflat"}, LISTS, None),
        ("m", {"metric": "l2"}, SET, None),
        ("m", {"key_columns": ["other"]}, SET, None),
        ("m", {"tenant": "account"}, SET, None),
        ("m", {}, {**SET, "tenant": "account"}, None),
    ],
)
def test_what_changes_an_index(model, stated, was, changes):
    found = IndexSpec("docs", "docs", "embedding", "m:1", options=KEPT | was)
    spec = IndexSpec.declared("docs", "docs", "embedding", model, **stated)
    assert spec.changes_from(found) == ([Drop(found), Create(spec)] if changes is None else changes)
    assert spec.changes_from(None) == [Create(spec)]
    assert spec.changes_from(spec) == []
    other = IndexSpec.declared("docs", "docs", "other", model, **stated)
    assert other.changes_from(found) == [Drop(found), Create(other)]
