"""Declared indexes that pgvector keeps: by SQLAlchemy and alembic."""

import sqlalchemy as sa
from pgvector.sqlalchemy import VECTOR
from test_sets import ROWS, docs, search  # noqa: F401 (a fixture)

from pg_hashindex.contrib.alembic.comparing import _as_known, _model_sizes, existing_indexes
from pg_hashindex.contrib.sqlalchemy import HashIndex
from pg_hashindex.contrib.sqlalchemy.specification import Swap
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
