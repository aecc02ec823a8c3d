-- Dropping an index, in the caller's one transaction.

-- Those for a model that only Python evaluates take the code of a query besides.
CREATE OR REPLACE FUNCTION hashindex.drop_search_functions(i hashindex.index, in_python boolean)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    code text := CASE WHEN in_python THEN ', bit varying' ELSE '' END;
    signature text;
BEGIN
    -- By IF EXISTS each drop would say what is missing.
    FOREACH signature IN ARRAY ARRAY[
        format('hashindex.%I(vector, integer, integer, integer, text%s)', 'search_' || i.name, code),
        format('hashindex.%I(vector, integer%s)', 'within_' || i.name, code)
    ] LOOP
        IF to_regprocedure(signature) IS NOT NULL THEN
            EXECUTE 'DROP FUNCTION ' || signature;
        END IF;
    END LOOP;
END
$$;

COMMENT ON FUNCTION hashindex.drop_search_functions(hashindex.index, boolean) IS
    'drops the functions that search an index, those for a model evaluated in Python or the others';

CREATE OR REPLACE FUNCTION hashindex.drop_index(name text)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex.find_index(drop_index.name);
    trigger_row record;
BEGIN
    -- What it is being swapped for, and what it was before, go with it.
    PERFORM hashindex.drop_index(x.name) FROM hashindex.index x WHERE x.swap_of = i.name;
    PERFORM hashindex.allow_shard_changes(i);
    -- Found by their function: the table may have been renamed, or may be gone.
    FOR trigger_row IN
        SELECT t.tgname, t.tgrelid::regclass AS table_name
        FROM pg_trigger t
        WHERE t.tgfoid = to_regproc(format('hashindex.%I', 'sync_' || i.storage))
          AND t.tgparentid = 0
    LOOP
        EXECUTE format('DROP TRIGGER %I ON %s', trigger_row.tgname, trigger_row.table_name);
    END LOOP;
    EXECUTE format('DROP FUNCTION IF EXISTS hashindex.%I()', 'sync_' || i.storage);
    PERFORM hashindex.drop_search_functions(i, in_python) FROM unnest('{false,true}'::boolean[]) in_python;
    PERFORM hashindex.drop_access(i, p)
    FROM unnest(ARRAY['landmarks', i.access, i.building]) p WHERE p IS NOT NULL;
    IF i.layout = 'table' THEN
        EXECUTE format('DROP TABLE IF EXISTS %I.%I', i.code_schema, i.code_table);
    ELSE
        EXECUTE format(
            'ALTER TABLE IF EXISTS %I.%I DROP COLUMN IF EXISTS %I',
            i.code_schema, i.code_table, i.code_column
        );
    END IF;
    DELETE FROM hashindex.index x WHERE x.name = i.name;
END
$$;

COMMENT ON FUNCTION hashindex.drop_index(text) IS
    'drops an index with its codes, triggers and search function; the table itself stays';
