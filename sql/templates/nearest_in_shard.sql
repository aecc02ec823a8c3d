                RETURN QUERY SELECT {table_key}, {table}.{column} {operator} hashindex_point
                FROM {table}
                WHERE {table_among}(ARRAY(
                    {pack}SELECT {c_ids} FROM {codes} c WHERE {in_lists} ORDER BY {distance} LIMIT $7{packed}
                )){among_end} AND {in_tenant}{table}.{column} IS NOT NULL
                ORDER BY 2, 1 LIMIT $8;
