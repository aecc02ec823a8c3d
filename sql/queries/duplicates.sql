-- name: found
-- The comment of a table, whether it is there, and whether it is the caller's. $1: its name.
SELECT pg_catalog.obj_description(t.oid, 'pg_class'), t.oid IS NOT NULL,
       pg_has_role(c.relowner, current_user, 'USAGE')
FROM (SELECT pg_catalog.to_regclass($1)::oid AS oid) t
LEFT JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) t.oid
