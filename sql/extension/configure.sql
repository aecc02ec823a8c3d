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
        -- pg_dump appends this to its query. A swap's row refers to another one, which has to come first among INSERTs.
        PERFORM pg_extension_config_dump(relation, CASE relation WHEN 'hashindex.index'::regclass THEN 'ORDER BY swap_of NULLS FIRST' ELSE '' END);
    END LOOP;
END
$$;
