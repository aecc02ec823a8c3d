                -- For the same recall, a tenant of more than 250 lists needs more of them.
                lists := ARRAY(
                    SELECT l.landmark FROM {landmarks} l WHERE l.tenant = {tenant_value} ORDER BY (l.centre OPERATOR({ext}.<->) point) + 0
                    LIMIT (SELECT n_probes * greatest(1, sqrt(count(*) / 250.0)) FROM {landmarks} o WHERE o.tenant = {tenant_value})
                );
