-- Whether what an index consists of is there and as it has to be: its table, codes, triggers and
-- functions. Every check returns (check_name, status, value, detail, advice); status is ok, warning
-- (answers are right, but could be better or faster, or will not stay right) or broken. Nothing
-- here writes, and the caller's own rights are all that it takes.

-- Of an advised command: a name as a shell takes it for one word.
CREATE OR REPLACE FUNCTION hashindex._shell_word(word text)
RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN CASE WHEN word ~ '^[A-Za-z0-9_.,:/=@%+-]+$' THEN word
        ELSE '''' || replace(word, '''', '''\''''') || '''' END;
END
$$;

COMMENT ON FUNCTION hashindex._shell_word(text) IS 'a text quoted for a shell, where it needs that';

-- The table and its partitions, of whatever level.
CREATE OR REPLACE FUNCTION hashindex._parts_of(table_name regclass)
RETURNS TABLE (part regclass, is_partition boolean)
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN QUERY
    SELECT p.relid, p.relid <> table_name
    FROM (SELECT t.relid FROM pg_partition_tree(table_name) t UNION SELECT table_name) p;
END
$$;

COMMENT ON FUNCTION hashindex._parts_of(regclass) IS 'a table and all of its partitions';

CREATE OR REPLACE FUNCTION hashindex._health_of_table(i hashindex.index)
RETURNS TABLE (check_name text, status text, value double precision, detail text, advice text)
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    used hashindex.model := m FROM hashindex.model m WHERE m.id = i.model_id;
    base regclass := to_regclass(format('%I.%I', i.schema_name, i.table_name));
    codes regclass := to_regclass(format('%I.%I', i.code_schema, i.code_table));
    wrong text[] := '{}';
    fault text;
    key_type text;
BEGIN
    IF base IS NULL THEN
        wrong := wrong || concat_ws(
            '', format('table %I.%I is gone', i.schema_name, i.table_name),
            (SELECT format(', the triggers of the index are on %s: it was renamed', min(t.tgrelid::regclass::text))
             FROM hashindex._triggers_of(i) t JOIN pg_class c ON c.oid = t.tgrelid
             WHERE NOT c.relispartition
             HAVING count(*) > 0)
        );
    ELSE
        SELECT CASE
            WHEN a.attname IS NULL THEN format('column "%s" of %s is gone', i.column_name, base)
            WHEN a.atttypid NOT IN ('{ext}.vector'::regtype, '{ext}.halfvec'::regtype) THEN
                format('column "%s" of %s is of type %s, not vector or halfvec', i.column_name, base, a.written)
            WHEN a.atttypmod NOT IN (-1, used.dimension) THEN
                format('column "%s" of %s holds vectors of %s dimensions, the model takes %s',
                       i.column_name, base, a.atttypmod, used.dimension)
        END INTO fault
        FROM (VALUES (1)) v LEFT JOIN (
            SELECT x.attname, x.atttypid, x.atttypmod, format_type(x.atttypid, NULL) AS written FROM pg_attribute x
            WHERE x.attrelid = base AND x.attname = i.column_name AND x.attnum > 0 AND NOT x.attisdropped
        ) a ON true;
        wrong := wrong || array_remove(ARRAY[fault], NULL);
        BEGIN
            SELECT k.id_type INTO key_type FROM hashindex._find_key(base, i.id_column) k;
            IF key_type <> i.id_type THEN
                wrong := wrong || format('key "%s" of %s is of type %s, and was of %s',
                                         i.id_column, base, key_type, i.id_type);
            END IF;
        EXCEPTION WHEN undefined_column OR invalid_table_definition THEN
            wrong := wrong || SQLERRM;
        END;
        wrong := wrong || ARRAY(
            SELECT format('%s has tables that inherit from it', base) FROM pg_class c
            WHERE c.oid = base AND c.relkind = 'r'
              AND EXISTS (SELECT FROM pg_inherits h WHERE h.inhparent = base)
        );
    END IF;
    IF codes IS NULL AND i.layout = 'table' THEN
        wrong := wrong || format('code table %I.%I is gone', i.code_schema, i.code_table);
    ELSIF codes IS NOT NULL THEN
        fault := format_type(a.atttypid, a.atttypmod) FROM pg_attribute a
            WHERE a.attrelid = codes AND a.attname = i.code_column AND a.attnum > 0 AND NOT a.attisdropped;
        IF fault IS DISTINCT FROM format('bit(%s)', used.n_bits) THEN
            wrong := wrong || format(
                CASE WHEN fault IS NULL THEN 'code column "%s" of %s is gone'
                     ELSE 'code column "%s" of %s is of type %s, the model gives bit(%s)' END,
                i.code_column, codes, fault, used.n_bits
            );
        END IF;
        wrong := wrong || ARRAY(
            SELECT format('table %s and its codes in %s are not distributed alike', base, codes) WHERE base IS NOT NULL AND NOT hashindex._is_beside(i)
        );
        -- Triggers and the encoder write by it.
        IF i.layout = 'table' AND NOT EXISTS (
            SELECT FROM pg_index x JOIN pg_attribute a ON a.attrelid = codes AND a.attnum = x.indkey[0]
            WHERE x.indrelid = codes AND x.indisunique AND x.indisvalid AND x.indnkeyatts = 1
              AND x.indpred IS NULL AND a.attname = 'id'
        ) THEN
            wrong := wrong || format('code table %s has lost its primary key', codes);
        END IF;
    END IF;
    RETURN QUERY SELECT 'table', CASE WHEN wrong = '{}' THEN 'ok' ELSE 'broken' END,
        cardinality(wrong)::double precision,
        CASE WHEN wrong = '{}' THEN 'table, column, key and codes are there' ELSE array_to_string(wrong, '; ') END,
        CASE WHEN wrong <> '{}' THEN format(
            'pg-hashindex index repair %s follows what was renamed and makes codes anew; an index whose table or '
            'vector column is gone it drops', hashindex._shell_word(i.name)
        ) END;
