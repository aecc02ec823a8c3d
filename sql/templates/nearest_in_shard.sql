                hashindex_ids := ARRAY(
                    {pack}SELECT {c_ids} FROM {code_table} c WHERE {in_lists} ORDER BY {distance} LIMIT $6{packed}
                );
                hashindex_short := hashindex_short OR cardinality(hashindex_ids) < $6;
                RETURN QUERY SELECT {table_key}, {table}.{column} {operator} hashindex_point
                FROM {table}
                WHERE {table_among}(hashindex_ids){among_end} AND {in_tenant}{table}.{column} IS NOT NULL
                ORDER BY 2, 1 LIMIT $7;
