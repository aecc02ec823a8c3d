CREATE OR REPLACE FUNCTION hashindex.candidates_citus_tests_shards(query anycompatible, n integer DEFAULT NULL::integer, probes integer DEFAULT NULL::integer, filter text DEFAULT NULL::text, query_code bit varying DEFAULT NULL::bit varying, checked boolean DEFAULT false)
 RETURNS TABLE(id bigint)
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
    hashindex_trusted boolean := checked OR hashindex._require_trust('public', 'golden', '{}', '{id,embedding}', 'citus_tests_shards');
    hashindex_query public.vector := CASE WHEN public.vector_dims($1::public.vector) = 8 THEN $1::public.vector(8) ELSE hashindex._refuse_vector($1::public.vector, 8) END;
    hashindex_n integer := CASE WHEN coalesce($2, 200) > 0 THEN coalesce($2, 200) ELSE hashindex._refuse('n', $2, '1 or more') END;
BEGIN
    IF NOT checked AND (row_security_active('public.golden')
            OR has_column_privilege(to_regclass('hashindex.citus_tests_shards_codes_GENERATION'), 'code', 'SELECT') IS NOT TRUE
            OR NOT EXISTS (SELECT FROM hashindex.node_index x WHERE x.name = 'citus_tests_shards' AND x.generation = GENERATION AND x.encoded)) THEN
        RETURN QUERY SELECT a.id::pg_catalog.int8 FROM hashindex._exact_search('public.golden'::regclass, '{id}', 'embedding', 'cosine', hashindex_query, hashindex_n, $4) a;
        RETURN;
    END IF;
    -- Before the model is read: a caller without rights on codes has none on models.
    DECLARE
        hashindex_projection public.vector := CASE WHEN query_code IS NULL OR hashindex._checked_code(query_code, NULL) IS NULL THEN (SELECT ARRAY(SELECT public.inner_product(f.w, x.v) FROM (SELECT unnest(((hashindex._node_layers_of(MODEL))[2]).weights) AS w OFFSET 0) f)::public.vector OPERATOR(public.+) ((hashindex._node_layers_of(MODEL))[2]).bias FROM (SELECT public.l2_normalize(hashindex_query) AS v OFFSET 0) x) END;
        hashindex_codes bit varying[] := hashindex._asymmetric_codes((hashindex_projection OPERATOR(public.||) hashindex_projection OPERATOR(public.||) hashindex_projection OPERATOR(public.-) hashindex._cut_vector(8, '{-0.28272426,0,0.28272426}')), hashindex._steps(24));
        u1 "bit" := hashindex_codes[1];
        u2 "bit" := hashindex_codes[2];
        u3 "bit" := hashindex_codes[3];
        u4 "bit" := hashindex_codes[4];
        u5 "bit" := hashindex_codes[5];
        hashindex_ids pg_catalog.int8[];
        -- Halves of a statement under a filter, which knows the table by its bare name; codes are chosen between them.
        hashindex_ranked text := 'SELECT id FROM (SELECT c.id AS id, 4 * (c.code OPERATOR(public.<~>) $1) + 2 * (c.code OPERATOR(public.<~>) $2) + (c.code OPERATOR(public.<~>) $3) AS hashindex_distance FROM hashindex.citus_tests_shards_codes_GENERATION c WHERE ';
        hashindex_matching text := ') golden WHERE (' || coalesce($4, 'true') || '
) ORDER BY golden.hashindex_distance LIMIT $6';
        n_probes integer := CASE WHEN coalesce($3, 80) BETWEEN 1 AND 1000 THEN coalesce($3, 80) ELSE hashindex._refuse('probes', $3, '1 to 1000') END;
        point public.halfvec := CASE WHEN public.vector_norm(hashindex_projection) < 65504 THEN hashindex_projection ELSE public.l2_normalize(hashindex_projection) END::public.halfvec(8);
        effort text := coalesce(current_setting('hnsw.ef_search', true), '40');
        done text;
        lists integer[];
    BEGIN
        -- Without index scans lists are read by a bitmap scan, for which PostgreSQL asks the disk for many pages at a time. Where they hold
        -- too few codes, more are read, and finally all.
        WHILE n_probes <= 1000 LOOP
            IF n_probes <= 64 THEN
                -- Not a SET clause: only superusers may restore one before pgvector is loaded.
                done := set_config('hnsw.ef_search', greatest(n_probes, least(64, 16 + 2 * n_probes))::text, true);
                lists := ARRAY(
                    SELECT l.landmark FROM hashindex.citus_tests_shards_landmarks_GENERATION l ORDER BY l.centre OPERATOR(public.<->) point LIMIT n_probes
                );
                done := set_config('hnsw.ef_search', effort, true);
            ELSE
                -- With more probes, comparing all is faster.
                lists := ARRAY(
                    SELECT l.landmark FROM hashindex.citus_tests_shards_landmarks_GENERATION l ORDER BY (l.centre OPERATOR(public.<->) point) + 0 LIMIT n_probes
                );
            END IF;

            done := set_config('enable_indexscan', 'off', true);
            IF $4 IS NULL THEN
                hashindex_ids := ARRAY(SELECT c.id FROM (
                    SELECT c.id FROM hashindex.citus_tests_shards_codes_GENERATION c WHERE c.landmark = ANY (lists) ORDER BY 4 * (c.code OPERATOR(public.<~>) u1) + 2 * (c.code OPERATOR(public.<~>) u2) + (c.code OPERATOR(public.<~>) u3) LIMIT hashindex_n
                ) c);
            ELSE
                -- Without the subquery, the planner would look up statistics.
                EXECUTE 'SELECT ARRAY(SELECT c.id FROM (' || hashindex_ranked || 'c.landmark = ANY (ARRAY(SELECT unnest($7)))' || hashindex_matching || ') c(id))'
                INTO hashindex_ids USING u1, u2, u3, u4, u5, hashindex_n, lists;
            END IF;
            IF cardinality(hashindex_ids) = hashindex_n THEN
                RETURN QUERY SELECT k.* FROM unnest(hashindex_ids) k;
                RETURN;
            END IF;
            n_probes := 8 * n_probes;
            done := set_config('enable_indexscan', 'on', true);
        END LOOP;
        done := set_config('enable_seqscan', 'on', true);
        RETURN QUERY EXECUTE hashindex_ranked || 'true' || hashindex_matching
        USING u1, u2, u3, u4, u5, hashindex_n;
    EXCEPTION WHEN undefined_table THEN
        -- A build may have dropped these codes meanwhile. The function is another one then.
        IF (to_regclass('hashindex.citus_tests_shards_codes_GENERATION') IS NOT NULL AND to_regclass('hashindex.citus_tests_shards_landmarks_GENERATION') IS NOT NULL) THEN
            RAISE;
        END IF;
        RETURN QUERY SELECT c.id FROM hashindex.candidates_citus_tests_shards($1, $2, $3, $4, $5) c;
    END;
