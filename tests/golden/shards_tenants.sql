CREATE OR REPLACE FUNCTION hashindex.candidates_citus_tests_shards_tenants(query anycompatible, n integer DEFAULT NULL::integer, probes integer DEFAULT NULL::integer, filter text DEFAULT NULL::text, query_code bit varying DEFAULT NULL::bit varying, checked boolean DEFAULT false, tenant bigint DEFAULT NULL::bigint)
 RETURNS TABLE(id_1 bigint, id bigint)
 LANGUAGE plpgsql
 STABLE ROWS 200
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET jit TO 'off'
 SET plan_cache_mode TO 'auto'
 SET enable_seqscan TO 'off'
 SET enable_indexscan TO 'on'
AS $function$
#variable_conflict use_column
DECLARE
    hashindex_query public.vector := CASE WHEN public.vector_dims($1::public.vector) = 8 THEN $1::public.vector(8) ELSE hashindex._refuse_vector($1::public.vector, 8) END;
    hashindex_n integer := CASE WHEN coalesce($2, 200) > 0 THEN coalesce($2, 200) ELSE hashindex._refuse('n', $2, '1 or more') END;
BEGIN
    IF NOT checked AND (row_security_active('public.golden') OR has_column_privilege(to_regclass('hashindex.citus_tests_shards_tenants_codes_GENERATION'), 'filter_1', 'SELECT') IS NOT TRUE OR NOT EXISTS (SELECT FROM hashindex.node_index x WHERE x.name = 'citus_tests_shards_tenants' AND x.generation = GENERATION AND x.encoded)) THEN
        RETURN QUERY SELECT json_array_element_text(e.id::json, 0)::pg_catalog.int8, json_array_element_text(e.id::json, 1)::pg_catalog.int8 FROM hashindex._exact_search('public.golden'::regclass, '{tenant,id}', 'embedding', 'cosine', '{}'::text[], hashindex_query, hashindex_n, $4) e;
        RETURN;
    END IF;
    -- Before the model is read: a caller without rights on codes has none on models.
    DECLARE
        hashindex_projection public.vector := CASE WHEN query_code IS NULL OR hashindex._checked_code(query_code, NULL) IS NULL THEN (SELECT ARRAY(SELECT public.inner_product(f.w, x.v) FROM (SELECT unnest(((hashindex._node_layers_of(MODEL))[2]).weights) AS w OFFSET 0) f)::public.vector OPERATOR(public.+) ((hashindex._node_layers_of(MODEL))[2]).bias FROM (SELECT public.l2_normalize(hashindex_query) AS v OFFSET 0) x) END;
        hashindex_codes bit varying[] := hashindex._asymmetric_codes(hashindex_projection, hashindex._steps(8, 4));
        hashindex_u1 "bit" := hashindex_codes[1];
        hashindex_u2 "bit" := hashindex_codes[2];
        hashindex_u3 "bit" := hashindex_codes[3];
        hashindex_u4 "bit" := hashindex_codes[4];
        hashindex_u5 "bit" := hashindex_codes[5];
        hashindex_scale double precision := public.vector_norm(hashindex_projection) * 0.47376154339498683;
        hashindex_ids hashindex.key_citus_tests_shards_tenants[];
        n_probes integer := CASE WHEN coalesce($3, 80) BETWEEN 1 AND 1000 THEN coalesce($3, 80) ELSE hashindex._refuse('probes', $3, '1 to 1000') END;
        point public.halfvec := CASE WHEN public.vector_norm(hashindex_projection) < 65504 THEN hashindex_projection ELSE public.l2_normalize(hashindex_projection) END::public.halfvec(8);
        done text;
        lists integer[];
    BEGIN
        -- Reads the lists of the tenant's landmarks that are nearest to the query, and codes without a landmark, which are all of a small
        -- tenant. So few landmarks are compared faster than a graph is searched. Where lists hold too few codes, more are read. Without a
        -- tenant, the lists of all tenants are looked up.
        LOOP
            IF $7 IS NULL THEN
                lists := ARRAY(
                    SELECT l.landmark FROM hashindex.citus_tests_shards_tenants_landmarks_GENERATION l ORDER BY (l.centre OPERATOR(public.<->) point) + 0 LIMIT n_probes
                );
            ELSE
                lists := ARRAY(
                    SELECT l.landmark FROM hashindex.citus_tests_shards_tenants_landmarks_GENERATION l WHERE l.tenant = $7 ORDER BY (l.centre OPERATOR(public.<->) point) + 0 LIMIT n_probes
                );
            END IF;
            done := set_config('enable_indexscan', 'off', true);
            IF $4 IS NOT NULL THEN
                -- Without the subquery, the planner would look up statistics.
                EXECUTE format(
                    'SELECT ARRAY(SELECT ROW(c.id_1, c.id_2)::hashindex.key_citus_tests_shards_tenants FROM (' || 'SELECT golden.tenant, golden.id FROM (SELECT c.id_1 AS tenant, c.id_2 AS id, c.length * (c.length + c.fit * ($7 * (8 * (c.code OPERATOR(public.<~>) $1) + 4 * (c.code OPERATOR(public.<~>) $2) + 2 * (c.code OPERATOR(public.<~>) $3) + (c.code OPERATOR(public.<~>) $4) - 120))) AS hashindex_distance FROM hashindex.citus_tests_shards_tenants_codes_GENERATION c WHERE %1$s) golden WHERE (%2$s
) ORDER BY golden.hashindex_distance LIMIT $6' || ') c(id_1, id_2))',
                    'c.landmark = ANY (ARRAY(SELECT unnest($8))) OR c.landmark IS NULL' || CASE WHEN $7 IS NOT NULL THEN ' AND c.filter_1 = $9' ELSE '' END, $4
                ) INTO hashindex_ids
                USING hashindex_u1, hashindex_u2, hashindex_u3, hashindex_u4, hashindex_u5, hashindex_n, hashindex_scale, lists, $7;
            ELSIF $7 IS NULL THEN
                hashindex_ids := ARRAY(
                    SELECT ROW(c.id_1, c.id_2)::hashindex.key_citus_tests_shards_tenants FROM (SELECT c.id_1, c.id_2 FROM hashindex.citus_tests_shards_tenants_codes_GENERATION c WHERE c.landmark = ANY (lists) OR c.landmark IS NULL ORDER BY c.length * (c.length + c.fit * (hashindex_scale * (8 * (c.code OPERATOR(public.<~>) hashindex_u1) + 4 * (c.code OPERATOR(public.<~>) hashindex_u2) + 2 * (c.code OPERATOR(public.<~>) hashindex_u3) + (c.code OPERATOR(public.<~>) hashindex_u4) - 120))) LIMIT hashindex_n) c(id_1, id_2)
                );
            ELSE
                -- An assignment would send the variable's type to the shard, which Citus leaves out for types of users.
                SELECT ARRAY(
                    SELECT ROW(c.id_1, c.id_2)::hashindex.key_citus_tests_shards_tenants FROM (SELECT c.id_1, c.id_2 FROM hashindex.citus_tests_shards_tenants_codes_GENERATION c WHERE c.id_1 = $7 AND (c.landmark = ANY (lists) OR c.landmark IS NULL AND c.filter_1 = $7)
                    ORDER BY c.length * (c.length + c.fit * (hashindex_scale * (8 * (c.code OPERATOR(public.<~>) hashindex_u1) + 4 * (c.code OPERATOR(public.<~>) hashindex_u2) + 2 * (c.code OPERATOR(public.<~>) hashindex_u3) + (c.code OPERATOR(public.<~>) hashindex_u4) - 120))) LIMIT hashindex_n) c(id_1, id_2)
                ) INTO hashindex_ids;
            END IF;
            done := set_config('enable_indexscan', 'on', true);
            EXIT WHEN cardinality(hashindex_ids) = hashindex_n OR cardinality(lists) < n_probes;
            n_probes := 8 * n_probes;
        END LOOP;
        RETURN QUERY SELECT k.* FROM unnest(hashindex_ids) k;
    EXCEPTION WHEN undefined_table THEN
        -- A build may have dropped these codes since this statement began. The function is another one then.
        IF (to_regclass('hashindex.citus_tests_shards_tenants_codes_GENERATION') IS NOT NULL AND to_regclass('hashindex.citus_tests_shards_tenants_landmarks_GENERATION') IS NOT NULL) THEN
            RAISE;
        END IF;
        RETURN QUERY SELECT c.id_1, c.id FROM hashindex.candidates_citus_tests_shards_tenants($1, $2, $3, $4, $5, false, $7) c;
    END;
