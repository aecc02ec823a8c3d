-- name: rebind
-- Writes where the table of an index is now, under which names. $1: the index; $2: the table;
-- $3: the column; $4: those of the key; $5: that of the tenants. NULL leaves a name as it is.
UPDATE hashindex.index x
SET schema_name = n.nspname, table_name = c.relname, column_name = coalesce($3, x.column_name),
    key_columns = CASE WHEN $4::text[] IS NULL THEN x.key_columns
        ELSE (SELECT k.key_columns FROM hashindex._find_key(c.oid::regclass, $4::text[]) k) END,
    tenant_column = coalesce($5, x.tenant_column)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE x.name = $1 AND c.oid = (CASE WHEN $2::text IS NOT NULL THEN $2::text::regclass
    ELSE to_regclass(pg_catalog.format('%I.%I', x.schema_name, x.table_name)) END)::oid
RETURNING pg_catalog.format('%I.%I', n.nspname, c.relname)
