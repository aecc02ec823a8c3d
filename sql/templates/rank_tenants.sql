        n_probes integer := CASE WHEN coalesce($3, {probes}) BETWEEN 1 AND 1000 THEN coalesce($3, {probes}) ELSE hashindex._refuse('probes', $3, '1 to 1000') END;
        point {ext}.halfvec := {point};
        done text;
        lists integer[];
    BEGIN
        -- Ranks the codes in the lists nearest to the query, and those in none, all of a small tenant; more where these are too few.
        LOOP
            IF $7 IS NULL THEN
                lists := ARRAY(
                    SELECT l.landmark FROM {landmarks} l ORDER BY (l.centre OPERATOR({ext}.<->) point) + 0 LIMIT n_probes
                );
            ELSE
{landmarks_of_tenant}
            END IF;
            done := set_config('enable_indexscan', 'off', true);
            IF $4 IS NOT NULL THEN
                -- Without the subquery, the planner would look up statistics.
                EXECUTE format(
                    'SELECT ARRAY({pack}' || {filtered} || '{packed})',
                    'c.landmark = ANY (ARRAY(SELECT unnest($7))) OR c.landmark IS NULL' || CASE WHEN $7 IS NOT NULL THEN ' AND c.filter_1 = $8' ELSE '' END, $4
                ) INTO hashindex_ids
                USING hashindex_u1, hashindex_u2, hashindex_u3, hashindex_u4, hashindex_u5, hashindex_n, lists, $7;
            ELSIF $7 IS NULL THEN
                hashindex_ids := ARRAY(
                    {pack}SELECT {c_ids} FROM {code_table} c WHERE c.landmark = ANY (lists) OR c.landmark IS NULL ORDER BY {distance} LIMIT hashindex_n{packed}
                );
            ELSE
                -- An assignment would send the variable's type to the shard, which Citus leaves out for types of users.
                SELECT ARRAY(
                    {pack}SELECT {c_ids} FROM {code_table} c WHERE {tenant_shard}(c.landmark = ANY (lists) OR c.landmark IS NULL AND c.filter_1 = $7)
                    ORDER BY {distance} LIMIT hashindex_n{packed}
                ) INTO hashindex_ids;
            END IF;
            done := set_config('enable_indexscan', 'on', true);
            EXIT WHEN cardinality(hashindex_ids) = hashindex_n OR cardinality(lists) < n_probes;
            n_probes := 8 * n_probes;
        END LOOP;
        RETURN QUERY {found_ids};
