-- name: target
-- A column that codes are to be written to: the kind of relation, its type, whether it is generated, whether it refuses NULL, the index of the schema that reads
-- it, whether the table is in the schema itself, whether tables inherit from it, and whether row security hides rows of it from the caller.
-- $1: the table; $2: the column; $3: the column of vectors, whose dimensions come last, -1 if its type has none.
SELECT c.relkind::text, pg_catalog.format_type(a.atttypid, a.atttypmod), a.attgenerated <> '', a.attnotnull,
       (
           SELECT i.name FROM hashindex.index i
           WHERE i.schema_name = n.nspname AND i.table_name = c.relname
             AND (i.column_name = a.attname OR a.attname = ANY (i.key_columns) OR i.tenant_column = a.attname)
           ORDER BY i.name LIMIT 1
       ),
       n.nspname = 'hashindex',
       c.relkind = 'r' AND EXISTS (SELECT FROM pg_catalog.pg_inherits h WHERE h.inhparent = c.oid),
       pg_catalog.row_security_active(c.oid),
       v.atttypmod
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_attribute v ON v.attrelid = c.oid AND v.attname = $3
LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attname = $2 AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.oid = $1::regclass::oid

-- name: slowed
-- Indexes that read a column, and triggers that fire when it is written, but for those of the schema.
-- $1: the table; $2: the column.
SELECT ARRAY(
           SELECT DISTINCT x.oid::regclass::text
           FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_class x ON x.oid = d.objid AND x.relkind IN ('i', 'I')
           WHERE d.classid = 'pg_catalog.pg_class'::regclass AND d.refclassid = 'pg_catalog.pg_class'::regclass
             AND d.refobjid = a.attrelid AND d.refobjsubid = a.attnum
           ORDER BY 1
       ),
       ARRAY(
           SELECT DISTINCT pg_catalog.quote_ident(t.tgname)
           FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
           JOIN pg_catalog.pg_attribute w ON w.attrelid = t.tgrelid AND w.attname = a.attname
           WHERE (t.tgrelid = a.attrelid OR t.tgrelid IN (SELECT f.relid FROM pg_catalog.pg_partition_tree(a.attrelid) f))
             AND NOT t.tgisinternal AND t.tgenabled <> 'D' AND t.tgtype & 16 <> 0
             AND (pg_catalog.cardinality(t.tgattr::smallint[]) = 0 OR w.attnum = ANY (t.tgattr::smallint[]))
             AND p.pronamespace IS DISTINCT FROM pg_catalog.to_regnamespace('hashindex')
           ORDER BY 1
       )
FROM pg_catalog.pg_attribute a WHERE a.attrelid = $1::regclass::oid AND a.attname = $2

-- name: searched
-- The index in use that searches a column of the user's as codes of another model, and that model.
-- $1: the table; $2: the column; $3: the model.
SELECT i.name, pg_catalog.format('%s:%s', m.name, m.version)
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN hashindex.index i ON i.schema_name = n.nspname AND i.table_name = c.relname
JOIN hashindex.index_set s ON s.index_name = i.name AND s.state = 'used' AND s.code_column = $2 AND NOT s.stores
JOIN hashindex.model m ON m.id = s.model_id
WHERE c.oid = $1::regclass::oid AND pg_catalog.format('%s:%s', m.name, m.version) <> $3
ORDER BY i.name LIMIT 1

-- name: rows
-- Rows that are to get a code, in the order of the key: its text, the vector, and the transaction that wrote this version of the row.
-- $1: the most rows; the parameters of {from} follow.
SELECT {key_text}, b.{column}, b.xmin::text FROM {table} b
WHERE {wanted} AND {start}
ORDER BY {key} LIMIT $1

-- name: touch
-- Writes nothing, by the rights that writing codes needs.
UPDATE {table} b SET {into} = b.{into} WHERE false

-- name: coded
-- Some rows that have a code, with their codes as text. $1: how many.
SELECT {key_text}, b.{column}, b.{into}::text FROM {table} b WHERE b.{into} IS NOT NULL AND b.{column} IS NOT NULL LIMIT $1

-- name: write
-- Writes the codes of a batch, but for rows that have changed since they were read, or that others lock. Returns keys: of rows that had
-- their code ("right"), of others that may be written ("found"), and of these once more if they were ("written").
-- $1 to $4: keys, versions, codes and whether there is a code; a cast of the third to bit[] would cut each code down to one bit. Nothing
-- waits for a writer, so a batch cannot deadlock with one. unnest of several arrays is PostgreSQL's own under any search_path.
WITH found AS MATERIALIZED (
    SELECT {as_ids}, g.key_text, g.code, b.{into} IS DISTINCT FROM g.code AS differs
    FROM (
        SELECT s.id AS key_text, s.version, CASE WHEN s.has_code THEN s.code END AS code
        FROM unnest($1::text[], $2::text[], $3, $4::boolean[]) s(id, version, code, has_code)
    ) g
    JOIN {table} b ON ({key}) = ({given_key})
    WHERE b.xmin::text = g.version
    FOR NO KEY UPDATE OF b SKIP LOCKED
), written AS (
    UPDATE {table} b SET {into} = f.code FROM found f
    WHERE ({key}) = ({found_key}) AND f.differs
    RETURNING f.key_text
)
SELECT f.key_text, CASE WHEN f.differs THEN 'found' ELSE 'right' END FROM found f
UNION ALL
SELECT w.key_text, 'written' FROM written w
