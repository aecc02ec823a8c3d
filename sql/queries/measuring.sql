-- name: exact
-- The rows nearest to a vector, by an exact search. $1: the index; $2: the vector; $3: how many;
-- $4: the tenant, or NULL for the whole table.
SELECT e.id, e.distance
FROM hashindex.find_index($1) i, hashindex._exact_search(
    pg_catalog.format('%I.%I', i.schema_name, i.table_name)::regclass, i.key_columns,
    i.column_name, i.metric, $2, $3, hashindex._of_tenant(i, $4::text), 'pg_catalog, pg_temp'
) e

-- name: model
-- The method of an index's model, and whether lists with landmarks suit it: from 10,000 rows on,
-- reading some lists is faster than reading all codes. No row for who may not read the model. $1:
-- the index.
SELECT m.method, CASE WHEN m.training ? 'supervision' OR (
    SELECT count(*) FROM (SELECT FROM {table} b WHERE b.{column} IS NOT NULL LIMIT 10000) r
) < 10000 THEN 'scan' ELSE 'lists' END
FROM hashindex.index_set s JOIN hashindex.readable_model m ON m.id = s.model_id
WHERE s.index_name = $1 AND s.state = 'used'

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
