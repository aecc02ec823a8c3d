-- The schema and the types that the tables need. Runs before the migrations; every file of this
-- folder may be run again.

-- From here to the end of the transaction names resolve in pg_catalog first, then where pgvector
-- lives. Functions keep this path (SET search_path FROM CURRENT), so that no caller's path, and no
-- temporary object, can put another meaning on what they call.
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

DO $$
BEGIN
    IF current_setting('server_version_num')::integer < 150000 THEN
        RAISE EXCEPTION 'PostgreSQL % is too old: pg_hashindex needs 15 or later',
            current_setting('server_version')
            USING ERRCODE = 'feature_not_supported', HINT = 'Upgrade the server.';
    END IF;
    PERFORM FROM pg_catalog.pg_extension WHERE extname = 'vector';
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the extension pgvector is not installed in database %', current_database()
            USING ERRCODE = 'undefined_object', HINT = 'Run: CREATE EXTENSION vector;';
    END IF;
    PERFORM FROM pg_catalog.pg_extension
    WHERE extname = 'vector' AND (string_to_array(extversion, '.'))[:2]::integer[] < ARRAY[0, 8];
    IF FOUND THEN
        RAISE EXCEPTION 'pgvector is older than 0.8'
            USING ERRCODE = 'feature_not_supported', HINT = 'Run: ALTER EXTENSION vector UPDATE;';
    END IF;
END
$$;

SELECT pg_catalog.set_config('search_path', pg_catalog.format('pg_catalog, %I, pg_temp', n.nspname), true)
FROM pg_catalog.pg_extension e
JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace
WHERE e.extname = 'vector';

-- CREATE SCHEMA IF NOT EXISTS asks for the right to create one even where it exists.
DO $$
BEGIN
    IF to_regnamespace('hashindex') IS NULL THEN
        CREATE SCHEMA hashindex;
    END IF;
    IF to_regtype('hashindex.layer') IS NULL THEN
        CREATE TYPE hashindex.layer AS (
            kind text,
            weights vector[],
            bias vector,
            scale real,
            nearest integer
        );
    END IF;
END
$$;

COMMENT ON TYPE hashindex.layer IS
    'one step of a model: normalize, shift, affine, rbf, affinity, relu, tanh, sin or cos; network, always the last, stands for what only Python evaluates';
