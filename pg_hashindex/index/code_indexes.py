"""Build PostgreSQL's indexes over codes, for the access paths lookup and hnsw.

They are made CONCURRENTLY, so writers do not wait, and each is committed by itself, so an
interrupted run continues with the next one. The index that it was building is left INVALID, and is
dropped and built again. ``sql/141`` is the part in SQL.
"""

from typing import LiteralString

from psycopg import sql

from ..db.connection import execute
from ..db.jobs import Job, progress_bar
from .access import configured_otherwise, drop_unused, path_to_build
from .catalog import Access, IndexRow

# Decided once, so that an interrupted run continues with b-trees of the same chunks.
_SET_CHUNKS: LiteralString = """
    UPDATE hashindex.index i
    SET chunks = hashindex._lookup_chunks({bits}, (SELECT pg_catalog.count({code}) FROM {codes}))
    WHERE i.name = $1 AND i.building = 'lookup' AND i.chunks IS NULL
"""

_INDEXES: LiteralString = """
    SELECT x.index_name, x.create_statement, x.attach_statement,
           -- An index of a table with partitions becomes valid with the last of theirs.
           (SELECT p.indisvalid OR c.relkind = 'I'
            FROM pg_catalog.pg_index p JOIN pg_catalog.pg_class c ON c.oid = p.indexrelid
            WHERE c.oid = to_regclass(x.index_name)::oid
               AND p.indrelid = to_regclass(x.relation)::oid)
    FROM hashindex.index i, hashindex._code_indexes(i, i.building) x
    WHERE i.name = $1
"""


def build_code_indexes(index: IndexRow, path: Access, job: Job, *, progress: bool) -> None:
    """Build the indexes that are missing, and have searches use them.

    If the index is configured otherwise meanwhile, the next index is not built.
    """
    names = {
        "codes": index.codes,
        "code": sql.Identifier(index.code_column),
        "bits": sql.Literal(index.n_bits),
    }
    connection = index.connection
    if path == "lookup":
        execute(connection, sql.SQL(_SET_CHUNKS).format(**names), [index.name])
    rows = execute(connection, _INDEXES, [index.name]).fetchall()
    with progress_bar("indexing codes", len(rows), progress, "index") as bar:
        for number, (name, create, attach, valid) in enumerate(rows, 1):
            if path_to_build(index) != path:
                return
            job.phase(f"building index {number} of {len(rows)} for {path}")
            if valid is False:
                execute(connection, f"DROP INDEX CONCURRENTLY {name}")
            if not valid:
                execute(connection, create)
            if attach is not None:
                # Does nothing if it is attached already.
                execute(connection, attach)
            bar.update()
    if path == "lookup":
        # The planner needs statistics of the chunks, which are expressions in indexes.
        execute(connection, sql.SQL("ANALYZE {codes}").format(**names))
    job.phase(f"taking {path} into use")
    with connection.transaction():
        if path_to_build(index, lock=True) != path:
            raise configured_otherwise(index, path)
        execute(connection, "SELECT hashindex._finish_access($1)", [index.name])
    drop_unused(index)
