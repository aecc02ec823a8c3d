-- name: refuse_installed
-- Refuses to create the schema twice: the head of a script.
DO $$
BEGIN
    IF pg_catalog.to_regclass('hashindex.alembic_version') IS NOT NULL THEN
        RAISE EXCEPTION 'schema hashindex already exists'
            USING HINT = 'Update it by pg-hashindex schema upgrade, or ALTER EXTENSION pg_hashindex UPDATE.';
    END IF;
END
$$;

-- name: status
-- Whether the schema is there, what it was made by, and the version of the extension.
-- Without the comment if pgvector has moved: the functions name the schema where it was.
SELECT pg_catalog.to_regclass('hashindex.alembic_version') IS NOT NULL AS installed,
    CASE WHEN NOT EXISTS (
        SELECT FROM pg_catalog.pg_proc p, pg_catalog.pg_extension e
        JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) e.extnamespace
        WHERE e.extname OPERATOR(pg_catalog.=) 'vector'::pg_catalog.name
          AND p.proname OPERATOR(pg_catalog.=) '_refuse_vector'::pg_catalog.name
          AND p.pronamespace OPERATOR(pg_catalog.=)
              pg_catalog.to_regnamespace('hashindex')::pg_catalog.oid
          AND pg_catalog.strpos(p.prosrc, pg_catalog.quote_ident(n.nspname))
              OPERATOR(pg_catalog.=) 0
    ) THEN pg_catalog.obj_description(
        pg_catalog.to_regnamespace('hashindex'), 'pg_namespace'::pg_catalog.name
    ) END AS comment,
    (SELECT x.extversion FROM pg_catalog.pg_extension x
     WHERE x.extname OPERATOR(pg_catalog.=) 'pg_hashindex'::pg_catalog.name) AS extension

-- name: drop_dependents
-- Drops what needs functions and types: views, triggers.
DROP VIEW IF EXISTS hashindex.readable_model_part, hashindex.readable_model;
DROP TRIGGER IF EXISTS immutable ON hashindex.model;
DROP TRIGGER IF EXISTS checked ON hashindex.model;
DROP TRIGGER IF EXISTS functions ON hashindex.model;
DROP TRIGGER IF EXISTS immutable ON hashindex.model_part

-- name: update_paths
-- Whether the extension can be updated: from :installed to :release.
SELECT pg_catalog.count(path)
FROM pg_catalog.pg_extension_update_paths('pg_hashindex')
WHERE source OPERATOR(pg_catalog.=) :installed AND target OPERATOR(pg_catalog.=) :release
