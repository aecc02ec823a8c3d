CREATE OR REPLACE FUNCTION hashindex.refresh_SET(keys hashindex.tenants_key[])
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
    hashindex_id_1 pg_catalog.text; hashindex_id_2 pg_catalog.int8;
BEGIN
    FOR hashindex_id_1, hashindex_id_2 IN SELECT DISTINCT k.id_1, k.id_2 FROM unnest($1) k(id_1, id_2) LOOP
        -- With 12, 91 rows in 100 get their nearest landmark, as in a build; 16 takes an eighth longer, and 93 get it.
        hashindex_set := set_config('hnsw.ef_search', '12', true);
        INSERT INTO hashindex.set_SET_codes AS c (id_1, id_2, landmark, code, tenant)
        SELECT r.id_1, r.id_2, (SELECT l.landmark FROM hashindex.set_SET_landmarks l WHERE l.leader = ANY (ARRAY(SELECT o.landmark FROM hashindex.set_SET_landmarks o WHERE o.tenant = r.tenant AND o.leader = o.landmark ORDER BY o.centre OPERATOR(public.<->) CASE WHEN public.vector_norm(r.projection) < 65504 THEN r.projection ELSE public.l2_normalize(r.projection) END::public.halfvec(16) LIMIT 8)) ORDER BY l.centre OPERATOR(public.<->) CASE WHEN public.vector_norm(r.projection) < 65504 THEN r.projection ELSE public.l2_normalize(r.projection) END::public.halfvec(16) LIMIT 1), public.binary_quantize((r.projection OPERATOR(public.||) r.projection OPERATOR(public.||) r.projection OPERATOR(public.-) hashindex._cut_vector(16, '{-0.5,0,0.5}'))), r.tenant
        FROM (
            SELECT raw.*, (SELECT ARRAY(SELECT public.inner_product(f.w, x.v) FROM (SELECT unnest(((hashindex._layers_of(MODEL))[2]).weights) AS w OFFSET 0) f)::public.vector OPERATOR(public.+) ((hashindex._layers_of(MODEL))[2]).bias FROM (SELECT public.l2_normalize(raw.vector) AS v OFFSET 0) x) AS projection
            FROM (
                SELECT b.section AS id_1, b.id AS id_2, b.section::pg_catalog.text AS tenant, CASE WHEN public.vector_dims(b.embedding) = 8 THEN b.embedding::public.vector(8)
                    ELSE hashindex._refuse_vector(b.embedding::public.vector, 8) END AS vector
                -- A deferred constraint allows two rows of a key, until one of them is written again.
                FROM ONLY public.posts b WHERE b.section = hashindex_id_1 AND b.id = hashindex_id_2 AND b.embedding IS NOT NULL AND hashindex._fits(b.section::text) LIMIT 1
            ) raw OFFSET 0
        ) r
        ON CONFLICT (id_1, id_2) DO UPDATE SET landmark = excluded.landmark, code = excluded.code, tenant = excluded.tenant;
        hashindex_set := set_config('hnsw.ef_search', hashindex_effort, true);
        IF NOT FOUND THEN
            DELETE FROM hashindex.set_SET_codes c WHERE c.id_1 = hashindex_id_1 AND c.id_2 = hashindex_id_2 AND NOT EXISTS (
                SELECT FROM ONLY public.posts b WHERE b.section = c.id_1 AND b.id = c.id_2 AND b.embedding IS NOT NULL AND hashindex._fits(b.section::text) OFFSET 0
            );
        END IF;
    END LOOP;
END
$function$;

CREATE OR REPLACE FUNCTION hashindex.search_tenants(query anycompatible, k integer DEFAULT 10, candidates integer DEFAULT NULL::integer, effort integer DEFAULT NULL::integer, filter text DEFAULT NULL::text, where_equals jsonb DEFAULT NULL::jsonb, tenant text DEFAULT NULL::text, all_tenants boolean DEFAULT false, caller_path text DEFAULT current_setting('search_path'::text), by_code boolean DEFAULT false)
 RETURNS TABLE(section text, id bigint, distance double precision)
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
    hashindex_point public.halfvec := hashindex_query;
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
    hashindex_ids hashindex.tenants_key[];
    hashindex_count bigint;
    hashindex_found integer := 0;
    hashindex_exactly boolean;
    hashindex_ef_search text := coalesce(nullif(current_setting('hnsw.ef_search', true), ''), '40');
    hashindex_done text;
