-- PostgreSQL's indexes over codes, for access paths lookup and hnsw. Python builds them one after the other and CONCURRENTLY,
-- so that nobody waits for them.

-- Ordered by level: an index on a partition is attached to the one on the table above, which is made first.
CREATE OR REPLACE FUNCTION hashindex._code_indexes(i hashindex.index, access text)
RETURNS TABLE (
    index_name text, relation text, create_statement text, attach_statement text, level integer
)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    codes regclass := to_regclass(format('%I.%I', i.code_schema, i.code_table));
BEGIN
    RETURN QUERY
    WITH tables AS (
        SELECT c.oid, n.nspname, c.relname, c.relkind = 'p' AS divided,
               t.parentrelid, coalesce(t.level, 0) AS level
        FROM pg_class c
        JOIN pg_namespace n ON n.oid = c.relnamespace
        LEFT JOIN pg_partition_tree(codes) t ON t.relid = c.oid
        WHERE c.oid = codes OR t.relid IS NOT NULL
    ),
    parts AS (
        SELECT 'chunk_' || c.chunk AS part, c.chunk AS number,
               format('btree ((%s))', format(c.value, quote_ident(i.code_column))) AS method
        FROM hashindex.model m, hashindex._code_chunks(m.n_bits, i.chunks) c
        WHERE _code_indexes.access = 'lookup' AND m.id = i.model_id
        UNION ALL
        SELECT 'hnsw', 1, format('hnsw (%I {ext}.bit_hamming_ops)', i.code_column)
        WHERE _code_indexes.access = 'hnsw'
    ),
    named AS (
        SELECT t.*, p.*, format(
            'hashindex_%s_%s', CASE WHEN t.level = 0 THEN i.storage
                -- A partition's name may already be 63 bytes long.
                ELSE left(md5(i.storage || format(' %I.%I', t.nspname, t.relname)), 20) END, p.part
        ) AS name
        FROM tables t, parts p
    )
    SELECT format('%I.%I', n.nspname, n.name), format('%I.%I', n.nspname, n.relname),
           format(
               CASE WHEN n.divided THEN 'CREATE INDEX %I ON ONLY %I.%I USING %s'
                    ELSE 'CREATE INDEX CONCURRENTLY %I ON %I.%I USING %s' END,
               n.name, n.nspname, n.relname, n.method
           ),
           CASE WHEN above.name IS NOT NULL THEN format(
               'ALTER INDEX %I.%I ATTACH PARTITION %I.%I', above.nspname, above.name, n.nspname, n.name
           ) END,
           n.level
    FROM named n
    LEFT JOIN named above ON above.oid = n.parentrelid AND above.part = n.part
    ORDER BY n.number, n.level, n.nspname, n.relname;
END
$$;

COMMENT ON FUNCTION hashindex._code_indexes IS 'the indexes over codes of an access path: names, and the statements that make them';

CREATE OR REPLACE FUNCTION hashindex._drop_code_indexes(i hashindex.index, access text) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    dropped text;
BEGIN
    -- Dropping an index drops those attached to it. A run that was cut off may have left some unattached.
    FOR dropped IN
        SELECT c.index_name FROM hashindex._code_indexes(i, _drop_code_indexes.access) c ORDER BY c.level
    LOOP
        -- DROP INDEX IF EXISTS would raise a notice for each that is missing.
        IF to_regclass(dropped) IS NOT NULL THEN
            EXECUTE 'DROP INDEX ' || dropped;
        END IF;
    END LOOP;
    IF _drop_code_indexes.access = 'lookup' THEN
        UPDATE hashindex.index x SET chunks = NULL WHERE x.name = i.name;
    END IF;
END
$$;

COMMENT ON FUNCTION hashindex._drop_code_indexes IS 'drops the indexes over codes of an access path, also those half built';
