-- name: settle
-- Sets settings of the session, and returns those before. $1 and $2: names and values.
-- Only what is otherwise is set: a pooler may give the session to others.
SELECT s.name, s.before, pg_catalog.set_config(s.name, s.wanted, false) FROM (
    SELECT g.name, g.wanted, pg_catalog.current_setting(g.name) AS before
    FROM unnest($1::text[], $2::text[]) g(name, wanted) OFFSET 0
) s WHERE NOT pg_catalog.starts_with(s.before, s.wanted)

-- name: types
-- The schema and the version of pgvector, and its types, in one trip to the server. TypeInfo.fetch would
-- take four for each type, and look names up under the user's path.
SELECT n.nspname, e.extversion, t.typname, t.oid, t.typarray
FROM pg_catalog.pg_extension e
JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace
LEFT JOIN pg_catalog.pg_type t
    ON t.typnamespace = n.oid AND t.typname IN ('vector', 'halfvec', 'sparsevec')
WHERE e.extname = 'vector'