END
$$;

COMMENT ON FUNCTION hashindex._health_of_table(hashindex.index) IS
    'health: whether table, column, key and codes of an index are there, as they were';

CREATE OR REPLACE FUNCTION hashindex._health_of_triggers(i hashindex.index)
RETURNS TABLE (check_name text, status text, value double precision, detail text, advice text)
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base regclass := to_regclass(format('%I.%I', i.schema_name, i.table_name));
    administrator regrole := hashindex._administrator();
    faults text[];
    all_of_partitions boolean;
    shown text;
BEGIN
    IF base IS NULL THEN
        RETURN;
    END IF;
    SELECT coalesce(array_agg(
               format('%s on %s %s', e.name, e.part, e.fault) ORDER BY e.is_partition, e.part::text, e.name
           ), '{}'),
           coalesce(bool_and(e.is_partition AND i.layout = 'table'), false)
    INTO faults, all_of_partitions
    FROM (
        SELECT n.name, p.part, p.is_partition, CASE
            WHEN t.tgname IS NULL THEN 'is missing'
            -- Others fire for replication alone, or not at all.
            WHEN t.tgenabled NOT IN ('O', 'A') THEN 'is disabled'
        END AS fault
        FROM hashindex._parts_of(base) p
        CROSS JOIN unnest(hashindex._trigger_names(i)) n(name)
        LEFT JOIN pg_trigger t ON t.tgrelid = p.part AND t.tgname = n.name
            AND t.tgfoid = to_regproc(format('hashindex.%I', 'sync_' || i.storage))
    ) e
    WHERE e.fault IS NOT NULL;
    IF i.layout = 'table' AND hashindex._is_hidden(base) THEN
        RETURN QUERY SELECT 'triggers', 'broken', 1::double precision,
            format('row security of %s holds for role %s too, as which triggers run: writes fail', base, administrator),
            format('ALTER TABLE %s NO FORCE ROW LEVEL SECURITY; or ALTER ROLE %s BYPASSRLS', base, administrator);
        RETURN;
    END IF;
    shown := array_to_string(faults[:5], '; ')
        || CASE WHEN cardinality(faults) > 5 THEN format('; and %s more', cardinality(faults) - 5) ELSE '' END;
    RETURN QUERY SELECT 'triggers',
        CASE WHEN faults = '{}' THEN 'ok' WHEN all_of_partitions THEN 'warning' ELSE 'broken' END,
        cardinality(faults)::double precision,
        CASE WHEN faults = '{}' THEN 'all there and enabled'
             -- A statement on the table above fires the triggers there.
             WHEN all_of_partitions THEN shown || ': what is written straight to these partitions is not seen'
             ELSE shown || ': what is written is not seen' END,
        CASE WHEN faults <> '{}' THEN format(
            'pg-hashindex index repair %s, which sees to what was written meanwhile, too', hashindex._shell_word(i.name)
        ) END;
END
$$;

COMMENT ON FUNCTION hashindex._health_of_triggers(hashindex.index) IS
    'health: whether the triggers that keep codes fresh are there and enabled, on partitions too';

