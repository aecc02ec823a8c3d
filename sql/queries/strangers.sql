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
