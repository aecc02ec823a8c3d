"""pg_hashindex and pgvector's indexes for ann-benchmarks: copy this folder into its algorithms.

There is a class for each system. Each drops table ``items`` and makes it in the database of
``PG_HASHINDEX_DATABASE_URL``. Without that variable it starts the server of the image.
"""

import os
import subprocess

import numpy as np
from pgvector import Vector

from pg_hashindex import HashIndex, connect, hashers, schema, store
from pg_hashindex.db.connection import create_engine

from ..base.module import BaseANN

METRICS = {"angular": ("cosine", "<=>"), "euclidean": ("l2", "<->")}
START = "service postgresql start"


class Postgres(BaseANN):
    """Base of the systems: a table of the vectors, and one statement for each query.

    Parameters
    ----------
    metric
        A distance of ann-benchmarks.
    """

    #: The index whose size is reported.
    relation = "items_idx"

    def __init__(self, metric, parameters):
        if metric not in METRICS:
            raise ValueError(f"metric {metric!r} is unknown; known are {', '.join(METRICS)}")
        self.metric, self.operator = METRICS[metric]
        self.parameters = parameters
        self.setting = ""
        self._connection = None

    def fit(self, X):
        url = os.environ.get("PG_HASHINDEX_DATABASE_URL")
        if url is None:
            subprocess.run(START, shell=True, check=True)
            url = "postgresql://ann:ann@localhost/ann"
        engine = create_engine(url)
        with engine.begin() as transaction:
            schema.upgrade(transaction)
        engine.dispose()
        self._connection = connection = connect(url)
        for (name,) in connection.execute("SELECT name FROM hashindex.index").fetchall():
            HashIndex.open(connection, name).drop()
        connection.execute("DROP TABLE IF EXISTS items; DELETE FROM hashindex.model")
        self.dimension = X.shape[1]
        self.run(f"CREATE TABLE items (id bigint PRIMARY KEY, embedding vector({self.dimension}))")
        with (
            connection.cursor() as cursor,
            cursor.copy("COPY items FROM STDIN (FORMAT binary)") as copy,
        ):
            copy.set_types(["int8", "vector"])
            for number, row in enumerate(X):
                copy.write_row((number, Vector(np.asarray(row, np.float32))))
        self.build(X)
        connection.execute("VACUUM ANALYZE items")

    def run(self, statement):
        self._connection.execute(statement.encode())

    def query(self, v, n):
        found = self._connection.execute(
            self.statement(), [Vector(np.asarray(v, np.float32)), n], prepare=True, binary=True
        )
        return [key for (key,) in found]

    def get_memory_usage(self):
        """Bytes of the index on the server, in kB; not those of this process."""
        if self._connection is None:
            return 0
        found = self._connection.execute(
            "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c WHERE "
            "c.oid = to_regclass(%s) OR c.relnamespace = to_regnamespace('hashindex') "
            "AND c.relkind = 'r' AND c.relname ~ '^items_idx'",
            [self.relation],
        ).fetchone()
        return float(found[0]) / 1024

    def done(self):
        if self._connection is not None:
            self._connection.close()

    def __str__(self):
        given = ", ".join(f"{name}={value}" for name, value in self.parameters.items())
        return f"{type(self).__name__}({given}{self.setting})"


class Hashindex(Postgres):
    """Codes of ITQ with 3 cuts, by landmarks."""

    def build(self, X):
        rows = X[np.random.default_rng(0).permutation(len(X))[:8_000]]
        bits = min(self.parameters["bits"], self.dimension)
        hasher = hashers.ITQ(n_bits=bits, random_state=0)
        if self.metric == "cosine":
            hasher.normalize = "l2"
        model = hasher.fit(rows).to_model("items", metric=self.metric, cuts=3)
        store.save(self._connection, model)
        HashIndex.create(
            self._connection, "items_idx", table="items", column="embedding", model="items",
            access="lists",
        )  # fmt: skip

    def set_query_arguments(self, setting):
        self._candidates, self._probes = setting
        self.setting = f", candidates={self._candidates}, probes={self._probes}"

    def statement(self):
        return (
            "SELECT id FROM hashindex.search_items_idx"
            f"(%s, %s, {self._candidates}, {self._probes}) ORDER BY distance"
        )


class Hnsw(Postgres):
    """pgvector's HNSW."""

    def build(self, X):
        m, ef = self.parameters["m"], self.parameters["ef_construction"]
        self.run(
            f"CREATE INDEX items_idx ON items USING hnsw (embedding vector_{self.metric}_ops) "
            f"WITH (m = {m}, ef_construction = {ef})"
        )

    def set_query_arguments(self, ef_search):
        self.setting = f", ef_search={ef_search}"
        self.run(f"SET hnsw.ef_search = {ef_search}")

    def statement(self):
        return f"SELECT id FROM items ORDER BY embedding {self.operator} %s LIMIT %s"


class Ivfflat(Hnsw):
    """pgvector's IVFFlat."""

    def build(self, X):
        lists = self.parameters["lists"]
        self.run(
            "CREATE INDEX items_idx ON items USING ivfflat "
            f"(embedding vector_{self.metric}_ops) WITH (lists = {lists})"
        )

    def set_query_arguments(self, probes):
        self.setting = f", probes={probes}"
        self.run(f"SET ivfflat.probes = {probes}")


class BinaryQuantize(Hnsw):
    """pgvector's HNSW over the signs of vectors, whose candidates are compared exactly."""

    def build(self, X):
        m, ef = self.parameters["m"], self.parameters["ef_construction"]
        self.run(
            "CREATE INDEX items_idx ON items USING hnsw "
            f"((binary_quantize(embedding)::bit({self.dimension})) bit_hamming_ops) "
            f"WITH (m = {m}, ef_construction = {ef})"
        )

    def set_query_arguments(self, candidates):
        self._candidates = candidates
        self.setting = f", candidates={candidates}"
        self.run(f"SET hnsw.ef_search = {candidates}")

    def query(self, v, n):
        vector = Vector(np.asarray(v, np.float32))
        found = self._connection.execute(
            self.statement(), [vector, self._candidates, vector, n], prepare=True, binary=True
        )
        return [key for (key,) in found]

    def statement(self):
        return (
            "SELECT id FROM (SELECT id, embedding FROM items ORDER BY "
            f"binary_quantize(embedding)::bit({self.dimension}) <~> "
            "binary_quantize(%s::vector) LIMIT %s) c "
            f"ORDER BY embedding {self.operator} %s LIMIT %s"
        )
