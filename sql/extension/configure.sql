-- Ends each script of the extension: pg_dump takes the rows of these tables along, which it does not for others of an extension.
-- claim names sessions, and alembic_version is written by CREATE EXTENSION itself.
DO $$
DECLARE
    relation regclass;
BEGIN
    FOR relation IN
        SELECT c.oid FROM pg_class c
        WHERE c.relnamespace = 'hashindex'::regnamespace AND c.relkind IN ('r', 'S') AND c.relname NOT IN ('alembic_version', 'claim')
          AND EXISTS (
              SELECT FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
              WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.refclassid = 'pg_extension'::regclass
                AND e.extname = 'pg_hashindex'
          )
    LOOP
        PERFORM pg_extension_config_dump(relation, '');
    END LOOP;
END
$$;