END
$function$;

CREATE OR REPLACE FUNCTION hashindex.encode_citus_tests_shards_tenants(v vector, or_null boolean DEFAULT false)
 RETURNS bit varying
 LANGUAGE plpgsql
 IMMUTABLE STRICT
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    RETURN (SELECT hashindex._quantize(r.projection, 4) FROM (SELECT hashindex.project_citus_tests_shards_tenants($1, $2) AS projection OFFSET 0) r);
END
$function$;

CREATE OR REPLACE FUNCTION hashindex.nearest_citus_tests_shards_tenants(number integer, first integer[], lists integer[], codes bit varying[], scale double precision, query vector, n integer, k integer, tenant bigint)
 RETURNS TABLE(id hashindex.key_citus_tests_shards_tenants, distance double precision)
 LANGUAGE plpgsql
 STABLE ROWS 10
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET jit TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
 SET enable_seqscan TO 'off'
 SET enable_indexscan TO 'on'
AS $function$
#variable_conflict use_column
DECLARE
    hashindex_point public.vector := query;
    hashindex_scale double precision := scale;
    hashindex_u1 "bit" := codes[1];
    hashindex_u2 "bit" := codes[2];
    hashindex_u3 "bit" := codes[3];
    hashindex_u4 "bit" := codes[4];
    hashindex_u5 "bit" := codes[5];
