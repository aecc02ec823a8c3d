    -- "+ 0" keeps the planner from an HNSW or IVFFlat index, whose answers are approximate.
    SELECT array_agg(r.id), array_agg(r.distance) INTO hashindex_ids, hashindex_distances
    FROM (
        SELECT {table_key} AS id, ({table}.{column} {operator} hashindex_point) + 0 AS distance
        FROM {table}
        WHERE {table}.{tenant} = $9 AND {table}.{column} IS NOT NULL
        ORDER BY distance, id
        LIMIT hashindex_k
    ) r
    WHERE {is_comparable};
    IF hashindex_ids IS NULL THEN
        PERFORM hashindex._check_refilled({table_literal}::regclass);
    END IF;
    RETURN QUERY {found};
