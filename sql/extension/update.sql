-- Follows the functions in a script of ALTER EXTENSION UPDATE: replaces the functions of indexes and models, which an earlier release made.
-- ALTER EXTENSION UPDATE may replace members only, so the objects join first. Only the extension's owner can add them.
SELECT set_config('role', current_setting('hashindex.role_before'), true);

DO $$
DECLARE
    verb text;
    made regprocedure;
BEGIN
    FOREACH verb IN ARRAY ARRAY['ADD', 'DROP'] LOOP
        FOR made IN
            SELECT e.id FROM hashindex.object o JOIN hashindex._existing() e USING (kind, name) WHERE o.kind = 'function'
        LOOP
            EXECUTE format('ALTER EXTENSION pg_hashindex %s FUNCTION %s', verb, made);
        END LOOP;
        IF verb = 'ADD' THEN
            PERFORM hashindex.rebuild_functions();
        END IF;
    END LOOP;
END
$$;