BEGIN
    -- Whatever names tables that may be gone. A block of its own: inside one with a handler a standby that is in conflict with recovery ends the
    -- session, not the statement.
    BEGIN
        IF $7 IS NULL THEN
            PERFORM hashindex._require_tenant('tenants', 'public.posts', 'section', NULL, $8, $6);
        END IF;
        IF $7 IS NULL AND hashindex_equals IS NOT NULL THEN
            $7 := hashindex._tenant_of(hashindex.find_index('tenants'), hashindex_equals);
            hashindex_equals := nullif(CASE WHEN $7 IS NULL THEN $6 ELSE $6 - 'section' END, '{}');
        END IF;
        IF $7 IS NULL THEN
            -- The rows of all tenants are searched by a filter.
            $5 := coalesce($5, 'true');
        END IF;
        hashindex_condition := 'public.posts.section OPERATOR(pg_catalog.=) ' || quote_literal($7) || '::pg_catalog.text';
        IF $5 IS NOT NULL OR hashindex_equals IS NOT NULL THEN
            hashindex_filter := hashindex._filter_of(
                hashindex.find_index('tenants'), $5, CASE WHEN hashindex_condition IS NULL THEN hashindex_equals ELSE coalesce(hashindex_equals, '{}') END, caller_path
            );
            -- The filter's share, within the tenant.
            hashindex_rows := CASE WHEN hashindex_condition IS NULL THEN hashindex._estimated_rows('public.posts'::regclass)
                ELSE (hashindex._estimate('SELECT FROM public.posts WHERE ' || hashindex_condition, 'pg_catalog, pg_temp')).matching END;
            hashindex_condition := concat_ws(' AND ', hashindex_filter, hashindex_condition);
            -- Without brackets, since a filter is one condition, and not a part of a statement, nor several.
            SELECT e.matching, e.cost INTO hashindex_matching, hashindex_cost FROM hashindex._estimate('SELECT FROM public.posts WHERE ' || hashindex_condition || E'\nLIMIT ALL', hashindex_path) e;
            hashindex_share := least(1, greatest(hashindex_matching, 1) / greatest(hashindex_rows, 1));
            -- Two standard deviations above the number wanted, so that one batch is nearly always enough.
            hashindex_needed := hashindex_n + 2 * sqrt(hashindex_n);
            hashindex_n := least(ceil(hashindex_needed / hashindex_share), 2147483647);
            -- The nearest matching rows are spread over more lists than the nearest rows.
            hashindex_probes := ceil(hashindex_probes * sqrt(1 / hashindex_share));
        END IF;
        -- Compares the cost of reading and checking all rows with 2 ms and 5 us for each row that is looked up.
        hashindex_exactly := coalesce(NOT by_code AND hashindex_cost + hashindex_matching * hashindex._row_cost(8) <= 2000 + 5 * hashindex_wanted::double precision / hashindex_share, false)
            OR ((row_security_active('public.posts') OR row_security_active(to_regclass('hashindex.set_SET_codes')))
            AND hashindex._rows_are_hidden('public.posts', 'hashindex.set_SET_codes')
            OR has_column_privilege(to_regclass('hashindex.set_SET_codes'), 'code', 'SELECT') IS NOT TRUE
            OR NOT to_regclass('hashindex.set_SET_landmarks') IS NOT NULL
            OR NOT EXISTS (SELECT FROM hashindex.index_set x, pg_trigger t WHERE x.id = SET AND x.state = 'used' AND x.encoded AND (x.table_oid = t.tgrelid) = (x.codes_oid = to_regclass('hashindex.set_SET_codes'))
            AND t.tgrelid = 'public.posts'::regclass AND t.tgname = 'hashindex_tenants_insert' AND t.tgfoid = to_regproc('hashindex.sync_tenants')
            AND NOT EXISTS (SELECT FROM pg_inherits h WHERE 'public.posts'::regclass IN (h.inhrelid, h.inhparent))));
        -- Locks the table first, then codes, in the order that all other functions use.
        PERFORM public.posts.section, public.posts.id, public.posts.embedding FROM public.posts WHERE false;
        IF $7 IS NOT NULL THEN
            PERFORM public.posts.section FROM public.posts WHERE false;
        END IF;
        IF NOT hashindex_exactly THEN
            PERFORM FROM hashindex.set_SET_codes WHERE false;
            PERFORM FROM hashindex.set_SET_landmarks WHERE false;
        END IF;
    EXCEPTION WHEN undefined_table OR undefined_column THEN
        PERFORM hashindex._refuse_renamed(hashindex.find_index('tenants'));
        -- A build may have dropped these codes meanwhile. The function is another one then.
        IF hashindex_exactly IS NOT false OR (to_regclass('hashindex.set_SET_codes') IS NOT NULL AND to_regclass('hashindex.set_SET_landmarks') IS NOT NULL) THEN
            RAISE;
        END IF;
        RETURN QUERY SELECT s.section, s.id, s.distance FROM hashindex.search_tenants($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) s;
        RETURN;
    END;
    IF hashindex_exactly THEN
        RETURN QUERY SELECT json_array_element_text(a.id::json, 0)::pg_catalog.text, json_array_element_text(a.id::json, 1)::pg_catalog.int8, a.distance FROM hashindex._exact_search('public.posts'::regclass, '{section,id}', 'embedding', 'cosine', hashindex_query, hashindex_k, hashindex_condition, hashindex_path) a;
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
        -- For the same recall, a tenant of more than 250 lists needs more of them.
        hashindex_lists := CASE WHEN $7 IS NULL
            THEN ARRAY(SELECT l.landmark FROM hashindex.set_SET_landmarks l ORDER BY (l.centre OPERATOR(public.<->) hashindex_near) + 0 LIMIT hashindex_probes)
            ELSE ARRAY(
                SELECT l.landmark FROM hashindex.set_SET_landmarks l WHERE l.tenant = $7 ORDER BY (l.centre OPERATOR(public.<->) hashindex_near) + 0
                LIMIT (SELECT hashindex_probes * greatest(1, sqrt(count(*) / 250.0)) FROM hashindex.set_SET_landmarks o WHERE o.tenant = $7)
            ) END;
        IF $7 IS NOT NULL THEN
            hashindex_ids := ARRAY(SELECT ROW(c.id_1, c.id_2)::hashindex.tenants_key FROM (
                SELECT c.id_1, c.id_2 FROM hashindex.set_SET_codes c WHERE (c.landmark = ANY (hashindex_lists) OR c.landmark IS NULL) AND c.tenant = $7
                ORDER BY 4 * (c.code OPERATOR(public.<~>) hashindex_u1) + 2 * (c.code OPERATOR(public.<~>) hashindex_u2) + (c.code OPERATOR(public.<~>) hashindex_u3) LIMIT hashindex_n
            ) c);
        ELSE
        hashindex_ids := ARRAY(SELECT ROW(c.id_1, c.id_2)::hashindex.tenants_key FROM (
            SELECT c.id_1, c.id_2 FROM hashindex.set_SET_codes c WHERE c.landmark = ANY (hashindex_lists) OR c.landmark IS NULL ORDER BY 4 * (c.code OPERATOR(public.<~>) hashindex_u1) + 2 * (c.code OPERATOR(public.<~>) hashindex_u2) + (c.code OPERATOR(public.<~>) hashindex_u3) LIMIT hashindex_n
        ) c);
        END IF;
        IF cardinality(hashindex_ids) < hashindex_n AND cardinality(hashindex_lists) >= hashindex_probes THEN
            hashindex_probes := 8 * hashindex_probes;
            CONTINUE;
        END IF;
        IF by_code THEN
            RETURN QUERY SELECT c.id_1, c.id_2, (4 * (c.code OPERATOR(public.<~>) hashindex_u1) + 2 * (c.code OPERATOR(public.<~>) hashindex_u2) + (c.code OPERATOR(public.<~>) hashindex_u3))::double precision AS distance FROM hashindex.set_SET_codes c WHERE (c.id_1, c.id_2) OPERATOR(pg_catalog.=) ANY (SELECT k.id_1, k.id_2 FROM ROWS FROM (pg_catalog.unnest(hashindex_ids)) k) ORDER BY distance, c.id_1, c.id_2;
            RETURN;
        END IF;
        hashindex_count := 0;
        IF hashindex_filter IS NULL THEN
            -- There is no bitmap over keys of several columns.
            hashindex_done := set_config('enable_indexscan', 'true', true);
            FOR section, id, distance, hashindex_count IN
                SELECT r.id_1, r.id_2, r.distance, count(*) OVER ()
                FROM (
                    SELECT public.posts.section AS id_1, public.posts.id AS id_2, public.posts.embedding OPERATOR(public.<=>) hashindex_point AS distance
                    FROM public.posts
                    -- An index on the tenants alone would lead to all rows of the tenant.
                    WHERE (public.posts.section, public.posts.id) OPERATOR(pg_catalog.=) ANY (SELECT k.id_1, k.id_2 FROM ROWS FROM (pg_catalog.unnest(hashindex_ids)) k) AND (public.posts.section = $7) IS TRUE AND public.posts.embedding IS NOT NULL
                ) r
                WHERE r.distance OPERATOR(pg_catalog.<>) 'NaN' OR (hashindex_point OPERATOR(public.<=>) hashindex_point) OPERATOR(pg_catalog.=) 'NaN'
                ORDER BY r.distance, r.id_1, r.id_2 LIMIT hashindex_k
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
        FOR section, id, distance, hashindex_count IN EXECUTE '
            SELECT r.id_1, r.id_2, r.distance, pg_catalog.count(*) OVER ()
            FROM (
                SELECT public.posts.section AS id_1, public.posts.id AS id_2, public.posts.embedding OPERATOR(public.<=>) $1 AS distance
                FROM public.posts
                WHERE (public.posts.section, public.posts.id) OPERATOR(pg_catalog.=) ANY (SELECT k.id_1, k.id_2 FROM ROWS FROM (pg_catalog.unnest($2)) k) AND public.posts.embedding IS NOT NULL AND (' OPERATOR(pg_catalog.||) hashindex_condition OPERATOR(pg_catalog.||) '
                ) OFFSET 0
            ) r
            WHERE r.distance OPERATOR(pg_catalog.<>) ''NaN'' OR ($1 OPERATOR(public.<=>) $1) OPERATOR(pg_catalog.=) ''NaN''
            ORDER BY r.distance, r.id_1, r.id_2 LIMIT $3
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
        RETURN QUERY SELECT json_array_element_text(a.id::json, 0)::pg_catalog.text, json_array_element_text(a.id::json, 1)::pg_catalog.int8, a.distance FROM hashindex._exact_search('public.posts'::regclass, '{section,id}', 'embedding', 'cosine', hashindex_query, hashindex_k, hashindex_condition, hashindex_path) a;
    END IF;
