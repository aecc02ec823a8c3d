-- Brings the functions of indexes made by an earlier release up to what sql/ now writes.
DO $$
DECLARE
    i hashindex.index;
BEGIN
    -- FOR UPDATE: as a path is just taking over.
    FOR i IN SELECT * FROM hashindex.index FOR UPDATE LOOP
        -- A table that was dropped or renamed leaves its index behind, to be dropped by name.
        CONTINUE WHEN to_regclass(format('%I.%I', i.schema_name, i.table_name)) IS NULL;
        PERFORM hashindex._create_functions(i);
    END LOOP;
END
$$;