END
$function$;

CREATE OR REPLACE FUNCTION hashindex.encode_citus_tests_shards(v vector, or_null boolean DEFAULT false)
 RETURNS bit varying
 LANGUAGE plpgsql
 IMMUTABLE STRICT
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    RETURN (SELECT public.binary_quantize((r.projection OPERATOR(public.||) r.projection OPERATOR(public.||) r.projection OPERATOR(public.-) hashindex._cut_vector(8, '{-0.28272426,0,0.28272426}'))) FROM (SELECT hashindex.project_citus_tests_shards($1, $2) AS projection OFFSET 0) r);
END
$function$;

CREATE OR REPLACE FUNCTION hashindex.nearest_citus_tests_shards(number integer, first integer[], lists integer[], codes bit varying[], query vector, n integer, k integer)
 RETURNS TABLE(id bigint, distance double precision)
 LANGUAGE plpgsql
 STABLE ROWS 10
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET jit TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
 SET enable_seqscan TO 'off'
 SET enable_indexscan TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    hashindex_point public.vector := query;
    u1 "bit" := codes[1];
    u2 "bit" := codes[2];
    u3 "bit" := codes[3];
    u4 "bit" := codes[4];
    u5 "bit" := codes[5];
    hashindex_ids pg_catalog.int8[];
    hashindex_short boolean := false;
