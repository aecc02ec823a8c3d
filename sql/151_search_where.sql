-- Searching with a condition that is SQL text: what statements of SQLAlchemy run. The text is run with
-- the caller's rights and under the caller's search_path. Values in it must have been quoted by
-- quote_nullable, never put together by hand.

CREATE OR REPLACE FUNCTION hashindex.search_where(
    index_name text,
    query vector,
    k integer,
    condition text,
    candidates integer DEFAULT NULL,
    probes integer DEFAULT NULL,
    ranking text DEFAULT NULL,
    query_code bit varying DEFAULT NULL,
    -- A default is evaluated where the call stands, before this function sets its own path.
    caller_path text DEFAULT current_setting('search_path')
)
RETURNS TABLE (id text, distance double precision)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 10
SET search_path FROM CURRENT
SET jit = off
AS $$
DECLARE
    i hashindex.index := hashindex.find_index(index_name);
    expected record;
    statement text;
BEGIN
    IF condition IS NULL THEN
        RAISE EXCEPTION 'the condition is NULL'
            USING ERRCODE = 'null_value_not_allowed', HINT = 'Pass true for all rows.';
    END IF;
    -- A comment at its end must not take in what comes after it.
    condition := condition || E'\n';
    expected := hashindex.estimate(
        format('SELECT FROM %I.%I WHERE (%s)', i.schema_name, i.table_name, condition), caller_path
    );
    statement := hashindex.filtered_search(
        index_name, query, k, condition, expected.matching, expected.cost,
        candidates => candidates, probes => probes, ranking => ranking, query_code => query_code
    );
    -- Until this function ends.
    PERFORM set_config('search_path', caller_path, true);
    RETURN QUERY EXECUTE format('SELECT s.id::text, s.distance FROM (%s) s', statement) USING query;
END
$$;

COMMENT ON FUNCTION hashindex.search_where(text, vector, integer, text, integer, integer, text, bit varying, text) IS
    'nearest rows of those that a condition, SQL text on the columns of the table, holds for: ids as text';
