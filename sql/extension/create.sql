-- Begins the script of CREATE EXTENSION: a schema that holds anything is refused, since its objects would not be the extension's.
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

DO $$
BEGIN
    IF to_regclass('hashindex.alembic_version') IS NOT NULL THEN
        RAISE EXCEPTION 'schema hashindex is installed already, without the extension'
            USING ERRCODE = 'duplicate_object',
                  HINT = 'To make it the extension, with its models and indexes: SELECT hashindex.join_extension();';
    ELSIF EXISTS (
        SELECT FROM pg_depend d
        WHERE d.refclassid = 'pg_namespace'::regclass AND d.refobjid = to_regnamespace('hashindex')
          AND d.classid IN ('pg_class'::regclass, 'pg_proc'::regclass, 'pg_type'::regclass)
    ) THEN
        RAISE EXCEPTION 'schema hashindex holds objects that are not the extension''s'
            USING ERRCODE = 'duplicate_object', HINT = 'If they are not needed: DROP SCHEMA hashindex CASCADE;';
    END IF;
END
$$;