BEGIN
    IF $1 = ANY ($2) THEN
        FOR hashindex_shard IN 1..cardinality($2) LOOP
            CONTINUE WHEN $2[hashindex_shard] <> $1;
            CASE hashindex_shard
        WHEN 1 THEN
                hashindex_ids := ARRAY(SELECT c.id FROM (
                    SELECT c.id FROM hashindex.citus_tests_shards_codes_GENERATION_SHARD1 c WHERE c.landmark = ANY ($3)
                    ORDER BY 4 * (c.code OPERATOR(public.<~>) u1) + 2 * (c.code OPERATOR(public.<~>) u2) + (c.code OPERATOR(public.<~>) u3) LIMIT $6
                ) c);
                hashindex_short := hashindex_short OR cardinality(hashindex_ids) < $6;
                RETURN QUERY SELECT (public.golden_SHARD1.id)::pg_catalog.int8, public.golden_SHARD1.embedding OPERATOR(public.<=>) hashindex_point
                FROM public.golden_SHARD1
                WHERE public.golden_SHARD1.id = ANY (hashindex_ids) AND public.golden_SHARD1.embedding IS NOT NULL
                ORDER BY 2, 1 LIMIT $7;
        WHEN 2 THEN
                hashindex_ids := ARRAY(SELECT c.id FROM (
                    SELECT c.id FROM hashindex.citus_tests_shards_codes_GENERATION_SHARD2 c WHERE c.landmark = ANY ($3)
                    ORDER BY 4 * (c.code OPERATOR(public.<~>) u1) + 2 * (c.code OPERATOR(public.<~>) u2) + (c.code OPERATOR(public.<~>) u3) LIMIT $6
                ) c);
                hashindex_short := hashindex_short OR cardinality(hashindex_ids) < $6;
                RETURN QUERY SELECT (public.golden_SHARD2.id)::pg_catalog.int8, public.golden_SHARD2.embedding OPERATOR(public.<=>) hashindex_point
                FROM public.golden_SHARD2
                WHERE public.golden_SHARD2.id = ANY (hashindex_ids) AND public.golden_SHARD2.embedding IS NOT NULL
                ORDER BY 2, 1 LIMIT $7;
            END CASE;
        END LOOP;
        -- Many tenants have fewer rows than candidates.
        RETURN QUERY SELECT NULL::pg_catalog.int8, CASE WHEN hashindex_short THEN '-1e300' ELSE '-infinity' END::double precision;
    END IF;
EXCEPTION WHEN undefined_table THEN
    -- A shard was moved, or a build has dropped these codes, since the search began.
    NULL;
END
$function$;

CREATE OR REPLACE FUNCTION hashindex.project_citus_tests_shards(v vector, or_null boolean DEFAULT false)
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
            RETURN hashindex.project_citus_tests_shards($1);
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

CREATE OR REPLACE FUNCTION hashindex.refresh_citus_tests_shards(keys bigint[], rows text)
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
    hashindex_strict boolean := current_setting('transaction_isolation') IN ('repeatable read', 'serializable');
    hashindex_known text := CASE WHEN NOT hashindex_strict THEN $2 END;
    hashindex_code_table text;
    hashindex_landmark_table text;
    hashindex_codes text;
    hashindex_landmarks text;
