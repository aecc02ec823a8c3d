CREATE OR REPLACE FUNCTION hashindex.refresh_SET(keys bigint[])
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET plan_cache_mode TO 'force_generic_plan'
 SET enable_seqscan TO 'off'
 SET jit TO 'off'
AS $function$
DECLARE
    hashindex_effort text := coalesce(nullif(current_setting('hnsw.ef_search', true), ''), '40');
    hashindex_set text;
    hashindex_id pg_catalog.int8;
BEGIN
    FOR hashindex_id IN SELECT DISTINCT k.id FROM unnest($1) k(id) LOOP
        -- With 12, 91 rows in 100 get their nearest landmark, as in a build; 16 takes an eighth longer, and 93 get it.
        hashindex_set := set_config('hnsw.ef_search', '12', true);
        INSERT INTO hashindex.set_SET_codes AS c (id, landmark, code)
        SELECT r.id, (SELECT l.landmark FROM hashindex.set_SET_landmarks l ORDER BY l.centre OPERATOR(public.<->) CASE WHEN public.vector_norm(r.projection) < 65504 THEN r.projection ELSE public.l2_normalize(r.projection) END::public.halfvec(16) LIMIT 1), public.binary_quantize((r.projection OPERATOR(public.||) r.projection OPERATOR(public.||) r.projection OPERATOR(public.-) hashindex._cut_vector(16, '{-0.5,0,0.5}')))
        FROM (
            SELECT raw.*, (SELECT ARRAY(SELECT public.inner_product(f.w, x.v) FROM (SELECT unnest(((hashindex._layers_of(MODEL))[2]).weights) AS w OFFSET 0) f)::public.vector OPERATOR(public.+) ((hashindex._layers_of(MODEL))[2]).bias FROM (SELECT public.l2_normalize(raw.vector) AS v OFFSET 0) x) AS projection
            FROM (
                SELECT b.id AS id, CASE WHEN public.vector_dims(b.embedding) = 8 THEN b.embedding::public.vector(8)
                    ELSE hashindex._refuse_vector(b.embedding::public.vector, 8) END AS vector
                -- A deferred constraint allows two rows of a key, until one of them is written again.
                FROM ONLY public.items b WHERE b.id = hashindex_id AND b.embedding IS NOT NULL LIMIT 1
            ) raw OFFSET 0
        ) r
        ON CONFLICT (id) DO UPDATE SET landmark = excluded.landmark, code = excluded.code;
        hashindex_set := set_config('hnsw.ef_search', hashindex_effort, true);
        IF NOT FOUND THEN
            DELETE FROM hashindex.set_SET_codes c WHERE c.id = hashindex_id AND NOT EXISTS (
                SELECT FROM ONLY public.items b WHERE b.id = c.id AND b.embedding IS NOT NULL OFFSET 0
            );
        END IF;
    END LOOP;
END
$function$;

CREATE OR REPLACE FUNCTION hashindex.search_landmarks(query anycompatible, k integer DEFAULT 10, candidates integer DEFAULT NULL::integer, effort integer DEFAULT NULL::integer, filter text DEFAULT NULL::text, where_equals jsonb DEFAULT NULL::jsonb, caller_path text DEFAULT current_setting('search_path'::text), by_code boolean DEFAULT false)
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
    -- The casts copy a vector that a subquery took from a table out of TOAST, once instead of for every row that it is compared with.
    hashindex_query public.vector := CASE WHEN public.vector_dims($1::public.vector) = 8 THEN $1::public.vector(8) ELSE hashindex._refuse_vector($1::public.vector, 8) END;
    hashindex_point public.vector := hashindex_query;
    hashindex_k integer := CASE WHEN $2 > 0 THEN $2 ELSE hashindex._refuse('k', $2, '1 or more') END;
    hashindex_n integer := CASE WHEN coalesce($3, 200) > 0 THEN greatest(coalesce($3, hashindex._candidates_for($2, 200)), $2) ELSE hashindex._refuse('candidates', $3, '1 or more') END;
    hashindex_probes integer := CASE WHEN coalesce($4, 80) BETWEEN 1 AND 1000 THEN coalesce($4, 80) ELSE hashindex._refuse('effort', $4, '1 to 1000') END;
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
    hashindex_projection public.vector;
    hashindex_codes bit varying[];
    hashindex_u1 "bit";
    hashindex_u2 "bit";
    hashindex_u3 "bit";
    hashindex_u4 "bit";
    hashindex_u5 "bit";
    hashindex_near public.halfvec;
    hashindex_lists integer[];
    hashindex_ids pg_catalog.int8[];
    hashindex_count bigint;
    hashindex_found integer := 0;
    hashindex_exactly boolean;
    hashindex_ef_search text := coalesce(nullif(current_setting('hnsw.ef_search', true), ''), '40');
    hashindex_done text;
