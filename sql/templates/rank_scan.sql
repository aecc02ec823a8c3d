        hashindex_pool bigint := {pool};
    BEGIN
        -- Compares every code with the query.
        IF $4 IS NULL THEN
            hashindex_ids := ARRAY({pack}SELECT {c_ids} FROM {kept} c ORDER BY {distance} LIMIT hashindex_n{packed});
            RETURN QUERY {found_ids};
        ELSE
            RETURN QUERY EXECUTE format({filtered}, {scanned}, $4)
            USING hashindex_u1, hashindex_u2, hashindex_u3, hashindex_u4, hashindex_u5, hashindex_n;
        END IF;
