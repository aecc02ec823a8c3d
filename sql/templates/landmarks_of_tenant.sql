                lists := ARRAY(
                    SELECT l.landmark FROM {landmarks} l WHERE l.tenant = {tenant_value} ORDER BY (l.centre OPERATOR({ext}.<->) point) + 0 LIMIT n_probes
                );
