-- Ranks codes: those in the lists of the landmarks nearest to the query, or all of them.
CREATE OR REPLACE FUNCTION {candidates}(
    query anycompatible, n integer DEFAULT NULL, effort integer DEFAULT NULL, checked boolean DEFAULT false{if tenant}, tenant {tenant_type} DEFAULT NULL{end tenant}
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
    hashindex_query {ext}.vector := {checked_query};
    hashindex_n integer := CASE WHEN coalesce($2, {n}) > 0 THEN coalesce($2, {n}) ELSE hashindex._refuse('n', $2, '1 or more') END;
BEGIN
    IF NOT checked AND ({codes_are_hidden}) THEN
        RETURN QUERY SELECT {key_of_text} FROM hashindex._exact_search(
            {exact}, hashindex_query, hashindex_n{if tenant}, {{{table}.{tenant} = }} || quote_literal($5) || {{::{tenant_type}}}{end tenant}
        ) a;
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
        hashindex_probes integer := CASE WHEN coalesce($3, {effort}) BETWEEN 1 AND 1000 THEN coalesce($3, {effort}) ELSE hashindex._refuse('effort', $3, '1 to 1000') END;
        hashindex_lists integer[];
{if lists}
        point {ext}.halfvec := {point};
        ef_search text := coalesce(current_setting('hnsw.ef_search', true), '40');
        done text;
{end lists}
    BEGIN
        -- Codes in no list are always ranked: all, where there are no landmarks, as within a small tenant. Where lists hold too few codes, more
        -- are read, and finally all.
        LOOP
{if lists}
{if tenant}
            IF $5 IS NULL THEN
                hashindex_lists := ARRAY(
                    SELECT l.landmark FROM {landmarks} l ORDER BY (l.centre OPERATOR({ext}.<->) point) + 0 LIMIT hashindex_probes
                );
            ELSE
                -- For the same recall, a tenant of more than 250 lists needs more of them.
                hashindex_lists := ARRAY(
                    SELECT l.landmark FROM {landmarks} l WHERE l.tenant = $5 ORDER BY (l.centre OPERATOR({ext}.<->) point) + 0
                    LIMIT (SELECT hashindex_probes * greatest(1, sqrt(count(*) / 250.0)) FROM {landmarks} o WHERE o.tenant = $5)
                );
            END IF;
{else tenant}
            IF hashindex_probes <= {graph_probes} THEN
                -- Not a SET clause: only superusers may restore one before pgvector is loaded.
                done := set_config('hnsw.ef_search', greatest(hashindex_probes, {graph_effort})::text, true);
                hashindex_lists := ARRAY(SELECT l.landmark FROM {landmarks} l ORDER BY l.centre OPERATOR({ext}.<->) point LIMIT hashindex_probes);
                done := set_config('hnsw.ef_search', ef_search, true);
            ELSE
                -- With more effort, comparing all is faster.
                hashindex_lists := ARRAY(
                    SELECT l.landmark FROM {landmarks} l ORDER BY (l.centre OPERATOR({ext}.<->) point) + 0 LIMIT hashindex_probes
                );
            END IF;
{end tenant}
            -- Without index scans lists are read by a bitmap scan, for which PostgreSQL asks the disk for many pages at a time.
            done := set_config('enable_indexscan', 'off', true);
{end lists}
{if tenant}
            IF $5 IS NOT NULL THEN
                hashindex_ids := ARRAY(SELECT {row c.id} FROM (
                    SELECT {each c.id} FROM {code_table} c WHERE {if lists}(c.landmark = ANY (hashindex_lists) OR c.landmark IS NULL){else lists}true{end lists} AND c.tenant = $5
                    ORDER BY {distance} LIMIT hashindex_n
                ) c);
            ELSE
{end tenant}
            hashindex_ids := ARRAY(SELECT {row c.id} FROM (
                SELECT {each c.id} FROM {code_table} c WHERE {if lists}(c.landmark = ANY (hashindex_lists) OR c.landmark IS NULL){else lists}true{end lists} ORDER BY {distance} LIMIT hashindex_n
            ) c);
{if tenant}
            END IF;
{end tenant}
{if lists}
            done := set_config('enable_indexscan', 'on', true);
{end lists}
            EXIT WHEN cardinality(hashindex_ids) = hashindex_n OR coalesce(cardinality(hashindex_lists), 0) < hashindex_probes;
            hashindex_probes := 8 * hashindex_probes;
        END LOOP;
        RETURN QUERY SELECT k.* FROM unnest(hashindex_ids) k;
    EXCEPTION WHEN undefined_table THEN
        -- A build may have dropped these codes meanwhile. The function is another one then.
        IF {codes_are_there} THEN
            RAISE;
        END IF;
        RETURN QUERY SELECT {each c.shown} FROM {candidates}($1, $2, $3{if tenant}, false, $5{end tenant}) c;
    END;
END
$body$