END
$function$;

CREATE OR REPLACE FUNCTION hashindex.sync_tenants()
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
    hashindex_id_1 pg_catalog.text; hashindex_id_2 pg_catalog.int8;
    hashindex_strict boolean := current_setting('transaction_isolation') IN ('repeatable read', 'serializable');
    -- Not if a column was renamed or dropped, and the codes wait for pg-hashindex index repair.
    hashindex_readable boolean := NOT EXISTS (
        SELECT FROM unnest('{section,id,embedding}'::text[]) k(name) WHERE NOT EXISTS (SELECT FROM pg_attribute w WHERE w.attrelid = TG_RELID AND w.attname = k.name)
    );
    hashindex_former boolean := TG_OP = 'DELETE';
BEGIN
    IF TG_OP = 'UPDATE' AND hashindex_readable THEN
        -- Most updates change none of these. Not one condition: the trigger outlives a column that was dropped.
        IF NOT record_image_ne(ROW(OLD.section, OLD.id, OLD.embedding), ROW(NEW.section, NEW.id, NEW.embedding)) THEN
            RETURN NULL;
        END IF;
    END IF;
    hashindex_readable := hashindex_readable AND (TG_TABLE_SCHEMA, TG_TABLE_NAME) = ('public', 'posts') AND (EXISTS (SELECT FROM pg_class c WHERE c.oid = TG_RELID AND pg_has_role(c.relowner, current_user, 'USAGE') AND (NOT hashindex_strict OR c.xmax = '0'::xid)) OR NOT EXISTS (SELECT FROM hashindex._other_owners(TG_RELID, '{section,id,embedding}')));
    IF NOT hashindex_readable THEN
        -- A statement that named the table of another owner would run his code, and so would a conversion of a value. Codes are deleted
        -- instead, and searches are exact until pg-hashindex index encode has made them again.
        UPDATE hashindex.index_set x SET encoded = false WHERE x.encoded AND x.index_name = 'tenants';
        IF TG_OP = 'TRUNCATE' OR EXISTS (
            SELECT FROM unnest('{section,id,embedding}'::text[], '{text,bigint,public.halfvec}'::regtype[]) k(name, type)
            WHERE NOT EXISTS (SELECT FROM pg_attribute w WHERE w.attrelid = TG_RELID AND (w.attname, w.atttypid) = (k.name, k.type))
        ) THEN
            DELETE FROM hashindex.set_SET_codes;

            RETURN NULL;
        END IF;
    ELSIF TG_OP = 'TRUNCATE' THEN
        TRUNCATE hashindex.set_SET_codes;

        RETURN NULL;
    ELSIF TG_OP <> 'DELETE' THEN
        IF pg_typeof(NEW.section) <> 'text'::regtype OR pg_typeof(NEW.id) <> 'bigint'::regtype THEN
            -- A key or the tenant has another type now. What fits into the former one is written all the same.
            PERFORM hashindex._require_read(TG_RELID, '{section,id,embedding}', format('Run: pg-hashindex index repair %s', 'tenants'));
            BEGIN
                PERFORM NEW.section = NEW.section::text::text, NEW.id = NEW.id::text::bigint;
            EXCEPTION WHEN data_exception OR undefined_function THEN
                RAISE EXCEPTION 'columns of % have other types than index "%" keeps: %', TG_RELID::regclass, 'tenants', SQLERRM
                    USING ERRCODE = 'datatype_mismatch', HINT = format('Run: pg-hashindex index repair %s', 'tenants');
            END;
        END IF;
    END IF;
    LOOP
        IF hashindex_former THEN
            hashindex_id_1 := OLD.section; hashindex_id_2 := OLD.id;
        ELSE
            hashindex_id_1 := NEW.section; hashindex_id_2 := NEW.id;
        END IF;
        IF hashindex_strict THEN
        IF NOT EXISTS (SELECT FROM hashindex.index_set x WHERE x.id = SET AND x.state = 'used' AND x.generation = 1) THEN
            RAISE EXCEPTION 'index "%" has been built again since this transaction began', 'tenants'
                USING ERRCODE = 'serialization_failure', HINT = 'Run it again.';
        END IF;
            -- DELETE does not see a code that was committed after this transaction's snapshot. This INSERT conflicts with it and raises
            -- the serialization failure that callers of these isolation levels expect.
            INSERT INTO hashindex.set_SET_codes AS c (id_1, id_2, code) VALUES (hashindex_id_1, hashindex_id_2, 0::bit(48))
            ON CONFLICT (id_1, id_2) DO UPDATE SET code = c.code;
            -- If another transaction deleted a row and this one inserted its key again, the snapshot shows both rows.
            IF hashindex_readable AND (SELECT count(*) FROM ONLY public.posts b WHERE b.section = hashindex_id_1 AND b.id = hashindex_id_2) > 1 THEN
                RAISE EXCEPTION 'could not serialize access due to concurrent delete'
                    USING ERRCODE = 'serialization_failure', HINT = 'Run the transaction again.';
            END IF;
        END IF;
        IF NOT hashindex_readable THEN
            DELETE FROM hashindex.set_SET_codes c WHERE c.id_1 = hashindex_id_1 AND c.id_2 = hashindex_id_2;
        ELSIF hashindex_former AND NOT EXISTS (SELECT FROM ONLY public.posts b WHERE b.section = hashindex_id_1 AND b.id = hashindex_id_2) THEN
            DELETE FROM hashindex.set_SET_codes c WHERE c.id_1 = hashindex_id_1 AND c.id_2 = hashindex_id_2;
        ELSE
        -- With 12, 91 rows in 100 get their nearest landmark, as in a build; 16 takes an eighth longer, and 93 get it.
        hashindex_set := set_config('hnsw.ef_search', '12', true);
        INSERT INTO hashindex.set_SET_codes AS c (id_1, id_2, landmark, code, tenant)
        SELECT r.id_1, r.id_2, (SELECT l.landmark FROM hashindex.set_SET_landmarks l WHERE l.leader = ANY (ARRAY(SELECT o.landmark FROM hashindex.set_SET_landmarks o WHERE o.tenant = r.tenant AND o.leader = o.landmark ORDER BY o.centre OPERATOR(public.<->) CASE WHEN public.vector_norm(r.projection) < 65504 THEN r.projection ELSE public.l2_normalize(r.projection) END::public.halfvec(16) LIMIT 8)) ORDER BY l.centre OPERATOR(public.<->) CASE WHEN public.vector_norm(r.projection) < 65504 THEN r.projection ELSE public.l2_normalize(r.projection) END::public.halfvec(16) LIMIT 1), public.binary_quantize((r.projection OPERATOR(public.||) r.projection OPERATOR(public.||) r.projection OPERATOR(public.-) hashindex._cut_vector(16, '{-0.5,0,0.5}'))), r.tenant
        FROM (
            SELECT raw.*, (SELECT ARRAY(SELECT public.inner_product(f.w, x.v) FROM (SELECT unnest(((hashindex._layers_of(MODEL))[2]).weights) AS w OFFSET 0) f)::public.vector OPERATOR(public.+) ((hashindex._layers_of(MODEL))[2]).bias FROM (SELECT public.l2_normalize(raw.vector) AS v OFFSET 0) x) AS projection
            FROM (
                SELECT b.section AS id_1, b.id AS id_2, b.section::pg_catalog.text AS tenant, CASE WHEN public.vector_dims(b.embedding) = 8 THEN b.embedding::public.vector(8)
                    ELSE hashindex._refuse_vector(b.embedding::public.vector, 8) END AS vector
                -- A deferred constraint allows two rows of a key, until one of them is written again.
                FROM ONLY public.posts b WHERE b.section = hashindex_id_1 AND b.id = hashindex_id_2 AND b.embedding IS NOT NULL AND hashindex._fits(b.section::text) LIMIT 1
            ) raw OFFSET 0
        ) r
        ON CONFLICT (id_1, id_2) DO UPDATE SET landmark = excluded.landmark, code = excluded.code, tenant = excluded.tenant;
        hashindex_set := set_config('hnsw.ef_search', hashindex_effort, true);
        IF NOT FOUND THEN
            DELETE FROM hashindex.set_SET_codes c WHERE c.id_1 = hashindex_id_1 AND c.id_2 = hashindex_id_2 AND NOT EXISTS (
                SELECT FROM ONLY public.posts b WHERE b.section = c.id_1 AND b.id = c.id_2 AND b.embedding IS NOT NULL AND hashindex._fits(b.section::text) OFFSET 0
            );
        END IF;
        END IF;
        -- An update that changes the key writes both.
        EXIT WHEN hashindex_former OR TG_OP = 'INSERT' OR NEW.section = OLD.section AND NEW.id = OLD.id;
        hashindex_former := true;
    END LOOP;
    RETURN NULL;
END
$function$;
