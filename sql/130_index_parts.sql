-- The statements that an index is made of, written for one index each: static, so that PostgreSQL
-- keeps their plans. Nothing here executes anything.

CREATE OR REPLACE FUNCTION hashindex.find_index(index_name text)
RETURNS hashindex.index
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    found hashindex.index;
BEGIN
    SELECT i.* INTO found FROM hashindex.index i WHERE i.name = index_name;
    IF found.name IS NULL THEN
        RAISE EXCEPTION 'index "%" does not exist', coalesce(index_name, 'NULL')
            USING ERRCODE = 'undefined_object',
                  HINT = 'See SELECT name, table_name FROM hashindex.index.';
    END IF;
    RETURN found;
END
$$;

COMMENT ON FUNCTION hashindex.find_index(text) IS 'catalog row of an index, or an error';

-- Qualified, since the query may run under a caller's search_path.
CREATE OR REPLACE FUNCTION hashindex.distance_operator(metric text)
RETURNS text
LANGUAGE sql STABLE STRICT PARALLEL UNSAFE
BEGIN ATOMIC
    SELECT format(
        'OPERATOR(%I.%s)', n.nspname,
        CASE metric
            WHEN 'l2' THEN '<->' WHEN 'cosine' THEN '<=>' WHEN 'ip' THEN '<#>' WHEN 'hamming' THEN '<~>'
        END
    )
    FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
    WHERE e.extname = 'vector';
END;

COMMENT ON FUNCTION hashindex.distance_operator(text) IS
    'pgvector''s distance operator for a metric (l2, cosine or ip; hamming, of codes)';

CREATE OR REPLACE FUNCTION hashindex.encoded_in_python(i hashindex.index)
RETURNS boolean
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN m.network IS NOT NULL FROM hashindex.model m WHERE m.id = i.model_id;
END
$$;

COMMENT ON FUNCTION hashindex.encoded_in_python(hashindex.index) IS
    'whether the model of an index has a network, which SQL cannot evaluate';
