-- Nearest rows by codes in lists: the landmarks nearest to the query, the codes in their lists by code, and the rows of the nearest codes by exact
-- distance. Codes in no list are always ranked, as within a small tenant; and all where the index has no landmarks, whatever list they had. Where
-- lists hold too few codes, more are read, and finally all. Never short in silence: rows may lack a code, and codes their row, so where fewer than k rows are left, all are compared.
-- by_code: the candidates themselves, in the order of their codes, with the distance there.
CREATE OR REPLACE FUNCTION {search}(
    query anycompatible, k integer DEFAULT 10, candidates integer DEFAULT NULL, effort integer DEFAULT NULL, filter text DEFAULT NULL,
    where_equals jsonb DEFAULT NULL,{if tenant} tenant {tenant_type} DEFAULT NULL, all_tenants boolean DEFAULT false,{end tenant}
    caller_path text DEFAULT current_setting('search_path'), by_code boolean DEFAULT false
)
RETURNS TABLE ({answer}, distance double precision)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 10
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
-- A plan for any query expects lists and tenants of the usual size, and would read a whole table.
SET enable_seqscan = off
-- Without index scans codes and rows are read by a bitmap scan, for which PostgreSQL asks the disk for many pages at a time.
SET enable_indexscan = off
AS $body$
#variable_conflict use_column
DECLARE
    -- The casts copy a vector that a subquery took from a table out of TOAST, once instead of for every row that it is compared with.
    hashindex_query {ext}.vector := {checked_query};
    hashindex_point {vector_type} := hashindex_query;
    hashindex_k integer := CASE WHEN $2 > 0 THEN $2 ELSE hashindex._refuse('k', $2, '1 or more') END;
    hashindex_n integer := CASE WHEN coalesce($3, {n}) > 0 THEN greatest(coalesce($3, hashindex._candidates_for($2, {n})), $2) ELSE hashindex._refuse('candidates', $3, '1 or more') END;
    hashindex_probes integer := CASE WHEN coalesce($4, {effort}) BETWEEN 1 AND 1000 THEN coalesce($4, {effort}) ELSE hashindex._refuse('effort', $4, '1 to 1000') END;
    hashindex_filter text;
    hashindex_equals jsonb := nullif($6, '{}');
    hashindex_condition text;
    hashindex_own_path text := current_setting('search_path');
    -- where_equals holds no SQL of the caller's.
    hashindex_path text := CASE WHEN $5 IS NULL THEN hashindex_own_path ELSE caller_path END;
    hashindex_matching double precision;
    hashindex_cost double precision;
    hashindex_rows double precision;
    hashindex_share double precision;
    -- Rows that are to match the filter.
    hashindex_wanted integer := hashindex_n;
    hashindex_needed double precision;
    hashindex_projection {ext}.vector;
    hashindex_codes bit varying[];
    hashindex_u1 "bit";
    hashindex_u2 "bit";
    hashindex_u3 "bit";
    hashindex_u4 "bit";
    hashindex_u5 "bit";
    hashindex_near {ext}.halfvec;
    hashindex_lists integer[];
    hashindex_ids {key_type}[];
    hashindex_count bigint;
    hashindex_found integer := 0;
    hashindex_exactly boolean;
    hashindex_ef_search text := coalesce(nullif(current_setting('hnsw.ef_search', true), ''), '40');
    hashindex_done text;
