-- Follows the functions in a script of ALTER EXTENSION UPDATE: replaces the functions of indexes and models, which an earlier release made.
-- ALTER EXTENSION UPDATE may replace members only, so the objects join first. Only the extension's owner can add them.
SELECT set_config('role', current_setting('hashindex.role_before'), true);

DO $$
DECLARE
    made regprocedure;
BEGIN
    FOR made IN SELECT f FROM hashindex._made_functions() f LOOP
        EXECUTE format('ALTER EXTENSION pg_hashindex ADD FUNCTION %s', made);
    END LOOP;
    PERFORM hashindex.rebuild_functions();
    FOR made IN SELECT f FROM hashindex._made_functions() f LOOP
        EXECUTE format('ALTER EXTENSION pg_hashindex DROP FUNCTION %s', made);
    END LOOP;
END
$$;