BEGIN
    IF $1 = ANY ($2) THEN
        FOR hashindex_shard IN 1..cardinality($2) LOOP
            CONTINUE WHEN $2[hashindex_shard] <> $1;
            CASE hashindex_shard
        WHEN 1 THEN
                RETURN QUERY SELECT ROW(public.golden_SHARD1.tenant, public.golden_SHARD1.id)::hashindex.key_citus_tests_shards_tenants, public.golden_SHARD1.embedding OPERATOR(public.<=>) hashindex_point
                FROM public.golden_SHARD1
                WHERE (public.golden_SHARD1.tenant, public.golden_SHARD1.id) IN (SELECT k.id_1, k.id_2 FROM unnest(ARRAY(
                    SELECT ROW(c.id_1, c.id_2)::hashindex.key_citus_tests_shards_tenants FROM (SELECT c.id_1, c.id_2 FROM hashindex.citus_tests_shards_tenants_codes_GENERATION_SHARD1 c WHERE (c.landmark = ANY ($3) OR c.landmark IS NULL AND c.filter_1 = $9) ORDER BY c.length * (c.length + c.fit * (hashindex_scale * (8 * (c.code OPERATOR(public.<~>) hashindex_u1) + 4 * (c.code OPERATOR(public.<~>) hashindex_u2) + 2 * (c.code OPERATOR(public.<~>) hashindex_u3) + (c.code OPERATOR(public.<~>) hashindex_u4) - 120))) LIMIT $7) c(id_1, id_2)
                )) k) AND (public.golden_SHARD1.tenant = $9) IS TRUE AND public.golden_SHARD1.embedding IS NOT NULL
                ORDER BY 2, 1 LIMIT $8;
        WHEN 2 THEN
                RETURN QUERY SELECT ROW(public.golden_SHARD2.tenant, public.golden_SHARD2.id)::hashindex.key_citus_tests_shards_tenants, public.golden_SHARD2.embedding OPERATOR(public.<=>) hashindex_point
                FROM public.golden_SHARD2
                WHERE (public.golden_SHARD2.tenant, public.golden_SHARD2.id) IN (SELECT k.id_1, k.id_2 FROM unnest(ARRAY(
                    SELECT ROW(c.id_1, c.id_2)::hashindex.key_citus_tests_shards_tenants FROM (SELECT c.id_1, c.id_2 FROM hashindex.citus_tests_shards_tenants_codes_GENERATION_SHARD2 c WHERE (c.landmark = ANY ($3) OR c.landmark IS NULL AND c.filter_1 = $9) ORDER BY c.length * (c.length + c.fit * (hashindex_scale * (8 * (c.code OPERATOR(public.<~>) hashindex_u1) + 4 * (c.code OPERATOR(public.<~>) hashindex_u2) + 2 * (c.code OPERATOR(public.<~>) hashindex_u3) + (c.code OPERATOR(public.<~>) hashindex_u4) - 120))) LIMIT $7) c(id_1, id_2)
                )) k) AND (public.golden_SHARD2.tenant = $9) IS TRUE AND public.golden_SHARD2.embedding IS NOT NULL
                ORDER BY 2, 1 LIMIT $8;
            END CASE;
        END LOOP;
        RETURN QUERY SELECT NULL::hashindex.key_citus_tests_shards_tenants, '-infinity'::double precision;
    END IF;
EXCEPTION WHEN undefined_table THEN
    -- A shard was moved, or a build has dropped these codes, since the search began.
    NULL;
END
$function$;

CREATE OR REPLACE FUNCTION hashindex.project_citus_tests_shards_tenants(v vector, or_null boolean DEFAULT false)
 RETURNS vector
 LANGUAGE plpgsql
 IMMUTABLE STRICT
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF public.vector_dims($1) <> 8 THEN
        PERFORM hashindex._refuse_vector($1, 8);
    END IF;
    IF $2 THEN
        BEGIN
            RETURN hashindex.project_citus_tests_shards_tenants($1);
        EXCEPTION WHEN data_exception THEN
            IF SQLSTATE NOT IN ('22000', '22003') THEN
                RAISE;
            END IF;
            RETURN NULL;
        END;
    END IF;
    RETURN (SELECT (SELECT ARRAY(SELECT public.inner_product(f.w, x.v) FROM (SELECT unnest(((hashindex._node_layers_of(MODEL))[2]).weights) AS w OFFSET 0) f)::public.vector OPERATOR(public.+) ((hashindex._node_layers_of(MODEL))[2]).bias FROM (SELECT public.l2_normalize(raw.vector) AS v OFFSET 0) x) FROM (SELECT $1 AS vector OFFSET 0) raw);
END
$function$;

CREATE OR REPLACE FUNCTION hashindex.refresh_citus_tests_shards_tenants(keys hashindex.key_citus_tests_shards_tenants[], rows text)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET plan_cache_mode TO 'force_generic_plan'
 SET enable_seqscan TO 'off'
 SET jit TO 'off'
AS $function$
DECLARE
    hashindex_effort text := coalesce(current_setting('hnsw.ef_search', true), '40');
    hashindex_set text := set_config('hnsw.ef_search', '16', true);
    hashindex_gone hashindex.key_citus_tests_shards_tenants;
    hashindex_strict boolean := current_setting('transaction_isolation') IN ('repeatable read', 'serializable');
    hashindex_known text := CASE WHEN NOT hashindex_strict THEN $2 END;
    hashindex_code_table text;
    hashindex_landmark_table text;
    hashindex_codes text;
    hashindex_landmarks text;
