-- The schema and the types that the tables need. Runs before the migrations; every file of this
-- folder may be run again.

-- Until the transaction ends, names resolve in pg_catalog. Functions keep this path (SET search_path FROM CURRENT) and
-- qualify every other name. So nobody can change what they call: not by a search path, nor by temporary objects, nor by
-- objects in pgvector's schema.
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

DO $$
DECLARE
    installed text;
BEGIN
    IF current_setting('server_version_num')::integer < 150000 THEN
        RAISE EXCEPTION 'PostgreSQL % is too old: pg_hashindex needs 15 or later', current_setting('server_version')
            USING ERRCODE = '0AX01', HINT = 'Upgrade the server.';
    END IF;
    SELECT extversion INTO installed FROM pg_extension WHERE extname = 'vector';
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the extension pgvector is not installed in database %', current_database()
            USING ERRCODE = '42X03', HINT = 'Run: CREATE EXTENSION vector;';
    ELSIF (string_to_array(installed, '.'))[:2]::integer[] < ARRAY[0, 8] THEN
        RAISE EXCEPTION 'pgvector is older than 0.8'
            USING ERRCODE = '0AX01', HINT = 'Run: ALTER EXTENSION vector UPDATE;';
    END IF;
END
$$;

-- CREATE SCHEMA IF NOT EXISTS needs the right to create a schema even where it exists.
DO $$
BEGIN
    -- Two upgrades cannot run at once: creating a schema waits for another session that creates it, and so does commenting on it.
    LOOP
        BEGIN
            IF to_regnamespace('hashindex') IS NULL THEN
                CREATE SCHEMA hashindex;
            END IF;
            -- A member of the owner, or a superuser, may run this: all new objects belong to the schema's owner.
            PERFORM set_config('role', pg_get_userbyid(n.nspowner), true) FROM pg_namespace n WHERE n.nspname = 'hashindex';
            EXECUTE format('COMMENT ON SCHEMA hashindex IS %L', obj_description(to_regnamespace('hashindex'), 'pg_namespace'));
            EXIT;
        EXCEPTION WHEN duplicate_schema OR unique_violation OR invalid_schema_name THEN
            -- Another session created or dropped it meanwhile.
        END;
    END LOOP;
    IF to_regtype('hashindex.layer') IS NULL THEN
        EXECUTE format(
            'CREATE TYPE hashindex.layer AS (kind text, weights %1$I.vector[], bias %1$I.vector, scale real, nearest integer)', n.nspname
        ) FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector';
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION hashindex._strangers() RETURNS TABLE (object text, owner oid)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN QUERY
    SELECT o.kind || ' ' || o.name, o.owner
    FROM pg_namespace n CROSS JOIN LATERAL (
        SELECT 'function' AS kind, p.oid::regprocedure::text AS name, p.proowner AS owner FROM pg_proc p WHERE p.pronamespace = n.oid
        UNION ALL
        SELECT 'relation', c.oid::regclass::text, c.relowner FROM pg_class c WHERE c.relnamespace = n.oid
        UNION ALL
        SELECT 'type', t.oid::regtype::text, t.typowner FROM pg_type t WHERE t.typnamespace = n.oid
        UNION ALL
        SELECT 'operator', x.oid::regoperator::text, x.oprowner FROM pg_operator x WHERE x.oprnamespace = n.oid
    ) o
    WHERE n.nspname = 'hashindex' AND o.owner <> n.nspowner ORDER BY 1;
END
$$;

COMMENT ON FUNCTION hashindex._strangers IS 'objects in schema hashindex that its owner does not own';

CREATE OR REPLACE FUNCTION hashindex._check_strangers() RETURNS void
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    stranger record;
BEGIN
    SELECT s.object, s.owner::regrole AS owner INTO stranger FROM hashindex._strangers() s LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '% belongs to role %, not to the owner of the schema', stranger.object, stranger.owner
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Drop it if you did not make it, or make the owner of schema hashindex its owner.';
    END IF;
END
$$;

COMMENT ON FUNCTION hashindex._check_strangers IS 'refuses objects in schema hashindex that its owner does not own';

DO $$ BEGIN PERFORM hashindex._check_strangers(); END $$;

COMMENT ON TYPE hashindex.layer IS
    'one step of a model: normalize, shift, affine, rbf, affinity, relu, tanh, sin or cos; network, always the last, stands for what only Python evaluates';
