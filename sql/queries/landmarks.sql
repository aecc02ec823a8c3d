-- name: mark_written
-- Marks a range of pages as written, unless the set is not being built, or by another attempt.
-- $1: the range; $2: the set; $3: the number of the attempt.
UPDATE {ranges} SET written = true WHERE number = $1 AND NOT written
  AND EXISTS (SELECT FROM hashindex.index_set s WHERE s.id = $2 AND s.state = 'building' AND s.generation = $3)

-- name: heap
-- The oid of the table, and its file.
SELECT c.oid::bigint, pg_relation_filenode(c.oid)::bigint FROM pg_catalog.pg_class c
WHERE c.oid = {table_name}::regclass::oid

-- name: large_tenants
-- Tenants whose rows are many enough for landmarks.
SELECT n.tenant::text, n.wanted FROM (
    SELECT b.{tenant} AS tenant,
           hashindex._tenant_landmarks(pg_catalog.count(b.{column})) AS wanted
    FROM {table} b WHERE b.{tenant} IS NOT NULL AND hashindex._fits(b.{tenant}::text)
    GROUP BY b.{tenant}
) n WHERE n.wanted > 0 ORDER BY n.tenant

-- name: size_of_tenant
-- A tenant's rows, the landmarks they should have and have, and the number of the next landmark. $1: the
-- tenant.
SELECT n.rows,
       CASE WHEN hashindex._fits($1) THEN hashindex._tenant_landmarks(n.rows) ELSE 0 END,
       (SELECT count(*) FROM {landmarks} l WHERE l.tenant = $1::text::{tenant_type}),
       (SELECT coalesce(pg_catalog.max(l.landmark) + 1, 0) FROM {landmarks} l)
FROM (
    SELECT pg_catalog.count(b.{column}) AS rows FROM {table} b
    WHERE b.{tenant} = $1::text::{tenant_type}
) n

-- name: of_tenants
-- Saves landmarks of tenants beside those there are.
-- $1 are the tenants, $2 the numbers of their first landmarks among the new ones, $3 the leaders of
-- these, $4 the number of the first new one.
INSERT INTO {landmarks} (landmark, tenant, leader, centre)
SELECT c.landmark + $4,
       ($1::text[])[pg_catalog.width_bucket(c.landmark, $2::integer[])]::{tenant_type},
       ($3::integer[])[c.landmark + 1] + $4, c.centre
FROM pg_temp.hashindex_centres c ORDER BY c.landmark

-- name: list_ranges
-- Lists the ranges of pages that are to be read, one at least. $1: the file; $2: its pages; $3: the pages of a range.
INSERT INTO {ranges} (number, file, first_page, end_page, written)
SELECT pg_catalog.row_number() OVER (ORDER BY f.page), $1::bigint, f.page, least(f.page + $3::bigint, $2::bigint), false
FROM pg_catalog.generate_series(0::bigint, greatest($2::bigint - 1, 0), $3::bigint) f(page)

-- name: state_of_build
-- Tells whether a build has ranges, has begun to read, has codes to be put in order, and has them in order. $1: the
-- table of the new codes.
SELECT EXISTS (SELECT FROM {ranges}),
       EXISTS (SELECT FROM {ranges} r WHERE r.written),
       EXISTS (SELECT FROM {staged}),
       EXISTS (SELECT FROM pg_catalog.pg_index x
               WHERE x.indrelid = $1::regclass AND x.indisprimary)
