CREATE OR REPLACE FUNCTION hashindex.candidates_several_keys(query anycompatible, n integer DEFAULT NULL::integer, probes integer DEFAULT NULL::integer, filter text DEFAULT NULL::text, query_code bit varying DEFAULT NULL::bit varying, checked boolean DEFAULT false)
 RETURNS TABLE(id bigint, day date)
 LANGUAGE plpgsql
 STABLE ROWS 200
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET jit TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
 SET enable_seqscan TO 'off'
 SET enable_indexscan TO 'on'
AS $function$
#variable_conflict use_column
DECLARE
    hashindex_query public.vector := CASE WHEN public.vector_dims($1::public.vector) = 8 THEN $1::public.vector(8) ELSE hashindex._refuse_vector($1::public.vector, 8) END;
    hashindex_n integer := CASE WHEN coalesce($2, 200) > 0 THEN coalesce($2, 200) ELSE hashindex._refuse('n', $2, '1 or more') END;
BEGIN
    IF NOT checked AND (row_security_active('public.posts') OR has_column_privilege(to_regclass('hashindex.several_keys_codes_GENERATION'), 'code', 'SELECT') IS NOT TRUE OR NOT to_regclass('hashindex.several_keys_landmarks_GENERATION') IS NOT NULL OR NOT EXISTS (SELECT FROM hashindex.index x WHERE x.name = 'several_keys' AND x.generation = GENERATION AND x.encoded) OR NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = 'public.posts'::regclass AND t.tgname = 'hashindex_several_keys_insert' AND t.tgfoid = to_regproc('hashindex.sync_several_keys'))) THEN
        RETURN QUERY SELECT json_array_element_text(e.id::json, 0)::pg_catalog.int8, json_array_element_text(e.id::json, 1)::pg_catalog.date FROM hashindex._exact_search('public.posts'::regclass, '{id,day}', 'embedding', 'l2', '{}'::text[], hashindex_query, hashindex_n, $4) e;
        RETURN;
    END IF;
    -- Before the model is read: a caller without rights on codes has none on models.
    DECLARE
        hashindex_projection public.vector := CASE WHEN query_code IS NULL OR hashindex._checked_code(query_code, NULL) IS NULL THEN (SELECT ARRAY(SELECT public.inner_product(f.w, x.v) FROM (SELECT unnest(((hashindex._layers_of(MODEL))[2]).weights) AS w OFFSET 0) f)::public.vector OPERATOR(public.+) ((hashindex._layers_of(MODEL))[2]).bias FROM (SELECT public.l2_normalize(hashindex_query) AS v OFFSET 0) x) END;
        hashindex_codes bit varying[] := hashindex._asymmetric_codes(hashindex_projection, hashindex._steps(16, 2));
        hashindex_u1 "bit" := hashindex_codes[1];
        hashindex_u2 "bit" := hashindex_codes[2];
        hashindex_u3 "bit" := hashindex_codes[3];
        hashindex_u4 "bit" := hashindex_codes[4];
        hashindex_u5 "bit" := hashindex_codes[5];
        hashindex_scale double precision := NULL;
        hashindex_ids hashindex.key_several_keys[];
        n_probes integer := CASE WHEN coalesce($3, 80) BETWEEN 1 AND 1000 THEN coalesce($3, 80) ELSE hashindex._refuse('probes', $3, '1 to 1000') END;
        point public.halfvec := CASE WHEN public.vector_norm(hashindex_query) < 65504 THEN hashindex_query ELSE public.l2_normalize(hashindex_query) END::public.halfvec(8);
        effort text := coalesce(current_setting('hnsw.ef_search', true), '40');
        done text;
        lists integer[];
    BEGIN
        -- Reads the lists of the landmarks nearest to the query. A list is the rows of the code table that have this landmark. Without
        -- index scans they are read by a bitmap scan, for which PostgreSQL asks the disk for many pages at a time. Where lists hold too
        -- few codes, more are read, and finally all.
        WHILE n_probes <= 1000 LOOP
            IF n_probes <= 64 THEN
                -- Not a SET clause: only superusers may restore one before pgvector is loaded.
                done := set_config('hnsw.ef_search', greatest(n_probes, least(64, 16 + 2 * n_probes))::text, true);
                lists := ARRAY(
                    SELECT l.landmark FROM hashindex.several_keys_landmarks_GENERATION l ORDER BY l.centre OPERATOR(public.<->) point LIMIT n_probes
                );
                done := set_config('hnsw.ef_search', effort, true);
            ELSE
                -- For so many, comparing all is faster.
                lists := ARRAY(
                    SELECT l.landmark FROM hashindex.several_keys_landmarks_GENERATION l ORDER BY (l.centre OPERATOR(public.<->) point) + 0 LIMIT n_probes
                );
            END IF;
            done := set_config('enable_indexscan', 'off', true);
            IF $4 IS NULL THEN
                hashindex_ids := ARRAY(
                    SELECT ROW(c.id_1, c.id_2)::hashindex.key_several_keys FROM (SELECT c.id_1, c.id_2 FROM hashindex.several_keys_codes_GENERATION c WHERE c.landmark = ANY (lists) ORDER BY 4 * (c.code OPERATOR(public.<~>) hashindex_u1) + 2 * (c.code OPERATOR(public.<~>) hashindex_u2) + (c.code OPERATOR(public.<~>) hashindex_u3) LIMIT hashindex_n) c(id_1, id_2)
                );
            ELSE
                -- Without the subquery, the planner would look up statistics.
                EXECUTE format('SELECT ARRAY(SELECT ROW(c.id_1, c.id_2)::hashindex.key_several_keys FROM (' || 'SELECT posts.id, posts.day FROM (SELECT c.id_1 AS id, c.id_2 AS day, c.filter_1 AS section, 4 * (c.code OPERATOR(public.<~>) $1) + 2 * (c.code OPERATOR(public.<~>) $2) + (c.code OPERATOR(public.<~>) $3) AS hashindex_distance FROM hashindex.several_keys_codes_GENERATION c WHERE %1$s) posts WHERE (%2$s
) ORDER BY posts.hashindex_distance LIMIT $6' || ') c(id_1, id_2))', 'c.landmark = ANY (ARRAY(SELECT unnest($8)))', $4) INTO hashindex_ids
                USING hashindex_u1, hashindex_u2, hashindex_u3, hashindex_u4, hashindex_u5, hashindex_n, hashindex_scale, lists;
            END IF;
            IF cardinality(hashindex_ids) = hashindex_n THEN
                RETURN QUERY SELECT k.* FROM unnest(hashindex_ids) k;
                RETURN;
            END IF;
            n_probes := 8 * n_probes;
            done := set_config('enable_indexscan', 'on', true);
        END LOOP;
        done := set_config('enable_seqscan', 'on', true);
        RETURN QUERY EXECUTE format('SELECT posts.id, posts.day FROM (SELECT c.id_1 AS id, c.id_2 AS day, c.filter_1 AS section, 4 * (c.code OPERATOR(public.<~>) $1) + 2 * (c.code OPERATOR(public.<~>) $2) + (c.code OPERATOR(public.<~>) $3) AS hashindex_distance FROM hashindex.several_keys_codes_GENERATION c WHERE %1$s) posts WHERE (%2$s
) ORDER BY posts.hashindex_distance LIMIT $6', 'true', coalesce($4, 'true'))
        USING hashindex_u1, hashindex_u2, hashindex_u3, hashindex_u4, hashindex_u5, hashindex_n, hashindex_scale;
    EXCEPTION WHEN undefined_table THEN
        -- A build may have dropped these codes since this statement began. The function is another one then.
        IF (to_regclass('hashindex.several_keys_codes_GENERATION') IS NOT NULL AND to_regclass('hashindex.several_keys_landmarks_GENERATION') IS NOT NULL) THEN
            RAISE;
        END IF;
        RETURN QUERY SELECT c.id, c.day FROM hashindex.candidates_several_keys($1, $2, $3, $4, $5) c;
    END;