BEGIN
    -- Whatever names tables that may be gone. A block of its own: inside one with a handler a standby that is in conflict with recovery ends the
    -- session, not the statement.
    BEGIN
{if tenant}
        IF $7 IS NULL THEN
            PERFORM hashindex._require_tenant({index}, {table_literal}, {tenant_literal}, NULL, $8, $6);
        END IF;
        IF $7 IS NULL AND hashindex_equals IS NOT NULL THEN
            $7 := hashindex._tenant_of(hashindex.find_index({index}), hashindex_equals);
            hashindex_equals := nullif(CASE WHEN $7 IS NULL THEN $6 ELSE $6 - {tenant_literal} END, '{}');
        END IF;
        IF $7 IS NULL THEN
            -- The rows of all tenants are searched by a filter.
            $5 := coalesce($5, 'true');
        END IF;
        hashindex_condition := {{{table}.{tenant} OPERATOR(pg_catalog.=) }} || quote_literal($7) || {{::{tenant_type}}};
{end tenant}
        IF $5 IS NOT NULL OR hashindex_equals IS NOT NULL THEN
            hashindex_filter := hashindex._filter_of(
                hashindex.find_index({index}), $5, CASE WHEN hashindex_condition IS NULL THEN hashindex_equals ELSE coalesce(hashindex_equals, '{}') END, caller_path
            );
            -- The filter's share, within the tenant.
            hashindex_rows := CASE WHEN hashindex_condition IS NULL THEN hashindex._estimated_rows({table_literal}::regclass)
                ELSE (hashindex._estimate({{SELECT FROM {table} WHERE }} || hashindex_condition, 'pg_catalog, pg_temp')).matching END;
            hashindex_condition := concat_ws(' AND ', hashindex_filter, hashindex_condition);
            -- Without brackets, since a filter is one condition, and not a part of a statement, nor several.
            SELECT e.matching, e.cost INTO hashindex_matching, hashindex_cost FROM hashindex._estimate({{SELECT FROM {table} WHERE }} || hashindex_condition || E'\nLIMIT ALL', hashindex_path) e;
            hashindex_share := least(1, greatest(hashindex_matching, 1) / greatest(hashindex_rows, 1));
            -- Two standard deviations above the number wanted, so that one batch is nearly always enough.
            hashindex_needed := hashindex_n + 2 * sqrt(hashindex_n);
            hashindex_n := least(ceil(hashindex_needed / hashindex_share), 2147483647);
            -- The nearest matching rows are spread over more lists than the nearest rows.
            hashindex_probes := ceil(hashindex_probes * sqrt(1 / hashindex_share));
        END IF;
        -- Compares the cost of reading and checking all rows with 2 ms and 5 us for each row that is looked up.
        hashindex_exactly := coalesce(NOT by_code AND hashindex_cost + hashindex_matching * hashindex._row_cost({dimension}) <= 2000 + 5 * hashindex_wanted::double precision / hashindex_share, false)
            OR ({codes_are_hidden});
        -- Locks the table first, then codes, in the order that all other functions use.
        PERFORM {each table.key}, {table}.{column} FROM {table} WHERE false;
{if tenant}
        IF $7 IS NOT NULL THEN
            PERFORM {table}.{tenant} FROM {table} WHERE false;
        END IF;
{end tenant}
        IF NOT hashindex_exactly THEN
            PERFORM FROM {code_table} WHERE false;
{if lists}
            PERFORM FROM {landmarks} WHERE false;
{end lists}
        END IF;
    EXCEPTION WHEN undefined_table OR undefined_column THEN
        PERFORM hashindex._refuse_renamed(hashindex.find_index({index}));
        -- A build may have dropped these codes meanwhile. The function is another one then.
        IF hashindex_exactly IS NOT false OR {codes_are_there} THEN
            RAISE;
        END IF;
        RETURN QUERY SELECT {each s.shown}, s.distance FROM {search}($1, $2, $3, $4, $5, $6, {if tenant}$7, $8, $9, $10{else tenant}$7, $8{end tenant}) s;
        RETURN;
    END;
    IF hashindex_exactly THEN
        RETURN QUERY SELECT {key_of_text}, a.distance FROM hashindex._exact_search({exact}, hashindex_query, hashindex_k, hashindex_condition, hashindex_path) a;
        RETURN;
    END IF;
    -- A caller without rights on codes has none on models.
    hashindex_projection := {projection};
    hashindex_codes := {query_codes};
    hashindex_u1 := hashindex_codes[1];
    hashindex_u2 := hashindex_codes[2];
    hashindex_u3 := hashindex_codes[3];
    hashindex_u4 := hashindex_codes[4];
    hashindex_u5 := hashindex_codes[5];
    hashindex_near := {point};
    LOOP
{if lists}
{if tenant}
        -- For the same recall, a tenant of more than 250 lists needs more of them.
        hashindex_lists := CASE WHEN $7 IS NULL
            THEN ARRAY(SELECT l.landmark FROM {landmarks} l ORDER BY (l.centre OPERATOR({ext}.<->) hashindex_near) + 0 LIMIT hashindex_probes)
            ELSE ARRAY(
                SELECT l.landmark FROM {landmarks} l WHERE l.tenant = $7 ORDER BY (l.centre OPERATOR({ext}.<->) hashindex_near) + 0
                LIMIT (SELECT hashindex_probes * greatest(1, sqrt(count(*) / 250.0)) FROM {landmarks} o WHERE o.tenant = $7)
            ) END;
{else tenant}
        IF hashindex_probes <= {graph_probes} THEN
            -- Not a SET clause: only superusers may restore one before pgvector is loaded.
            hashindex_done := set_config('hnsw.ef_search', greatest(hashindex_probes, {graph_effort})::text, true);
            hashindex_done := set_config('enable_indexscan', 'on', true);
            hashindex_lists := ARRAY(SELECT l.landmark FROM {landmarks} l ORDER BY l.centre OPERATOR({ext}.<->) hashindex_near LIMIT hashindex_probes);
            hashindex_done := set_config('hnsw.ef_search', hashindex_ef_search, true);
            hashindex_done := set_config('enable_indexscan', 'off', true);
        ELSE
            -- With more effort, comparing all is faster.
            hashindex_lists := ARRAY(SELECT l.landmark FROM {landmarks} l ORDER BY (l.centre OPERATOR({ext}.<->) hashindex_near) + 0 LIMIT hashindex_probes);
        END IF;
{end tenant}
{end lists}
{if tenant}
        IF $7 IS NOT NULL THEN
            hashindex_ids := ARRAY(SELECT {row c.id} FROM (
                SELECT {each c.id} FROM {code_table} c WHERE {if lists}(c.landmark = ANY (hashindex_lists) OR c.landmark IS NULL){else lists}true{end lists} AND c.tenant = $7
                ORDER BY {distance} LIMIT hashindex_n
            ) c);
        ELSE
{end tenant}
        hashindex_ids := ARRAY(SELECT {row c.id} FROM (
            SELECT {each c.id} FROM {code_table} c WHERE {if lists}c.landmark = ANY (hashindex_lists) OR c.landmark IS NULL{else lists}true{end lists} ORDER BY {distance} LIMIT hashindex_n
        ) c);
{if tenant}
        END IF;
{end tenant}
        IF cardinality(hashindex_ids) < hashindex_n AND cardinality(hashindex_lists) >= hashindex_probes THEN
            hashindex_probes := 8 * hashindex_probes;
            CONTINUE;
        END IF;
        IF by_code THEN
            RETURN QUERY SELECT {each c.id}, ({distance})::double precision AS distance FROM {code_table} c WHERE {among c.id hashindex_ids} ORDER BY distance, {each c.id};
            RETURN;
        END IF;
        hashindex_count := 0;
        IF hashindex_filter IS NULL THEN
            -- There is no bitmap over keys of several columns.
            hashindex_done := set_config('enable_indexscan', '{several}', true);
            FOR {each shown}, distance, hashindex_count IN
                SELECT {each r.id}, r.distance, count(*) OVER ()
                FROM (
                    SELECT {each table.key as id}, {table}.{column} {operator} hashindex_point AS distance
                    FROM {table}
{if tenant}
                    -- An index on the tenants alone would lead to all rows of the tenant.
{end tenant}
                    WHERE {among table.key hashindex_ids}{if tenant} AND ({table}.{tenant} = $7) IS TRUE{end tenant} AND {table}.{column} IS NOT NULL
                ) r
                WHERE {is_comparable}
                ORDER BY r.distance, {each r.id} LIMIT hashindex_k
            LOOP
                EXIT WHEN hashindex_count < hashindex_k;
                hashindex_found := hashindex_found + 1;
                RETURN NEXT;
            END LOOP;
            EXIT;
        END IF;
        hashindex_done := set_config('enable_indexscan', 'on', true);
        hashindex_done := set_config('enable_seqscan', 'on', true);
        hashindex_wanted := CASE WHEN cardinality(hashindex_ids) < hashindex_n THEN hashindex_k ELSE hashindex_wanted END;
        hashindex_done := set_config('search_path', hashindex_path, true);
        FOR {each shown}, distance, hashindex_count IN EXECUTE {{
            SELECT {each r.id}, r.distance, pg_catalog.count(*) OVER ()
            FROM (
                SELECT {each table.key as id}, {table}.{column} {operator} $1 AS distance
                FROM {table}
                WHERE {among table.key $2} AND {table}.{column} IS NOT NULL AND (}} OPERATOR(pg_catalog.||) hashindex_condition OPERATOR(pg_catalog.||) {{
                ) OFFSET 0
            ) r
            WHERE {is_comparable_to_parameter}
            ORDER BY r.distance, {each r.id} LIMIT $3
        }} USING hashindex_point, hashindex_ids, hashindex_k
        LOOP
            EXIT WHEN hashindex_count OPERATOR(pg_catalog.<) hashindex_wanted;
            hashindex_found := hashindex_found OPERATOR(pg_catalog.+) 1;
            RETURN NEXT;
        END LOOP;
        hashindex_done := pg_catalog.set_config('search_path', hashindex_own_path, true);
        hashindex_done := set_config('enable_seqscan', 'off', true);
        hashindex_done := set_config('enable_indexscan', 'off', true);
        -- The next batch would take most of the table, which costs more than reading all of it.
        EXIT WHEN hashindex_found > 0 OR cardinality(hashindex_ids) < hashindex_n OR hashindex_n > 0.3 * hashindex_rows;
        hashindex_share := greatest(hashindex_count, 0.5) / cardinality(hashindex_ids);
        hashindex_n := least(greatest(2 * hashindex_n, ceil(hashindex_needed / hashindex_share)), 2147483647);
        hashindex_probes := 3 * hashindex_probes;
    END LOOP;
    IF hashindex_found = 0 THEN
        RETURN QUERY SELECT {key_of_text}, a.distance FROM hashindex._exact_search({exact}, hashindex_query, hashindex_k, hashindex_condition, hashindex_path) a;
    END IF;
END
$body$