BEGIN
    CASE hashindex_known
        WHEN 'public.golden_SHARD1' THEN
    FOR hashindex_gone IN SELECT k.* FROM unnest($1) k WHERE NOT EXISTS (
        SELECT FROM public.golden_SHARD1 b WHERE b.tenant = k.id_1 AND b.id = k.id_2 AND b.embedding IS NOT NULL OFFSET 0
    ) LOOP
        DELETE FROM hashindex.citus_tests_shards_tenants_codes_GENERATION_SHARD1 c WHERE c.id_1 = hashindex_gone.id_1 AND c.id_2 = hashindex_gone.id_2;
    END LOOP;
    INSERT INTO hashindex.citus_tests_shards_tenants_codes_GENERATION_SHARD1 AS c (id_1, id_2, landmark, code, length, fit, filter_1)
    SELECT r.id_1, r.id_2, (SELECT l.landmark FROM hashindex.citus_tests_shards_tenants_landmarks_GENERATION_SHARD1 l WHERE l.tenant = r.filter_1 ORDER BY l.centre OPERATOR(public.<->) CASE WHEN public.vector_norm(r.projection) < 65504 THEN r.projection ELSE public.l2_normalize(r.projection) END::public.halfvec(8) LIMIT 1), hashindex._quantize(r.projection, 4), hashindex._length(r.projection), hashindex._fit(r.projection), r.filter_1
    FROM (
        SELECT raw.*, hashindex.project_citus_tests_shards_tenants(raw.vector) AS projection
        FROM (
            SELECT b.tenant AS id_1, b.id AS id_2, b.tenant AS filter_1, CASE WHEN public.vector_dims(b.embedding) = 8 THEN b.embedding::public.vector(8)
                ELSE hashindex._refuse_vector(b.embedding::public.vector, 8) END AS vector
            FROM (SELECT DISTINCT k.* FROM unnest($1) k) k CROSS JOIN LATERAL (SELECT b.tenant, b.id, b.embedding FROM public.golden_SHARD1 b WHERE b.tenant = k.id_1 AND b.id = k.id_2 OFFSET 0) b WHERE true AND b.embedding IS NOT NULL OFFSET 0
        ) raw OFFSET 0
    ) r
    ON CONFLICT (id_1, id_2) DO UPDATE SET landmark = excluded.landmark, code = excluded.code, length = excluded.length, fit = excluded.fit, filter_1 = excluded.filter_1;
        WHEN 'public.golden_SHARD2' THEN
    FOR hashindex_gone IN SELECT k.* FROM unnest($1) k WHERE NOT EXISTS (
        SELECT FROM public.golden_SHARD2 b WHERE b.tenant = k.id_1 AND b.id = k.id_2 AND b.embedding IS NOT NULL OFFSET 0
    ) LOOP
        DELETE FROM hashindex.citus_tests_shards_tenants_codes_GENERATION_SHARD2 c WHERE c.id_1 = hashindex_gone.id_1 AND c.id_2 = hashindex_gone.id_2;
    END LOOP;
    INSERT INTO hashindex.citus_tests_shards_tenants_codes_GENERATION_SHARD2 AS c (id_1, id_2, landmark, code, length, fit, filter_1)
    SELECT r.id_1, r.id_2, (SELECT l.landmark FROM hashindex.citus_tests_shards_tenants_landmarks_GENERATION_SHARD1 l WHERE l.tenant = r.filter_1 ORDER BY l.centre OPERATOR(public.<->) CASE WHEN public.vector_norm(r.projection) < 65504 THEN r.projection ELSE public.l2_normalize(r.projection) END::public.halfvec(8) LIMIT 1), hashindex._quantize(r.projection, 4), hashindex._length(r.projection), hashindex._fit(r.projection), r.filter_1
    FROM (
        SELECT raw.*, hashindex.project_citus_tests_shards_tenants(raw.vector) AS projection
        FROM (
            SELECT b.tenant AS id_1, b.id AS id_2, b.tenant AS filter_1, CASE WHEN public.vector_dims(b.embedding) = 8 THEN b.embedding::public.vector(8)
                ELSE hashindex._refuse_vector(b.embedding::public.vector, 8) END AS vector
            FROM (SELECT DISTINCT k.* FROM unnest($1) k) k CROSS JOIN LATERAL (SELECT b.tenant, b.id, b.embedding FROM public.golden_SHARD2 b WHERE b.tenant = k.id_1 AND b.id = k.id_2 OFFSET 0) b WHERE true AND b.embedding IS NOT NULL OFFSET 0
        ) raw OFFSET 0
    ) r
    ON CONFLICT (id_1, id_2) DO UPDATE SET landmark = excluded.landmark, code = excluded.code, length = excluded.length, fit = excluded.fit, filter_1 = excluded.filter_1;
        ELSE
            FOR hashindex_code_table, hashindex_landmark_table IN SELECT u.codes, u.landmarks FROM unnest('{hashindex.citus_tests_shards_tenants_codes_GENERATION}'::text[], '{hashindex.citus_tests_shards_tenants_landmarks_GENERATION}'::text[]) u(codes, landmarks) LOOP
                -- A shard of rows and its shard of codes have the same range of hashes.
                SELECT shard_name(c.logicalrelid, c.shardid) INTO hashindex_codes
                FROM pg_dist_shard s JOIN pg_dist_shard c ON c.shardminvalue = s.shardminvalue
                WHERE s.logicalrelid = to_regclass('public.golden') AND s.shardid = substring($2 FROM '_([0-9]+)"?$')::bigint
                  AND c.logicalrelid = to_regclass(hashindex_code_table);
                IF hashindex_codes IS NULL THEN
                    -- The table was renamed, or is no longer distributed. Let the write pass; pg-hashindex index check says what to do.
                    EXECUTE 'DELETE FROM ' || hashindex_code_table || ' c WHERE (c.id_1, c.id_2) IN (SELECT k.id_1, k.id_2 FROM unnest($1) k)' USING $1;
                    CONTINUE;
                END IF;
                hashindex_landmarks := 'NULL::integer';
                IF hashindex_landmark_table IS NOT NULL THEN
                    SELECT '(SELECT l.landmark FROM ' || shard_name(l.logicalrelid, l.shardid)
                        || ' l WHERE l.tenant = r.filter_1 ORDER BY l.centre OPERATOR(public.<->) CASE WHEN public.vector_norm(r.projection) < 65504 THEN r.projection ELSE public.l2_normalize(r.projection) END::public.halfvec(8) LIMIT 1)' INTO hashindex_landmarks
                    FROM pg_dist_shard l WHERE l.logicalrelid = to_regclass(hashindex_landmark_table);
                END IF;
                IF hashindex_strict THEN
                    -- DELETE does not see a code that was committed after this transaction's snapshot. This INSERT conflicts with it and
                    -- raises the serialization failure that callers of these isolation levels expect.
                    EXECUTE 'INSERT INTO ' || hashindex_codes || ' AS c (id_1, id_2, code, length, fit) SELECT DISTINCT t.id_1, t.id_2, 0::bit(16), 0, 0 FROM unnest($1) t(id_1, id_2)
                        ON CONFLICT (id_1, id_2) DO UPDATE SET code = c.code' USING $1;
                END IF;
                EXECUTE 'DELETE FROM ' || hashindex_codes || ' c WHERE (c.id_1, c.id_2) IN (SELECT k.id_1, k.id_2 FROM unnest($1) k) AND NOT EXISTS (SELECT FROM ' || $2
                    || ' b WHERE b.tenant = c.id_1 AND b.id = c.id_2 AND b.embedding IS NOT NULL)' USING $1;
                EXECUTE 'INSERT INTO ' || hashindex_codes || ' AS c (id_1, id_2, landmark, code, length, fit, filter_1) SELECT r.id_1, r.id_2, ' || hashindex_landmarks
                    || ', hashindex._quantize(r.projection, 4), hashindex._length(r.projection), hashindex._fit(r.projection), r.filter_1 FROM (
                        SELECT b.tenant AS id_1, b.id AS id_2, b.tenant AS filter_1, b.embedding::public.vector AS vector, hashindex.project_citus_tests_shards_tenants(b.embedding::public.vector) AS projection
                        FROM (SELECT DISTINCT k.* FROM unnest($1) k) k CROSS JOIN LATERAL (SELECT b.tenant, b.id, b.embedding FROM ' || $2 || ' b WHERE b.tenant = k.id_1 AND b.id = k.id_2 OFFSET 0) b WHERE true AND b.embedding IS NOT NULL OFFSET 0
                    ) r ON CONFLICT (id_1, id_2) DO UPDATE SET landmark = excluded.landmark, code = excluded.code, length = excluded.length, fit = excluded.fit, filter_1 = excluded.filter_1' USING $1;
            END LOOP;
    END CASE;
    hashindex_set := set_config('hnsw.ef_search', hashindex_effort, true);
