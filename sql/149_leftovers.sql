-- What is left half made, of indexes that are there and of indexes that are no more: somebody deleted
-- their row, or restored a database without its rows.

-- Searches go by all codes again until it is built: what is left of it may be wrong.
CREATE OR REPLACE FUNCTION hashindex._restore_access(name text)
RETURNS SETOF text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index;
    codes regclass;
    complete boolean := true;
    dropped text;
    part text;
BEGIN
    i := hashindex._locked_index(_restore_access.name);
    codes := format('%I.%I', i.code_schema, i.code_table)::regclass;
    IF i.access = 'landmarks' THEN
        complete := to_regclass('hashindex.' || quote_ident(i.landmark_table)) IS NOT NULL;
        IF complete THEN
            -- A crash empties what is unlogged.
            EXECUTE format(
                'SELECT EXISTS (SELECT 1 FROM hashindex.%I) OR NOT EXISTS (SELECT 1 FROM %s)',
                i.landmark_table, codes
            ) INTO complete;
        END IF;
    ELSIF i.access IN ('lookup', 'hnsw') THEN
        -- That of a table with partitions is valid if those of all of them are there.
        SELECT coalesce(bool_and(x.indisvalid IS TRUE), false) INTO complete
        FROM hashindex._code_indexes(i, i.access) c
        LEFT JOIN pg_index x ON x.indexrelid = to_regclass(c.index_name)
        WHERE c.level = 0;
    END IF;
    IF NOT complete THEN
        RETURN NEXT format('access path %s was incomplete: searches go by scan until it is built again', i.access);
        part := i.access;
        i.building := coalesce(i.building, i.access);
        i.access := 'scan';
        UPDATE hashindex.index x SET access = i.access, building = i.building, landmark_table = NULL WHERE x.name = i.name;
        IF part <> 'landmarks' AND (SELECT c.relkind = 'p' FROM pg_class c WHERE c.oid = codes) THEN
            PERFORM hashindex._drop_code_indexes(i, part);
        END IF;
        SELECT x.* INTO STRICT i FROM hashindex.index x WHERE x.name = i.name;
        PERFORM hashindex._create_functions(i);
    END IF;

    FOR part IN SELECT u FROM hashindex.drop_unused(i.name) u LOOP
        RETURN NEXT format('dropped table %s, which a run had left', part);
    END LOOP;

    -- What CREATE INDEX or REINDEX CONCURRENTLY left INVALID, and what no path of the index needs.
    FOR dropped IN
        SELECT format('%I.%I', n.nspname, c.relname)
        FROM pg_index x
        JOIN pg_class c ON c.oid = x.indexrelid
        JOIN pg_namespace n ON n.oid = c.relnamespace
        JOIN pg_class r ON r.oid = x.indrelid
        JOIN pg_namespace m ON m.oid = r.relnamespace
        CROSS JOIN LATERAL (
            SELECT format('hashindex_%s_', CASE WHEN x.indrelid = codes THEN i.storage
                ELSE left(md5(i.storage || format(' %I.%I', m.nspname, r.relname)), 20) END) AS stem
        ) named
        WHERE x.indrelid IN (SELECT p.part FROM hashindex._parts_of(codes) p)
          AND ((i.layout = 'table' AND NOT x.indisvalid) OR (
              substr(c.relname, 1 + length(named.stem)) ~ '^(hnsw|chunk_[0-9]+)(_cc(new|old)[0-9]*)?$'
              AND starts_with(c.relname, named.stem)
          ))
          -- Those of partitions go with the one above them.
          AND NOT EXISTS (SELECT FROM pg_inherits h WHERE h.inhrelid = x.indexrelid)
          AND NOT EXISTS (
              SELECT FROM unnest(ARRAY[i.access, i.building]) path
              CROSS JOIN LATERAL hashindex._code_indexes(i, path) k
              WHERE path IN ('lookup', 'hnsw') AND to_regclass(k.index_name) = x.indexrelid
          )
        ORDER BY 1
    LOOP
        EXECUTE 'DROP INDEX ' || dropped;
        RETURN NEXT format('dropped index %s, which a run had left', dropped);
    END LOOP;
END
$$;

