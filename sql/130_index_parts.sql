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

-- The typed search function of one index.
CREATE OR REPLACE FUNCTION hashindex.search_function_source(i hashindex.index)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN format(
        $source$
CREATE OR REPLACE FUNCTION hashindex.%1$I(
    query vector, k integer DEFAULT 10, candidates integer DEFAULT NULL
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
    hashindex_query_code := hashindex.encode_with(m.layers, $1) FROM hashindex.model m WHERE m.id = %2$s;
    RETURN QUERY %3$s;
END
$body$,
            (SELECT m.n_bits FROM hashindex.model m WHERE m.id = i.model_id), i.model_id,
            hashindex.search_query(i, '$1', '$2', '$3', 'hashindex_query_code')
        )
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

-- The trigger function that keeps a code table fresh: AFTER each statement, with transition tables.
CREATE OR REPLACE FUNCTION hashindex.table_sync_source(i hashindex.index)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN format(
        $source$
CREATE OR REPLACE FUNCTION hashindex.%1$I() RETURNS trigger
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS %2$L$source$,
        'sync_' || i.name, format(
            $body$
DECLARE
    model_layers hashindex.layer[];
    touched %6$s[];
    -- The encoder may have committed a code after this transaction's snapshot was taken. DELETE
    -- would not see it and leave a code without a row; meeting it in INSERT ... ON CONFLICT raises
    -- the serialization failure that callers of these isolation levels expect.
    snapshot_is_old boolean :=
        current_setting('transaction_isolation') IN ('repeatable read', 'serializable');
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        IF (TG_TABLE_SCHEMA, TG_TABLE_NAME) = (%7$L, %8$L) THEN
            TRUNCATE %1$s;
        ELSIF NOT row_security_active(%9$L) THEN
            -- Of one partition. Whoever does not see every row must not take the others for gone.
            DELETE FROM %1$s c WHERE NOT EXISTS (
                SELECT FROM %7$I.%8$I b WHERE b.%2$I = c.id
            );
        END IF;
        RETURN NULL;
    END IF;
    IF pg_trigger_depth() > 1 THEN
        PERFORM set_config('hashindex.nested', 'on', true);
    END IF;

    IF TG_OP = 'DELETE' THEN
        touched := ARRAY(SELECT o.%2$I FROM old_rows o);
    ELSIF TG_OP = 'INSERT' THEN
        touched := ARRAY(SELECT n.%2$I FROM new_rows n);
    ELSE
        -- Most updates leave vector and key alone: say so before anything is read or encoded.
        touched := ARRAY(
            SELECT coalesce(n.%2$I, o.%2$I)
            FROM old_rows o FULL JOIN new_rows n ON n.%2$I = o.%2$I
            WHERE o.%2$I IS NULL OR n.%2$I IS NULL OR n.%3$I IS DISTINCT FROM o.%3$I
        );
    END IF;
    IF touched = '{}' THEN
        RETURN NULL;
    END IF;

    IF TG_OP <> 'INSERT' AND snapshot_is_old THEN
        -- Each of these codes is deleted or replaced below.
        INSERT INTO %1$s AS c (id, code) SELECT t.id, 0::bit(%4$s) FROM unnest(touched) t(id)
        ON CONFLICT (id) DO UPDATE SET code = c.code;
    END IF;
    IF TG_OP = 'DELETE' THEN
        DELETE FROM %1$s c WHERE c.id = ANY (touched);
    ELSIF TG_OP = 'UPDATE' THEN
        DELETE FROM %1$s c WHERE c.id = ANY (touched) AND NOT EXISTS (
            SELECT FROM new_rows n WHERE n.%2$I = c.id AND n.%3$I IS NOT NULL
        );
    END IF;
    -- Into a variable: read and unpacked once, not once for each row.
    SELECT m.layers INTO model_layers FROM hashindex.model m WHERE m.id = %5$s;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO %1$s (id, code)
        SELECT n.%2$I, hashindex.encode_with(model_layers, n.%3$I)
        -- A join: = ANY (touched) would compare each row with each key.
        FROM new_rows n JOIN unnest(touched) t(id) ON t.id = n.%2$I
        WHERE n.%3$I IS NOT NULL
        ON CONFLICT (id) DO UPDATE SET code = excluded.code;
    END IF;

    IF current_setting('hashindex.nested', true) = 'on' THEN
        -- A trigger of the user's wrote to this table in this transaction, perhaps to these very
        -- rows: its statement was seen before this one, which holds the older rows. What is in
        -- the table now decides.
        DELETE FROM %1$s c
        WHERE c.id = ANY (touched) AND NOT row_security_active(%9$L) AND NOT EXISTS (
            SELECT FROM %7$I.%8$I b WHERE b.%2$I = c.id AND b.%3$I IS NOT NULL
        );
        INSERT INTO %1$s (id, code)
        SELECT b.%2$I, hashindex.encode_with(model_layers, b.%3$I)
        FROM %7$I.%8$I b
        WHERE b.%2$I = ANY (touched) AND b.%3$I IS NOT NULL
        ON CONFLICT (id) DO UPDATE SET code = excluded.code;
    END IF;
    RETURN NULL;
END
$body$,
            format('%I.%I', i.code_schema, i.code_table), i.id_column, i.column_name,
            (SELECT m.n_bits FROM hashindex.model m WHERE m.id = i.model_id), i.model_id,
            i.id_type, i.schema_name, i.table_name, format('%I.%I', i.schema_name, i.table_name)
        )
    );
END
$$;

COMMENT ON FUNCTION hashindex.table_sync_source(hashindex.index) IS
    'text of the CREATE FUNCTION of the trigger that keeps an index''s code table fresh';

-- The trigger function that keeps a code column fresh: BEFORE each row, since the code is part of it.
CREATE OR REPLACE FUNCTION hashindex.column_sync_source(i hashindex.index)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN format(
        $source$
CREATE OR REPLACE FUNCTION hashindex.%1$I() RETURNS trigger
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS %2$L$source$,
        'sync_' || i.name, format(
            $body$
BEGIN
    IF TG_OP = 'INSERT' OR NEW.%1$I IS DISTINCT FROM OLD.%1$I THEN
        NEW.%2$I := CASE WHEN NEW.%1$I IS NOT NULL THEN (
            SELECT hashindex.encode_with(m.layers, NEW.%1$I)
            FROM hashindex.model m WHERE m.id = %3$s
        ) END;
    END IF;
    RETURN NEW;
END
$body$,
            i.column_name, i.code_column, i.model_id
        )
    );
END
$$;

COMMENT ON FUNCTION hashindex.column_sync_source(hashindex.index) IS
    'text of the CREATE FUNCTION of the trigger that keeps an index''s code column fresh';