END
$function$;

CREATE OR REPLACE FUNCTION hashindex.refresh_several_keys(keys hashindex.key_several_keys[])
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET plan_cache_mode TO 'force_generic_plan'
 SET enable_seqscan TO 'off'
 SET jit TO 'off'
AS $function$
DECLARE
    hashindex_effort text := coalesce(current_setting('hnsw.ef_search', true), '40');
    -- With 16, 97 rows in 100 get their nearest landmark (a build: 91).
    hashindex_set text := set_config('hnsw.ef_search', '16', true);
    hashindex_gone hashindex.key_several_keys;
BEGIN
    FOR hashindex_gone IN SELECT k.* FROM unnest($1) k WHERE NOT EXISTS (
        SELECT FROM public.posts b WHERE b.id = k.id_1 AND b.day = k.id_2 AND b.embedding IS NOT NULL OFFSET 0
    ) LOOP
        DELETE FROM hashindex.several_keys_codes_GENERATION c WHERE c.id_1 = hashindex_gone.id_1 AND c.id_2 = hashindex_gone.id_2;
    END LOOP;
    INSERT INTO hashindex.several_keys_codes_GENERATION AS c (id_1, id_2, landmark, code, filter_1)
    SELECT r.id_1, r.id_2, (SELECT l.landmark FROM hashindex.several_keys_landmarks_GENERATION l ORDER BY l.centre OPERATOR(public.<->) CASE WHEN public.vector_norm(r.vector) < 65504 THEN r.vector ELSE public.l2_normalize(r.vector) END::public.halfvec(8) LIMIT 1), public.binary_quantize(r.projection), r.filter_1
    FROM (
        SELECT raw.*, (SELECT ARRAY(SELECT public.inner_product(f.w, x.v) FROM (SELECT unnest(((hashindex._layers_of(MODEL))[2]).weights) AS w OFFSET 0) f)::public.vector OPERATOR(public.+) ((hashindex._layers_of(MODEL))[2]).bias FROM (SELECT public.l2_normalize(raw.vector) AS v OFFSET 0) x) AS projection
        FROM (
            SELECT b.id AS id_1, b.day AS id_2, b.section AS filter_1, CASE WHEN public.vector_dims(b.embedding) = 8 THEN b.embedding::public.vector(8)
                ELSE hashindex._refuse_vector(b.embedding::public.vector, 8) END AS vector
            FROM (SELECT DISTINCT k.* FROM unnest($1) k) k CROSS JOIN LATERAL (SELECT b.id, b.day, b.embedding, b.section FROM public.posts b WHERE b.id = k.id_1 AND b.day = k.id_2 OFFSET 0) b WHERE true AND b.embedding IS NOT NULL OFFSET 0
        ) raw OFFSET 0
    ) r
    ON CONFLICT (id_1, id_2) DO UPDATE SET landmark = excluded.landmark, code = excluded.code, filter_1 = excluded.filter_1;
    hashindex_set := set_config('hnsw.ef_search', hashindex_effort, true);
