-- Searching any index by its name: ids as text, filters as JSON. Applications that know their index
-- call its own function, hashindex.search_<index>, which is typed and keeps its plan.

CREATE OR REPLACE FUNCTION hashindex.search(
    index_name text,
    query vector,
    k integer DEFAULT 10,
    candidates integer DEFAULT NULL,
    where_equals jsonb DEFAULT NULL,
    query_code bit varying DEFAULT NULL,
    probes integer DEFAULT NULL,
    ranking text DEFAULT NULL
)
RETURNS TABLE (id text, distance double precision)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 10
SET search_path FROM CURRENT
SET jit = off
AS $$
DECLARE
    i hashindex.index := hashindex.find_index(index_name);
    condition text := hashindex.filter_of(i, where_equals);
    expected record;
    in_python boolean := hashindex.encoded_in_python(i);
BEGIN
    IF condition IS NULL THEN
        RETURN QUERY EXECUTE format(
            'SELECT s.id::text, s.distance FROM hashindex.%I($1, $2, $3, $4, $5%s) s',
            'search_' || i.name, CASE WHEN in_python THEN ', $6' ELSE '' END
        ) USING query, k, candidates, probes, ranking, query_code;
        RETURN;
    END IF;
    expected := hashindex.estimate(
        format('SELECT FROM %I.%I WHERE %s', i.schema_name, i.table_name, condition)
    );
    RETURN QUERY EXECUTE format(
        'SELECT s.id::text, s.distance FROM (%s) s',
        hashindex.filtered_search(
            index_name, query, k, condition, expected.matching, expected.cost,
            candidates => candidates, probes => probes, ranking => ranking, query_code => query_code
        )
    ) USING query;
END
$$;

COMMENT ON FUNCTION hashindex.search(text, vector, integer, integer, jsonb, bit varying, integer, text) IS
    'nearest rows by any index: ids as text; where_equals {"column": value} restricts the rows; query_code is the query''s code, where Python evaluates the model';

CREATE OR REPLACE FUNCTION hashindex.filter_of(i hashindex.index, where_equals jsonb)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base regclass := format('%I.%I', i.schema_name, i.table_name)::regclass;
    pair record;
    conditions text[] := '{}';
BEGIN
    IF where_equals IS NULL THEN
        RETURN NULL;
    END IF;
    IF jsonb_typeof(where_equals) <> 'object' THEN
        RAISE EXCEPTION 'where_equals is %, not an object', where_equals
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Write it as {"column": value}.';
    END IF;
    FOR pair IN
        SELECT e.key, e.value, t.typcategory = 'N' AS numeric
        FROM jsonb_each(where_equals) e
        LEFT JOIN pg_attribute a
            ON a.attrelid = base AND a.attname = e.key AND a.attnum > 0 AND NOT a.attisdropped
        LEFT JOIN pg_type t ON t.oid = a.atttypid
    LOOP
        IF pair.numeric IS NULL THEN
            RAISE EXCEPTION 'where_equals names column "%", which % has not', pair.key, base
                USING ERRCODE = 'undefined_column';
        END IF;
        IF jsonb_typeof(pair.value) IN ('array', 'object') THEN
            RAISE EXCEPTION 'where_equals asks that column "%" equal %', pair.key, pair.value
                USING ERRCODE = 'invalid_parameter_value',
                      HINT = 'Values are text, numbers, true, false or null.';
        END IF;
        conditions := conditions || CASE jsonb_typeof(pair.value)
            WHEN 'null' THEN
                format('%I.%I.%I IS NULL', i.schema_name, i.table_name, pair.key)
            WHEN 'number' THEN
                -- As a number where the column holds some: 5.0 is no literal of integer.
                format('%I.%I.%I = %s', i.schema_name, i.table_name, pair.key,
                    CASE WHEN pair.numeric THEN pair.value #>> '{}'
                         ELSE quote_literal(pair.value #>> '{}') END)
            ELSE
                -- A literal without a type takes the column's.
                format('%I.%I.%I = %L', i.schema_name, i.table_name, pair.key, pair.value #>> '{}')
        END;
    END LOOP;
    RETURN nullif(array_to_string(conditions, ' AND '), '');
END
$$;

COMMENT ON FUNCTION hashindex.filter_of(hashindex.index, jsonb) IS
    'SQL condition that holds where every named column equals its value';
