CREATE OR REPLACE FUNCTION hashindex.candidates_column_weighted(query anycompatible, n integer DEFAULT NULL::integer, probes integer DEFAULT NULL::integer, filter text DEFAULT NULL::text, query_code bit varying DEFAULT NULL::bit varying, checked boolean DEFAULT false)
 RETURNS TABLE(id bigint)
 LANGUAGE plpgsql
 STABLE ROWS 200
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET jit TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
 SET enable_seqscan TO 'on'
 SET enable_indexscan TO 'on'
AS $function$
#variable_conflict use_column
DECLARE
    hashindex_query public.vector := CASE WHEN public.vector_dims($1::public.vector) = 8 THEN $1::public.vector(8) ELSE hashindex._refuse_vector($1::public.vector, 8) END;
    hashindex_n integer := CASE WHEN coalesce($2, 200) > 0 THEN coalesce($2, 200) ELSE hashindex._refuse('n', $2, '1 or more') END;
BEGIN
    IF NOT checked AND (NOT has_column_privilege('public.items', 'column_weighted_code', 'SELECT') OR NOT EXISTS (SELECT FROM hashindex.readable_model m WHERE m.id = MODEL) OR NOT EXISTS (SELECT FROM hashindex.index x WHERE x.name = 'column_weighted' AND x.generation = GENERATION AND x.encoded) OR NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = 'public.items'::regclass AND t.tgname = 'zz_hashindex_column_weighted' AND t.tgfoid = to_regproc('hashindex.sync_column_weighted'))) THEN
        RETURN QUERY SELECT e.id::pg_catalog.int8 FROM hashindex._exact_search('public.items'::regclass, '{id}', 'embedding', 'l2', '{}'::text[], hashindex_query, hashindex_n, $4) e;
        RETURN;
    END IF;
    -- Before the model is read: a caller without rights on codes has none on models.
    DECLARE
        hashindex_projection public.vector := CASE WHEN query_code IS NULL OR hashindex._checked_code(query_code, NULL) IS NULL THEN (SELECT ARRAY(SELECT public.inner_product(f.w, x.v) FROM (SELECT unnest(((hashindex._layers_of(MODEL))[2]).weights) AS w OFFSET 0) f)::public.vector OPERATOR(public.+) ((hashindex._layers_of(MODEL))[2]).bias FROM (SELECT public.l2_normalize(hashindex_query) AS v OFFSET 0) x) END;
        hashindex_codes bit varying[] := hashindex._weighted_codes(hashindex._quantize(hashindex_projection, 2), '{0101010101010101,0011001100110011,0000111100001111,0000000011111111}');
        hashindex_u1 "bit" := hashindex_codes[1];
        hashindex_u2 "bit" := hashindex_codes[2];
        hashindex_u3 "bit" := hashindex_codes[3];
        hashindex_u4 "bit" := hashindex_codes[4];
        hashindex_u5 "bit" := hashindex_codes[5];
        hashindex_scale double precision := NULL;
        hashindex_ids pg_catalog.int8[];
        hashindex_pool bigint := greatest(10 * hashindex_n::bigint, 2000);
    BEGIN
        -- Compares every code with the query.
        IF $4 IS NULL THEN
            hashindex_ids := ARRAY(SELECT c.id FROM (SELECT c.id, c.code FROM (SELECT b.id::pg_catalog.int8 AS id, b.column_weighted_code AS code FROM public.items b WHERE b.column_weighted_code IS NOT NULL) c ORDER BY 0 + (c.code OPERATOR(public.<~>) hashindex_u1) LIMIT hashindex_pool) c ORDER BY 15 * (c.code OPERATOR(public.<~>) hashindex_u1) + (c.code OPERATOR(public.<~>) hashindex_u2) + 2 * (c.code OPERATOR(public.<~>) hashindex_u3) + 4 * (c.code OPERATOR(public.<~>) hashindex_u4) + 8 * (c.code OPERATOR(public.<~>) hashindex_u5) LIMIT hashindex_n);
            RETURN QUERY SELECT unnest(hashindex_ids);
        ELSE
            RETURN QUERY EXECUTE format('SELECT public.items.id::pg_catalog.int8 FROM public.items WHERE public.items.column_weighted_code IS NOT NULL AND %1$s AND (%2$s
) ORDER BY 15 * (public.items.column_weighted_code OPERATOR(public.<~>) $1) + (public.items.column_weighted_code OPERATOR(public.<~>) $2) + 2 * (public.items.column_weighted_code OPERATOR(public.<~>) $3) + 4 * (public.items.column_weighted_code OPERATOR(public.<~>) $4) + 8 * (public.items.column_weighted_code OPERATOR(public.<~>) $5) LIMIT $6', 'true', $4)
            USING hashindex_u1, hashindex_u2, hashindex_u3, hashindex_u4, hashindex_u5, hashindex_n, hashindex_scale;
        END IF;
    EXCEPTION WHEN undefined_table THEN
        -- A build may have dropped these codes since this statement began. The function is another one then.
        IF (to_regclass('public.items') IS NOT NULL AND true) THEN
            RAISE;
        END IF;
        RETURN QUERY SELECT c.id FROM hashindex.candidates_column_weighted($1, $2, $3, $4, $5) c;
    END;
END
$function$;