END
$function$;

CREATE OR REPLACE FUNCTION hashindex.search_citus_tests_shards_tenants(query anycompatible, k integer DEFAULT 10, candidates integer DEFAULT NULL::integer, probes integer DEFAULT NULL::integer, query_code bit varying DEFAULT NULL::bit varying, filter text DEFAULT NULL::text, where_equals jsonb DEFAULT NULL::jsonb, caller_path text DEFAULT current_setting('search_path'::text), tenant bigint DEFAULT NULL::bigint)
 RETURNS TABLE(id_1 bigint, id bigint, distance double precision)
 LANGUAGE plpgsql
 STABLE ROWS 10
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET jit TO 'off'
 SET plan_cache_mode TO 'auto'
 SET enable_indexscan TO 'on'
 SET enable_seqscan TO 'on'
AS $function$
#variable_conflict use_column
DECLARE
    -- The casts copy a vector that a subquery took from a table out of TOAST, once instead of for every row that it is compared with.
    hashindex_query public.vector := CASE WHEN public.vector_dims($1::public.vector) = 8 THEN $1::public.vector(8) ELSE hashindex._refuse_vector($1::public.vector, 8) END;
    hashindex_point public.vector := hashindex_query;
    hashindex_k integer := CASE WHEN $2 > 0 THEN $2 ELSE hashindex._refuse('k', $2, '1 or more') END;
    hashindex_n integer := CASE WHEN coalesce($3, 200) > 0 THEN greatest(coalesce($3, hashindex._candidates_for($2, 200)), $2) ELSE hashindex._refuse('candidates', $3, '1 or more') END;
    hashindex_locked boolean;
    hashindex_keys hashindex.key_citus_tests_shards_tenants[];
    hashindex_part_1 pg_catalog.int8[];
    r record;
    hashindex_found integer := 0;
    hashindex_ids hashindex.key_citus_tests_shards_tenants[];
    hashindex_distances double precision[];