BEGIN
    -- Whatever names tables that may be gone. A block of its own: inside one with a handler a standby that is in conflict with recovery ends the
    -- session, not the statement.
    BEGIN
        IF $5 IS NOT NULL OR hashindex_equals IS NOT NULL THEN
            hashindex_filter := hashindex._filter_of(
                hashindex.find_index('landmarks'), $5, CASE WHEN hashindex_condition IS NULL THEN hashindex_equals ELSE coalesce(hashindex_equals, '{}') END, caller_path
            );
            -- The filter's share, within the tenant.
            hashindex_rows := CASE WHEN hashindex_condition IS NULL THEN hashindex._estimated_rows('public.items'::regclass)
                ELSE (hashindex._estimate('SELECT FROM public.items WHERE ' || hashindex_condition, 'pg_catalog, pg_temp')).matching END;
            hashindex_condition := concat_ws(' AND ', hashindex_filter, hashindex_condition);
            -- Without brackets, since a filter is one condition, and not a part of a statement, nor several.
            SELECT e.matching, e.cost INTO hashindex_matching, hashindex_cost FROM hashindex._estimate('SELECT FROM public.items WHERE ' || hashindex_condition || E'\nLIMIT ALL', hashindex_path) e;
            hashindex_share := least(1, greatest(hashindex_matching, 1) / greatest(hashindex_rows, 1));
            -- Two standard deviations above the number wanted, so that one batch is nearly always enough.
            hashindex_needed := hashindex_n + 2 * sqrt(hashindex_n);
            hashindex_n := least(ceil(hashindex_needed / hashindex_share), 2147483647);
            -- The nearest matching rows are spread over more lists than the nearest rows.
            hashindex_probes := ceil(hashindex_probes * sqrt(1 / hashindex_share));
        END IF;
        -- Compares the cost of reading and checking all rows with 2 ms and 5 us for each row that is looked up.
        hashindex_exactly := coalesce(NOT by_code AND hashindex_cost + hashindex_matching * hashindex._row_cost(8) <= 2000 + 5 * hashindex_wanted::double precision / hashindex_share, false)
            OR (row_security_active('public.items')
            OR has_column_privilege(to_regclass('hashindex.set_SET_codes'), 'code', 'SELECT') IS NOT TRUE
            OR NOT to_regclass('hashindex.set_SET_landmarks') IS NOT NULL
            OR NOT EXISTS (SELECT FROM hashindex.index_set x, pg_trigger t WHERE x.id = SET AND x.state = 'used' AND x.encoded AND (x.table_oid = t.tgrelid) = (x.codes_oid = to_regclass('hashindex.set_SET_codes'))
            AND t.tgrelid = 'public.items'::regclass AND t.tgname = 'hashindex_landmarks_insert' AND t.tgfoid = to_regproc('hashindex.sync_landmarks')
            AND NOT EXISTS (SELECT FROM pg_inherits h WHERE 'public.items'::regclass IN (h.inhrelid, h.inhparent))));
        -- Locks the table first, then codes, in the order that all other functions use.
        PERFORM public.items.id, public.items.embedding FROM public.items WHERE false;
        IF NOT hashindex_exactly THEN
            PERFORM FROM hashindex.set_SET_codes WHERE false;
            PERFORM FROM hashindex.set_SET_landmarks WHERE false;
        END IF;
    EXCEPTION WHEN undefined_table OR undefined_column THEN
        PERFORM hashindex._refuse_renamed(hashindex.find_index('landmarks'));
        -- A build may have dropped these codes meanwhile. The function is another one then.
        IF hashindex_exactly IS NOT false OR (to_regclass('hashindex.set_SET_codes') IS NOT NULL AND to_regclass('hashindex.set_SET_landmarks') IS NOT NULL) THEN
            RAISE;
        END IF;
        RETURN QUERY SELECT s.id, s.distance FROM hashindex.search_landmarks($1, $2, $3, $4, $5, $6, $7, $8) s;
        RETURN;
    END;
    IF hashindex_exactly THEN
        RETURN QUERY SELECT a.id::pg_catalog.int8, a.distance FROM hashindex._exact_search('public.items'::regclass, '{id}', 'embedding', 'cosine', hashindex_query, hashindex_k, hashindex_condition, hashindex_path) a;
        RETURN;
    END IF;
    -- A caller without rights on codes has none on models.
    hashindex_projection := (SELECT ARRAY(SELECT public.inner_product(f.w, x.v) FROM (SELECT unnest(((hashindex._layers_of(MODEL))[2]).weights) AS w OFFSET 0) f)::public.vector OPERATOR(public.+) ((hashindex._layers_of(MODEL))[2]).bias FROM (SELECT public.l2_normalize(hashindex_query) AS v OFFSET 0) x);
    hashindex_codes := hashindex._asymmetric_codes((hashindex_projection OPERATOR(public.||) hashindex_projection OPERATOR(public.||) hashindex_projection OPERATOR(public.-) hashindex._cut_vector(16, '{-0.5,0,0.5}')), hashindex._steps(48));
    hashindex_u1 := hashindex_codes[1];
    hashindex_u2 := hashindex_codes[2];
    hashindex_u3 := hashindex_codes[3];
    hashindex_u4 := hashindex_codes[4];
    hashindex_u5 := hashindex_codes[5];
    hashindex_near := CASE WHEN public.vector_norm(hashindex_projection) < 65504 THEN hashindex_projection ELSE public.l2_normalize(hashindex_projection) END::public.halfvec(16);
    LOOP
        IF hashindex_probes <= 64 THEN
            -- Not a SET clause: only superusers may restore one before pgvector is loaded.
            hashindex_done := set_config('hnsw.ef_search', greatest(hashindex_probes, least(64, 16 + 2 * hashindex_probes))::text, true);
            hashindex_done := set_config('enable_indexscan', 'on', true);
            hashindex_lists := ARRAY(SELECT l.landmark FROM hashindex.set_SET_landmarks l ORDER BY l.centre OPERATOR(public.<->) hashindex_near LIMIT hashindex_probes);
            hashindex_done := set_config('hnsw.ef_search', hashindex_ef_search, true);
            hashindex_done := set_config('enable_indexscan', 'off', true);
        ELSE
            -- With more effort, comparing all is faster.
            hashindex_lists := ARRAY(SELECT l.landmark FROM hashindex.set_SET_landmarks l ORDER BY (l.centre OPERATOR(public.<->) hashindex_near) + 0 LIMIT hashindex_probes);
        END IF;
        hashindex_ids := ARRAY(SELECT c.id FROM (
            SELECT c.id FROM hashindex.set_SET_codes c WHERE c.landmark = ANY (hashindex_lists) OR c.landmark IS NULL ORDER BY 4 * (c.code OPERATOR(public.<~>) hashindex_u1) + 2 * (c.code OPERATOR(public.<~>) hashindex_u2) + (c.code OPERATOR(public.<~>) hashindex_u3) LIMIT hashindex_n
        ) c);
        IF cardinality(hashindex_ids) < hashindex_n AND cardinality(hashindex_lists) >= hashindex_probes THEN
            hashindex_probes := 8 * hashindex_probes;
            CONTINUE;
        END IF;
        IF by_code THEN
            RETURN QUERY SELECT c.id, (4 * (c.code OPERATOR(public.<~>) hashindex_u1) + 2 * (c.code OPERATOR(public.<~>) hashindex_u2) + (c.code OPERATOR(public.<~>) hashindex_u3))::double precision AS distance FROM hashindex.set_SET_codes c WHERE c.id OPERATOR(pg_catalog.=) ANY (hashindex_ids) ORDER BY distance, c.id;
            RETURN;
        END IF;
        hashindex_count := 0;
        IF hashindex_filter IS NULL THEN
            -- There is no bitmap over keys of several columns.
            hashindex_done := set_config('enable_indexscan', 'false', true);
            FOR id, distance, hashindex_count IN
                SELECT r.id, r.distance, count(*) OVER ()
                FROM (
                    SELECT public.items.id AS id, public.items.embedding OPERATOR(public.<=>) hashindex_point AS distance
                    FROM public.items
                    WHERE public.items.id OPERATOR(pg_catalog.=) ANY (hashindex_ids) AND public.items.embedding IS NOT NULL
                ) r
                WHERE r.distance OPERATOR(pg_catalog.<>) 'NaN' OR (hashindex_point OPERATOR(public.<=>) hashindex_point) OPERATOR(pg_catalog.=) 'NaN'
                ORDER BY r.distance, r.id LIMIT hashindex_k
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
        FOR id, distance, hashindex_count IN EXECUTE '
            SELECT r.id, r.distance, pg_catalog.count(*) OVER ()
            FROM (
                SELECT public.items.id AS id, public.items.embedding OPERATOR(public.<=>) $1 AS distance
                FROM public.items
                WHERE public.items.id OPERATOR(pg_catalog.=) ANY ($2) AND public.items.embedding IS NOT NULL AND (' OPERATOR(pg_catalog.||) hashindex_condition OPERATOR(pg_catalog.||) '
                ) OFFSET 0
            ) r
            WHERE r.distance OPERATOR(pg_catalog.<>) ''NaN'' OR ($1 OPERATOR(public.<=>) $1) OPERATOR(pg_catalog.=) ''NaN''
            ORDER BY r.distance, r.id LIMIT $3
        ' USING hashindex_point, hashindex_ids, hashindex_k
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
        RETURN QUERY SELECT a.id::pg_catalog.int8, a.distance FROM hashindex._exact_search('public.items'::regclass, '{id}', 'embedding', 'cosine', hashindex_query, hashindex_k, hashindex_condition, hashindex_path) a;
    END IF;
