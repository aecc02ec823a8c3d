-- name: other_tenants
-- Deletes codes whose tenants differ from those of their rows.
DELETE FROM {codes} c WHERE ({code_key}) IN (
    SELECT {ids} FROM pg_catalog.unnest(ARRAY(
        SELECT {whole_key} FROM {codes} c JOIN {table} b ON ({key}) = ({code_key})
        WHERE pg_catalog.record_image_ne(ROW(c.tenant), ROW(b.{tenant})) AND {current}
    )) k({ids})
)
