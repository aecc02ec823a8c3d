-- name: holders
-- The processes that have locked a table against reads. $1: the table.
SELECT l.pid, left(coalesce(nullif(a.query, ''), '?'), 60)
FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
WHERE l.relation = to_regclass($1)::oid AND l.granted AND l.mode = 'AccessExclusiveLock'
  AND l.database = (
      SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database()
  )

-- name: facts
-- A table and its vectors, by the catalogs and statistics. $1: the table's oid; $2: the column.
-- The columns are fields of TableFacts, but for the last three.
WITH leaf AS (
    SELECT c.oid, c.reltoastrelid, c.reltuples, c.relkind FROM pg_catalog.pg_class c
    WHERE c.relkind <> 'p'
      AND (c.oid = $1::oid
           OR c.oid IN (SELECT t.relid FROM pg_catalog.pg_partition_tree($1::oid) t))
), key AS (
    -- As hashindex._find_key wants it; the schema need not be installed.
    SELECT k.names, x.indisprimary AS is_primary
    FROM pg_catalog.pg_index x CROSS JOIN LATERAL (
        SELECT pg_catalog.array_agg(a.attname::text ORDER BY n.n) AS names,
               pg_catalog.bool_and(a.attnotnull) AS are_there
        FROM pg_catalog.generate_series(0, x.indnkeyatts - 1) n(n)
        JOIN pg_catalog.pg_attribute a
            ON a.attrelid = x.indrelid AND a.attnum = x.indkey[n.n]
    ) k
    WHERE x.indrelid = $1::oid AND x.indisunique AND x.indisvalid AND x.indimmediate
      AND x.indpred IS NULL AND x.indexprs IS NULL AND k.are_there
)
SELECT $1::oid::regclass::text AS name, pg_catalog.quote_ident(a.attname) AS quoted_column,
       a.atttypmod <> -1 AS declared,
       CASE a.attstorage WHEN 'p' THEN 'plain' WHEN 'e' THEN 'external' WHEN 'm' THEN 'main'
           ELSE 'extended' END AS storage,
       CASE WHEN r.relkind = 'p' THEN 'partitioned table' WHEN r.relkind = 'm' THEN 'materialised view'
           WHEN r.relispartition THEN 'partition'
           WHEN EXISTS (SELECT FROM pg_catalog.pg_inherits h WHERE h.inhrelid = r.oid OR h.inhparent = r.oid)
           THEN 'inheriting table' ELSE 'table' END AS kind,
       sum(greatest(l.reltuples, 0))::bigint AS rows,
       coalesce(sum(pg_catalog.pg_relation_size(l.oid)), 0)::bigint AS heap_bytes,
       coalesce(
           sum(pg_catalog.pg_total_relation_size(nullif(l.reltoastrelid, 0::oid))), 0
       )::bigint AS toast_bytes,
       coalesce(sum(pg_catalog.pg_indexes_size(l.oid)), 0)::bigint AS index_bytes,
       round(
           sum(s.n_dead_tup) / nullif(sum(s.n_dead_tup) + sum(s.n_live_tup), 0::numeric), 4
       )::float8 AS dead_share,
       max(greatest(s.last_vacuum, s.last_autovacuum)) AS last_vacuum,
       coalesce(
           -- Without the rows that are there, which may have been loaded at once, and updates that reach no index.
           (greatest(0::float8, sum(s.n_tup_ins)::float8 - sum(greatest(l.reltuples, 0::real))::float8)
               + sum(s.n_tup_upd - s.n_tup_hot_upd + s.n_tup_del)::float8)
           / greatest(3600::float8, pg_catalog.date_part('epoch', now() - (
               -- Counts outlive a restart. Until they are reset, those of the server tell since when there are some.
               SELECT coalesce(d.stats_reset, least(w.stats_reset, b.stats_reset), pg_postmaster_start_time())
               FROM pg_catalog.pg_stat_database d, pg_catalog.pg_stat_archiver w, pg_catalog.pg_stat_bgwriter b
               WHERE d.datname = current_database()
           ))), 0::float8
       )::float8 AS writes,
       greatest(1, count(*) FILTER (WHERE r.relkind = 'p'))::integer AS parts, r.relrowsecurity AS policies,
       pg_is_in_recovery() AS standby,
       (SELECT k.names FROM key k WHERE k.is_primary) AS primary_key,
       (SELECT k.names FROM key k WHERE NOT k.is_primary
        ORDER BY pg_catalog.cardinality(k.names), k.names LIMIT 1) AS other_key,
       r.relkind = 'p' AND bool_or(EXISTS (
           SELECT FROM pg_catalog.pg_index x JOIN pg_catalog.pg_class i ON i.oid = x.indexrelid
           JOIN pg_catalog.pg_am am ON am.oid = i.relam AND am.amname IN ('hnsw', 'ivfflat')
           JOIN pg_catalog.pg_depend p ON p.classid = 'pg_catalog.pg_class'::regclass::oid AND p.objid = i.oid AND p.refobjid = l.oid
           JOIN pg_catalog.pg_attribute own ON own.attrelid = l.oid AND own.attnum = p.refobjsubid AND own.attname = $2
           JOIN pg_catalog.pg_index top ON top.indexrelid = coalesce(pg_partition_root(i.oid)::oid, i.oid) AND top.indrelid <> $1::oid
           WHERE x.indrelid = l.oid
       )) AS has_indexed_parts,
       bool_or(l.relkind = 'f') AS has_foreign, row_security_active($1::oid) AS has_hidden
