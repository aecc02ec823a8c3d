        n_probes integer := CASE WHEN coalesce($3, {probes}) BETWEEN 1 AND 1000 THEN coalesce($3, {probes}) ELSE hashindex._refuse('probes', $3, '1 to 1000') END;
        point {ext}.halfvec := {point};
        effort text := coalesce(current_setting('hnsw.ef_search', true), '40');
        done text;
        lists integer[];
    BEGIN
        -- Reads the lists of the landmarks nearest to the query. A list is the rows of the code table that have this landmark. Without
        -- index scans they are read by a bitmap scan, for which PostgreSQL asks the disk for many pages at a time. Where lists hold too
        -- few codes, more are read, and finally all.
        WHILE n_probes <= 1000 LOOP
{nearest_landmarks}
            done := set_config('enable_indexscan', 'off', true);
            IF $4 IS NULL THEN
                hashindex_ids := ARRAY(
                    {pack}SELECT {c_ids} FROM {code_table} c WHERE c.landmark = ANY (lists) ORDER BY {distance} LIMIT hashindex_n{packed}
                );
            ELSE
                -- Without the subquery, the planner would look up statistics.
                EXECUTE format('SELECT ARRAY({pack}' || {filtered} || '{packed})', 'c.landmark = ANY (ARRAY(SELECT unnest($7)))', $4) INTO hashindex_ids
                USING hashindex_u1, hashindex_u2, hashindex_u3, hashindex_u4, hashindex_u5, hashindex_n, lists;
            END IF;
            IF cardinality(hashindex_ids) = hashindex_n THEN
                RETURN QUERY {found_ids};
                RETURN;
            END IF;
            n_probes := 8 * n_probes;
            done := set_config('enable_indexscan', 'on', true);
        END LOOP;
        done := set_config('enable_seqscan', 'on', true);
        RETURN QUERY EXECUTE format({filtered}, 'true', coalesce($4, 'true'))
        USING hashindex_u1, hashindex_u2, hashindex_u3, hashindex_u4, hashindex_u5, hashindex_n;
