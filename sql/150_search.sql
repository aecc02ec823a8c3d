-- Searches any index by its name, with keys as text and filters as SQL text or JSON. An application that needs no filter calls
-- the index's own function, hashindex.search_<index>, which is typed and keeps its plan.

-- Condition on a row r of answers: keep NaN distances only if the query itself yields NaN. pgvector's indexes leave
-- out vectors of zeros by cosine: their distance is NaN.
CREATE OR REPLACE FUNCTION hashindex._is_comparable(metric text, query text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE metric
    WHEN 'cosine' THEN format(
        $$r.distance OPERATOR(pg_catalog.<>) 'NaN' OR (%s OPERATOR({ext}.<=>) %s) OPERATOR(pg_catalog.=) 'NaN'$$, query, query
    )
    ELSE 'true' END;

-- Nearest rows of a table that match a filter, by exact distance; the caller has checked the table's owner. The one exact query, which
-- searches fall back to. It needs no row of the catalog: an older snapshot may not see it.
CREATE OR REPLACE FUNCTION hashindex._exact_search(
    base regclass, key_columns text[], column_name text, metric text, query {ext}.vector, k integer,
    filter text DEFAULT NULL, caller_path text DEFAULT NULL
)
RETURNS TABLE (id text, distance double precision)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 10
SET search_path FROM CURRENT
SET jit = off
SET enable_indexscan = on
SET enable_seqscan = on
AS $$
DECLARE
    -- "+ 0" keeps the planner from an HNSW or IVFFlat index, whose answers are approximate. It is in the answer too: otherwise each row's
    -- distance would be computed twice. A line comment at the end of the filter must not hide what follows it. Only answers get their key as text.
    shown text[] := ARRAY(SELECT 'key' || n FROM generate_series(1, cardinality(key_columns)) n);
    statement text := format(
        $exact$
        SELECT %s, r.distance FROM (
            SELECT %s, (%s.%I %s $1::%s) OPERATOR(pg_catalog.+) 0 AS distance
            FROM %s
            WHERE %s.%I IS NOT NULL AND (%s
            ) ORDER BY distance, %s LIMIT $2
        ) r
        WHERE %s$exact$,
        hashindex._key_text('r', shown), hashindex._columns_of(base::text, key_columns, shown), base, column_name, hashindex._distance_operator(metric), hashindex._vector_type(base, column_name),
        base,
        base, column_name, coalesce(filter, 'true'),
        hashindex._columns_of(base::text, key_columns),
        -- As it is compared: a tiny query is all zeros as halfvec.
        hashindex._is_comparable(metric, format('$1::%s', hashindex._vector_type(base, column_name)))
    );
    own_path text := current_setting('search_path');
    path text;
BEGIN
    path := set_config('search_path', coalesce(caller_path, own_path), true);
    RETURN QUERY EXECUTE statement USING query, k;
    path := pg_catalog.set_config('search_path', own_path, true);
    -- A search that waits for BEGIN; TRUNCATE; INSERT; COMMIT sees neither the old rows nor the new ones. PostgreSQL's functions know the
    -- table's present file, and the snapshot the file that it had.
    IF NOT FOUND AND EXISTS (
        SELECT FROM pg_class c
        WHERE (c.oid = base OR c.oid IN (SELECT t.relid FROM pg_partition_tree(base) t))
          AND c.relfilenode <> pg_relation_filenode(c.oid) AND pg_relation_size(c.oid) > 0
    ) THEN
        RAISE EXCEPTION 'table % was emptied and filled again since this statement began', base
            USING ERRCODE = 'serialization_failure', HINT = 'Run it again.';
    END IF;
END
$$;

-- Number of rows that the planner expects from a query, and its cost. VOLATILE, because PostgreSQL allows EXPLAIN only there.
CREATE OR REPLACE FUNCTION hashindex._estimate(
    statement text, caller_path text DEFAULT current_setting('search_path'),
    OUT matching double precision, OUT cost double precision
)
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
-- The search that asks has switched these off, which before PostgreSQL 18 is a part of the cost.
SET enable_seqscan = on
SET enable_indexscan = on
AS $$
DECLARE
    explain text := 'EXPLAIN (FORMAT JSON) ' || statement;
    plans refcursor;
    plan json;
    -- Citus estimates nothing itself, and shows the plan of one of its tasks.
    job json;
BEGIN
    -- Only this statement runs under the caller's path, where even operators may be somebody else's.
    PERFORM set_config('search_path', caller_path, true);
    -- A cursor takes only one statement, so a filter cannot add another.
    OPEN plans FOR EXECUTE explain;
    FETCH plans INTO plan;
    CLOSE plans;
    -- SET, not set_config: PostgreSQL parses a call again when the path has changed since the last one.
    SET LOCAL search_path = pg_catalog, pg_temp;
    matching := plan -> 0 -> 'Plan' ->> 'Plan Rows';
    job := plan #> '{0,Plan,Distributed Query,Job}';
    IF job IS NOT NULL THEN
        matching := coalesce((job ->> 'Task Count')::double precision * (job #>> '{Tasks,0,Remote Plan,0,0,Plan,Plan Rows}')::double precision, matching);
    END IF;
    cost := plan -> 0 -> 'Plan' ->> 'Total Cost';
END
$$;

-- Microseconds that it takes to compare a vector with the query, without reading the row. One stored out of line costs several times as much.
CREATE OR REPLACE FUNCTION hashindex._row_cost(dimension integer) RETURNS double precision
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN dimension <= 500 THEN 0.5 + dimension / 750.0 ELSE 2.5 + dimension / 375.0 END;

-- The tenant that where_equals names, if it is one.
CREATE OR REPLACE FUNCTION hashindex._tenant_of(i hashindex.index, where_equals jsonb) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    tenant text;
BEGIN
    IF i.tenant_column IS NOT NULL AND jsonb_typeof(where_equals -> i.tenant_column) NOT IN ('array', 'object') THEN
        EXECUTE format('SELECT %L::%s::text', where_equals ->> i.tenant_column, hashindex._tenant_type(i)) INTO tenant;
    END IF;
    RETURN tenant;
EXCEPTION WHEN data_exception THEN
    -- No tenant is equal to it, or only as a value of another type.
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION hashindex.search(
    index_name text,
    -- A vector or halfvec, an array of numbers, or text.
    query anycompatible,
    k integer DEFAULT 10,
    candidates integer DEFAULT NULL,
    effort integer DEFAULT NULL,
    filter text DEFAULT NULL,
    where_equals jsonb DEFAULT NULL,
    tenant text DEFAULT NULL,
    all_tenants boolean DEFAULT false,
    -- A default is evaluated in the caller's statement, before this function sets its own path.
    caller_path text DEFAULT current_setting('search_path')
)
RETURNS TABLE (id text, distance double precision)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 10
SET search_path FROM CURRENT
SET jit = off
-- Otherwise the functions that it calls plan their statements again in each search.
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    i hashindex.index := hashindex._require(index_name);
BEGIN
    PERFORM hashindex._require_tenant(i.name, format('%I.%I', i.schema_name, i.table_name), i.tenant_column, tenant, all_tenants, where_equals);
    RETURN QUERY EXECUTE format(
        'SELECT %s, s.distance FROM hashindex.%I($1, $2, $3, $4, $5, $6, caller_path => $7%s) s',
        hashindex._key_text('s', hashindex._answer_keys(i)), 'search_' || i.name,
        CASE WHEN i.tenant_column IS NOT NULL THEN format(', tenant => $8::%s, all_tenants => $9', hashindex._tenant_type(i)) END
    ) USING query, k, candidates, effort, filter, where_equals, caller_path, tenant, all_tenants;
END
$$;

COMMENT ON FUNCTION hashindex.search(text, anycompatible, integer, integer, integer, text, jsonb, text, boolean, text) IS
    'nearest rows by any index: keys as text; filter is SQL on the columns of the table, where_equals is {"column": value}';

-- One filter made of SQL text and of columns that are to equal values.
CREATE OR REPLACE FUNCTION hashindex._filter_of(i hashindex.index, filter text, where_equals jsonb, caller_path text) RETURNS text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base regclass := format('%I.%I', i.schema_name, i.table_name)::regclass;
    wrong record;
    equalities text;
BEGIN
    IF where_equals IS NULL THEN
        RETURN filter;
    ELSIF filter IS NOT NULL THEN
        -- Brackets would let "true) OR (true" pass, and cancel where_equals.
        PERFORM hashindex._estimate(format('SELECT FROM %s WHERE %s', base, filter), caller_path);
    END IF;
    IF jsonb_typeof(where_equals) <> 'object' THEN
        RAISE EXCEPTION 'where_equals is %, not a JSON object', where_equals
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Write it as {"column": value}.';
    END IF;
    SELECT e.* INTO wrong FROM jsonb_each(where_equals) e WHERE jsonb_typeof(e.value) IN ('array', 'object');
    IF FOUND THEN
        RAISE EXCEPTION 'where_equals cannot compare column "%" with %', wrong.key, wrong.value
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Values are text, numbers, true, false or null.';
    END IF;
    SELECT e.key INTO wrong FROM jsonb_object_keys(where_equals) e(key)
    WHERE NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = base AND a.attname = e.key AND a.attnum > 0 AND NOT a.attisdropped);
    IF FOUND THEN
        -- PostgreSQL would call a function of that name on the row.
        RAISE EXCEPTION 'column %.% does not exist', i.table_name, wrong.key USING ERRCODE = 'undefined_column';
    END IF;
    equalities := string_agg(format('%I.%I ', i.table_name, e.key) || CASE
        WHEN jsonb_typeof(e.value) = 'null' THEN 'IS NULL'
        -- Compared as a number, since '5.0' is not a literal of type integer. A literal without a type takes the column's.
        -- A real or money is compared with such a literal as a double precision or not at all.
        WHEN jsonb_typeof(e.value) = 'number' AND t.typcategory = 'N' AND t.oid NOT IN ('real'::regtype, 'money'::regtype) THEN equal.operator || e.value::text
        ELSE equal.operator || quote_literal(e.value #>> '{}')
    END, ' AND ')
    FROM jsonb_each(where_equals) e
    JOIN pg_attribute a ON a.attrelid = base AND a.attname = e.key AND a.attnum > 0 AND NOT a.attisdropped
    JOIN pg_type t ON t.oid = (
        WITH RECURSIVE d(oid) AS (SELECT a.atttypid UNION ALL SELECT x.typbasetype FROM d JOIN pg_type x ON x.oid = d.oid WHERE x.typtype = 'd')
        SELECT d.oid FROM d JOIN pg_type x ON x.oid = d.oid WHERE x.typtype <> 'd'
    )
    -- The type's own equality, under whatever path this runs: that of an extension's type is in its schema.
    CROSS JOIN LATERAL (
        SELECT format('OPERATOR(%s.=) ', coalesce((
            SELECT n.oid::regnamespace FROM pg_operator o JOIN pg_namespace n ON n.oid = o.oprnamespace
            JOIN pg_amop m ON m.amopopr = o.oid JOIN pg_opclass c ON c.opcfamily = m.amopfamily
            WHERE c.opcdefault AND c.opcintype = t.oid AND (m.amoplefttype, m.amoprighttype) = (t.oid, t.oid) AND o.oprname = '='
            ORDER BY o.oid LIMIT 1
        ), 'pg_catalog'::regnamespace))
    ) equal(operator);
    RETURN concat_ws(' AND ', '(' || filter || E'\n)', equalities);
END
$$;

CREATE OR REPLACE FUNCTION hashindex.code_of(index_name text, id text) RETURNS bit varying
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex._require(index_name);
    s hashindex.index_set := hashindex._used_lists(i);
    found_values integer;
    found bit varying;
BEGIN
    IF cardinality(i.key_columns) > 1 THEN
        BEGIN
            found_values := json_array_length(code_of.id::json);
        EXCEPTION WHEN invalid_text_representation OR invalid_parameter_value THEN
            found_values := 0;
        END;
        IF found_values <> cardinality(i.key_columns) THEN
            RAISE EXCEPTION 'the key % is not a JSON array of % values, which the key of index "%" is: %', code_of.id, cardinality(i.key_columns),
                i.name, hashindex._named(i.key_columns)
                USING ERRCODE = 'invalid_parameter_value', HINT = 'Write it as [7, 12].';
        END IF;
    END IF;
    EXECUTE format(
        'SELECT c.code FROM %s c WHERE (%s) = (%s)', hashindex._table_of(s, 'codes'),
        hashindex._columns_of('c', hashindex._code_keys(i)), hashindex._key_of_text(i, '$1')
    ) INTO found USING code_of.id;
    RETURN found;
END
$$;

COMMENT ON FUNCTION hashindex.code_of(text, text) IS 'code that an index has for the row of a key, or NULL';