BEGIN
    CASE hashindex_known
        WHEN 'public.golden_SHARD1' THEN
    DELETE FROM hashindex.citus_tests_shards_codes_GENERATION_SHARD1 c WHERE c.id = ANY ($1) AND NOT EXISTS (
        SELECT FROM public.golden_SHARD1 b WHERE b.id = c.id AND b.embedding IS NOT NULL
    );
    INSERT INTO hashindex.citus_tests_shards_codes_GENERATION_SHARD1 AS c (id, landmark, code)
    SELECT r.id, (SELECT l.landmark FROM hashindex.citus_tests_shards_landmarks_GENERATION_SHARD1 l ORDER BY l.centre OPERATOR(public.<->) CASE WHEN public.vector_norm(r.projection) < 65504 THEN r.projection ELSE public.l2_normalize(r.projection) END::public.halfvec(8) LIMIT 1), public.binary_quantize((r.projection OPERATOR(public.||) r.projection OPERATOR(public.||) r.projection OPERATOR(public.-) hashindex._cut_vector(8, '{-0.28272426,0,0.28272426}')))
    FROM (
        SELECT raw.*, hashindex.project_citus_tests_shards(raw.vector) AS projection
        FROM (
            SELECT b.id AS id, CASE WHEN public.vector_dims(b.embedding) = 8 THEN b.embedding::public.vector(8)
                ELSE hashindex._refuse_vector(b.embedding::public.vector, 8) END AS vector
            FROM public.golden_SHARD1 b WHERE b.id = ANY ($1) AND b.embedding IS NOT NULL OFFSET 0
        ) raw OFFSET 0
    ) r
    ON CONFLICT (id) DO UPDATE SET landmark = excluded.landmark, code = excluded.code;
        WHEN 'public.golden_SHARD2' THEN
    DELETE FROM hashindex.citus_tests_shards_codes_GENERATION_SHARD2 c WHERE c.id = ANY ($1) AND NOT EXISTS (
        SELECT FROM public.golden_SHARD2 b WHERE b.id = c.id AND b.embedding IS NOT NULL
    );
    INSERT INTO hashindex.citus_tests_shards_codes_GENERATION_SHARD2 AS c (id, landmark, code)
    SELECT r.id, (SELECT l.landmark FROM hashindex.citus_tests_shards_landmarks_GENERATION_SHARD1 l ORDER BY l.centre OPERATOR(public.<->) CASE WHEN public.vector_norm(r.projection) < 65504 THEN r.projection ELSE public.l2_normalize(r.projection) END::public.halfvec(8) LIMIT 1), public.binary_quantize((r.projection OPERATOR(public.||) r.projection OPERATOR(public.||) r.projection OPERATOR(public.-) hashindex._cut_vector(8, '{-0.28272426,0,0.28272426}')))
    FROM (
        SELECT raw.*, hashindex.project_citus_tests_shards(raw.vector) AS projection
        FROM (
            SELECT b.id AS id, CASE WHEN public.vector_dims(b.embedding) = 8 THEN b.embedding::public.vector(8)
                ELSE hashindex._refuse_vector(b.embedding::public.vector, 8) END AS vector
            FROM public.golden_SHARD2 b WHERE b.id = ANY ($1) AND b.embedding IS NOT NULL OFFSET 0
        ) raw OFFSET 0
    ) r
    ON CONFLICT (id) DO UPDATE SET landmark = excluded.landmark, code = excluded.code;
        ELSE
            FOR hashindex_code_table, hashindex_landmark_table IN SELECT u.codes, u.landmarks FROM unnest('{hashindex.citus_tests_shards_codes_GENERATION}'::text[], '{hashindex.citus_tests_shards_landmarks_GENERATION}'::text[]) u(codes, landmarks) LOOP
                -- A shard of rows and its shard of codes have the same range of hashes.
                SELECT shard_name(c.logicalrelid, c.shardid) INTO hashindex_codes
                FROM pg_dist_shard s JOIN pg_dist_shard c ON c.shardminvalue = s.shardminvalue
                WHERE s.logicalrelid = to_regclass('public.golden') AND s.shardid = substring($2 FROM '_([0-9]+)"?$')::bigint
                  AND c.logicalrelid = to_regclass(hashindex_code_table);
                IF hashindex_codes IS NULL THEN
                    -- The table was renamed, or is no longer distributed. Let the write pass; pg-hashindex index check says what to do.
                    EXECUTE 'DELETE FROM ' || hashindex_code_table || ' c WHERE c.id = ANY ($1)' USING $1;
                    CONTINUE;
                END IF;
                hashindex_landmarks := 'NULL::integer';
                IF hashindex_landmark_table IS NOT NULL THEN
                    SELECT '(SELECT l.landmark FROM ' || shard_name(l.logicalrelid, l.shardid)
                        || ' l ORDER BY l.centre OPERATOR(public.<->) CASE WHEN public.vector_norm(r.projection) < 65504 THEN r.projection ELSE public.l2_normalize(r.projection) END::public.halfvec(8) LIMIT 1)' INTO hashindex_landmarks
                    FROM pg_dist_shard l WHERE l.logicalrelid = to_regclass(hashindex_landmark_table);
                END IF;
                IF hashindex_strict THEN
                    -- DELETE does not see a code that was committed after this transaction's snapshot. This INSERT conflicts with it and
                    -- raises the serialization failure that callers of these isolation levels expect.
                    EXECUTE 'INSERT INTO ' || hashindex_codes || ' AS c (id, code) SELECT DISTINCT t.id, 0::bit(24) FROM unnest($1) t(id)
                        ON CONFLICT (id) DO UPDATE SET code = c.code' USING $1;
                END IF;
                EXECUTE 'DELETE FROM ' || hashindex_codes || ' c WHERE c.id = ANY ($1) AND NOT EXISTS (SELECT FROM ' || $2
                    || ' b WHERE b.id = c.id AND b.embedding IS NOT NULL)' USING $1;
                EXECUTE 'INSERT INTO ' || hashindex_codes || ' AS c (id, landmark, code) SELECT r.id, ' || hashindex_landmarks
                    || ', public.binary_quantize((r.projection OPERATOR(public.||) r.projection OPERATOR(public.||) r.projection OPERATOR(public.-) hashindex._cut_vector(8, ''{-0.28272426,0,0.28272426}''))) FROM (
                        SELECT b.id AS id, b.embedding::public.vector AS vector, hashindex.project_citus_tests_shards(b.embedding::public.vector) AS projection
                        FROM ' || $2 || ' b
                        WHERE b.id = ANY ($1) AND b.embedding IS NOT NULL OFFSET 0
                    ) r ON CONFLICT (id) DO UPDATE SET landmark = excluded.landmark, code = excluded.code' USING $1;
            END LOOP;
    END CASE;
    hashindex_set := set_config('hnsw.ef_search', hashindex_effort, true);
