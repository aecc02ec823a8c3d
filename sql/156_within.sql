-- Finds every row whose code is within a Hamming radius of a query's, by the codes that an index has of each row: in lists, or in a column of
-- the table. Compares all of them, so that codes which would be computed for each row are refused.

CREATE OR REPLACE FUNCTION hashindex.within(index_name text, query anycompatible, radius integer, tenant text DEFAULT NULL, all_tenants boolean DEFAULT false)
RETURNS TABLE (id text, distance integer)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 100
SET search_path FROM CURRENT
SET jit = off
AS $$
DECLARE
    i hashindex.index := hashindex._require(index_name);
    s hashindex.index_set := hashindex._used_set(i);
    by_lists boolean := s.access IN ('lists', 'scan');
    base text := format('%I.%I', i.schema_name, i.table_name);
    keys text[] := CASE WHEN by_lists THEN hashindex._code_keys(i) ELSE i.key_columns END;
    bits integer := m.n_bits FROM hashindex.model m WHERE m.id = s.model_id;
    columns text := concat_ws(', ', hashindex._columns_of('b', i.key_columns), 'b.' || quote_ident(i.tenant_column));
    asked {ext}.vector;
    code text;
BEGIN
    PERFORM hashindex._require_tenant(i.name, base, i.tenant_column, tenant, all_tenants);
    IF by_lists IS NOT TRUE AND s.code_column IS NULL THEN
        RAISE EXCEPTION 'index "%" searches %, and a radius needs codes that are stored', i.name, hashindex._set_text(s)
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('Run: pg-hashindex index swap %s%s --store', i.name, CASE WHEN s.model_id IS NULL THEN ' --model MODEL' END);
    ELSIF radius IS NULL OR NOT radius BETWEEN 0 AND bits THEN
        PERFORM hashindex._refuse('radius', radius, format('0 to %s, the bits of a code', bits));
    END IF;
    asked := hashindex._checked_vector(query::{ext}.vector, s.dimension);
    -- A block of its own: inside one with a handler a standby that is in conflict with recovery ends the session, not the statement.
    BEGIN
        IF by_lists THEN
            PERFORM hashindex._check_plain(base::regclass, s.column_name);
            PERFORM hashindex._check_vector_column(base::regclass, s.column_name, s.dimension, false);
            -- The table is locked before the codes, as by TRUNCATE and drops.
            EXECUTE format('SELECT %s FROM %s b WHERE false', columns, base);
            PERFORM hashindex._require_codes(i, s);
            EXECUTE format('SELECT FROM hashindex.%s WHERE false', hashindex._part_of(s, 'codes'));
        ELSE
            EXECUTE format('SELECT %s, b.%I, b.%I FROM %s b WHERE false', columns, s.code_column, s.column_name, base);
        END IF;
    EXCEPTION WHEN undefined_table OR undefined_column THEN
        PERFORM hashindex._refuse_renamed(i);
        -- A build may have dropped these codes since this statement began.
        IF by_lists THEN
            PERFORM hashindex._require_codes(i, s);
        END IF;
        RAISE;
    END;
    IF by_lists THEN
        code := hashindex.encode_with(m.layers, asked, m.cuts) FROM hashindex.readable_model m WHERE m.id = s.model_id;
    ELSE
        EXECUTE format('SELECT (%s)::text', (hashindex._set_sql(i, s, '$1')).ranked_query) INTO code USING asked;
    END IF;
    RETURN QUERY EXECUTE format(
        'SELECT %1$s, bit_count(c.%2$I # $1::bit(%3$s))::integer AS distance FROM %4$s c WHERE bit_count(c.%2$I # $1::bit(%3$s)) <= $2 AND %5$s AND %6$s ORDER BY distance, %7$s',
        hashindex._key_text('c', keys), CASE WHEN by_lists THEN 'code' ELSE s.code_column END, bits, CASE WHEN by_lists THEN 'hashindex.' || hashindex._part_of(s, 'codes') ELSE base END,
        -- Few keys are looked up one by one; the planner would expect a third of the table, and join.
        CASE WHEN by_lists THEN format('EXISTS (SELECT FROM %s b WHERE (%s) = (%s) OFFSET 0)', base, hashindex._columns_of('b', i.key_columns), hashindex._columns_of('c', keys))
            ELSE format('c.%I IS NOT NULL', s.column_name) END,
        CASE WHEN tenant IS NULL OR i.tenant_column IS NULL THEN 'true'
            ELSE format('c.%I OPERATOR(pg_catalog.=) %L::%s', CASE WHEN by_lists THEN 'tenant' ELSE i.tenant_column END, tenant, hashindex._tenant_type(i)) END,
        hashindex._columns_of('c', keys)
    ) USING code, radius;
END
$$;

COMMENT ON FUNCTION hashindex.within(text, anycompatible, integer, text, boolean) IS
    'keys of every row whose stored code differs from the query''s in at most radius bits, with the number of these bits; the nearest first';
