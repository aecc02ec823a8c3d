-- Every row whose code is within a Hamming radius of the query's.

-- Where codes are read, and what their key and code are called there.
CREATE OR REPLACE FUNCTION hashindex.codes_of(
    i hashindex.index, OUT source text, OUT id text, OUT code text
)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    IF i.layout = 'column' THEN
        source := format('%I.%I', i.code_schema, i.code_table);
        id := format('%s.%I', source, i.id_column);
        code := format('%s.%I', source, i.code_column);
    ELSE
        source := format('%I.%I hashindex_codes', i.code_schema, i.code_table);
        id := 'hashindex_codes.id';
        code := 'hashindex_codes.code';
    END IF;
END
$$;

COMMENT ON FUNCTION hashindex.codes_of(hashindex.index) IS
    'SQL for where the codes of an index are, and for a row''s key and code there';

CREATE OR REPLACE FUNCTION hashindex.within_query(i hashindex.index, condition text)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    codes record := hashindex.codes_of(i);
    base text := format('%I.%I', i.schema_name, i.table_name);
BEGIN
    RETURN format(
        $query$SELECT %1$s AS id, (%2$s %3$s hashindex_code)::integer AS distance
        FROM %4$s
        WHERE %5$s%2$s %3$s hashindex_code <= $2%6$s
        ORDER BY distance, id$query$,
        codes.id, codes.code, hashindex.distance_operator('hamming'), codes.source,
        condition || E'\n          AND ',
        -- Rows that the caller may not see, and rows that are gone. OFFSET: looked up one by one, as
        -- few as there are; the planner would expect a third of the table, and join.
        CASE WHEN i.layout = 'table' THEN format(
            E'\n          AND EXISTS (SELECT FROM %1$s WHERE %1$s.%2$I = %3$s%4$s)',
            base, i.id_column, codes.id,
            -- Not among shards: Citus takes no OFFSET there.
            CASE WHEN NOT hashindex.is_distributed(i) THEN ' OFFSET 0' END
        ) END
    );
END
$$;

COMMENT ON FUNCTION hashindex.within_query(hashindex.index, text) IS
    'text of the query for the rows within a radius, out of those whose codes a condition holds for';

CREATE OR REPLACE FUNCTION hashindex.within_function_source(i hashindex.index)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    used hashindex.model := m FROM hashindex.model m WHERE m.id = i.model_id;
    every text := format('RETURN QUERY %s;', hashindex.within_query(i, NULL));
BEGIN
    RETURN format(
        $source$
CREATE OR REPLACE FUNCTION hashindex.%1$I(query vector, radius integer%4$s)
RETURNS TABLE (id %2$s, distance integer)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 100
SET search_path FROM CURRENT
SET jit = off
AS %3$L$source$,
        'within_' || i.name, i.id_type, format(
            $body$
#variable_conflict use_column
-- Names that no table or column of the user's has.
DECLARE
    hashindex_projection vector;
    hashindex_code bit(%1$s);%2$s
BEGIN
    PERFORM hashindex.check_within_arguments($1, $2, %3$s, %1$s);
    PERFORM hashindex.check_column_dimension(%7$L, %8$L, %3$s);%6$s
%4$s
    %5$s
END
$body$,
            used.n_bits,
            CASE WHEN i.access = 'lookup' THEN hashindex.lookup_variables(i) END,
            used.dimension,
            CASE WHEN used.network IS NOT NULL THEN format(
                '    hashindex_code := hashindex.checked_query_code($3, %s);', used.n_bits
            ) ELSE format(
                E'%s\n    hashindex_code := binary_quantize(hashindex_projection);',
                hashindex.projection_steps(used, '$1')
            ) END,
            -- r = a chunks + b: codes that differ in r bits have a chunk among the first b + 1 that
            -- differs in a, or one among the others that differs in a - 1, at most.
            CASE WHEN i.access = 'lookup' THEN format(
                $steps$hashindex_more := $2 %% %1$s + 1;
    hashindex_wide := hashindex_sizes[$2 / %1$s + 1];
    hashindex_narrow := coalesce(hashindex_sizes[$2 / %1$s], 0);
    IF %2$s THEN
        RETURN QUERY %3$s;
    ELSE
        %4$s
    END IF;$steps$,
                i.chunks, hashindex.lookup_pays(i),
                hashindex.within_query(
                    i, hashindex.lookup_condition(i, (hashindex.codes_of(i)).code, 'hashindex_code')
                ),
                every
            ) ELSE every END,
            CASE WHEN i.storage <> i.name THEN format(
                $old$
    IF NOT %1$s THEN
        RAISE EXCEPTION 'index "%%" has had its model swapped since this statement began', %2$L
            USING ERRCODE = 'serialization_failure', HINT = 'Run it again.';
    END IF;$old$,
                hashindex.codes_are_seen(i), i.name
            ) END,
            format('%I.%I', i.schema_name, i.table_name), i.column_name
        ),
        CASE WHEN used.network IS NULL THEN '' ELSE ', query_code bit varying DEFAULT NULL' END
    );
END
$$;

COMMENT ON FUNCTION hashindex.within_function_source(hashindex.index) IS
    'text of the CREATE FUNCTION of an index''s own function for the rows within a radius';

CREATE OR REPLACE FUNCTION hashindex.check_within_arguments(
    query vector, radius integer, dimension integer, n_bits integer
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
    PERFORM hashindex.check_dimension(vector_dims(query), dimension);
    IF radius IS NULL OR radius NOT BETWEEN 0 AND n_bits THEN
        RAISE EXCEPTION 'radius is %; it must be 0 to %, the bits of a code',
            coalesce(radius::text, 'NULL'), n_bits
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
END
$$;

COMMENT ON FUNCTION hashindex.check_within_arguments(vector, integer, integer, integer) IS
    'refuses a query or a radius that no row can be within';
