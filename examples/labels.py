"""Labels of a few rows: BGDH learns them and a graph, and a column of the table gets the codes."""

import os

import sqlalchemy as sa
from pgvector import Bit
from sqlalchemy import orm

from pg_hashindex import connect, encode_column, hashers, sampling, store
from pg_hashindex.contrib.sqlalchemy import HashCode

# Twenty packages of each section have a label. The parts of their names are the graph.
SHELF = """
    CREATE TABLE shelf AS SELECT id, name, section, embedding, CASE
        WHEN row_number() OVER (PARTITION BY section ORDER BY id) <= 20 THEN section END AS label
    FROM packages WHERE section IN
        ('libs', 'libdevel', 'python', 'doc', 'perl', 'devel', 'utils', 'haskell');
    ALTER TABLE shelf ADD PRIMARY KEY (id), ADD COLUMN code bit(32);
"""
GRAPH = "SELECT id, regexp_split_to_table(name, '-') FROM shelf"
# How many of the hundred rows next to a row without a label are of its section.
PRECISION = """
    SELECT avg((c.section = q.section)::int)
    FROM (SELECT * FROM shelf WHERE label IS NULL ORDER BY id LIMIT 200) q CROSS JOIN LATERAL
        (SELECT * FROM shelf s WHERE s.id <> q.id ORDER BY {} LIMIT 100) c
"""
url = os.environ["PG_HASHINDEX_DATABASE_URL"]
engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1))


class Base(orm.DeclarativeBase):
    pass


class Row(Base):
    __tablename__ = "shelf"

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    section: orm.Mapped[str]
    label: orm.Mapped[str | None]
    code: orm.Mapped[str] = orm.mapped_column(HashCode(32))


with connect(url) as connection:
    connection.execute(SHELF)
    rows = sampling.sample_table(connection, "shelf", "embedding", labels="label", graph=GRAPH)
    hasher = hashers.BGDH(
        n_bits=32, variant="transductive", normalize="l2",
        pretrain=100, rounds=10, embedding_hidden=[256], random_state=0,
    ).fit(rows.X, rows.y, graph=rows.graph)  # fmt: skip
    model = store.save(connection, hasher.to_model("by_label", metric="cosine"))
    name = f"{model.name}:{model.version}"
    done = encode_column(connection, name, "shelf", "embedding", "code")
    print(f"{done.written} codes written")
    for order in ("embedding <=> q.embedding", "bit_count(code # q.code)"):
        (found,) = connection.execute(PRECISION.format(order)).fetchone()
        print(f"label precision by {order}: {found:.3f}")

    connection.execute("CREATE INDEX ON shelf USING hnsw (code bit_hamming_ops)")
    searched = "SELECT embedding FROM shelf WHERE label IS NULL ORDER BY id LIMIT 1"
    (vector,) = connection.execute(searched).fetchone()
    code = Bit(model.encode([vector.to_numpy()])[0].tobytes())
    nearest = "SELECT section FROM shelf ORDER BY code <~> %s LIMIT 5"
    print("by pgvector's HNSW:", *(row[0] for row in connection.execute(nearest, [code])))

with orm.Session(engine) as session:
    query = sa.select(Row).where(Row.label.is_(None)).order_by(Row.id).limit(200).subquery()
    by_code = Row.code.hamming_distance(query.c.code)
    near = sa.select(Row).where(Row.id != query.c.id).order_by(by_code).limit(100).lateral()
    same = sa.cast(near.c.section == query.c.section, sa.Integer)
    found = session.scalar(sa.select(sa.func.avg(same)).select_from(query).join(near, sa.true()))
    print(f"label precision by SQLAlchemy: {found:.3f}")
    nearest = sa.select(Row.section).order_by(Row.code.hamming_distance(code)).limit(5)
    print("of all codes:", *session.scalars(nearest))

with connect(url) as connection:
    connection.execute("DROP TABLE shelf")
    store.drop(connection, name)
