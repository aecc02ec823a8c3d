    {delete_gone}
    INSERT INTO {code_table} AS c ({ids}, landmark, code{filter_targets})
    SELECT {r_ids}, {row_landmark}, {row_code}{filter_sources}
    FROM (
        SELECT raw.*, {row_projection} AS projection
        FROM (
            SELECT {row_ids}{filter_reads}, CASE WHEN {ext}.vector_dims(b.{column}) = {dimension} THEN b.{column}::{ext}.vector({dimension})
                ELSE hashindex._refuse_vector(b.{column}::{ext}.vector, {dimension}) END AS vector
            FROM {rows_before}{table}{rows_after} AND b.{column} IS NOT NULL{fits} OFFSET 0
        ) raw OFFSET 0
    ) r
    ON CONFLICT ({ids}) DO UPDATE SET landmark = excluded.landmark, code = excluded.code{filter_sets};