END
$function$;

CREATE OR REPLACE FUNCTION hashindex.search_several_keys(query anycompatible, k integer DEFAULT 10, candidates integer DEFAULT NULL::integer, probes integer DEFAULT NULL::integer, query_code bit varying DEFAULT NULL::bit varying, filter text DEFAULT NULL::text, where_equals jsonb DEFAULT NULL::jsonb, caller_path text DEFAULT current_setting('search_path'::text))
 RETURNS TABLE(id bigint, day date, distance double precision)
 LANGUAGE plpgsql
 STABLE ROWS 10
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET jit TO 'off'
 SET plan_cache_mode TO 'force_custom_plan'
AS $function$
#variable_conflict use_column
DECLARE
    -- The casts copy a vector that a subquery took from a table out of TOAST, once instead of for every row that it is compared with.
    hashindex_query public.vector := CASE WHEN public.vector_dims($1::public.vector) = 8 THEN $1::public.vector(8) ELSE hashindex._refuse_vector($1::public.vector, 8) END;
    hashindex_point public.vector := hashindex_query;
    hashindex_k integer := CASE WHEN $2 > 0 THEN $2 ELSE hashindex._refuse('k', $2, '1 or more') END;
    hashindex_n integer := CASE WHEN coalesce($3, 200) > 0 THEN greatest(coalesce($3, hashindex._candidates_for($2, 200)), $2) ELSE hashindex._refuse('candidates', $3, '1 or more') END;
    hashindex_locked boolean;
    hashindex_keys hashindex.key_several_keys[];
    hashindex_part_2 pg_catalog.date[];
    r record;
    hashindex_found integer := 0;
    hashindex_ids hashindex.key_several_keys[];
    hashindex_distances double precision[];
