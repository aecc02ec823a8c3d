-- name: other_owners
-- Owners of a table, of its partitions, of what a view reads, of their schemas, and of types of some columns, who could do more by
-- running code as the caller. $1: the table, by oid or name; $2: the columns that an index reads, whose owners have the administrator's
-- rights; or NULL, where the caller reads the table for himself: they have his, or those of the administrator unless he is a superuser.
WITH RECURSIVE read (oid) AS (
    SELECT $1::pg_catalog.regclass::pg_catalog.oid
    UNION
    SELECT below.oid FROM read r CROSS JOIN LATERAL (
        SELECT c.oid, c.relkind, c.relhassubclass FROM pg_catalog.pg_class c WHERE c.oid = r.oid OFFSET 0
    ) c CROSS JOIN LATERAL (
        SELECT h.inhrelid FROM pg_catalog.pg_inherits h WHERE c.relhassubclass AND h.inhparent = c.oid
        UNION ALL
        SELECT d.refobjid FROM pg_catalog.pg_rewrite w JOIN pg_catalog.pg_depend d ON d.objid = w.oid
        WHERE c.relkind = 'v' AND w.ev_class = c.oid AND d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass::pg_catalog.oid
          AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid
    ) below (oid)
), owned (place, object, owner) AS (
    SELECT DISTINCT o.*
    -- Rows are looked up one by one: a join would read all of pg_class.
    FROM read r CROSS JOIN LATERAL (
        SELECT c.oid, c.relkind, c.relowner, c.relnamespace FROM pg_catalog.pg_class c WHERE c.oid = r.oid OFFSET 0
    ) c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_catalog.pg_database b ON b.datname = pg_catalog.current_database()
    CROSS JOIN LATERAL (VALUES
        (1, CASE c.relkind WHEN 'v' THEN 'view ' ELSE 'table ' END OPERATOR(pg_catalog.||) c.oid::pg_catalog.regclass::pg_catalog.text, c.relowner),
        -- PostgreSQL lets the owner of the database own schema public.
        (2, 'schema ' OPERATOR(pg_catalog.||) pg_catalog.quote_ident(n.nspname), CASE
            WHEN n.nspowner = 'pg_database_owner'::pg_catalog.regrole::pg_catalog.oid THEN b.datdba ELSE n.nspowner END)
    ) o
    UNION
    -- Types whose casts run. Only a superuser makes a base type, and a domain has the casts of its own.
    SELECT 3, 'type ' OPERATOR(pg_catalog.||) t.oid::pg_catalog.regtype::pg_catalog.text, t.typowner
    FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type d ON d.oid = a.atttypid
    JOIN pg_catalog.pg_type t ON t.oid = CASE d.typtype WHEN 'd' THEN d.typbasetype ELSE d.oid END
    WHERE a.attrelid = $1::pg_catalog.regclass::pg_catalog.oid AND a.attname = ANY ($2::pg_catalog.name[]) AND t.typnamespace <> 'pg_catalog'::pg_catalog.regnamespace::pg_catalog.oid
      AND (t.typtype NOT IN ('b', 'd') OR t.typcategory = 'A')
), caller (role, name, super) AS (
    -- SET ROLE does not hold code back.
    SELECT r.oid, r.rolname, r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = session_user AND r.rolsuper OR r.rolname = current_user
    ORDER BY r.rolsuper DESC LIMIT 1
)
SELECT r.rolname::pg_catalog.text AS owner,
       pg_catalog.format('%s belongs to role %I, which can run code as %I when a query on it is planned', o.object, r.rolname, me.name) AS refusal
FROM caller me CROSS JOIN owned o JOIN pg_catalog.pg_roles r ON r.oid = o.owner
WHERE NOT EXISTS (
    SELECT FROM (
        SELECT n.nspowner FROM pg_catalog.pg_namespace n WHERE n.nspname = 'hashindex' AND ($2 IS NOT NULL OR NOT me.super)
        UNION ALL
        SELECT me.role WHERE $2 IS NULL
    ) safe (role)
    WHERE pg_catalog.pg_has_role(o.owner, safe.role, 'USAGE')
)
ORDER BY o.place, o.object

-- name: strangers
-- Objects in schema hashindex that its owner does not own, and triggers that call a function of another role.
SELECT o.object, o.owner
FROM pg_catalog.pg_namespace n CROSS JOIN LATERAL (
    SELECT 'function ' || p.oid::regprocedure::text AS object, p.proowner AS owner FROM pg_catalog.pg_proc p WHERE p.pronamespace = n.oid
    UNION ALL
    SELECT 'relation ' || c.oid::regclass::text, c.relowner FROM pg_catalog.pg_class c WHERE c.relnamespace = n.oid
    UNION ALL
    SELECT 'type ' || t.oid::regtype::text, t.typowner FROM pg_catalog.pg_type t WHERE t.typnamespace = n.oid
    UNION ALL
    SELECT 'operator ' || x.oid::regoperator::text, x.oprowner FROM pg_catalog.pg_operator x WHERE x.oprnamespace = n.oid
    UNION ALL
    SELECT pg_catalog.format('trigger %I on %s', t.tgname, c.oid::regclass), p.proowner
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_trigger t ON t.tgrelid = c.oid JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
    WHERE c.relnamespace = n.oid AND NOT pg_catalog.pg_has_role(p.proowner, n.nspowner, 'USAGE')
) o
WHERE n.nspname = 'hashindex' AND o.owner <> n.nspowner ORDER BY 1

-- name: schema_owner
-- Whether the caller may run what the owner of schema hashindex has put there, the owner, and the caller; and whether the schema is
-- one from before the first release, which had no table of objects.
SELECT NOT me.rolsuper OR pg_catalog.pg_has_role(n.nspowner, me.rolname, 'USAGE'),
       pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(n.nspowner)),
       pg_catalog.quote_ident(me.rolname),
       pg_catalog.to_regclass('hashindex.alembic_version') IS NOT NULL
           AND pg_catalog.to_regclass('hashindex.object') IS NULL
FROM pg_catalog.pg_namespace n CROSS JOIN (
    SELECT r.* FROM pg_catalog.pg_roles r
    WHERE r.rolname = session_user AND r.rolsuper OR r.rolname = current_user
    ORDER BY r.rolsuper DESC LIMIT 1
) me
WHERE n.nspname = 'hashindex'
