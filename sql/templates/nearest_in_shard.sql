                hashindex_ids := ARRAY(SELECT {row c.id} FROM (
                    SELECT {each c.id} FROM {code_table} c WHERE {if tenant}(c.landmark = ANY ($3) OR c.landmark IS NULL AND c.filter_1 = $8){else tenant}c.landmark = ANY ($3){end tenant}
                    ORDER BY {distance} LIMIT $6
                ) c);
                hashindex_short := hashindex_short OR cardinality(hashindex_ids) < $6;
                RETURN QUERY SELECT ({row table.key})::{key_type}, {table}.{column} {operator} hashindex_point
                FROM {table}
                WHERE {among table.key hashindex_ids} AND {if tenant}({table}.{tenant} = $8) IS TRUE AND {end tenant}{table}.{column} IS NOT NULL
                ORDER BY 2, 1 LIMIT $7;
