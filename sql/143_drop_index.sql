-- Dropping an index, in the caller's one transaction.

-- Search functions of earlier releases took fewer arguments, those of a model that SQL evaluates take
-- no code: beside the new one, a call would not know which of the two is meant.
CREATE OR REPLACE FUNCTION hashindex.drop_old_search(i hashindex.index)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    signature text;
    in_python boolean := hashindex.encoded_in_python(i);
BEGIN
    -- By IF EXISTS each drop would say what is missing.
    FOREACH signature IN ARRAY ARRAY[
        format('%I(vector, integer, integer)', 'search_' || i.name),
        format('%I(vector, integer, integer, bit varying)', 'search_' || i.name),
        format('%I(vector, integer, integer, integer, text%s)', 'search_' || i.name,
               CASE WHEN NOT in_python THEN ', bit varying' ELSE '' END),
        format('%I(vector, integer%s)', 'within_' || i.name,
               CASE WHEN NOT in_python THEN ', bit varying' ELSE '' END)
    ] LOOP
        signature := 'hashindex.' || signature;
        IF to_regprocedure(signature) IS NOT NULL THEN
            EXECUTE 'DROP FUNCTION ' || signature;
        END IF;
    END LOOP;
END
$$;

COMMENT ON FUNCTION hashindex.drop_old_search(hashindex.index) IS
    'drops search functions of an index that an earlier release made, or that are for a model of another kind';

CREATE OR REPLACE FUNCTION hashindex.drop_index(name text)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex.find_index(drop_index.name);
    trigger_row record;
    signature text;
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
    -- Of an index encoded in SQL, or in Python. By IF EXISTS each drop would say what is missing.
    FOREACH signature IN ARRAY ARRAY[
        format('%I(vector, integer, integer, integer, text)', 'search_' || i.name),
        format('%I(vector, integer, integer, integer, text, bit varying)', 'search_' || i.name),
        format('%I(vector, integer)', 'within_' || i.name),
        format('%I(vector, integer, bit varying)', 'within_' || i.name)
    ] LOOP
        signature := 'hashindex.' || signature;
        IF to_regprocedure(signature) IS NOT NULL THEN
            EXECUTE 'DROP FUNCTION ' || signature;
        END IF;
    END LOOP;
    PERFORM hashindex.drop_old_search(i);
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