END
$function$;

CREATE OR REPLACE FUNCTION hashindex.search_citus_tests_shards(query anycompatible, k integer DEFAULT 10, candidates integer DEFAULT NULL::integer, probes integer DEFAULT NULL::integer, query_code bit varying DEFAULT NULL::bit varying, filter text DEFAULT NULL::text, where_equals jsonb DEFAULT NULL::jsonb, caller_path text DEFAULT current_setting('search_path'::text))
 RETURNS TABLE(id bigint, distance double precision)
 LANGUAGE plpgsql
 STABLE ROWS 10
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET jit TO 'off'
 SET plan_cache_mode TO 'auto'
 SET enable_indexscan TO 'on'
AS $function$
#variable_conflict use_column
DECLARE
    hashindex_trusted boolean := hashindex._require_trust('public', 'golden', '{}', '{id,embedding}', 'citus_tests_shards');
    -- The casts copy a vector that a subquery took from a table out of TOAST, once instead of for every row that it is compared with.
    hashindex_query public.vector := CASE WHEN public.vector_dims($1::public.vector) = 8 THEN $1::public.vector(8) ELSE hashindex._refuse_vector($1::public.vector, 8) END;
    hashindex_point public.vector := hashindex_query;
    hashindex_k integer := CASE WHEN $2 > 0 THEN $2 ELSE hashindex._refuse('k', $2, '1 or more') END;
    hashindex_n integer := CASE WHEN coalesce($3, 200) > 0 THEN greatest(coalesce($3, hashindex._candidates_for($2, 200)), $2) ELSE hashindex._refuse('candidates', $3, '1 or more') END;
    hashindex_locked boolean;
    hashindex_keys pg_catalog.int8[];
    r record;
    hashindex_found integer := 0;
    hashindex_ids pg_catalog.int8[];
    hashindex_distances double precision[];