BEGIN
    IF $9 IS NULL OR $6 IS NOT NULL OR $7 <> '{}' THEN
        RETURN QUERY SELECT json_array_element_text(f.id::json, 0)::pg_catalog.int8, json_array_element_text(f.id::json, 1)::pg_catalog.int8, f.distance
        FROM hashindex._filtered_search(hashindex.find_index('citus_tests_shards_tenants'), hashindex_query, $2, $3, $4, $5, $6, $7, $8, $9::text) f;
        RETURN;
    ELSIF NOT (row_security_active('public.golden') OR has_column_privilege(to_regclass('hashindex.citus_tests_shards_tenants_codes_GENERATION'), 'filter_1', 'SELECT') IS NOT TRUE OR NOT EXISTS (SELECT FROM hashindex.node_index x WHERE x.name = 'citus_tests_shards_tenants' AND x.generation = GENERATION AND x.encoded)) THEN
        -- One statement calls a function on each node, for all of its shards. Shards of which this function knows no names are searched by
        -- the statements after this block, as they are where lists hold too few codes.
        DECLARE
            hashindex_projection public.vector := CASE WHEN query_code IS NULL OR hashindex._checked_code(query_code, NULL) IS NULL THEN (SELECT ARRAY(SELECT public.inner_product(f.w, x.v) FROM (SELECT unnest(((hashindex._node_layers_of(MODEL))[2]).weights) AS w OFFSET 0) f)::public.vector OPERATOR(public.+) ((hashindex._node_layers_of(MODEL))[2]).bias FROM (SELECT public.l2_normalize(hashindex_query) AS v OFFSET 0) x) END;
            hashindex_codes bit varying[] := hashindex._asymmetric_codes(hashindex_projection, hashindex._steps(8, 4));
            hashindex_scale double precision := public.vector_norm(hashindex_projection) * 0.47376154339498683;
            hashindex_in_shard integer := hashindex_n;
            hashindex_first integer[];
            hashindex_at pg_catalog.int8[];
            hashindex_known boolean;
            hashindex_answers integer := 0;
            n_probes integer := CASE WHEN coalesce($4, 80) BETWEEN 1 AND 1000 THEN coalesce($4, 80) ELSE hashindex._refuse('probes', $4, '1 to 1000') END;
            point public.halfvec := CASE WHEN public.vector_norm(hashindex_projection) < 65504 THEN hashindex_projection ELSE public.l2_normalize(hashindex_projection) END::public.halfvec(8);
            effort text := coalesce(current_setting('hnsw.ef_search', true), '40');
            scans text := current_setting('enable_seqscan');
            done text;
            lists integer[];
        BEGIN
            -- The one shard of the tenant stands for itself.
            hashindex_at := ARRAY[('{1,11}'::pg_catalog.int8[])[
                array_position('{SHARD1,SHARD2}'::bigint[], get_shard_id_for_distribution_column('public.golden'::regclass, $9))
            ]];
            hashindex_known := hashindex_at[1] IS NOT NULL;
            hashindex_first := ARRAY(SELECT n.number FROM generate_series(1, 2) n(number));
            IF hashindex_known THEN
                done := set_config('enable_seqscan', 'off', true);
                BEGIN
                lists := ARRAY(
                    SELECT l.landmark FROM hashindex.citus_tests_shards_tenants_landmarks_GENERATION_SHARD1 l WHERE l.tenant = $9 ORDER BY (l.centre OPERATOR(public.<->) point) + 0 LIMIT n_probes
                );
                EXCEPTION WHEN undefined_table THEN
                    -- A build has dropped these landmarks since this statement began, or this node has no copy of them.
                    NULL;
                END;
                done := set_config('enable_seqscan', scans, true);
            END IF;
            IF lists IS NOT NULL THEN
                FOR r IN
                    SELECT f.id, f.distance
                    FROM hashindex.citus_tests_shards_tenants_shards s CROSS JOIN LATERAL hashindex.nearest_citus_tests_shards_tenants(
                        s.number, hashindex_first, lists, hashindex_codes, hashindex_scale, hashindex_query, hashindex_in_shard, hashindex_k, $9
                    ) f
                    WHERE s.id = ANY (hashindex_at)
                    ORDER BY f.distance, f.id
                    LIMIT hashindex_k + cardinality(hashindex_at)
                LOOP
                    IF r.id IS NULL THEN
                        hashindex_answers := hashindex_answers + 1;
                        CONTINUE;
                    END IF;
                    CONTINUE WHEN NOT (r.distance OPERATOR(pg_catalog.<>) 'NaN' OR (hashindex_query OPERATOR(public.<=>) hashindex_query) OPERATOR(pg_catalog.=) 'NaN') OR hashindex_found = hashindex_k;
                    hashindex_found := hashindex_found + 1;
                    hashindex_ids[hashindex_found] := r.id;
                    hashindex_distances[hashindex_found] := r.distance;
                END LOOP;
                IF hashindex_found = hashindex_k AND hashindex_answers = cardinality(hashindex_at) THEN
                    RETURN QUERY SELECT k.* FROM unnest(hashindex_ids, hashindex_distances) k;
                    RETURN;
                END IF;
            END IF;
        END;
        hashindex_found := 0;
        -- Locks the table first, then codes, in the order that all other functions use.
        hashindex_locked := EXISTS (SELECT FROM public.golden WHERE false);
        -- All rows of a very small tenant are compared, without a look at their codes.
        hashindex_keys := NULL;
        IF coalesce(cardinality(hashindex_keys), 0) NOT BETWEEN 1 AND 100 THEN
            hashindex_keys := ARRAY(SELECT ROW(c.id_1, c.id)::hashindex.key_citus_tests_shards_tenants FROM hashindex.candidates_citus_tests_shards_tenants(hashindex_query, hashindex_n, $4, NULL, $5, true, $9) c);
        END IF;
        hashindex_part_1 := ARRAY(SELECT DISTINCT k.id_1 FROM unnest(hashindex_keys) k);
        -- A loop, since Citus would keep the rows of a subquery with a limit in a file.
        FOR r IN
            SELECT ROW(public.golden.tenant, public.golden.id)::hashindex.key_citus_tests_shards_tenants AS id, public.golden.embedding OPERATOR(public.<=>) hashindex_point AS distance
            FROM public.golden
            WHERE public.golden.tenant = $9 AND (public.golden.tenant, public.golden.id) IN (SELECT k.id_1, k.id_2 FROM unnest(hashindex_keys) k) AND public.golden.tenant = ANY (hashindex_part_1) AND public.golden.embedding IS NOT NULL
            ORDER BY distance, id
            LIMIT hashindex_k
        LOOP
            CONTINUE WHEN NOT (r.distance OPERATOR(pg_catalog.<>) 'NaN' OR (hashindex_query OPERATOR(public.<=>) hashindex_query) OPERATOR(pg_catalog.=) 'NaN');
            hashindex_found := hashindex_found + 1;
            hashindex_ids[hashindex_found] := r.id;
            hashindex_distances[hashindex_found] := r.distance;
        END LOOP;
        IF hashindex_found = hashindex_k THEN
            RETURN QUERY SELECT k.* FROM unnest(hashindex_ids, hashindex_distances) k;
            RETURN;
        END IF;
    END IF;
    -- "+ 0" keeps the planner from an HNSW or IVFFlat index, whose answers are approximate.
    SELECT array_agg(r.id), array_agg(r.distance) INTO hashindex_ids, hashindex_distances
    FROM (
        SELECT ROW(public.golden.tenant, public.golden.id)::hashindex.key_citus_tests_shards_tenants AS id, (public.golden.embedding OPERATOR(public.<=>) hashindex_point) + 0 AS distance
        FROM public.golden
        WHERE public.golden.tenant = $9 AND public.golden.embedding IS NOT NULL
        ORDER BY distance, id
        LIMIT hashindex_k
    ) r
    WHERE r.distance OPERATOR(pg_catalog.<>) 'NaN' OR (hashindex_query OPERATOR(public.<=>) hashindex_query) OPERATOR(pg_catalog.=) 'NaN';
    IF hashindex_ids IS NULL THEN
        PERFORM hashindex._check_refilled('public.golden'::regclass);
    END IF;
    RETURN QUERY SELECT k.* FROM unnest(hashindex_ids, hashindex_distances) k;
