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
    s hashindex.index_set;
    base text := format('%I.%I', i.schema_name, i.table_name);
    bits integer;
    asked {ext}.vector;
    code text;
BEGIN
    PERFORM hashindex._require_tenant(i.name, base, i.tenant_column, tenant, all_tenants);
    s := hashindex._used_set(i);
    IF s.access IN ('lists', 'scan') THEN
        RETURN QUERY EXECUTE format(
            'SELECT %s, w.distance FROM hashindex.%I($1, $2%s) w', hashindex._key_text('w', hashindex._answer_keys(i)), 'within_' || i.name,
            CASE WHEN i.tenant_column IS NOT NULL THEN format(', $3::%s, $4', hashindex._tenant_type(i)) END
        ) USING query, radius, tenant, all_tenants;
        RETURN;
    ELSIF s.code_column IS NULL THEN
        RAISE EXCEPTION 'index "%" searches %, and a radius needs codes that are stored', i.name, hashindex._set_text(s)
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('Run: pg-hashindex index swap %s%s --store', i.name, CASE WHEN s.model_id IS NULL THEN ' --model MODEL' END);
    END IF;
    SELECT m.n_bits INTO STRICT bits FROM hashindex.model m WHERE m.id = s.model_id;
    IF radius IS NULL OR NOT radius BETWEEN 0 AND bits THEN
        PERFORM hashindex._refuse('radius', radius, format('0 to %s, the bits of a code', bits));
    END IF;
    asked := hashindex._checked_vector(query::{ext}.vector, s.dimension);
    EXECUTE format('SELECT (%s)::text', (hashindex._set_sql(i, s, '$1')).ranked_query) INTO code USING asked;
    RETURN QUERY EXECUTE format(
        'SELECT %1$s, bit_count(%2$s.%3$I # $1::bit(%4$s))::integer FROM %2$s WHERE %2$s.%5$I IS NOT NULL AND bit_count(%2$s.%3$I # $1::bit(%4$s)) <= $2 '
        'AND %6$s ORDER BY 2, %7$s',
        hashindex._key_text(base, i.key_columns), base, s.code_column, bits, s.column_name,
        coalesce(hashindex._of_tenant(i, tenant), 'true'),
        hashindex._columns_of(base, i.key_columns)
    ) USING code, radius;
END
$$;

COMMENT ON FUNCTION hashindex.within(text, anycompatible, integer, text, boolean) IS
    'keys of every row whose stored code differs from the query''s in at most radius bits, with the number of these bits; the nearest first';
