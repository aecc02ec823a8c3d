-- name: exact
-- The rows nearest to a vector, by an exact search. $1: the index; $2: the vector; $3: how many;
-- $4: the tenant, or NULL for the whole table.
SELECT e.id, e.distance
FROM hashindex.find_index($1) i, hashindex._exact_search(
    pg_catalog.format('%I.%I', i.schema_name, i.table_name)::regclass, i.key_columns,
    i.column_name, i.metric, $2, $3,
    CASE WHEN $4::text IS NOT NULL THEN
        pg_catalog.format('%I.%I = %L', i.table_name, i.tenant_column, $4::text)
    END, 'pg_catalog, pg_temp'
) e

-- name: asked
-- The rows of some keys as they are now, in the order of the keys. $1: the keys.
SELECT {shown}, CASE WHEN b.{column} IS NOT NULL THEN {key_text} END, {tenant}
FROM pg_catalog.unnest($1::text[]) WITH ORDINALITY s(id, number)
LEFT JOIN {table} b ON ({key}) = ({given_key}) AND b.{column} IS NOT NULL
ORDER BY s.number

-- name: draw
-- Queries of an index: vectors, and the keys of the rows that they were drawn by. $1: the index; $2: how many; $3: the seed; $4: the tenant, or
-- NULL for all rows.
SELECT u.query, u.id
FROM hashindex.find_index($1) i, hashindex._set_of(i.name) s, hashindex._draw_queries(i, i.column_name, hashindex._moved_by(s), $2::integer, $3::bigint, $4) d,
    ROWS FROM (pg_catalog.unnest(d.ids), pg_catalog.unnest(d.queries)) WITH ORDINALITY u(id, query, place)
ORDER BY u.place
