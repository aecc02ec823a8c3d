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
            SELECT o.id FROM hashindex.index i, hashindex._objects_of(i) o WHERE o.kind = 'function'
            UNION ALL SELECT f FROM hashindex.model m, hashindex._functions_of_model(m) f
        LOOP
            EXECUTE format('ALTER EXTENSION pg_hashindex %s FUNCTION %s', verb, made);
        END LOOP;
        IF verb = 'ADD' THEN
            PERFORM hashindex.rebuild_functions();
        END IF;
    END LOOP;
END
$$;
