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
        CASE metric WHEN 'l2' THEN '<->' WHEN 'cosine' THEN '<=>' WHEN 'ip' THEN '<#>' END
    )
    FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
    WHERE e.extname = 'vector';
END;

COMMENT ON FUNCTION hashindex.distance_operator(text) IS
    'pgvector''s distance operator for a metric (l2, cosine or ip)';

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

-- The query that every search runs: candidates by code, answers by exact distance. The terms are
-- SQL for the query vector, k, the number of candidates and the query's code; filter is a condition
-- on the table's columns, written with the table's own name. Shape and tie-breaks: the distance
-- must not stand in the inner select list, where it would be computed for every row. Where the
-- model's bits have weights, candidates are the first by weighted distance of ten times as many, and
-- 2,000 at least, by plain Hamming distance: the weighted one costs four times as much.
CREATE OR REPLACE FUNCTION hashindex.search_query(
    i hashindex.index,
    query_term text,
    k_term text,
    candidates_term text,
    code_term text,
    filter text DEFAULT NULL
)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base text := format('%I.%I', i.schema_name, i.table_name);
    id text := format('%s.%I', base, i.id_column);
    code_id text := id;
    code text := format('%s.%I', base, i.code_column);
    source text := base;
    kept text := format('greatest(coalesce(%s, 200), %s)', candidates_term, k_term);
    planes bit varying[] := hashindex.weight_planes(m.bit_weights)
        FROM hashindex.model m WHERE m.id = i.model_id;
    candidates_query text;
BEGIN
    IF i.layout = 'table' THEN
        code_id := 'hashindex_codes.id';
        code := 'hashindex_codes.code';
        source := format('%I.%I hashindex_codes', i.code_schema, i.code_table);
        IF filter IS NOT NULL THEN
            source := format('%s JOIN %s ON %s = hashindex_codes.id', source, base, id);
        END IF;
    END IF;
    candidates_query := format(
        $query$
    SELECT %1$s
    FROM %2$s
    WHERE %3$s IS NOT NULL%4$s
    ORDER BY bit_count(%3$s # %5$s), %6$s
    LIMIT %7$s$query$,
        CASE WHEN planes IS NULL THEN code_id ELSE format('%s AS id, %s AS code', code_id, code) END,
        source, code, ' AND (' || filter || ')', code_term, code_id,
        CASE WHEN planes IS NULL THEN kept ELSE format('greatest(10 * %s::bigint, 2000)', kept) END
    );
    IF planes IS NOT NULL THEN
        candidates_query := format(
            $query$
    SELECT hashindex_near.id
    FROM (%1$s
    ) hashindex_near
    ORDER BY %2$s, hashindex_near.id
    LIMIT %3$s$query$,
            candidates_query, hashindex.weighted_order(planes, 'hashindex_near.code', code_term), kept
        );
    END IF;
    RETURN format(
        $query$
SELECT %1$s AS id, %2$s.%3$I %4$s %5$s AS distance
FROM %2$s
WHERE %1$s = ANY (ARRAY(%6$s
))
ORDER BY distance, id
LIMIT %7$s$query$,
        id, base, i.column_name,
        hashindex.distance_operator(i.metric), query_term, candidates_query, k_term
    );
END
$$;

COMMENT ON FUNCTION hashindex.search_query(hashindex.index, text, text, text, text, text) IS
    'text of the query that searches an index, from SQL terms for its arguments';

-- The typed search function of one index. Where SQL cannot encode the query, the caller brings its
-- code.
CREATE OR REPLACE FUNCTION hashindex.search_function_source(i hashindex.index)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    in_python boolean := hashindex.encoded_in_python(i);
    n_bits integer := m.n_bits FROM hashindex.model m WHERE m.id = i.model_id;
BEGIN
    RETURN format(
        $source$
CREATE OR REPLACE FUNCTION hashindex.%1$I(
    query vector, k integer DEFAULT 10, candidates integer DEFAULT NULL%4$s
)
RETURNS TABLE (id %2$s, distance double precision)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 10
SET search_path FROM CURRENT
SET jit = off
AS %3$L$source$,
        'search_' || i.name, i.id_type, format(
            $body$
#variable_conflict use_column
DECLARE
    hashindex_query_code bit(%1$s);
BEGIN
    PERFORM hashindex.check_search_arguments($1, $2, $3);
    -- Into a variable: the ordering below must not encode the query once for each row. Its name is
    -- one that no table or column of the user's has.
    hashindex_query_code := %2$s;
    RETURN QUERY %3$s;
END
$body$,
            n_bits,
            CASE WHEN in_python THEN format('hashindex.checked_query_code($4, %s)', n_bits)
            ELSE format(
                'hashindex.encode_with(m.layers, $1) FROM hashindex.model m WHERE m.id = %s',
                i.model_id
            ) END,
            hashindex.search_query(i, '$1', '$2', '$3', 'hashindex_query_code')
        ),
        CASE WHEN in_python THEN ', query_code bit varying DEFAULT NULL' ELSE '' END
    );
END
$$;

COMMENT ON FUNCTION hashindex.search_function_source(hashindex.index) IS
    'text of the CREATE FUNCTION of an index''s own search function';

CREATE OR REPLACE FUNCTION hashindex.check_search_arguments(
    query vector, k integer, candidates integer
)
RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    IF query IS NULL THEN
        RAISE EXCEPTION 'the query vector is NULL'
            USING ERRCODE = 'null_value_not_allowed', HINT = 'Pass a vector.';
    END IF;
    IF k IS NULL OR k < 1 THEN
        RAISE EXCEPTION 'k is %; it must be 1 or more', coalesce(k::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF candidates < 1 THEN
        RAISE EXCEPTION 'candidates is %; it must be 1 or more', candidates
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Leave it out for the default of 200.';
    END IF;
END
$$;

COMMENT ON FUNCTION hashindex.check_search_arguments(vector, integer, integer) IS
    'refuses arguments that no search can answer';

CREATE OR REPLACE FUNCTION hashindex.checked_query_code(query_code bit varying, n_bits integer)
RETURNS bit varying
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    IF query_code IS NULL THEN
        RAISE EXCEPTION 'the index is encoded in Python: its search needs the code of the query'
            USING ERRCODE = 'null_value_not_allowed',
                  HINT = 'Pass query_code, as Model.encode in Python gives it, or the stored code of a row; or search with HashIndex.search in Python.';
    END IF;
    IF length(query_code) <> n_bits THEN
        RAISE EXCEPTION 'query_code has % bits, the codes of the index have %',
            length(query_code), n_bits
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Encode the query with the model of the index.';
    END IF;
    RETURN query_code;
END
$$;

COMMENT ON FUNCTION hashindex.checked_query_code(bit varying, integer) IS
    'the code of a query that the caller brings, or an error where it is missing or of another length';
