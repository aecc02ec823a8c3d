-- name: rebind
-- The sets of the vectors that the index searches move with it.
-- Writes where the table of an index is now, under which names. $1: the index; $2: the table;
-- $3: the column; $4: those of the key; $5: that of the tenants. NULL leaves a name as it is.
WITH before AS (SELECT i.column_name FROM hashindex.index i WHERE i.name = $1), moved AS (
    UPDATE hashindex.index_set s SET column_name = $3::text FROM before b
    WHERE s.index_name = $1 AND s.column_name = b.column_name AND $3::text IS NOT NULL
)
UPDATE hashindex.index x
SET schema_name = n.nspname, table_name = c.relname, column_name = coalesce($3::text, x.column_name),
    key_columns = CASE WHEN $4::text[] IS NULL THEN x.key_columns
        ELSE (SELECT k.key_columns FROM hashindex._find_key(c.oid::regclass, $4::text[]) k) END,
    tenant_column = coalesce($5, x.tenant_column)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE x.name = $1 AND c.oid = (CASE WHEN $2::text IS NOT NULL THEN $2::text::regclass
    ELSE to_regclass(pg_catalog.format('%I.%I', x.schema_name, x.table_name)) END)::oid
RETURNING pg_catalog.format('%I.%I', n.nspname, c.relname)