FROM pg_catalog.pg_class r JOIN pg_catalog.pg_attribute a ON a.attrelid = r.oid,
     leaf l LEFT JOIN pg_catalog.pg_stat_all_tables s ON s.relid = l.oid
WHERE r.oid = $1::oid AND a.attname = $2 AND NOT a.attisdropped
GROUP BY a.attname, a.atttypmod, a.attstorage, r.oid, r.relkind, r.relispartition, r.relrowsecurity

-- name: tenants
-- Columns that tell tenants: $2, or else one that a policy compares (no boolean, and not with NULL) and the first of several in the primary
-- key; with how many values they have, whether an index leads with them, and the rows of the most common one as a share, by the planner's statistics. $1: the table's oid.
WITH told (source, name) AS (
    SELECT '--tenant', $2::text WHERE $2 IS NOT NULL
    UNION ALL
    SELECT 'a policy', min(a.attname::text) FROM pg_catalog.pg_policy p
    JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_policy'::regclass::oid AND d.objid = p.oid
        AND d.refclassid = 'pg_catalog.pg_class'::regclass::oid AND d.refobjid = p.polrelid AND d.refobjsubid > 0
    JOIN pg_catalog.pg_attribute a ON a.attrelid = p.polrelid AND a.attnum = d.refobjsubid
    JOIN pg_catalog.pg_class c ON c.oid = p.polrelid AND c.relrowsecurity
    WHERE p.polrelid = $1::oid AND p.polcmd IN ('r', '*') AND a.atttypid <> 'bool'::regtype::oid
        AND pg_catalog.strpos(pg_get_expr(p.polqual, p.polrelid), pg_catalog.quote_ident(a.attname) || ' IS N') = 0
    HAVING count(DISTINCT a.attname) = 1
    UNION ALL
    SELECT 'the key', a.attname::text FROM pg_catalog.pg_index x
    JOIN pg_catalog.pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = x.indkey[0]
    WHERE x.indrelid = $1::oid AND x.indisprimary AND x.indnkeyatts > 1
)
SELECT t.name AS "column", pg_catalog.quote_ident(t.name) AS quoted_column, t.source,
       EXISTS (
           SELECT FROM pg_catalog.pg_index x JOIN pg_catalog.pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = x.indkey[0]
           WHERE x.indrelid = $1::oid AND x.indisvalid AND x.indpred IS NULL AND a.attname = t.name
       ) AS indexed,
       pg_catalog.round(k.tenants)::bigint AS tenants,
       pg_catalog.round(c.reltuples::float8 * coalesce(s.most_common_freqs[1]::float8, 1::float8 / nullif(k.tenants, 0::float8)))::bigint AS largest