COMMENT ON FUNCTION hashindex._restore_access(text) IS
    'has an index whose access path is incomplete build it again, and drops what runs that were cut off left of others; returns what was done';

-- Comments on triggers say that what their tables got before was not seen. They stay until every code
-- has been compared, also where a run is cut off in between.
CREATE OR REPLACE FUNCTION hashindex._unverified_tables(i hashindex.index)
RETURNS TABLE (relation text, trigger_name text)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN QUERY
    SELECT hashindex._full_name(t.tgrelid), t.tgname::text FROM hashindex._triggers_of(i) t
    WHERE obj_description(t.oid, 'pg_trigger') ~ '^codes are to be compared';
END
$$;

COMMENT ON FUNCTION hashindex._unverified_tables(hashindex.index) IS
    'tables whose codes a repair has still to compare with fresh ones, with the triggers that say so';

CREATE OR REPLACE FUNCTION hashindex._mark_unverified(name text, base regclass)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex.find_index(_mark_unverified.name);
    marked record;
BEGIN
    FOR marked IN
        SELECT t.tgname, hashindex._full_name(t.tgrelid) AS relation FROM hashindex._triggers_of(i) t
        WHERE t.tgrelid = base
    LOOP
        EXECUTE format(
            'COMMENT ON TRIGGER %I ON %s IS %L', marked.tgname, marked.relation,
            'codes are to be compared with fresh ones: pg-hashindex index repair '
            || hashindex._shell_word(coalesce(i.swap_of, i.name))
        );
    END LOOP;
END
$$;

COMMENT ON FUNCTION hashindex._mark_unverified(text, regclass) IS
    'says that the codes of a table, or of one of its partitions, may be wrong';

CREATE OR REPLACE FUNCTION hashindex._mark_verified(name text, base regclass)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex.find_index(_mark_verified.name);
    marked record;
BEGIN
    FOR marked IN
        SELECT t.* FROM hashindex._unverified_tables(i) t
        WHERE t.relation::regclass IN (SELECT p.part FROM hashindex._parts_of(base) p)
    LOOP
        EXECUTE format('COMMENT ON TRIGGER %I ON %s IS NULL', marked.trigger_name, marked.relation);
    END LOOP;
END
$$;

COMMENT ON FUNCTION hashindex._mark_verified(text, regclass) IS
    'says that the codes of a table and its partitions have been compared';