CREATE OR REPLACE FUNCTION hashindex._health_of_rights(i hashindex.index)
RETURNS TABLE (check_name text, status text, value double precision, detail text, advice text)
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    administrator oid := hashindex._administrator();
    trigger_function text := format('hashindex.%I()', 'sync_' || i.storage);
    distrusted record;
    intruder record;
    wrong text[] := ARRAY(
        SELECT format('%s belongs to role %s', s.object, s.owner::regrole) FROM hashindex._strangers() s
        UNION ALL
        SELECT format('role %s holds %s on %s', CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE acl.grantee::regrole::text END,
                      string_agg(acl.privilege_type, ', ' ORDER BY acl.privilege_type), o.name)
        FROM (
            SELECT 'schema hashindex' AS name, n.nspacl AS rights FROM pg_namespace n WHERE n.nspname = 'hashindex'
            UNION ALL
            SELECT c.oid::regclass::text, c.relacl FROM pg_class c WHERE c.relnamespace = 'hashindex'::regnamespace
        ) o CROSS JOIN LATERAL aclexplode(o.rights) acl
        WHERE acl.grantee <> administrator AND acl.privilege_type NOT IN ('USAGE', 'SELECT', 'MAINTAIN')
        GROUP BY acl.grantee, o.name
    );
BEGIN
    IF wrong <> '{}' THEN
        RETURN QUERY SELECT 'rights', 'broken', cardinality(wrong)::double precision,
            array_to_string(wrong, '; ') || format('; all in the schema is for role %s alone to make and to write', administrator::regrole),
            'drop what you did not make, and REVOKE the rights'::text;
        RETURN;
    END IF;
    SELECT p.part, c.relowner::regrole AS owner INTO distrusted
    FROM hashindex._parts_of(to_regclass(format('%I.%I', i.schema_name, i.table_name))) p JOIN pg_class c ON c.oid = p.part
    WHERE NOT has_function_privilege(c.relowner, trigger_function, 'EXECUTE') LIMIT 1;
    IF FOUND THEN
        RETURN QUERY SELECT 'rights', 'warning', 1::double precision,
            format('%s belongs to role %s since the index was made, and its owner can run code as %s', distrusted.part, distrusted.owner,
                   administrator::regrole),
            format('if he may be trusted with that: GRANT EXECUTE ON FUNCTION %s TO %s; else drop the index', trigger_function, distrusted.owner);
        RETURN;
    END IF;
    -- Functions that do not run as the administrator look names up there, too.
    SELECT quote_ident(n.nspname) AS schema, CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE acl.grantee::regrole::text END AS role INTO intruder
    FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace CROSS JOIN LATERAL aclexplode(n.nspacl) acl
    WHERE e.extname = 'vector' AND acl.privilege_type = 'CREATE' AND acl.grantee NOT IN (n.nspowner, administrator) ORDER BY 2 LIMIT 1;
    IF FOUND THEN
        RETURN QUERY SELECT 'rights', 'warning', 1::double precision,
            format('role %s may create functions in schema %s, beside pgvector, which searches could call', intruder.role, intruder.schema),
            format('REVOKE CREATE ON SCHEMA %s FROM %s, or trust it; or have pgvector in a schema of its own', intruder.schema, intruder.role);
    ELSE
        RETURN QUERY SELECT 'rights', 'ok', 0::double precision,
            format('all belongs to role %s, and the owner of the table is trusted', administrator::regrole), NULL::text;
    END IF;
EXCEPTION WHEN undefined_function THEN
    -- The check of functions says so.
    RETURN;
END
$$;

COMMENT ON FUNCTION hashindex._health_of_rights(hashindex.index) IS
    'health: whether the administrator alone makes and writes what is in the schema, and the owner of the table is trusted';

CREATE OR REPLACE FUNCTION hashindex._health_of_functions(i hashindex.index)
RETURNS TABLE (check_name text, status text, value double precision, detail text, advice text)
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    missing text[] := ARRAY(
        SELECT format('hashindex.%I', f.name) FROM unnest(
            ARRAY['sync_' || i.storage, 'candidates_' || i.name, 'search_' || i.name, 'within_' || i.name]
            || CASE WHEN to_regclass(format('%I.%I', i.schema_name, i.table_name)) IS NULL THEN '{}'
                WHEN hashindex._is_distributed(i) THEN ARRAY['encode_' || i.storage]
                WHEN i.layout = 'table' THEN ARRAY['refresh_' || i.storage] ELSE '{}' END
        ) f(name)
        WHERE NOT EXISTS (
            SELECT FROM hashindex._functions_of(i) o JOIN pg_proc p ON p.oid = o WHERE p.proname = f.name
        )
    );
BEGIN
    RETURN QUERY SELECT 'functions', CASE WHEN missing = '{}' THEN 'ok' ELSE 'broken' END,
        cardinality(missing)::double precision,
        CASE WHEN missing = '{}' THEN 'all there' ELSE array_to_string(missing, '; ') || ' missing' END,
        CASE WHEN missing <> '{}' THEN 'pg-hashindex index repair ' || hashindex._shell_word(i.name) END;
END
$$;

COMMENT ON FUNCTION hashindex._health_of_functions(hashindex.index) IS
    'health: whether an index''s own functions are there';
