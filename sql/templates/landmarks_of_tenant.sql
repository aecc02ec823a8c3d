                -- A large tenant needs more lists for the same recall: by the root of their number, from 250 on.
                lists := ARRAY(
                    SELECT l.landmark FROM {landmarks} l WHERE l.tenant = {tenant_value} ORDER BY (l.centre OPERATOR({ext}.<->) point) + 0
                    LIMIT (SELECT ceil(n_probes * greatest(1, sqrt(count(*) / 250.0))) FROM {landmarks} o WHERE o.tenant = {tenant_value})
                );
