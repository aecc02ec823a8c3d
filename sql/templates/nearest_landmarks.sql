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
