-- name: strong
-- Whether a role is a superuser, or can become one: by INHERIT, SET ROLE or a grant to itself.
EXISTS (SELECT FROM pg_catalog.pg_roles strong WHERE strong.rolsuper AND pg_catalog.pg_has_role({role}, strong.oid, 'MEMBER'))

-- name: callers
-- The roles whose rights code gains that runs in this session: the present one, and those that SET ROLE and SET SESSION AUTHORIZATION
-- would bring back; and whether each can become a superuser.
SELECT r.oid AS role, r.rolname AS name, {strong r.oid} AS super
FROM pg_catalog.pg_roles r
WHERE r.rolname IN (session_user, current_user) OR r.oid = (
    -- The role that connected, whatever was set since.
    SELECT a.usesysid FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()) a
)

-- name: read_with
-- A table with what a query on it reads, its partitions and the tables of a view, as a FROM list that locks each. $1: the table, by oid or name.
{read}
SELECT pg_catalog.string_agg(pg_catalog.format('ONLY %s', c.oid::pg_catalog.regclass), ', ' ORDER BY c.oid)
FROM read r JOIN pg_catalog.pg_class c ON c.oid = r.oid WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')

-- name: read
-- The table $1, its partitions, and what a view reads.
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
)

-- name: other_owners
-- Owners of a table, of its partitions, of what a view reads, of their schemas, of types of some columns, and of functions that their
-- indexes, policies, constraints, defaults, generated columns and triggers call, who could do more by running code as the caller.
-- $1: the table, by oid or name; $2: the columns that an index reads, whose owners have the administrator's
-- rights; or NULL, where the caller reads the table for himself: they have his, or those of the administrator unless he can become a superuser.
{read}, types (oid) AS (
    -- Only a superuser makes a base type, and a domain, over however many others, has the casts of its base.
    SELECT a.atttypid FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = $1::pg_catalog.regclass::pg_catalog.oid AND a.attname = ANY ($2::pg_catalog.name[])
    UNION
    SELECT t.typbasetype FROM types d JOIN pg_catalog.pg_type t ON t.oid = d.oid WHERE t.typtype = 'd'
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
    SELECT 3, 'type ' OPERATOR(pg_catalog.||) t.oid::pg_catalog.regtype::pg_catalog.text, t.typowner
    FROM types y JOIN pg_catalog.pg_type t ON t.oid = y.oid
    WHERE t.typnamespace <> 'pg_catalog'::pg_catalog.regnamespace::pg_catalog.oid AND (t.typtype NOT IN ('b', 'd') OR t.typcategory = 'A')
    UNION
    SELECT 4, pg_catalog.format('function %s, which %s calls,', p.oid::pg_catalog.regprocedure, r.oid::pg_catalog.regclass), p.proowner
    FROM read r CROSS JOIN LATERAL (
        SELECT 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid, x.indexrelid FROM pg_catalog.pg_index x WHERE x.indrelid = r.oid
        UNION ALL
        SELECT 'pg_catalog.pg_policy'::pg_catalog.regclass::pg_catalog.oid, y.oid FROM pg_catalog.pg_policy y WHERE y.polrelid = r.oid
        UNION ALL
        SELECT 'pg_catalog.pg_constraint'::pg_catalog.regclass::pg_catalog.oid, k.oid FROM pg_catalog.pg_constraint k WHERE k.conrelid = r.oid
        UNION ALL
        SELECT 'pg_catalog.pg_attrdef'::pg_catalog.regclass::pg_catalog.oid, f.oid FROM pg_catalog.pg_attrdef f WHERE f.adrelid = r.oid
        UNION ALL
        SELECT 'pg_catalog.pg_trigger'::pg_catalog.regclass::pg_catalog.oid, g.oid FROM pg_catalog.pg_trigger g
        -- The work on an index writes no row of the table.
        WHERE g.tgrelid = r.oid AND $2 IS NULL
        UNION ALL
        SELECT 'pg_catalog.pg_statistic_ext'::pg_catalog.regclass::pg_catalog.oid, e.oid FROM pg_catalog.pg_statistic_ext e WHERE e.stxrelid = r.oid
        UNION ALL
        SELECT 'pg_catalog.pg_rewrite'::pg_catalog.regclass::pg_catalog.oid, w.oid FROM pg_catalog.pg_rewrite w WHERE w.ev_class = r.oid
    ) x (class, object)
    JOIN pg_catalog.pg_depend d ON d.classid = x.class AND d.objid = x.object
    LEFT JOIN pg_catalog.pg_operator q
        ON d.refclassid = 'pg_catalog.pg_operator'::pg_catalog.regclass::pg_catalog.oid AND q.oid = d.refobjid
    JOIN pg_catalog.pg_proc p ON p.oid = CASE d.refclassid
        WHEN 'pg_catalog.pg_proc'::pg_catalog.regclass::pg_catalog.oid THEN d.refobjid ELSE q.oprcode::pg_catalog.oid END
), callers AS (
    {callers}
), administrator (role) AS (
    SELECT n.nspowner FROM pg_catalog.pg_namespace n WHERE n.nspname = 'hashindex'
)
SELECT r.rolname::pg_catalog.text AS owner,
       pg_catalog.format('%s belongs to role %I, which can run code as %I when a query on it is planned', o.object, r.rolname, (
           SELECT c.name FROM callers c ORDER BY c.super DESC, c.name = current_user DESC LIMIT 1
       )) AS refusal
FROM owned o JOIN pg_catalog.pg_roles r ON r.oid = o.owner
WHERE NOT EXISTS (
    SELECT FROM administrator a
    WHERE pg_catalog.pg_has_role(o.owner, a.role, 'USAGE') AND ($2 IS NOT NULL OR NOT EXISTS (SELECT FROM callers c WHERE c.super))
) AND ($2 IS NOT NULL OR EXISTS (
    SELECT FROM callers c
    WHERE NOT CASE WHEN c.super THEN {strong o.owner} OR o.owner = c.role ELSE pg_catalog.pg_has_role(o.owner, c.role, 'USAGE') END
))
UNION ALL
-- A snapshot may show who owned the table before somebody altered it, or be older than the table: what is planned follows the present catalog.
SELECT NULL, pg_catalog.format('table %s was altered since this transaction began', r.oid::pg_catalog.regclass)
FROM read r LEFT JOIN pg_catalog.pg_class c ON c.oid = r.oid
CROSS JOIN (SELECT pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::bigint) here (n)
-- Transactions are numbered modulo 2^32.
WHERE CASE WHEN c.oid IS NULL THEN r.oid IS NOT NULL WHEN pg_catalog.current_setting('transaction_isolation') <> 'read committed' AND c.xmax <> '0'::pg_catalog.xid THEN
    pg_catalog.pg_xact_status((here.n + ((c.xmax::text::bigint - here.n + 2147483648) & 4294967295) - 2147483648)::text::pg_catalog.xid8) = 'committed'
END

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
SELECT NOT me.super OR {strong n.nspowner},
       pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(n.nspowner)),
       pg_catalog.quote_ident(me.name),
       pg_catalog.to_regclass('hashindex.alembic_version') IS NOT NULL
           AND pg_catalog.to_regclass('hashindex.object') IS NULL
FROM pg_catalog.pg_namespace n CROSS JOIN (
    SELECT c.* FROM (
        {callers}
    ) c ORDER BY c.super DESC, c.name = current_user DESC LIMIT 1
) me
WHERE n.nspname = 'hashindex'