END
$function$;

CREATE OR REPLACE FUNCTION hashindex.sync_citus_tests_shards_tenants()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET row_security TO 'off'
 SET "citus.override_table_visibility" TO 'off'
AS $function$
DECLARE
    hashindex_touched hashindex.key_citus_tests_shards_tenants[];
    hashindex_rows text := format('%I.%I', TG_TABLE_SCHEMA, TG_TABLE_NAME);
BEGIN
    -- On a node that was added PUBLIC may execute this function until pg-hashindex index distribute is run, and where a shard is not,
    -- anybody may give its name to a table. So the table must be the indexed one or its shard on this node, and of the same owner.
    IF NOT EXISTS (
        SELECT FROM pg_class w LEFT JOIN pg_class b ON b.oid = to_regclass('public.golden')
        WHERE w.oid = TG_RELID AND CASE WHEN b.oid IS NULL THEN
            -- The table was renamed. Its owner has the right to execute this function by name.
            w.relowner IN (SELECT a.grantee FROM pg_proc f, aclexplode(f.proacl) a WHERE f.oid = 'hashindex.sync_citus_tests_shards_tenants()'::regprocedure)
        ELSE w.relowner = b.relowner AND (w.oid = b.oid OR w.relnamespace = b.relnamespace AND EXISTS (
            SELECT FROM pg_dist_shard s JOIN pg_dist_placement p ON p.shardid = s.shardid JOIN pg_dist_local_group n ON n.groupid = p.groupid
            WHERE s.shardid = substring(TG_TABLE_NAME FROM '_([0-9]{1,18})$')::bigint AND s.logicalrelid = b.oid
              AND shard_name(s.logicalrelid, s.shardid) IN (quote_ident(TG_TABLE_NAME), hashindex_rows)
        )) END
    ) THEN
        RETURN NULL;
    ELSIF TG_OP = 'TRUNCATE' THEN
        -- Citus fires TRUNCATE triggers on the node that got the statement, and none on shards.
        TRUNCATE hashindex.citus_tests_shards_tenants_codes_GENERATION;
        RETURN NULL;
    ELSIF TG_OP = 'DELETE' THEN
        hashindex_touched := ARRAY(SELECT ROW(o.tenant, o.id)::hashindex.key_citus_tests_shards_tenants FROM old_rows o);
    ELSIF TG_OP = 'INSERT' THEN
        hashindex_touched := ARRAY(SELECT ROW(n.tenant, n.id)::hashindex.key_citus_tests_shards_tenants FROM new_rows n);
    ELSE
        -- A row cannot leave its shard; by a key of several columns it may get another key in it. A full join is never a nested loop: the plan is kept, and the next
        -- statement may write many rows.
        hashindex_touched := ARRAY(
            SELECT ROW(coalesce(n.tenant, o.tenant), coalesce(n.id, o.id))::hashindex.key_citus_tests_shards_tenants FROM old_rows o FULL JOIN new_rows n ON n.tenant = o.tenant AND n.id = o.id WHERE ((n.embedding OPERATOR(public.=) o.embedding) IS NOT TRUE AND (n.embedding IS NOT NULL OR o.embedding IS NOT NULL)) OR record_image_ne(ROW(n.tenant), ROW(o.tenant))
        );
    END IF;
    IF cardinality(hashindex_touched) = 0 THEN
        RETURN NULL;
    END IF;
    PERFORM hashindex.refresh_citus_tests_shards_tenants(hashindex_touched, hashindex_rows);
    RETURN NULL;
