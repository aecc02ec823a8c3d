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
    -- distance would be computed twice. A line comment at the end of the filter must not hide what follows it.
    statement text := format(
        $exact$
        SELECT r.id, r.distance FROM (
            SELECT %s AS id, (%s.%I %s $1::%s) OPERATOR(pg_catalog.+) 0 AS distance
            FROM %s
            WHERE %s.%I IS NOT NULL AND (%s
            ) ORDER BY distance, %s LIMIT $2
        ) r
        WHERE %s$exact$,
        hashindex._key_text(base::text, key_columns), base, column_name, hashindex._distance_operator(metric), hashindex._vector_type(base, column_name),
        base,
        base, column_name, coalesce(filter, 'true'),
        hashindex._columns_of(base::text, key_columns),
        hashindex._is_comparable(metric, '$1')
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
        WHERE c.oid = base AND c.relfilenode <> pg_relation_filenode(c.oid) AND pg_relation_size(c.oid) > 0
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

-- Nearest rows among those that match a filter. If few rows match the filter, compares all of them exactly, at once. Otherwise looks up
-- candidates in the order of their codes, in batches that grow until enough match.
CREATE OR REPLACE FUNCTION hashindex._filtered_search(
    i hashindex.index, query {ext}.vector, k integer, candidates integer, effort integer, filter text,
    where_equals jsonb, caller_path text, tenant text DEFAULT NULL
)
RETURNS TABLE (id text, distance double precision)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 10
SET search_path FROM CURRENT
SET jit = off
SET enable_indexscan = on
AS $$
DECLARE
    base text := format('%I.%I', i.schema_name, i.table_name);
    wanted_tenant text := coalesce(tenant, hashindex._tenant_of(i, where_equals));
    of_tenant text := CASE WHEN wanted_tenant IS NOT NULL THEN format('%I.%I = %L', i.table_name, i.tenant_column, wanted_tenant) END;
    wanted_rows text := hashindex._filter_of(i, filter, CASE WHEN tenant IS NULL THEN where_equals ELSE coalesce(where_equals, '{}') END, caller_path);
    -- where_equals holds no SQL of the caller's.
    filter_path text := CASE WHEN filter IS NULL THEN current_setting('search_path') ELSE caller_path END;
    s hashindex.index_set := hashindex._set_of(i.name);
    codes text := 'hashindex.' || hashindex._part_of(s, 'codes');
    dimension integer := s.dimension;
    checked {ext}.vector := CASE WHEN {ext}.vector_dims(query) = dimension THEN {ext}.vector(query, dimension, true) ELSE hashindex._refuse_vector(query, dimension) END;
    wanted integer := CASE WHEN coalesce(candidates, s.candidates) > 0 THEN greatest(coalesce(candidates, hashindex._candidates_for(k, s.candidates)), k)
        ELSE hashindex._refuse('candidates', candidates, '1 or more') END;
    -- Two standard deviations above the number wanted, so that one batch is nearly always enough.
    needed double precision := wanted + 2 * sqrt(wanted);
    lists integer := coalesce(effort, s.effort);
    rows double precision := (
        SELECT greatest(1, c.reltuples)
        FROM pg_class c WHERE c.oid = base::regclass
    );
    expected record;
    share double precision;
    own_path text := current_setting('search_path');
    vector text := format('%s.%I', base, i.column_name);
    may_read_codes boolean := s.encoded
        -- NULL where a build has dropped the codes that this snapshot knows.
        AND has_column_privilege(to_regclass(codes), 'code', 'SELECT')
        AND NOT CASE WHEN i.tenant_column IS NULL THEN row_security_active(base) ELSE hashindex._rows_are_hidden(base, codes) END;
    kept_keys text[] := hashindex._code_keys(i);
    statement text;
    found record;
    path text;
    n double precision;
BEGIN
    IF k IS NULL OR k < 1 THEN
        PERFORM hashindex._refuse('k', k, '1 or more');
    ELSIF lists NOT BETWEEN 1 AND 1000 THEN
        PERFORM hashindex._refuse('effort', effort, '1 to 1000');
    END IF;
    IF i.tenant_column IS NOT NULL THEN
        wanted_rows := concat_ws(' AND ', CASE WHEN wanted_rows <> '' OR filter = '' THEN wanted_rows WHEN tenant IS NULL THEN 'true' END, CASE WHEN tenant IS NOT NULL THEN of_tenant END);
    END IF;
    expected := hashindex._estimate(format(E'SELECT FROM %s WHERE (%s\n)', base, wanted_rows), filter_path);
    IF of_tenant IS NOT NULL AND wanted_rows <> of_tenant THEN
        -- The filter's share within the tenant.
        rows := (hashindex._estimate(format('SELECT FROM %s WHERE %s', base, of_tenant), 'pg_catalog, pg_temp')).matching;
    END IF;
    share := least(1, greatest(expected.matching, 1) / greatest(rows, 1));
    -- Compare the cost of reading and checking all rows with 2 ms and 5 us for each row that is looked up.
    IF may_read_codes AND expected.cost + expected.matching * hashindex._row_cost(dimension) > 2000 + 5 * wanted::double precision / share THEN
        -- The nearest matching rows are spread over more lists than the nearest rows.
        lists := least(1000, ceil(lists * sqrt(1 / share)));
        n := ceil(needed / share);
        statement := format(
            $statement$
            WITH hashindex_candidate AS MATERIALIZED (SELECT %s FROM hashindex.%I($1, $2, $3%s) c)
            SELECT pg_catalog.count(*) AS matching, (SELECT pg_catalog.count(*) FROM hashindex_candidate) AS given,
                (pg_catalog.array_agg(%s ORDER BY r.distance, %s))[:$4] AS ids,
                (pg_catalog.array_agg(r.distance ORDER BY r.distance, %s))[:$4] AS distances
            FROM (
                SELECT %s, %s %s $1::%s AS distance
                FROM %s
                WHERE (%s) OPERATOR(pg_catalog.=) ANY (%s) AND %s IS NOT NULL AND (%s
                ) OFFSET 0
            ) r
            WHERE %s$statement$,
            hashindex._columns_of('c', hashindex._answer_keys(i), kept_keys), 'candidates_' || i.name,
            CASE WHEN of_tenant IS NOT NULL THEN format(', tenant => $5::%s', hashindex._tenant_type(i)) END,
            hashindex._key_text('r', kept_keys), hashindex._columns_of('r', kept_keys), hashindex._columns_of('r', kept_keys),
            hashindex._columns_of(base, i.key_columns, kept_keys), vector, hashindex._distance_operator(i.metric), hashindex._vector_type(base::regclass, i.column_name),
            base,
            hashindex._columns_of(base, i.key_columns), CASE
                WHEN cardinality(kept_keys) = 1 THEN 'ARRAY(TABLE hashindex_candidate)'
                -- The planner expects an array to be short, and so looks its keys up one by one.
                ELSE format(
                    'SELECT k.* FROM pg_catalog.unnest(ARRAY(SELECT ROW(%s)::%s FROM hashindex_candidate c)) k',
                    hashindex._columns_of('c', kept_keys), hashindex._key_type(i)
                )
            END, vector, wanted_rows,
            hashindex._is_comparable(i.metric, '$1')
        );
        LOOP
            path := set_config('search_path', filter_path, true);
            EXECUTE statement INTO found USING checked, least(n, 2147483647)::integer, lists, k, wanted_tenant;
            path := pg_catalog.set_config('search_path', own_path, true);
            EXIT WHEN found.matching >= wanted OR found.given < n;
            -- The next batch would take most of the table, which costs more than reading all of it.
            IF n > 0.3 * rows THEN
                found.matching := 0;
                EXIT;
            END IF;
            share := greatest(found.matching, 0.5) / greatest(found.given, 1);
            n := greatest(2 * n, needed / share);
            lists := least(1000, 3 * lists);
        END LOOP;
        IF found.matching >= k THEN
            RETURN QUERY SELECT u.id, u.distance FROM unnest(found.ids, found.distances) u(id, distance);
            RETURN;
        END IF;
    END IF;
    RETURN QUERY SELECT e.* FROM hashindex._exact_search(
        base::regclass, i.key_columns, i.column_name, i.metric, checked, k, wanted_rows, filter_path
    ) e;
END
$$;

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
    -- A filter of lists that is nothing but a tenant.
    only_tenant text := coalesce(tenant, CASE WHEN filter IS NULL AND where_equals ->> i.tenant_column IS NOT NULL AND where_equals - i.tenant_column = '{}' THEN hashindex._tenant_of(i, where_equals) END);
BEGIN
    IF i.tenant_column IS NULL AND (tenant IS NOT NULL OR all_tenants) THEN
        RAISE EXCEPTION 'index "%" has no tenants', i.name USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave tenant and all_tenants out, or filter by the column.';
    ELSIF NOT coalesce((hashindex._set_of(i.name)).access IN ('lists', 'scan'), false) THEN
        RETURN QUERY EXECUTE format(
            'SELECT %s, s.distance FROM hashindex.%I($1, $2, $3, $4, $5, $6, caller_path => $7%s) s',
            hashindex._key_text('s', hashindex._answer_keys(i)), 'search_' || i.name,
            CASE WHEN i.tenant_column IS NOT NULL THEN format(', tenant => $8::%s, all_tenants => $9', hashindex._tenant_type(i)) END
        )
        USING query, k, candidates, effort, filter, where_equals, caller_path, tenant, all_tenants;
    ELSIF only_tenant IS NULL AND (all_tenants OR filter IS NOT NULL OR where_equals <> '{}') THEN
        RETURN QUERY SELECT f.id, f.distance
        FROM hashindex._filtered_search(
            i, query::{ext}.vector, k, candidates, effort, coalesce(filter, CASE WHEN all_tenants THEN 'true' END), where_equals, caller_path
        ) f;
    ELSE
        RETURN QUERY EXECUTE format(
            'SELECT %s, s.distance FROM hashindex.%I($1, $2, $3, $4%s) s',
            hashindex._key_text('s', hashindex._answer_keys(i)), 'search_' || i.name,
            CASE WHEN only_tenant IS NOT NULL THEN format(', $6, $7, caller_path => $8, tenant => $5::%s', hashindex._tenant_type(i)) END
        )
        USING query, k, candidates, effort, only_tenant, filter, nullif(where_equals, CASE WHEN tenant IS NULL THEN where_equals END), caller_path;
    END IF;
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
        WHEN jsonb_typeof(e.value) = 'number' AND t.typcategory = 'N' AND t.oid NOT IN ('real'::regtype, 'money'::regtype) THEN '= ' || e.value::text
        ELSE '= ' || quote_literal(e.value #>> '{}')
    END, ' AND ')
    FROM jsonb_each(where_equals) e
    JOIN pg_attribute a ON a.attrelid = base AND a.attname = e.key AND a.attnum > 0 AND NOT a.attisdropped
    JOIN pg_type t ON t.oid = a.atttypid;
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