BEGIN
    IF $6 IS NOT NULL OR $7 <> '{}' THEN
        RETURN QUERY SELECT json_array_element_text(f.id::json, 0)::pg_catalog.int8, json_array_element_text(f.id::json, 1)::pg_catalog.date, f.distance
        FROM hashindex._filtered_search(hashindex.find_index('several_keys'), hashindex_query, $2, $3, $4, $5, $6, $7, $8) f;
        RETURN;
    ELSIF NOT (row_security_active('public.posts') OR has_column_privilege(to_regclass('hashindex.several_keys_codes_GENERATION'), 'code', 'SELECT') IS NOT TRUE OR NOT to_regclass('hashindex.several_keys_landmarks_GENERATION') IS NOT NULL OR NOT EXISTS (SELECT FROM hashindex.index x WHERE x.name = 'several_keys' AND x.generation = GENERATION AND x.encoded) OR NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = 'public.posts'::regclass AND t.tgname = 'hashindex_several_keys_insert' AND t.tgfoid = to_regproc('hashindex.sync_several_keys'))) THEN
        -- Locks the table first, then codes, in the order that all other functions use.
        hashindex_locked := EXISTS (SELECT FROM public.posts WHERE false);
        hashindex_keys := ARRAY(SELECT ROW(c.id, c.day)::hashindex.key_several_keys FROM hashindex.candidates_several_keys(hashindex_query, hashindex_n, $4, NULL, $5, true) c);
        hashindex_part_2 := ARRAY(SELECT DISTINCT k.id_2 FROM unnest(hashindex_keys) k);
        -- A loop, since Citus would keep the rows of a subquery with a limit in a file.
        FOR r IN
            SELECT ROW(public.posts.id, public.posts.day)::hashindex.key_several_keys AS id, public.posts.embedding OPERATOR(public.<->) hashindex_point AS distance
            FROM public.posts
            WHERE (public.posts.id, public.posts.day) IN (SELECT k.id_1, k.id_2 FROM unnest(hashindex_keys) k) AND public.posts.day = ANY (hashindex_part_2) AND public.posts.embedding IS NOT NULL
            ORDER BY distance, id
            LIMIT hashindex_k
        LOOP
            CONTINUE WHEN NOT (true);
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
    RETURN QUERY SELECT json_array_element_text(e.id::json, 0)::pg_catalog.int8, json_array_element_text(e.id::json, 1)::pg_catalog.date, e.distance FROM hashindex._exact_search('public.posts'::regclass, '{id,day}', 'embedding', 'l2', '{}'::text[], hashindex_query, hashindex_k) e;
END
$function$;

