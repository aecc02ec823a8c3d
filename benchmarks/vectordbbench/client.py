"""pg_hashindex as a client of VectorDBBench, whose list of databases is closed.

`register` adds the member ``PgHashindex`` to that list, from outside.
"""

from contextlib import contextmanager

import numpy as np
from pgvector import Vector
from pydantic import BaseModel, SecretStr
from vectordb_bench.backend.clients import DB
from vectordb_bench.backend.clients.api import DBCaseConfig, DBConfig, MetricType, VectorDB

from pg_hashindex import HashIndex, connect, hashers, sampling, schema, store
from pg_hashindex.db.connection import create_engine

METRICS = {MetricType.COSINE: "cosine", MetricType.L2: "l2", MetricType.IP: "ip"}


class HashindexConfig(DBConfig):
    """The server."""

    url: SecretStr

    def to_dict(self):
        return {"url": self.url.get_secret_value()}


class HashindexCaseConfig(BaseModel, DBCaseConfig):
    """How codes are made and searched."""

    metric_type: MetricType | None = None
    bits: int = 256
    candidates: int = 80
    effort: int = 224

    def index_param(self):
        metric = METRICS.get(self.metric_type or MetricType.COSINE)
        if metric is None:
            raise ValueError(
                f"metric {self.metric_type} is unknown; known are {', '.join(METRICS)}"
            )
        return {"metric": metric, "bits": self.bits}

    def search_param(self):
        return {"candidates": self.candidates, "effort": self.effort}


class HashindexClient(VectorDB):
    """Rows in table ``vdb_items``, and an index of ITQ codes with 3 cuts, by landmarks."""

    thread_safe = False
    name = "PgHashindex"

    def __init__(
        self, dim, db_config, db_case_config, collection_name="vdb_items", drop_old=False, **_
    ):
        self.url, self.case, self.dim = db_config["url"], db_case_config, dim
        self.table, self.connection = "vdb_items", None
        if drop_old:
            engine = create_engine(self.url)
            with engine.begin() as transaction:
                schema.upgrade(transaction)
            engine.dispose()
            with connect(self.url) as connection:
                for (name,) in connection.execute("SELECT name FROM hashindex.index").fetchall():
                    HashIndex.open(connection, name).drop()
                connection.execute(
                    f"DROP TABLE IF EXISTS {self.table}; DELETE FROM hashindex.model; "
                    f"CREATE TABLE {self.table} (id bigint PRIMARY KEY, embedding vector({dim}))"
                )

    def copy_for_thread(self):
        return HashindexClient(self.dim, {"url": self.url}, self.case)

    @contextmanager
    def init(self):
        self.connection = connect(self.url)
        try:
            yield
        finally:
            self.connection.close()
            self.connection = None

    def insert_embeddings(self, embeddings, metadata, **_):
        try:
            with (
                self.connection.cursor() as cursor,
                cursor.copy(f"COPY {self.table} FROM STDIN (FORMAT binary)") as copy,
            ):
                copy.set_types(["int8", "vector"])
                for key, row in zip(metadata, embeddings, strict=True):
                    copy.write_row((int(key), Vector(np.asarray(row, np.float32))))
        except Exception as error:  # the harness asks for it as a value
            return 0, error
        return len(metadata), None

    def optimize(self, data_size=None):
        metric, bits = self.case.index_param().values()
        rows = sampling.sample_table(self.connection, self.table, "embedding", rows=8_000).X
        hasher = hashers.ITQ(n_bits=min(bits, self.dim), random_state=0)
        if metric == "cosine":
            hasher.normalize = "l2"
        store.save(self.connection, hasher.fit(rows).to_model("vdb", metric=metric, cuts=3))
        HashIndex.create(
            self.connection, "vdb_idx", table=self.table, column="embedding", model="vdb",
            access="lists",
        )  # fmt: skip
        self.connection.execute(f"VACUUM ANALYZE {self.table}")

    def search_embedding(self, query, k=100, **_):
        candidates, effort = self.case.search_param().values()
        found = self.connection.execute(
            "SELECT id FROM hashindex.search_vdb_idx(%s, %s, %s, %s) ORDER BY distance",
            [Vector(np.asarray(query, np.float32)), k, candidates, effort],
            prepare=True,
            binary=True,
        )
        return [key for (key,) in found]


def register():
    """Add the client to the harness's list of databases; return its member there."""
    if "PgHashindex" in DB.__members__:
        return DB.PgHashindex
    member = object.__new__(DB)
    member._name_, member._value_ = "PgHashindex", "PgHashindex"
    DB._member_map_["PgHashindex"] = member
    DB._value2member_map_["PgHashindex"] = member
    DB._member_names_.append("PgHashindex")
    for name, own in (("init_cls", HashindexClient), ("config_cls", HashindexConfig)):
        known = getattr(DB, name).fget
        setattr(
            DB, name, property(lambda db, own=own, known=known: own if db is member else known(db))
        )
    known_cases = DB.case_config_cls
    DB.case_config_cls = lambda db, index_type=None: (
        HashindexCaseConfig if db is member else known_cases(db, index_type)
    )
    return member