BEGIN
    IF $6 IS NOT NULL OR $7 <> '{}' THEN
        RETURN QUERY SELECT a.id::pg_catalog.int8, a.distance
        FROM hashindex._filtered_search(hashindex.find_index('citus_tests_shards'), hashindex_query, $2, $3, $4, $5, $6, $7, $8) a;
        RETURN;
    ELSIF NOT (row_security_active('public.golden')
            OR has_column_privilege(to_regclass('hashindex.citus_tests_shards_codes_GENERATION'), 'code', 'SELECT') IS NOT TRUE
            OR NOT EXISTS (SELECT FROM hashindex.node_index x WHERE x.name = 'citus_tests_shards' AND x.generation = GENERATION AND x.encoded)) THEN
        -- One statement calls a function on each node, for all of its shards. Shards of which this function knows no names are searched by
        -- the statements after this block, as they are where lists hold too few codes.
        DECLARE
            hashindex_projection public.vector := CASE WHEN query_code IS NULL OR hashindex._checked_code(query_code, NULL) IS NULL THEN (SELECT ARRAY(SELECT public.inner_product(f.w, x.v) FROM (SELECT unnest(((hashindex._node_layers_of(MODEL))[2]).weights) AS w OFFSET 0) f)::public.vector OPERATOR(public.+) ((hashindex._node_layers_of(MODEL))[2]).bias FROM (SELECT public.l2_normalize(hashindex_query) AS v OFFSET 0) x) END;
            hashindex_codes bit varying[] := hashindex._asymmetric_codes((hashindex_projection OPERATOR(public.||) hashindex_projection OPERATOR(public.||) hashindex_projection OPERATOR(public.-) hashindex._cut_vector(8, '{-0.28272426,0,0.28272426}')), hashindex._steps(24));
            hashindex_in_shard integer := least(hashindex_n, ceil(hashindex_n / 2.0 + 2 * sqrt(hashindex_n / 2.0)));
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
            -- The first shard of each node stands for the others there.
            SELECT array_agg(p.first ORDER BY p.number), array_agg(('{1,11}'::pg_catalog.int8[])[p.number]) FILTER (WHERE p.number = p.first)
            INTO hashindex_first, hashindex_at
            FROM (
                SELECT s.number, min(s.number) OVER (PARTITION BY p.groupid)::integer AS first
                FROM unnest('{SHARD1,SHARD2}'::bigint[]) WITH ORDINALITY s(id, number) JOIN pg_dist_placement p ON p.shardid = s.id
            ) p;
            hashindex_known := cardinality(hashindex_first) = 2;
            IF hashindex_known THEN
                done := set_config('enable_seqscan', 'off', true);
                BEGIN
            IF n_probes <= 64 THEN
                -- Not a SET clause: only superusers may restore one before pgvector is loaded.
                done := set_config('hnsw.ef_search', greatest(n_probes, least(64, 16 + 2 * n_probes))::text, true);
                lists := ARRAY(
                    SELECT l.landmark FROM hashindex.citus_tests_shards_landmarks_GENERATION_SHARD1 l ORDER BY l.centre OPERATOR(public.<->) point LIMIT n_probes
                );
                done := set_config('hnsw.ef_search', effort, true);
            ELSE
                -- With more probes, comparing all is faster.
                lists := ARRAY(
                    SELECT l.landmark FROM hashindex.citus_tests_shards_landmarks_GENERATION_SHARD1 l ORDER BY (l.centre OPERATOR(public.<->) point) + 0 LIMIT n_probes
                );
            END IF;

                EXCEPTION WHEN undefined_table THEN
                    -- A build has dropped these landmarks since this statement began, or this node has no copy of them.
                    NULL;
                END;
                done := set_config('enable_seqscan', scans, true);
            END IF;
            IF lists IS NOT NULL THEN
                FOR r IN
                    SELECT f.id, f.distance
                    FROM hashindex.citus_tests_shards_shards s CROSS JOIN LATERAL hashindex.nearest_citus_tests_shards(
                        s.number, hashindex_first, lists, hashindex_codes, hashindex_query, hashindex_in_shard, hashindex_k
                    ) f
                    WHERE s.id = ANY (hashindex_at)
                    ORDER BY f.distance, f.id
                    LIMIT hashindex_k + cardinality(hashindex_at)
                LOOP
                    IF r.id IS NULL THEN
                        -- Fewer lists than were asked for are all lists.
                        IF r.distance = '-infinity' OR cardinality(lists) < n_probes THEN
                            hashindex_answers := hashindex_answers + 1;
                        END IF;
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
        hashindex_keys := ARRAY(SELECT c.id FROM hashindex.candidates_citus_tests_shards(hashindex_query, hashindex_n, $4, NULL, $5, true) c);
        -- A loop, since Citus would keep the rows of a subquery with a limit in a file.
        FOR r IN
            SELECT public.golden.id AS id, public.golden.embedding OPERATOR(public.<=>) hashindex_point AS distance
            FROM public.golden
            WHERE public.golden.id = ANY (hashindex_keys) AND public.golden.embedding IS NOT NULL
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
    -- Also if codes led to fewer than k rows: rows may lack a code, and rows of codes may have gone with a partition.
    RETURN QUERY SELECT a.id::pg_catalog.int8, a.distance FROM hashindex._exact_search(
        'public.golden'::regclass, '{id}', 'embedding', 'cosine', hashindex_query, hashindex_k
    ) a;
