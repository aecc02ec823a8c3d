{if tenant}
                -- For the same recall, a tenant of more than 250 lists needs more of them.
                lists := ARRAY(
                    SELECT l.landmark FROM {landmarks} l WHERE l.tenant = {tenant_argument} ORDER BY (l.centre OPERATOR({ext}.<->) point) + 0
                    LIMIT (SELECT n_probes * greatest(1, sqrt(count(*) / 250.0)) FROM {landmarks} o WHERE o.tenant = {tenant_argument})
                );
{else tenant}
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
{end tenant}
