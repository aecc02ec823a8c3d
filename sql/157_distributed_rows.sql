-- Encoding and counting the rows of a distributed table: no page of them is read on one node.

-- Joined with the model, which is on every node: each shard encodes its own rows into its own codes.
CREATE OR REPLACE FUNCTION hashindex._distributed_encoding(i hashindex.index)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN format(
        CASE i.layout WHEN 'table' THEN
            'INSERT INTO %1$s (id, code) SELECT b.%2$I, hashindex.encode_with(m.layers, b.%3$I::vector, m.levels) '
            'FROM %4$s b, hashindex.model m WHERE m.id = %5$s AND b.%3$I IS NOT NULL '
            'AND NOT EXISTS (SELECT FROM %1$s c WHERE c.id = b.%2$I) '
            -- A trigger may write one meanwhile, of a newer vector.
            'ON CONFLICT (id) DO NOTHING'
        ELSE
            'UPDATE %4$s b SET %6$I = hashindex.encode_with(m.layers, b.%3$I::vector, m.levels) '
            'FROM hashindex.model m WHERE m.id = %5$s AND b.%6$I IS NULL AND b.%3$I IS NOT NULL'
        END,
        format('%I.%I', i.code_schema, i.code_table), i.id_column, i.column_name,
        format('%I.%I', i.schema_name, i.table_name), i.model_id, i.code_column
    );
END
$$;

COMMENT ON FUNCTION hashindex._distributed_encoding(hashindex.index) IS
    'text of the statement that encodes the rows of a distributed table that have no code';

CREATE OR REPLACE FUNCTION hashindex.encode_distributed(index_name text)
RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex.find_index(index_name);
    written bigint;
BEGIN
    IF NOT hashindex._is_distributed(i) THEN
        RAISE EXCEPTION 'the table %.% of index "%" is not distributed by Citus', i.schema_name, i.table_name, i.name
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('Run: pg-hashindex index encode %s', i.name);
    END IF;
    -- Of rows that went while no trigger saw it: TRUNCATE fires none on shards. Who does not see every
    -- row must not take the others for gone.
    IF i.layout = 'table' AND NOT row_security_active(format('%I.%I', i.schema_name, i.table_name)) THEN
        EXECUTE format(
            'DELETE FROM %I.%I c WHERE NOT EXISTS (SELECT FROM %I.%I b WHERE b.%I = c.id)',
            i.code_schema, i.code_table, i.schema_name, i.table_name, i.id_column
        );
    END IF;
    EXECUTE hashindex._distributed_encoding(i);
    GET DIAGNOSTICS written = ROW_COUNT;
    RETURN written;
END
$$;

COMMENT ON FUNCTION hashindex.encode_distributed(text) IS
    'encodes the rows of a distributed table that have no code, on their own nodes; returns how many';

-- One statement for each number: each is counted on the shards, and summed up. The size of a
-- distributed table is known to Citus alone.
CREATE OR REPLACE FUNCTION hashindex._distributed_summary(index_name text)
RETURNS TABLE (
    rows bigint, codes bigint, code_bytes bigint, access_bytes bigint, vector_bytes bigint, waiting bigint
)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex.find_index(index_name);
    base text := format('%I.%I', i.schema_name, i.table_name);
    stored text := format('%I.%I', i.code_schema, i.code_table);
BEGIN
    EXECUTE format(
        'SELECT count(b.%1$I), coalesce(sum(pg_column_size(b.%1$I)), 0)::bigint FROM %2$s b', i.column_name, base
    ) INTO rows, vector_bytes;
    IF i.layout = 'table' THEN
        EXECUTE format('SELECT count(*) FROM %s', stored) INTO codes;
        EXECUTE format(
            'SELECT %s($1)', coalesce(to_regproc('pg_catalog.citus_total_relation_size'), 'pg_total_relation_size'::regproc)
        ) INTO code_bytes USING stored::regclass;
        EXECUTE format(
            'SELECT count(*) FROM %1$s b WHERE b.%2$I IS NOT NULL AND NOT EXISTS (SELECT FROM %3$s c WHERE c.id = b.%4$I)',
            base, i.column_name, stored, i.id_column
        ) INTO waiting;
    ELSE
        EXECUTE format(
            'SELECT count(b.%1$I), coalesce(sum(pg_column_size(b.%1$I)), 0)::bigint, '
            'count(*) FILTER (WHERE b.%2$I IS NOT NULL AND b.%1$I IS NULL) FROM %3$s b',
            i.code_column, i.column_name, base
        ) INTO codes, code_bytes, waiting;
    END IF;
    access_bytes := 0;
    RETURN NEXT;
END
$$;

COMMENT ON FUNCTION hashindex._distributed_summary(text) IS
    'rows, codes and sizes of an index on a distributed table; reads all of it';