END
$function$;

CREATE OR REPLACE FUNCTION hashindex.sync_citus_tests_shards()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET row_security TO 'off'
 SET "citus.override_table_visibility" TO 'off'
AS $function$
DECLARE
    hashindex_touched pg_catalog.int8[];
    hashindex_rows text := format('%I.%I', TG_TABLE_SCHEMA, TG_TABLE_NAME);
BEGIN
    -- On a node that was added PUBLIC may execute this function until pg-hashindex index distribute is run, and where a shard is not,
    -- anybody may give its name to a table. So the table must be the indexed one or its shard on this node, and of the same owner.
    IF NOT EXISTS (
        SELECT FROM pg_class w LEFT JOIN pg_class b ON b.oid = to_regclass('public.golden')
        WHERE w.oid = TG_RELID AND CASE WHEN b.oid IS NULL THEN
            -- The table was renamed. Its owner has the right to execute this function by name.
            w.relowner IN (SELECT a.grantee FROM pg_proc f, aclexplode(f.proacl) a WHERE f.oid = 'hashindex.sync_citus_tests_shards()'::regprocedure)
        ELSE w.relowner = b.relowner AND (w.oid = b.oid OR w.relnamespace = b.relnamespace AND EXISTS (
            SELECT FROM pg_dist_shard s JOIN pg_dist_placement p ON p.shardid = s.shardid JOIN pg_dist_local_group n ON n.groupid = p.groupid
            WHERE s.shardid = substring(TG_TABLE_NAME FROM '_([0-9]{1,18})$')::bigint AND s.logicalrelid = b.oid
              AND shard_name(s.logicalrelid, s.shardid) IN (quote_ident(TG_TABLE_NAME), hashindex_rows)
        )) END
    ) THEN
        RETURN NULL;
    END IF;
    -- A shard cannot tell searches on other nodes that it lacks codes, so the write is refused.
    PERFORM hashindex._require_trust('public', 'golden', '{}', '{id,embedding}', 'citus_tests_shards');
    IF TG_OP = 'TRUNCATE' THEN
        -- Citus fires TRUNCATE triggers on the node that got the statement, and none on shards.
        TRUNCATE hashindex.citus_tests_shards_codes_GENERATION;
        RETURN NULL;
    ELSIF TG_OP = 'DELETE' THEN
        hashindex_touched := ARRAY(SELECT o.id FROM old_rows o);
    ELSIF TG_OP = 'INSERT' THEN
        hashindex_touched := ARRAY(SELECT n.id FROM new_rows n);
    ELSE
        -- A row cannot leave its shard; by a key of several columns it may get another key in it. A full join is never a nested loop: the plan is kept, and the next
        -- statement may write many rows.
        hashindex_touched := ARRAY(
            SELECT coalesce(n.id, o.id) FROM old_rows o FULL JOIN new_rows n ON n.id = o.id WHERE ((n.embedding OPERATOR(public.=) o.embedding) IS NOT TRUE AND (n.embedding IS NOT NULL OR o.embedding IS NOT NULL))
        );
    END IF;
    IF cardinality(hashindex_touched) = 0 THEN
        RETURN NULL;
    END IF;
    PERFORM hashindex.refresh_citus_tests_shards(hashindex_touched, hashindex_rows);
    RETURN NULL;
END
$function$;
