-- Ranks codes: those in the lists of the landmarks nearest to the query, or all of them.
CREATE OR REPLACE FUNCTION {candidates}(
    query anycompatible, n integer DEFAULT NULL, probes integer DEFAULT NULL, filter text DEFAULT NULL,
    query_code bit varying DEFAULT NULL, checked boolean DEFAULT false{if tenant}, tenant {tenant_type} DEFAULT NULL{end tenant}
)
RETURNS TABLE ({answer})
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 200
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = {if lists}off{else lists}on{end lists}
SET enable_indexscan = on
AS $body$
#variable_conflict use_column
DECLARE
    hashindex_trusted boolean := checked OR {require_trust};
    hashindex_query {ext}.vector := {checked_query};
    hashindex_n integer := CASE WHEN coalesce($2, {n}) > 0 THEN coalesce($2, {n}) ELSE hashindex._refuse('n', $2, '1 or more') END;
BEGIN
    IF NOT checked AND ({codes_are_hidden}) THEN
        RETURN QUERY SELECT {key_of_text} FROM hashindex._exact_search({exact}, hashindex_query, hashindex_n, $4) a;
        RETURN;
    END IF;
    -- Before the model is read: a caller without rights on codes has none on models.
    DECLARE
        hashindex_projection {ext}.vector := {projection};
        hashindex_codes bit varying[] := {query_codes};
        u1 "bit" := hashindex_codes[1];
        u2 "bit" := hashindex_codes[2];
        u3 "bit" := hashindex_codes[3];
        u4 "bit" := hashindex_codes[4];
        u5 "bit" := hashindex_codes[5];
        hashindex_ids {key_type}[];
        -- Halves of a statement under a filter, which knows the table by its bare name; codes are chosen between them.
        hashindex_ranked text := {{SELECT {each key} FROM (SELECT {each c.id as key}{kept_columns}, {distance_of_arguments} AS hashindex_distance FROM {code_table} c WHERE }};
        hashindex_matching text := {{) {bare_table} WHERE (}} || coalesce($4, 'true') || {{
) ORDER BY {bare_table}.hashindex_distance LIMIT $6}};
{if lists}
        n_probes integer := CASE WHEN coalesce($3, {probes}) BETWEEN 1 AND 1000 THEN coalesce($3, {probes}) ELSE hashindex._refuse('probes', $3, '1 to 1000') END;
        point {ext}.halfvec := {point};
{if tenant}
{else tenant}
        effort text := coalesce(current_setting('hnsw.ef_search', true), '40');
{end tenant}
        done text;
        lists integer[];
    BEGIN
        -- Without index scans lists are read by a bitmap scan, for which PostgreSQL asks the disk for many pages at a time. Where they hold
        -- too few codes, more are read, and finally all.
{if tenant}
        LOOP
            -- Codes in no list are ranked too: all of a small tenant.
            IF $7 IS NULL THEN
                lists := ARRAY(
                    SELECT l.landmark FROM {landmarks} l ORDER BY (l.centre OPERATOR({ext}.<->) point) + 0 LIMIT n_probes
                );
            ELSE
                -- For the same recall, a tenant of more than 250 lists needs more of them.
                lists := ARRAY(
                    SELECT l.landmark FROM {landmarks} l WHERE l.tenant = $7 ORDER BY (l.centre OPERATOR({ext}.<->) point) + 0
                    LIMIT (SELECT n_probes * greatest(1, sqrt(count(*) / 250.0)) FROM {landmarks} o WHERE o.tenant = $7)
                );
            END IF;
            done := set_config('enable_indexscan', 'off', true);
            IF $4 IS NOT NULL THEN
                -- Without the subquery, the planner would look up statistics.
                EXECUTE {{SELECT ARRAY(SELECT {row c.id} FROM (}} || hashindex_ranked || 'c.landmark = ANY (ARRAY(SELECT unnest($7))) OR c.landmark IS NULL'
                    || CASE WHEN $7 IS NOT NULL THEN ' AND c.filter_1 = $8' ELSE '' END || hashindex_matching || {{) c({each id}))}}
                INTO hashindex_ids USING u1, u2, u3, u4, u5, hashindex_n, lists, $7;
            ELSIF $7 IS NULL THEN
                hashindex_ids := ARRAY(SELECT {row c.id} FROM (
                    SELECT {each c.id} FROM {code_table} c WHERE c.landmark = ANY (lists) OR c.landmark IS NULL ORDER BY {distance} LIMIT hashindex_n
                ) c);
            ELSE
                hashindex_ids := ARRAY(SELECT {row c.id} FROM (
                    SELECT {each c.id} FROM {code_table} c WHERE c.landmark = ANY (lists) OR c.landmark IS NULL AND c.filter_1 = $7
                    ORDER BY {distance} LIMIT hashindex_n
                ) c);
            END IF;
            done := set_config('enable_indexscan', 'on', true);
            EXIT WHEN cardinality(hashindex_ids) = hashindex_n OR cardinality(lists) < n_probes;
            n_probes := 8 * n_probes;
        END LOOP;
        RETURN QUERY SELECT k.* FROM unnest(hashindex_ids) k;
{else tenant}
        WHILE n_probes <= 1000 LOOP
            IF n_probes <= {graph_probes} THEN
                -- Not a SET clause: only superusers may restore one before pgvector is loaded.
                done := set_config('hnsw.ef_search', greatest(n_probes, {graph_effort})::text, true);
                lists := ARRAY(
                    SELECT l.landmark FROM {landmarks} l ORDER BY l.centre OPERATOR({ext}.<->) point LIMIT n_probes
                );
                done := set_config('hnsw.ef_search', effort, true);
            ELSE
                -- With more probes, comparing all is faster.
                lists := ARRAY(
                    SELECT l.landmark FROM {landmarks} l ORDER BY (l.centre OPERATOR({ext}.<->) point) + 0 LIMIT n_probes
                );
            END IF;
            done := set_config('enable_indexscan', 'off', true);
            IF $4 IS NULL THEN
                hashindex_ids := ARRAY(SELECT {row c.id} FROM (
                    SELECT {each c.id} FROM {code_table} c WHERE c.landmark = ANY (lists) ORDER BY {distance} LIMIT hashindex_n
                ) c);
            ELSE
                -- Without the subquery, the planner would look up statistics.
                EXECUTE {{SELECT ARRAY(SELECT {row c.id} FROM (}} || hashindex_ranked || 'c.landmark = ANY (ARRAY(SELECT unnest($7)))' || hashindex_matching || {{) c({each id}))}}
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
{end tenant}
{else lists}
    BEGIN
        IF $4 IS NULL THEN
            hashindex_ids := ARRAY(SELECT {row c.id} FROM (
                SELECT {each c.id} FROM {if rough_distance}(
                    -- A rougher order keeps the codes of which the finer one is computed.
                    SELECT {each c.id}, c.code FROM {code_table} c{if tenant} WHERE $7 IS NULL OR c.filter_1 = $7{end tenant}
                    ORDER BY {rough_distance} LIMIT greatest(10 * hashindex_n::bigint, 2000)
                ) c{else rough_distance}{code_table} c{if tenant} WHERE $7 IS NULL OR c.filter_1 = $7{end tenant}{end rough_distance} ORDER BY {distance} LIMIT hashindex_n
            ) c);
            RETURN QUERY SELECT k.* FROM unnest(hashindex_ids) k;
        ELSE
            RETURN QUERY EXECUTE hashindex_ranked || {if tenant}CASE WHEN $7 IS NULL THEN 'true' ELSE 'c.filter_1 = $7' END{else tenant}'true'{end tenant} || hashindex_matching
            USING u1, u2, u3, u4, u5, hashindex_n{if tenant}, $7{end tenant};
        END IF;
{end lists}
    EXCEPTION WHEN undefined_table THEN
        -- A build may have dropped these codes meanwhile. The function is another one then.
        IF {codes_are_there} THEN
            RAISE;
        END IF;
        RETURN QUERY SELECT {each c.shown} FROM {candidates}($1, $2, $3, $4, $5{if tenant}, false, $7{end tenant}) c;
    END;
END
$body$