-- Rows of the catalog say what is in use; names and comments say what is ours.
CREATE OR REPLACE FUNCTION hashindex.orphans()
RETURNS TABLE (kind text, object text, statement text)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN QUERY
    WITH dead_runs AS (
        SELECT n.nspname::text AS schema, 'tune_' || right(n.nspname, 12) AS token
        FROM pg_namespace n
        WHERE n.nspname ~ '^hashindex_tune_[0-9a-f]{12}$' AND pg_has_role(n.nspowner, hashindex._administrator(), 'USAGE')
          AND NOT hashindex._is_at_work('tune', n.nspname)
    ),
    functions AS (
        SELECT p.oid, p.proname::text AS name, format('hashindex.%I(%s)', p.proname, (
            SELECT string_agg(format('%I.%I', n.nspname, t.typname), ', ' ORDER BY a.place)
            FROM unnest(p.proargtypes) WITH ORDINALITY a(type, place)
            JOIN pg_type t ON t.oid = a.type JOIN pg_namespace n ON n.oid = t.typnamespace
        )) AS signature
        FROM pg_proc p
        WHERE p.pronamespace = 'hashindex'::regnamespace AND CASE
            WHEN p.proname ~ '^sync_' THEN p.prorettype = 'trigger'::regtype
                AND obj_description(p.oid, 'pg_proc') ~ '^trigger: (keeps the codes of index|takes away the codes of rows) '
                AND NOT EXISTS (SELECT FROM hashindex.index i WHERE 'sync_' || i.storage = p.proname)
            WHEN p.proname ~ '^encode_' THEN obj_description(p.oid, 'pg_proc') ~ '^code of a vector by the model of index '
                AND NOT EXISTS (SELECT FROM hashindex.index i WHERE p.proname = 'encode_' || i.storage)
            WHEN p.proname ~ '^(refresh|renew)_' THEN obj_description(p.oid, 'pg_proc') ~ '^makes the codes of keys in index '
                AND NOT EXISTS (
                    SELECT FROM hashindex.index i
                    WHERE p.proname = 'refresh_' || i.storage
                       OR p.proname = 'renew_' || i.storage AND i.next_generation IS NOT NULL
                )
            WHEN p.proname ~ '^(candidates|search|within)_' THEN
                obj_description(p.oid, 'pg_proc')
                    ~ '^(keys of the n rows of .*|nearest rows of .*|rows of .* whose codes are within a Hamming radius,) by index '
                AND NOT EXISTS (
                    SELECT FROM hashindex.index i
                    WHERE p.proname IN ('candidates_' || i.name, 'search_' || i.name, 'within_' || i.name)
                )
        END
    ),
    triggers AS (
        SELECT t.tgname, t.tgrelid, hashindex._full_name(t.tgrelid) AS relation,
               substr(f.name, 6) AS storage
        FROM functions f JOIN pg_trigger t ON t.tgfoid = f.oid
        WHERE t.tgparentid = 0 AND NOT hashindex._is_shard(t.tgrelid)
    ),
    listed (place, kind, object, statement) AS (
        SELECT 1, 'index', i.name, format('SELECT hashindex.drop_index(%L)', i.name)
        FROM dead_runs d JOIN hashindex.index i ON i.schema_name = d.schema
        UNION ALL
        SELECT 2, 'model', format('%s:%s', m.name, m.version),
               format('DELETE FROM hashindex.model WHERE id = %s', m.id)
        FROM dead_runs d JOIN hashindex.model m ON starts_with(m.name, d.token)
        UNION ALL
        SELECT 3, 'schema', quote_ident(d.schema), format('DROP SCHEMA %I CASCADE', d.schema)
        FROM dead_runs d
        UNION ALL
        SELECT 4, 'trigger', format('%I ON %s', t.tgname, t.relation),
               format('DROP TRIGGER %I ON %s', t.tgname, t.relation)
        FROM triggers t
        UNION ALL
        SELECT 5, 'column', format('%s.%I', t.relation, a.attname),
               format('ALTER TABLE %s DROP COLUMN %I', t.relation, a.attname)
        FROM triggers t
        JOIN pg_attribute a ON a.attrelid = t.tgrelid AND a.attname = t.storage || '_code'
            AND a.atttypid = 'bit'::regtype AND NOT a.attisdropped
        WHERE t.tgname = 'zz_hashindex_' || t.storage
        UNION ALL
        SELECT 6, 'function', f.signature, format('DROP FUNCTION %s', f.signature)
        FROM functions f
        UNION ALL
        SELECT 7, 'table', hashindex._full_name(c.oid), format('DROP TABLE %s', hashindex._full_name(c.oid))
        FROM pg_class c
        WHERE c.relnamespace = 'hashindex'::regnamespace AND c.relkind = 'r'
          AND obj_description(c.oid, 'pg_class')
              ~ '^(codes of index |landmarks of index |codes of index .* that are still to be put in order|keys that were written while index )'
          AND NOT EXISTS (SELECT FROM hashindex.index i, hashindex._tables_of(i) t WHERE t.relation = c.oid)
    )
    SELECT l.kind, l.object, l.statement FROM listed l ORDER BY l.place, l.object;
END
$$;

COMMENT ON FUNCTION hashindex.orphans() IS
    'what was made for indexes that are no more, and by runs of pg-hashindex tune that were killed; with the statements that drop it';

CREATE OR REPLACE FUNCTION hashindex.drop_orphans()
RETURNS TABLE (kind text, object text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    orphan record;
BEGIN
    -- Nobody makes an index of that name meanwhile.
    LOCK TABLE hashindex.index IN SHARE ROW EXCLUSIVE MODE;
    FOR orphan IN SELECT o.* FROM hashindex.orphans() o LOOP
        EXECUTE orphan.statement;
        kind := orphan.kind;
        object := orphan.object;
        RETURN NEXT;
    END LOOP;
END
$$;

COMMENT ON FUNCTION hashindex.drop_orphans() IS
    'drops what was made for indexes that are no more; returns what it was';