CREATE OR REPLACE FUNCTION hashindex.sync_several_keys()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET row_security TO 'off'
AS $function$
DECLARE
    hashindex_touched hashindex.key_several_keys[];
BEGIN
    -- A detached partition keeps its triggers, since it may be attached again; but not with other columns, which these statements lack.
    IF (TG_TABLE_SCHEMA, TG_TABLE_NAME) <> ('public', 'posts') AND EXISTS (
        SELECT FROM pg_attribute a WHERE a.attrelid = to_regclass('public.posts') AND a.attname = ANY ('{id,day,embedding,section}')
        AND NOT EXISTS (SELECT FROM pg_attribute w WHERE w.attrelid = TG_RELID AND (w.attname, w.atttypid) = (a.attname, a.atttypid))
    ) THEN
        RETURN NULL;
    END IF;
    IF to_regclass('public.posts') IS NULL AND TG_OP = 'TRUNCATE' THEN
        DELETE FROM hashindex.several_keys_codes_GENERATION;
        RETURN NULL;
    ELSIF TG_OP = 'TRUNCATE' THEN
        IF (TG_TABLE_SCHEMA, TG_TABLE_NAME) = ('public', 'posts') THEN
            TRUNCATE hashindex.several_keys_codes_GENERATION;
        ELSE
            DELETE FROM hashindex.several_keys_codes_GENERATION c WHERE NOT EXISTS (SELECT FROM public.posts b WHERE b.id = c.id_1 AND b.day = c.id_2);
        END IF;
        RETURN NULL;
    ELSIF TG_OP = 'DELETE' THEN
        hashindex_touched := ARRAY(SELECT ROW(o.id, o.day)::hashindex.key_several_keys FROM old_rows o);
    ELSIF TG_OP = 'INSERT' THEN
        hashindex_touched := ARRAY(SELECT ROW(n.id, n.day)::hashindex.key_several_keys FROM new_rows n);
    ELSE
        -- Most updates change neither key, vector nor filter columns. Counting finds keys that came or went: a cascade puts the row
        -- into both tables once more, under its new key.
        hashindex_touched := ARRAY(
            -- A full join, which is never a nested loop: the plan is kept, and the next statement may write many rows.
            SELECT ROW(coalesce(n.id, o.id), coalesce(n.day, o.day))::hashindex.key_several_keys FROM old_rows o FULL JOIN new_rows n ON n.id = o.id AND n.day = o.day WHERE ((n.embedding OPERATOR(public.=) o.embedding) IS NOT TRUE AND (n.embedding IS NOT NULL OR o.embedding IS NOT NULL)) OR record_image_ne(ROW(n.section), ROW(o.section))
            UNION
            SELECT k.id FROM (
                SELECT ROW(n.id, n.day)::hashindex.key_several_keys AS id, 1 AS n FROM new_rows n UNION ALL SELECT ROW(o.id, o.day)::hashindex.key_several_keys, -1 FROM old_rows o
            ) k GROUP BY k.id HAVING sum(k.n) <> 0
        );
    END IF;
    IF cardinality(hashindex_touched) = 0 THEN
        RETURN NULL;
    END IF;
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        IF NOT EXISTS (SELECT FROM hashindex.index x WHERE x.storage = 'several_keys' AND x.generation = GENERATION) THEN
            RAISE EXCEPTION 'index "%" has been built again since this transaction began', 'several_keys'
                USING ERRCODE = 'serialization_failure', HINT = 'Run it again.';
        END IF;
        -- DELETE does not see a code that was committed after this transaction's snapshot. This INSERT conflicts with it and raises
        -- the serialization failure that callers of these isolation levels expect.
        INSERT INTO hashindex.several_keys_codes_GENERATION AS c (id_1, id_2, code) SELECT DISTINCT t.id_1, t.id_2, 0::bit(16) FROM unnest(hashindex_touched) t(id_1, id_2)
        ON CONFLICT (id_1, id_2) DO UPDATE SET code = c.code;
        -- If another transaction deleted a row and this one inserted its key again, the snapshot shows both rows.
        IF EXISTS (SELECT FROM (SELECT DISTINCT k.* FROM unnest(hashindex_touched) k) k CROSS JOIN LATERAL (SELECT b.id, b.day, b.embedding, b.section FROM public.posts b WHERE b.id = k.id_1 AND b.day = k.id_2 OFFSET 0) b WHERE true GROUP BY b.id, b.day HAVING count(*) > 1) THEN
            RAISE EXCEPTION 'could not serialize access due to concurrent delete'
                USING ERRCODE = 'serialization_failure', HINT = 'Run the transaction again.';
        END IF;
    END IF;
    IF to_regclass('public.posts') IS NULL THEN
        -- The table was renamed. Let the write pass; pg-hashindex index rebind takes the new name, and encodes rows without a code.
        DELETE FROM hashindex.several_keys_codes_GENERATION c WHERE (c.id_1, c.id_2) IN (SELECT k.id_1, k.id_2 FROM unnest(hashindex_touched) k);
    ELSE
        PERFORM hashindex.refresh_several_keys(hashindex_touched);
    END IF;
    RETURN NULL;
