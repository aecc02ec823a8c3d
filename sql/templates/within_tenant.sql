{require_one_tenant}
    -- A role that may not read tenants may not read this column of codes either.
    IF $4 IS NOT NULL THEN
        RETURN QUERY SELECT {c_ids}, bit_count(c.code # hashindex_code)::integer AS distance
        FROM {code_table} c
        WHERE c.filter_1 = $4 AND bit_count(c.code # hashindex_code) <= hashindex_radius{row_is_visible}
        ORDER BY distance, {ids};
        RETURN;
    END IF;