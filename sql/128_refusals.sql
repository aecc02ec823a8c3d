-- Functions by which expressions in searches and triggers raise errors.

-- The error of an argument that is out of range.
CREATE OR REPLACE FUNCTION hashindex._refuse(what text, given integer, wanted text) RETURNS integer
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    -- An empty hint would be shown too.
    IF what IN ('n', 'candidates', 'effort') THEN
        RAISE EXCEPTION '% is %; it must be %', what, coalesce(given::text, 'NULL'), wanted
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave it out for the default of the index.';
    END IF;
    RAISE EXCEPTION '% is %; it must be %', what, coalesce(given::text, 'NULL'), wanted USING ERRCODE = 'invalid_parameter_value';
END
$$;

-- The error of a vector that a model cannot take.
CREATE OR REPLACE FUNCTION hashindex._refuse_vector(given {ext}.vector, wanted integer) RETURNS {ext}.vector
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    IF given IS NULL THEN
        RAISE EXCEPTION 'the query vector is NULL'
            USING ERRCODE = 'null_value_not_allowed', HINT = 'Pass a vector.';
    END IF;
    RAISE EXCEPTION 'the vector has % dimensions, the model takes %', {ext}.vector_dims(given), wanted
        USING ERRCODE = 'invalid_parameter_value',
              HINT = 'Use a vector from the same source as the rows that the model was trained on.';
END
$$;

-- Returns a query of the wanted dimension, or raises an error.
CREATE OR REPLACE FUNCTION hashindex._checked_vector(given {ext}.vector, wanted integer) RETURNS {ext}.vector
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN {ext}.vector_dims(given) = wanted THEN given ELSE hashindex._refuse_vector(given, wanted) END;

-- Refuses a search that names no tenant, of an index that has tenants. A role that sees the rows of its tenant alone, or may not read tenants,
-- names none.
CREATE OR REPLACE FUNCTION hashindex._require_tenant(
    index_name text, base text, tenant_column text, tenant text, all_tenants boolean, where_equals jsonb DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    IF tenant_column IS NULL AND (tenant IS NOT NULL OR all_tenants) THEN
        RAISE EXCEPTION 'index "%" has no tenants', index_name USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave tenant and all_tenants out, or filter by the column.';
    ELSIF tenant_column IS NOT NULL AND tenant IS NULL AND all_tenants IS NOT TRUE AND where_equals -> tenant_column IS NULL AND NOT row_security_active(base)
        AND has_column_privilege(base, tenant_column, 'SELECT') THEN
        RAISE EXCEPTION 'index "%" has tenants, and the search names none', index_name USING ERRCODE = 'invalid_parameter_value',
            HINT = format('Name a value of column "%s" as tenant, or search the rows of all tenants: all_tenants => true.', tenant_column);
    END IF;
END
$$;

-- Raises an error unless the transaction sees an index's codes, they are kept fresh by triggers of its table, and hide no rows that the table
-- lets the caller read.
CREATE OR REPLACE FUNCTION hashindex._require_codes(i hashindex.index, s hashindex.index_set) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base text := format('%I.%I', i.schema_name, i.table_name);
    codes text := 'hashindex.' || hashindex._part_of(s, 'codes');
BEGIN
    IF NOT s.encoded THEN
        RAISE EXCEPTION 'index "%" is not yet encoded', i.name
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = format('Run: pg-hashindex index encode %s', i.name);
    ELSIF to_regclass(codes) IS NULL THEN
        RAISE EXCEPTION 'index "%" has been built again since this statement began', i.name
            USING ERRCODE = 'serialization_failure', HINT = 'Run it again.';
    ELSIF NOT hashindex._is_bound(i, s) OR hashindex._not_plain(base::regclass) IS NOT NULL
        OR NOT EXISTS (SELECT FROM hashindex._triggers_of(i) t WHERE t.tgrelid = to_regclass(base) AND t.tgname = (hashindex._trigger_names(i))[1]) THEN
        RAISE EXCEPTION 'table % is not the one that index "%" has codes of: it may have been dropped and recreated, or restored', base, i.name
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = format('Run: pg-hashindex index check %s', i.name);
    ELSIF row_security_active(to_regclass(codes)) AND hashindex._rows_are_hidden(base, codes) THEN
        RAISE EXCEPTION 'the codes of index "%" do not follow the policies of % as they are now', i.name, base
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = format('As the administrator, run: pg-hashindex index grant %s ROLE', i.name);
    END IF;
END
$$;
