
        -- One statement calls a function on each node, for all of its shards. Shards of which this function knows no names are searched by
        -- the statements after this block, as they are where lists hold too few codes.
        DECLARE
            hashindex_projection {ext}.vector := {projection};
            hashindex_codes bit varying[] := {query_codes};
            hashindex_in_shard integer := {in_shard};
            hashindex_first integer[];
            hashindex_at {number_type}[];
            hashindex_known boolean;
            hashindex_answers integer := 0;
            n_probes integer := CASE WHEN coalesce($4, {probes}) BETWEEN 1 AND 1000 THEN coalesce($4, {probes}) ELSE hashindex._refuse('probes', $4, '1 to 1000') END;
            point {ext}.halfvec := {point};
            effort text := coalesce(current_setting('hnsw.ef_search', true), '40');
            scans text := current_setting('enable_seqscan');
            done text;
            lists integer[];
        BEGIN
{choose_shards}
            IF hashindex_known THEN
                done := set_config('enable_seqscan', 'off', true);
                BEGIN
{nearest_landmarks}
                EXCEPTION WHEN undefined_table THEN
                    -- A build has dropped these landmarks since this statement began, or this node has no copy of them.
                    NULL;
                END;
                done := set_config('enable_seqscan', scans, true);
            END IF;
            IF lists IS NOT NULL THEN
                FOR r IN
                    SELECT f.id, f.distance
                    FROM {numbers_table} s CROSS JOIN LATERAL {nearest}(
                        s.number, hashindex_first, lists, hashindex_codes, hashindex_query, hashindex_in_shard, hashindex_k{searched_tenant}
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
                    CONTINUE WHEN NOT ({is_comparable}) OR hashindex_found = hashindex_k;
                    hashindex_found := hashindex_found + 1;
                    hashindex_ids[hashindex_found] := r.id;
                    hashindex_distances[hashindex_found] := r.distance;
                END LOOP;
                IF hashindex_found = hashindex_k AND hashindex_answers = cardinality(hashindex_at) THEN
                    RETURN QUERY {found};
                    RETURN;
                END IF;
            END IF;
        END;
        hashindex_found := 0;