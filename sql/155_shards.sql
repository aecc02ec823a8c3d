-- What an index is made of on a table that Citus distributes. Statements keep to what Citus plans: joins
-- and correlated subqueries meet on the distribution column and have no LIMIT of their own, triggers are
-- of rows and write where their row is. What Citus has is asked for by dynamic statements: without it,
-- its tables and functions are not there.

CREATE OR REPLACE FUNCTION hashindex.distribution_of(
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

COMMENT ON FUNCTION hashindex.distribution_of(regclass) IS
    'how Citus distributes a table (hash, reference or other) and by which column; NULLs where it does not, and without Citus';

CREATE OR REPLACE FUNCTION hashindex.is_distributed(i hashindex.index)
RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN coalesce(d.method = 'hash', false)
    FROM hashindex.distribution_of(to_regclass(format('%I.%I', i.schema_name, i.table_name))) d;
END
$$;

COMMENT ON FUNCTION hashindex.is_distributed(hashindex.index) IS
    'whether Citus distributes the table of an index among shards';

-- Of these, and of the row's own key, nothing is on another node.
CREATE OR REPLACE FUNCTION hashindex.row_sync_source(i hashindex.index)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN format(
        $source$
CREATE OR REPLACE FUNCTION hashindex.%1$I() RETURNS trigger
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS %2$L$source$,
        'sync_' || i.storage, format(
            $body$
DECLARE
    hashindex_code bit(%5$s);
BEGIN
    IF TG_OP = 'DELETE' THEN
        DELETE FROM %1$s c WHERE c.id = OLD.%2$I;
        RETURN NULL;
    ELSIF TG_OP = 'UPDATE' AND NEW.%3$I IS NOT DISTINCT FROM OLD.%3$I THEN
        -- Citus lets no row change its distribution column, which is the key.
        RETURN NULL;
    END IF;
    IF NEW.%3$I IS NULL THEN
        DELETE FROM %1$s c WHERE c.id = NEW.%2$I;
    ELSE
        hashindex_code := hashindex.encode_with(hashindex.layers_of(%4$s), NEW.%3$I::vector);
        INSERT INTO %1$s (id, code) VALUES (NEW.%2$I, hashindex_code)
        ON CONFLICT (id) DO UPDATE SET code = excluded.code;
    END IF;
    RETURN NULL;
END
$body$,
            format('%I.%I', i.code_schema, i.code_table), i.id_column, i.column_name, i.model_id,
            (SELECT m.n_bits FROM hashindex.model m WHERE m.id = i.model_id)
        )
    );
END
$$;

COMMENT ON FUNCTION hashindex.row_sync_source(hashindex.index) IS
    'text of the CREATE FUNCTION of the trigger that keeps the codes of a distributed table fresh';

-- Triggers fire in order of their names. One BEFORE comes after the user's own, which may change the
-- vector; one AFTER comes before them: what they write to the same row is seen after it.
CREATE OR REPLACE FUNCTION hashindex.row_trigger_name(i hashindex.index)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN CASE i.layout WHEN 'column' THEN 'zz_hashindex_' ELSE '0_hashindex_' END || i.storage;
END
$$;

COMMENT ON FUNCTION hashindex.row_trigger_name(hashindex.index) IS
    'name of the trigger of rows that keeps the codes of an index fresh, where there is one';

CREATE OR REPLACE FUNCTION hashindex.trigger_names(i hashindex.index)
RETURNS text[]
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    IF i.layout = 'column' OR hashindex.is_distributed(i) THEN
        RETURN ARRAY[hashindex.row_trigger_name(i)];
    END IF;
    RETURN ARRAY(
        SELECT format('hashindex_%s_%s', i.storage, event)
        FROM unnest(ARRAY['insert', 'update', 'delete', 'truncate']) event
    );
END
$$;

COMMENT ON FUNCTION hashindex.trigger_names(hashindex.index) IS
    'names of the triggers that keep the codes of an index fresh';

CREATE OR REPLACE FUNCTION hashindex.row_trigger(i hashindex.index)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN format(
        'CREATE TRIGGER %I %s ON %I.%I FOR EACH ROW EXECUTE FUNCTION hashindex.%I()',
        hashindex.row_trigger_name(i),
        CASE i.layout WHEN 'column' THEN 'BEFORE INSERT OR UPDATE' ELSE 'AFTER INSERT OR UPDATE OR DELETE' END,
        i.schema_name, i.table_name, 'sync_' || i.storage
    );
END
$$;

COMMENT ON FUNCTION hashindex.row_trigger(hashindex.index) IS
    'text of the CREATE TRIGGER on a distributed table';

-- Citus refuses triggers unless asked: they could do what its distributed transaction does not see. By
-- one connection to each node: what several of them make, the others do not see before the end.
CREATE OR REPLACE FUNCTION hashindex.allow_shard_changes(i hashindex.index)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    IF hashindex.is_distributed(i) THEN
        PERFORM set_config('citus.enable_unsafe_triggers', 'on', true),
                set_config('citus.multi_shard_modify_mode', 'sequential', true);
    END IF;
END
$$;

COMMENT ON FUNCTION hashindex.allow_shard_changes(hashindex.index) IS
    'has Citus take statements about the triggers and codes of an index, until the transaction ends';

-- A scan of all codes that Citus pushes down to the shards. With weights the nearest codes come to the
-- coordinator, which orders them.
CREATE OR REPLACE FUNCTION hashindex.distributed_query(
    i hashindex.index, terms jsonb, weighted boolean, condition text
)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base text := format('%I.%I', i.schema_name, i.table_name);
    codes record := hashindex.codes_of(i);
BEGIN
    IF weighted THEN
        RETURN hashindex.answers(i, format('ARRAY(%s)', hashindex.candidate_ids(
            format(
                '%s LIMIT %s', hashindex.near_codes(i, 'scan', terms - 'threshold', condition),
                -- Each shard sends as many.
                hashindex.pool(terms ->> 'kept', 'shards', true)
            ),
            'scan', terms, true
        )), terms);
    END IF;
    RETURN hashindex.answers(i, format(
        $query$ARRAY(
        SELECT %1$s FROM %2$s WHERE %3$s IS NOT NULL%4$s
        ORDER BY bit_count(%3$s # %5$s), %1$s LIMIT %6$s
    )$query$,
        codes.id, codes.source, codes.code,
        CASE
            WHEN i.layout = 'column' THEN ' AND (' || condition || ')'
            -- Bare names in it are those of the table.
            ELSE format(
                ' AND EXISTS (SELECT FROM %1$s WHERE %1$s.%2$I = %3$s', base, i.id_column, codes.id
            ) || ' AND (' || condition || '))'
        END,
        terms ->> 'code', terms ->> 'kept'
    ), terms);
END
$$;

COMMENT ON FUNCTION hashindex.distributed_query(hashindex.index, jsonb, boolean, text) IS
    'text of the query that searches the codes of a distributed table, all or those that a condition holds for';
