-- name: type
-- The type of a column, without domains, the category of its elements, and its collation.
-- $1: the table; $2: the column.
WITH RECURSIVE type AS (
    SELECT t.*, a.attcollation FROM pg_catalog.pg_attribute a
    JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = $1::regclass::oid AND a.attname = $2
      AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT base.*, type.attcollation
    FROM type JOIN pg_catalog.pg_type base ON base.oid = type.typbasetype
)
SELECT format_type(type.oid, -1), coalesce(element.typcategory, type.typcategory),
       n.nspname, c.collname
FROM type
LEFT JOIN pg_catalog.pg_type element
    ON element.oid = type.typelem AND type.typcategory = 'A'
LEFT JOIN pg_catalog.pg_collation c ON c.oid = type.attcollation
LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.collnamespace
WHERE type.typbasetype = 0::oid