END
$function$;

CREATE OR REPLACE FUNCTION hashindex.within_citus_tests_shards_tenants(query anycompatible, radius integer, query_code bit varying DEFAULT NULL::bit varying)
 RETURNS TABLE(id_1 bigint, id bigint, distance integer)
 LANGUAGE plpgsql
 STABLE ROWS 100
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET jit TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    hashindex_query public.vector := CASE WHEN public.vector_dims($1::public.vector) = 8 THEN $1::public.vector(8) ELSE hashindex._refuse_vector($1::public.vector, 8) END;
    hashindex_radius integer := CASE WHEN $2 BETWEEN 0 AND 16 THEN $2 ELSE hashindex._refuse('radius', $2, '0 to 16, the bits of a code') END;
    hashindex_projection public.vector := CASE WHEN query_code IS NULL OR hashindex._checked_code(query_code, NULL) IS NULL THEN (SELECT ARRAY(SELECT public.inner_product(f.w, x.v) FROM (SELECT unnest(((hashindex._node_layers_of(MODEL))[2]).weights) AS w OFFSET 0) f)::public.vector OPERATOR(public.+) ((hashindex._node_layers_of(MODEL))[2]).bias FROM (SELECT public.l2_normalize(hashindex_query) AS v OFFSET 0) x) END;
    hashindex_code bit(16) := hashindex._quantize(hashindex_projection, 4);
BEGIN
    PERFORM hashindex._check_column_dimension('public.golden', 'embedding', 8);
    PERFORM hashindex._require_codes('citus_tests_shards_tenants', 'public.golden', EXISTS (SELECT FROM hashindex.node_index x WHERE x.name = 'citus_tests_shards_tenants' AND x.generation = GENERATION AND x.encoded), true);
    PERFORM hashindex._require_policies('citus_tests_shards_tenants', 'public.golden', 'hashindex.citus_tests_shards_tenants_codes_GENERATION');
    RETURN QUERY SELECT c.id_1, c.id_2, bit_count(c.code # hashindex_code)::integer AS distance
    FROM hashindex.citus_tests_shards_tenants_codes_GENERATION c
    WHERE bit_count(c.code # hashindex_code) <= hashindex_radius
      AND EXISTS (SELECT FROM public.golden WHERE public.golden.tenant = c.id_1 AND public.golden.id = c.id_2)
    ORDER BY distance, id_1, id_2;
EXCEPTION WHEN undefined_table THEN
    -- A build may have dropped these codes since this statement began.
    PERFORM hashindex._require_codes('citus_tests_shards_tenants', 'public.golden', (to_regclass('hashindex.citus_tests_shards_tenants_codes_GENERATION') IS NOT NULL AND to_regclass('hashindex.citus_tests_shards_tenants_landmarks_GENERATION') IS NOT NULL), true);
    RAISE;
END
$function$;
