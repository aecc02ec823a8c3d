-- Ends an installation: every function whose body begins with a comment gets it as its COMMENT, and keeps the path of
-- 010_types.sql. The functions of indexes and those of one expression, which are parsed when they are created, need neither.
DO $$
DECLARE
    made record;
BEGIN
    FOR made IN
        SELECT p.oid::regprocedure AS signature, btrim(replace(c.head[1], E'\n-- ', ' ')) AS comment
        FROM pg_proc p CROSS JOIN LATERAL regexp_match(p.prosrc, '^((?:\n--[^\n]*)+)') c(head)
        WHERE p.pronamespace = 'hashindex'::regnamespace AND c.head IS NOT NULL
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, pg_temp', made.signature);
        EXECUTE format('COMMENT ON FUNCTION %s IS %L', made.signature, made.comment);
    END LOOP;
END
$$;