FROM told t JOIN pg_catalog.pg_class c ON c.oid = $1::oid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_stats s ON s.schemaname = n.nspname AND s.tablename = c.relname AND s.attname = t.name
    AND s.inherited = (c.relkind = 'p')
CROSS JOIN LATERAL (
    SELECT CASE WHEN s.n_distinct::float8 < 0::float8 THEN -s.n_distinct::float8 * c.reltuples::float8 ELSE s.n_distinct::float8 END AS tenants
) k

-- name: indexes
-- Indexes of pgvector's whose definition names a column, with those of the partitions. $1: the table's
-- oid; $2: the column. The columns are fields of VectorIndex, but for the first two.
SELECT p.names, o.oprname AS operator, i.oid::regclass::text AS name, am.amname AS method,
       oc.opcname AS operator_class, x.indisvalid AS valid,
       CASE WHEN x.indkey[0] = 0 THEN pg_get_indexdef(x.indexrelid, 1, true) END AS expression,
       pg_get_expr(x.indpred, x.indrelid, true) AS condition,
       coalesce(i.reloptions, '{}') AS options, p.bytes::bigint, p.scans::bigint,
       round(p.hit / nullif(p.hit + p.read, 0::numeric), 3)::float8 AS cached_share
FROM pg_catalog.pg_index x
JOIN pg_catalog.pg_class i ON i.oid = x.indexrelid
JOIN pg_catalog.pg_am am ON am.oid = i.relam AND am.amname IN ('hnsw', 'ivfflat')
JOIN pg_catalog.pg_opclass oc ON oc.oid = x.indclass[0]
JOIN pg_catalog.pg_amop ao ON ao.amopfamily = oc.opcfamily AND ao.amoppurpose = 'o'
    AND ao.amopstrategy = 1 AND ao.amoplefttype = oc.opcintype
JOIN pg_catalog.pg_operator o ON o.oid = ao.amopopr
CROSS JOIN LATERAL (
    SELECT pg_catalog.array_agg(c.relname) AS names,
           sum(pg_catalog.pg_relation_size(c.oid)) AS bytes,
           coalesce(sum(s.idx_scan), 0) AS scans, coalesce(sum(b.idx_blks_hit), 0) AS hit,
           coalesce(sum(b.idx_blks_read), 0) AS read
    FROM pg_catalog.pg_class c
    LEFT JOIN pg_catalog.pg_stat_all_indexes s ON s.indexrelid = c.oid
    LEFT JOIN pg_catalog.pg_statio_all_indexes b ON b.indexrelid = c.oid
    WHERE c.oid = i.oid OR c.oid IN (SELECT t.relid FROM pg_catalog.pg_partition_tree(i.oid) t)
) p
WHERE x.indrelid = $1::oid AND EXISTS (
    SELECT FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_attribute a
        ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
    WHERE d.classid = 'pg_catalog.pg_class'::regclass::oid AND d.objid = x.indexrelid
      AND d.refclassid = d.classid AND d.refobjid = x.indrelid AND a.attname = $2
      -- The column may stand in the index's condition alone.
      AND (x.indkey[0] = a.attnum OR x.indkey[0] = 0 AND pg_get_indexdef(x.indexrelid, 1, false)
          ~ CASE WHEN a.attname ~ '^\w+$' THEN '\m' || a.attname || '\M' ELSE '***=' || quote_ident(a.attname) END)
)
ORDER BY i.relname