END
$function$;

CREATE OR REPLACE FUNCTION hashindex.sync_landmarks()
 RETURNS trigger
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET row_security TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
 SET enable_seqscan TO 'off'
 SET jit TO 'off'
AS $function$
DECLARE
    hashindex_effort text := coalesce(nullif(current_setting('hnsw.ef_search', true), ''), '40');
    hashindex_set text;
    hashindex_id pg_catalog.int8;
    hashindex_strict boolean := current_setting('transaction_isolation') IN ('repeatable read', 'serializable');
    -- Not if a column was renamed or dropped, and the codes wait for pg-hashindex index repair.
    hashindex_readable boolean := NOT EXISTS (
        SELECT FROM unnest('{id,embedding}'::text[]) k(name) WHERE NOT EXISTS (SELECT FROM pg_attribute w WHERE w.attrelid = TG_RELID AND w.attname = k.name)
    );
    hashindex_former boolean := TG_OP = 'DELETE';
BEGIN
    IF TG_OP = 'UPDATE' AND hashindex_readable THEN
        -- Most updates change none of these. Not one condition: the trigger outlives a column that was dropped.
        IF NOT record_image_ne(ROW(OLD.id, OLD.embedding), ROW(NEW.id, NEW.embedding)) THEN
            RETURN NULL;
        END IF;
    END IF;
    hashindex_readable := hashindex_readable AND (TG_TABLE_SCHEMA, TG_TABLE_NAME) = ('public', 'items') AND (EXISTS (SELECT FROM pg_class c WHERE c.oid = TG_RELID AND pg_has_role(c.relowner, current_user, 'USAGE') AND (NOT hashindex_strict OR c.xmax = '0'::xid)) OR NOT EXISTS (SELECT FROM hashindex._other_owners(TG_RELID, '{id,embedding}')));
    IF NOT hashindex_readable THEN
        -- A statement that named the table of another owner would run his code, and so would a conversion of a value. Codes are deleted
        -- instead, and searches are exact until pg-hashindex index encode has made them again.
        UPDATE hashindex.index_set x SET encoded = false WHERE x.encoded AND x.index_name = 'landmarks';
        IF TG_OP = 'TRUNCATE' OR EXISTS (
            SELECT FROM unnest('{id,embedding}'::text[], '{bigint,public.vector}'::regtype[]) k(name, type)
            WHERE NOT EXISTS (SELECT FROM pg_attribute w WHERE w.attrelid = TG_RELID AND (w.attname, w.atttypid) = (k.name, k.type))
        ) THEN
            DELETE FROM hashindex.set_SET_codes;

            RETURN NULL;
        END IF;
    ELSIF TG_OP = 'TRUNCATE' THEN
        TRUNCATE hashindex.set_SET_codes;

        RETURN NULL;
    ELSIF TG_OP <> 'DELETE' THEN
        IF pg_typeof(NEW.id) <> 'bigint'::regtype THEN
            -- A key or the tenant has another type now. What fits into the former one is written all the same.
            PERFORM hashindex._require_read(TG_RELID, '{id,embedding}', format('Run: pg-hashindex index repair %s', 'landmarks'));
            BEGIN
                PERFORM NEW.id = NEW.id::text::bigint;
            EXCEPTION WHEN data_exception OR undefined_function THEN
                RAISE EXCEPTION 'columns of % have other types than index "%" keeps: %', TG_RELID::regclass, 'landmarks', SQLERRM
                    USING ERRCODE = 'datatype_mismatch', HINT = format('Run: pg-hashindex index repair %s', 'landmarks');
            END;
        END IF;
    END IF;
    LOOP
        IF hashindex_former THEN
            hashindex_id := OLD.id;
        ELSE
            hashindex_id := NEW.id;
        END IF;
        IF hashindex_strict THEN
        IF NOT EXISTS (SELECT FROM hashindex.index_set x WHERE x.id = SET AND x.state = 'used' AND x.generation = 1) THEN
            RAISE EXCEPTION 'index "%" has been built again since this transaction began', 'landmarks'
                USING ERRCODE = 'serialization_failure', HINT = 'Run it again.';
        END IF;
            -- DELETE does not see a code that was committed after this transaction's snapshot. This INSERT conflicts with it and raises
            -- the serialization failure that callers of these isolation levels expect.
            INSERT INTO hashindex.set_SET_codes AS c (id, code) VALUES (hashindex_id, 0::bit(48))
            ON CONFLICT (id) DO UPDATE SET code = c.code;
            -- If another transaction deleted a row and this one inserted its key again, the snapshot shows both rows.
            IF hashindex_readable AND (SELECT count(*) FROM ONLY public.items b WHERE b.id = hashindex_id) > 1 THEN
                RAISE EXCEPTION 'could not serialize access due to concurrent delete'
                    USING ERRCODE = 'serialization_failure', HINT = 'Run the transaction again.';
            END IF;
        END IF;
        IF NOT hashindex_readable THEN
            DELETE FROM hashindex.set_SET_codes c WHERE c.id = hashindex_id;
        ELSIF hashindex_former AND NOT EXISTS (SELECT FROM ONLY public.items b WHERE b.id = hashindex_id) THEN
            DELETE FROM hashindex.set_SET_codes c WHERE c.id = hashindex_id;
        ELSE
        -- With 12, 91 rows in 100 get their nearest landmark, as in a build; 16 takes an eighth longer, and 93 get it.
        hashindex_set := set_config('hnsw.ef_search', '12', true);
        INSERT INTO hashindex.set_SET_codes AS c (id, landmark, code)
        SELECT r.id, (SELECT l.landmark FROM hashindex.set_SET_landmarks l ORDER BY l.centre OPERATOR(public.<->) CASE WHEN public.vector_norm(r.projection) < 65504 THEN r.projection ELSE public.l2_normalize(r.projection) END::public.halfvec(16) LIMIT 1), public.binary_quantize((r.projection OPERATOR(public.||) r.projection OPERATOR(public.||) r.projection OPERATOR(public.-) hashindex._cut_vector(16, '{-0.5,0,0.5}')))
        FROM (
            SELECT raw.*, (SELECT ARRAY(SELECT public.inner_product(f.w, x.v) FROM (SELECT unnest(((hashindex._layers_of(MODEL))[2]).weights) AS w OFFSET 0) f)::public.vector OPERATOR(public.+) ((hashindex._layers_of(MODEL))[2]).bias FROM (SELECT public.l2_normalize(raw.vector) AS v OFFSET 0) x) AS projection
            FROM (
                SELECT b.id AS id, CASE WHEN public.vector_dims(b.embedding) = 8 THEN b.embedding::public.vector(8)
                    ELSE hashindex._refuse_vector(b.embedding::public.vector, 8) END AS vector
                -- A deferred constraint allows two rows of a key, until one of them is written again.
                FROM ONLY public.items b WHERE b.id = hashindex_id AND b.embedding IS NOT NULL LIMIT 1
            ) raw OFFSET 0
        ) r
        ON CONFLICT (id) DO UPDATE SET landmark = excluded.landmark, code = excluded.code;
        hashindex_set := set_config('hnsw.ef_search', hashindex_effort, true);
        IF NOT FOUND THEN
            DELETE FROM hashindex.set_SET_codes c WHERE c.id = hashindex_id AND NOT EXISTS (
                SELECT FROM ONLY public.items b WHERE b.id = c.id AND b.embedding IS NOT NULL OFFSET 0
            );
        END IF;
        END IF;
        -- An update that changes the key writes both.
        EXIT WHEN hashindex_former OR TG_OP = 'INSERT' OR NEW.id = OLD.id;
        hashindex_former := true;
    END LOOP;
    RETURN NULL;
END
$function$;
