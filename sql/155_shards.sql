-- What an index is made of on a table that Citus distributes. Statements keep to what Citus plans: joins
-- and correlated subqueries meet on the distribution column and have no LIMIT of their own, triggers are
-- of rows and write where their row is. What Citus has is asked for by dynamic statements: without it,
-- its tables and functions are not there.

CREATE OR REPLACE FUNCTION hashindex._distribution_of(
    relation regclass, OUT method text, OUT column_name text
)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    IF relation IS NOT NULL AND to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL THEN
        EXECUTE 'SELECT CASE WHEN p.partmethod = ''h'' THEN ''hash'' '
                'WHEN p.partmethod = ''n'' AND p.repmodel = ''t'' THEN ''reference'' ELSE ''other'' END, '
                'CASE WHEN p.partmethod = ''h'' THEN column_to_column_name(p.logicalrelid, p.partkey) END '
                'FROM pg_dist_partition p WHERE p.logicalrelid = $1'
        INTO method, column_name USING relation;
    END IF;
END
$$;

COMMENT ON FUNCTION hashindex._distribution_of(regclass) IS
    'how Citus distributes a table (hash, reference or other) and by which column; NULLs where it does not, and without Citus';

CREATE OR REPLACE FUNCTION hashindex._is_distributed(i hashindex.index)
RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN coalesce(d.method = 'hash', false)
    FROM hashindex._distribution_of(to_regclass(format('%I.%I', i.schema_name, i.table_name))) d;
END
$$;

COMMENT ON FUNCTION hashindex._is_distributed(hashindex.index) IS
    'whether Citus distributes the table of an index among shards';

-- Triggers fire in order of their names. One BEFORE comes after the user's own, which may change the
-- vector; one AFTER comes before them: what they write to the same row is seen after it.
CREATE OR REPLACE FUNCTION hashindex._row_trigger_name(i hashindex.index)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN CASE i.layout WHEN 'column' THEN 'zz_hashindex_' ELSE '0_hashindex_' END || i.storage;
END
$$;

COMMENT ON FUNCTION hashindex._row_trigger_name(hashindex.index) IS
    'name of the trigger of rows that keeps the codes of an index fresh, where there is one';

CREATE OR REPLACE FUNCTION hashindex._trigger_names(i hashindex.index)
RETURNS text[]
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    IF i.layout = 'column' OR hashindex._is_distributed(i) THEN
        RETURN ARRAY[hashindex._row_trigger_name(i)];
    END IF;
    RETURN ARRAY(
        SELECT format('hashindex_%s_%s', i.storage, event)
        FROM unnest(ARRAY['insert', 'update', 'delete', 'truncate']) event
    );
END
$$;

COMMENT ON FUNCTION hashindex._trigger_names(hashindex.index) IS
    'names of the triggers that keep the codes of an index fresh';

CREATE OR REPLACE FUNCTION hashindex._row_trigger(i hashindex.index)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN format(
        'CREATE TRIGGER %I %s ON %I.%I FOR EACH ROW EXECUTE FUNCTION hashindex.%I()',
        hashindex._row_trigger_name(i),
        CASE i.layout WHEN 'column' THEN 'BEFORE INSERT OR UPDATE' ELSE 'AFTER INSERT OR UPDATE OR DELETE' END,
        i.schema_name, i.table_name, 'sync_' || i.storage
    );
END
$$;

COMMENT ON FUNCTION hashindex._row_trigger(hashindex.index) IS
    'text of the CREATE TRIGGER on a distributed table';

-- Citus refuses triggers unless asked: they could do what its distributed transaction does not see. By
-- one connection to each node: what several of them make, the others do not see before the end.
CREATE OR REPLACE FUNCTION hashindex._allow_shard_changes(i hashindex.index)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    IF hashindex._is_distributed(i) THEN
        PERFORM set_config('citus.enable_unsafe_triggers', 'on', true),
                set_config('citus.multi_shard_modify_mode', 'sequential', true);
    END IF;
END
$$;

COMMENT ON FUNCTION hashindex._allow_shard_changes(hashindex.index) IS
    'has Citus take statements about the triggers and codes of an index, until the transaction ends';