-- name: columns
-- A table, whether the caller may read it, its columns, and those of vectors. $1: the table.
SELECT r.oid::bigint, r.oid::regclass::text, pg_catalog.quote_ident(current_user),
       pg_catalog.has_table_privilege(r.oid, 'SELECT'),
       coalesce(pg_catalog.array_agg(a.attname::text), '{}'),
       coalesce(pg_catalog.array_agg(a.attname::text ORDER BY a.attnum)
           FILTER (WHERE t.typname IN ('vector', 'halfvec')), '{}')
FROM (SELECT CAST($1::text AS regclass)::oid AS oid) r
LEFT JOIN pg_catalog.pg_attribute a
    ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
GROUP BY r.oid

-- name: listed
-- The columns of vectors in a database that the caller may read. No lock is waited for: the size of a table that is locked is as of its
-- last VACUUM or ANALYZE.
-- The columns are fields of ListedColumn.
WITH RECURSIVE part AS (
    SELECT c.oid AS root, c.oid, c.relkind FROM pg_catalog.pg_class c
    WHERE c.relkind IN ('r', 'p', 'm') AND NOT c.relispartition
    UNION ALL
    SELECT p.root, c.oid, c.relkind FROM part p JOIN pg_catalog.pg_inherits h ON h.inhparent = p.oid AND p.relkind = 'p'
    JOIN pg_catalog.pg_class c ON c.oid = h.inhrelid
), leaf AS (
    SELECT p.root, c.oid, c.reltuples, c.relpages, EXISTS (
        SELECT FROM pg_catalog.pg_locks l
        WHERE l.relation IN (c.oid, c.reltoastrelid) AND l.mode = 'AccessExclusiveLock'
    ) AS locked
    FROM part p JOIN pg_catalog.pg_class c ON c.oid = p.oid WHERE c.relkind <> 'p'
)
SELECT c.oid::regclass::text, a.attname::text, pg_catalog.format_type(t.oid, a.atttypmod),
       -- Unknown before the first ANALYZE.
       sum(l.reltuples) FILTER (WHERE l.reltuples >= 0)::bigint,
       coalesce(sum(CASE WHEN l.locked THEN l.relpages * pg_catalog.current_setting('block_size')::bigint
           ELSE pg_catalog.pg_table_size(l.oid) END), 0)::bigint,
       ARRAY(SELECT i.relname::text FROM pg_catalog.pg_index x
             JOIN pg_catalog.pg_class i ON i.oid = x.indexrelid
             JOIN pg_catalog.pg_am m ON m.oid = i.relam AND m.amname IN ('hnsw', 'ivfflat')
             WHERE x.indrelid = c.oid AND a.attnum = ANY (x.indkey::smallint[])
             ORDER BY i.relname)
FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
JOIN pg_catalog.pg_type t ON t.oid = a.atttypid AND t.typname IN ('vector', 'halfvec')
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND n.nspname <> 'hashindex'
LEFT JOIN leaf l ON l.root = c.oid
WHERE c.relkind IN ('r', 'p', 'm') AND NOT c.relispartition AND a.attnum > 0
  AND NOT a.attisdropped AND pg_catalog.has_column_privilege(c.oid, a.attnum, 'SELECT')
GROUP BY c.oid, a.attname, a.attnum, t.oid, a.atttypmod ORDER BY 1, a.attnum

-- name: filters
-- The columns of a table that a filter may compare, and their types. $1: the table's oid.
SELECT pg_catalog.quote_ident(a.attname), pg_catalog.format_type(a.atttypid, NULL)
FROM pg_catalog.pg_attribute a
WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped
  AND EXISTS (SELECT FROM pg_catalog.pg_opclass o JOIN pg_catalog.pg_am m ON m.oid = o.opcmethod
              WHERE m.amname = 'btree' AND o.opcdefault
                AND (o.opcintype = a.atttypid OR a.atttypid = 'varchar'::regtype::oid))
