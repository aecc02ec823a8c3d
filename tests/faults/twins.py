"""Two tables that get the same statements, one with an index: it changes nothing but its codes."""

import contextlib

import numpy as np
import psycopg
from fixtures.checks import assert_fresh
from fixtures.indexes import begin_lists
from pgvector import Vector
from psycopg import sql

from pg_hashindex.index.handle import HashIndex

#: The indexed table is in schema public, its twin in schema plain.
SCHEMAS = ("plain", "public")

# Hooks run a statement of the test's once, inside of the triggers of another statement. Triggers on
# statements fire in the order of their names: ours stand between these. What a deferred hook
# fails at is rolled back alone, so that a COMMIT never fails.
_FUNCTIONS = """
    CREATE FUNCTION public.v(n bigint) RETURNS vector LANGUAGE sql IMMUTABLE STRICT AS
    $$ SELECT ARRAY(SELECT sin(n * d) FROM generate_series(1, 8) d)::public.vector $$;

    CREATE FUNCTION public.run_hook() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE
        name text := format('twins.%s_%s', TG_TABLE_SCHEMA, TG_ARGV[0]);
        statement text := current_setting(name, true);
        path text := current_setting('search_path');
    BEGIN
        IF statement <> '' THEN
            PERFORM set_config(name, '', false),
                    set_config('search_path', TG_TABLE_SCHEMA || ', public', false);
            IF TG_ARGV[0] = 'deferred' THEN
                BEGIN
                    EXECUTE statement;
                EXCEPTION WHEN integrity_constraint_violation OR cardinality_violation THEN
                    NULL;
                END;
            ELSE
                EXECUTE statement;
            END IF;
            PERFORM set_config('search_path', path, false);
        END IF;
        RETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
    END $$;

    CREATE FUNCTION public.run(statement text) RETURNS integer LANGUAGE plpgsql AS
    $$ BEGIN EXECUTE statement; RETURN 1; END $$;
"""
_TABLE = """
    CREATE TABLE {schema}.items (
        id bigint UNIQUE,
        parent bigint REFERENCES {schema}.items (id) ON UPDATE CASCADE ON DELETE CASCADE,
        embedding vector(8),
        part text NOT NULL DEFAULT 'a',
        PRIMARY KEY ({keys})
    );
    CREATE TRIGGER before_row BEFORE INSERT OR UPDATE OR DELETE ON {schema}.items
        FOR EACH ROW EXECUTE FUNCTION public.run_hook('before_row');
    CREATE TRIGGER after_row AFTER INSERT OR UPDATE OR DELETE ON {schema}.items
        FOR EACH ROW EXECUTE FUNCTION public.run_hook('after_row');
    CREATE TRIGGER a_early AFTER INSERT OR UPDATE OR DELETE ON {schema}.items
        FOR EACH STATEMENT EXECUTE FUNCTION public.run_hook('early');
    CREATE TRIGGER z_late AFTER INSERT OR UPDATE OR DELETE ON {schema}.items
        FOR EACH STATEMENT EXECUTE FUNCTION public.run_hook('late');
    CREATE CONSTRAINT TRIGGER deferred AFTER INSERT OR UPDATE OR DELETE ON {schema}.items
        DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION public.run_hook('deferred');
"""

HOOKS = ("before_row", "after_row", "early", "late", "deferred")


class Twins:
    """Both tables, and the index of one.

    Parameters
    ----------
    connection : psycopg.Connection
    access : {"scan", "lists"}
    keys : {"id", "part, id"}
        The primary key, by which the index knows rows.
    """

    def __init__(self, connection, access, keys):
        self.connection = connection
        connection.execute("CREATE SCHEMA plain")
        connection.execute(_FUNCTIONS)
        for schema in SCHEMAS:
            connection.execute(_TABLE.format(schema=schema, keys=keys).encode())
        # Landmarks are trained on these.
        connection.execute(
            "INSERT INTO items (id, embedding) SELECT n, v(n) FROM generate_series(1, 200) n"
        )
        index = begin_lists(
            connection, "items_idx", table="public.items", column="embedding", model="lsh",
            access=access,  # type: ignore[arg-type]
        )  # fmt: skip
        index.encode()
        self.index = HashIndex.open(connection, "items_idx")
        assert self.index.access == access

    def fill(self, rows):
        """Start again: rows 1, 2, ..., each the parent of the next."""
        for schema in SCHEMAS:
            self._set_hooks(schema, {})
            self.connection.execute(
                f"TRUNCATE {schema}.items; INSERT INTO {schema}.items (id, parent, embedding) "
                f"SELECT n, nullif(n - 1, 0), v(n) FROM generate_series(1, {rows}) n".encode()
            )
        self.check()

    def run(self, statement, hooks=None):
        """Run a statement on both tables, with what hooks run; both must take it, or neither."""
        outcomes = [self._run(schema, statement, hooks or {}) for schema in SCHEMAS]
        assert outcomes[0] == outcomes[1], f"without and with an index: {outcomes}"
        self.check()

    def _run(self, schema, statement, hooks):
        execute = self.connection.execute
        self._set_hooks(schema, hooks)
        execute(f"SET search_path TO {schema}, public".encode())
        try:
            with self.connection.transaction():
                execute(statement.encode())
        except (psycopg.IntegrityError, psycopg.errors.CardinalityViolation,
                psycopg.errors.TriggeredDataChangeViolation) as error:  # fmt: skip
            return f"{error.sqlstate} {error.diag.message_primary}"
        finally:
            if not self.connection.broken:
                self.connection.execute("RESET search_path")
        return None

    def _set_hooks(self, schema, hooks):
        names = [f"twins.{schema}_{hook}" for hook in HOOKS]
        self.connection.execute(
            "SELECT set_config(name, value, false) "
            "FROM unnest(%s::text[], %s::text[]) h (name, value)",
            [names, [hooks.get(hook, "") for hook in HOOKS]],
        )

    @contextlib.contextmanager
    def transaction(self, level="READ COMMITTED"):
        """Run statements in one transaction, and check once more when it is committed."""
        with self.connection.transaction():
            self.connection.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
            yield
        self.check()

    def check(self):
        """Both tables hold the same; every row has its one right code, and is found by it."""
        plain, indexed = (self._rows(schema) for schema in SCHEMAS)
        assert plain == indexed
        assert_fresh(self.index)
        assert_all_found(self.index)

    def _rows(self, schema):
        return self.connection.execute(
            f"SELECT id, parent, embedding::text FROM {schema}.items ORDER BY id".encode()
        ).fetchall()


def assert_all_found(index):
    """A search for as many rows as there are gives each that has a vector, once and in order."""
    query = np.full(8, 0.25, np.float32)
    row = index.metadata
    found = index.search(
        query, 1000, candidates=10_000, effort=1000 if row.access == "lists" else None
    )
    wanted = index.connection.execute(
        sql.SQL(
            "SELECT {key}, b.embedding <-> %s FROM {table} b WHERE b.embedding IS NOT NULL"
        ).format(**row.names),
        [Vector(query)],
    ).fetchall()
    assert sorted(hit.id for hit in found) == sorted(row.key.read(keys) for *keys, _ in wanted)
    np.testing.assert_allclose(
        [hit.distance for hit in found], sorted(distance for *_, distance in wanted), rtol=1e-5
    )