END
$function$;

CREATE OR REPLACE FUNCTION hashindex.within_several_keys(query anycompatible, radius integer, query_code bit varying DEFAULT NULL::bit varying)
 RETURNS TABLE(id bigint, day date, distance integer)
 LANGUAGE plpgsql
 STABLE ROWS 100
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET jit TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    hashindex_query public.vector := CASE WHEN public.vector_dims($1::public.vector) = 8 THEN $1::public.vector(8) ELSE hashindex._refuse_vector($1::public.vector, 8) END;
    hashindex_radius integer := CASE WHEN $2 BETWEEN 0 AND 16 THEN $2 ELSE hashindex._refuse('radius', $2, '0 to 16, the bits of a code') END;
    hashindex_projection public.vector := CASE WHEN query_code IS NULL OR hashindex._checked_code(query_code, NULL) IS NULL THEN (SELECT ARRAY(SELECT public.inner_product(f.w, x.v) FROM (SELECT unnest(((hashindex._layers_of(MODEL))[2]).weights) AS w OFFSET 0) f)::public.vector OPERATOR(public.+) ((hashindex._layers_of(MODEL))[2]).bias FROM (SELECT public.l2_normalize(hashindex_query) AS v OFFSET 0) x) END;
    hashindex_code bit(16) := hashindex._quantize(hashindex_projection, 2);
BEGIN
    PERFORM hashindex._check_column_dimension('public.posts', 'embedding', 8);
    PERFORM hashindex._require_codes('several_keys', 'public.posts', EXISTS (SELECT FROM hashindex.index x WHERE x.name = 'several_keys' AND x.generation = GENERATION AND x.encoded), EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = 'public.posts'::regclass AND t.tgname = 'hashindex_several_keys_insert' AND t.tgfoid = to_regproc('hashindex.sync_several_keys')));
    RETURN QUERY SELECT c.id_1, c.id_2, bit_count(c.code # hashindex_code)::integer AS distance
    FROM hashindex.several_keys_codes_GENERATION c
    WHERE bit_count(c.code # hashindex_code) <= hashindex_radius
      AND EXISTS (SELECT FROM public.posts WHERE public.posts.id = c.id_1 AND public.posts.day = c.id_2 OFFSET 0)
    ORDER BY distance, id_1, id_2;
EXCEPTION WHEN undefined_table THEN
    -- A build may have dropped these codes since this statement began.
    PERFORM hashindex._require_codes('several_keys', 'public.posts', (to_regclass('hashindex.several_keys_codes_GENERATION') IS NOT NULL AND to_regclass('hashindex.several_keys_landmarks_GENERATION') IS NOT NULL), true);
    RAISE;
END
$function$;