CREATE OR REPLACE FUNCTION hashindex.search_column_weighted(query anycompatible, k integer DEFAULT 10, candidates integer DEFAULT NULL::integer, probes integer DEFAULT NULL::integer, query_code bit varying DEFAULT NULL::bit varying, filter text DEFAULT NULL::text, where_equals jsonb DEFAULT NULL::jsonb, caller_path text DEFAULT current_setting('search_path'::text))
 RETURNS TABLE(id bigint, distance double precision)
 LANGUAGE plpgsql
 STABLE ROWS 10
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET jit TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
 SET enable_indexscan TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    -- The casts copy a vector that a subquery took from a table out of TOAST, once instead of for every row that it is compared with.
    hashindex_query public.vector := CASE WHEN public.vector_dims($1::public.vector) = 8 THEN $1::public.vector(8) ELSE hashindex._refuse_vector($1::public.vector, 8) END;
    hashindex_point public.vector := hashindex_query;
    hashindex_k integer := CASE WHEN $2 > 0 THEN $2 ELSE hashindex._refuse('k', $2, '1 or more') END;
    hashindex_n integer := CASE WHEN coalesce($3, 200) > 0 THEN greatest(coalesce($3, hashindex._candidates_for($2, 200)), $2) ELSE hashindex._refuse('candidates', $3, '1 or more') END;
    hashindex_ids pg_catalog.int8[];
    hashindex_distances double precision[];
BEGIN
    IF $6 IS NOT NULL OR $7 <> '{}' THEN
        RETURN QUERY SELECT f.id::pg_catalog.int8, f.distance
        FROM hashindex._filtered_search(hashindex.find_index('column_weighted'), hashindex_query, $2, $3, $4, $5, $6, $7, $8) f;
        RETURN;
    ELSIF NOT (NOT has_column_privilege('public.items', 'column_weighted_code', 'SELECT') OR NOT EXISTS (SELECT FROM hashindex.readable_model m WHERE m.id = MODEL) OR NOT EXISTS (SELECT FROM hashindex.index x WHERE x.name = 'column_weighted' AND x.generation = GENERATION AND x.encoded) OR NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = 'public.items'::regclass AND t.tgname = 'zz_hashindex_column_weighted' AND t.tgfoid = to_regproc('hashindex.sync_column_weighted'))) THEN
        SELECT array_agg(r.id), array_agg(r.distance) INTO hashindex_ids, hashindex_distances
        FROM (
            SELECT public.items.id::pg_catalog.int8 AS id, public.items.embedding OPERATOR(public.<->) hashindex_point AS distance
            FROM public.items
            WHERE public.items.id = ANY (ARRAY(
                SELECT c.id FROM hashindex.candidates_column_weighted(hashindex_query, hashindex_n, $4, NULL, $5, true) c
            )) AND public.items.embedding IS NOT NULL
            ORDER BY distance, id
            LIMIT hashindex_k
        ) r
        WHERE true;
        IF cardinality(hashindex_ids) = hashindex_k THEN
            RETURN QUERY SELECT unnest(hashindex_ids), unnest(hashindex_distances);
            RETURN;
        END IF;
    END IF;
    -- Also if codes led to fewer than k rows: rows may lack a code, and rows of codes may have gone with a partition.
    RETURN QUERY SELECT e.id::pg_catalog.int8, e.distance FROM hashindex._exact_search('public.items'::regclass, '{id}', 'embedding', 'l2', '{}'::text[], hashindex_query, hashindex_k) e;
END
$function$;

CREATE OR REPLACE FUNCTION hashindex.sync_column_weighted()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    -- public.vector: a session forgets the column's type of its first write only when this text changes, so the text names the type.
    IF TG_OP = 'INSERT' OR ((NEW.embedding OPERATOR(public.=) OLD.embedding) IS NOT TRUE AND (NEW.embedding IS NOT NULL OR OLD.embedding IS NOT NULL)) THEN
        NEW.column_weighted_code := NULL;
        IF NEW.embedding IS NOT NULL THEN
            IF public.vector_dims(NEW.embedding) <> 8 THEN
                PERFORM hashindex._refuse_vector(NEW.embedding::public.vector, 8);
            END IF;
            NEW.column_weighted_code := (SELECT public.binary_quantize(r.projection) FROM (SELECT (SELECT ARRAY(SELECT public.inner_product(f.w, x.v) FROM (SELECT unnest(((hashindex._layers_of(MODEL))[2]).weights) AS w OFFSET 0) f)::public.vector OPERATOR(public.+) ((hashindex._layers_of(MODEL))[2]).bias FROM (SELECT public.l2_normalize(raw.vector) AS v OFFSET 0) x) AS projection FROM (SELECT NEW.embedding::public.vector AS vector OFFSET 0) raw OFFSET 0) r);
        END IF;
    END IF;
    RETURN NEW;
END
$function$;

CREATE OR REPLACE FUNCTION hashindex.within_column_weighted(query anycompatible, radius integer, query_code bit varying DEFAULT NULL::bit varying)
 RETURNS TABLE(id bigint, distance integer)
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
    PERFORM hashindex._check_column_dimension('public.items', 'embedding', 8);
    PERFORM hashindex._require_codes('column_weighted', 'public.items', EXISTS (SELECT FROM hashindex.index x WHERE x.name = 'column_weighted' AND x.generation = GENERATION AND x.encoded), EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = 'public.items'::regclass AND t.tgname = 'zz_hashindex_column_weighted' AND t.tgfoid = to_regproc('hashindex.sync_column_weighted')));
    RETURN QUERY SELECT c.id, bit_count(c.code # hashindex_code)::integer AS distance
    FROM (SELECT b.id::pg_catalog.int8 AS id, b.column_weighted_code AS code FROM public.items b WHERE b.column_weighted_code IS NOT NULL) c
    WHERE bit_count(c.code # hashindex_code) <= hashindex_radius
    ORDER BY distance, id;
EXCEPTION WHEN undefined_table THEN
    -- A build may have dropped these codes since this statement began.
    PERFORM hashindex._require_codes('column_weighted', 'public.items', (to_regclass('public.items') IS NOT NULL AND true), true);
    RAISE;
END
$function$;
