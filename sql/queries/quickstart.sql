-- name: rights
-- Rights of the caller in the database and with a table, and the administrator. $1: the table.
SELECT pg_catalog.quote_ident(current_user),
       pg_catalog.quote_ident(pg_catalog.current_database()), n.nspname IS NOT NULL,
       pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE'),
       pg_catalog.quote_ident(a.rolname), pg_catalog.pg_has_role(a.oid, 'USAGE'),
       CASE WHEN NOT pg_catalog.has_schema_privilege(a.oid, c.relnamespace, 'USAGE') THEN c.relnamespace::pg_catalog.regnamespace::text END,
       (SELECT pg_catalog.string_agg(r, ', ')
        FROM pg_catalog.unnest('{SELECT,UPDATE,TRIGGER}'::text[]) r
        WHERE NOT pg_catalog.has_table_privilege(a.oid, c.oid, r)),
       CASE WHEN NOT pg_catalog.pg_has_role(c.relowner, 'USAGE') THEN
           pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(c.relowner))
       END
FROM pg_catalog.pg_class c
LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = 'hashindex'
JOIN pg_catalog.pg_roles a ON a.oid = coalesce(n.nspowner, (SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolname = current_user))
WHERE c.oid = $1::regclass::oid

-- name: quoted
-- The columns of the key of an index, their names in answers, and the column of tenants, as SQL writes them. $1: the index.
SELECT ARRAY(SELECT pg_catalog.quote_ident(k.name) FROM pg_catalog.unnest(i.key_columns) WITH ORDINALITY k(name, n) ORDER BY k.n),
       ARRAY(SELECT pg_catalog.quote_ident(k.name) FROM pg_catalog.unnest(hashindex._answer_keys(i)) WITH ORDINALITY k(name, n) ORDER BY k.n),
       pg_catalog.quote_ident(i.tenant_column)
FROM hashindex.index i WHERE i.name = $1
