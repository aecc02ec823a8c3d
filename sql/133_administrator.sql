-- The owner of schema hashindex and its members administer it; the owner owns everything in it. Trigger functions run with its
-- rights, searches with the reader's rights.

-- Searches by exact distance read only the catalog, which holds nothing of vectors. Layers of models may: readable_model gives them to
-- those that read the codes of an index.
GRANT USAGE ON SCHEMA hashindex TO PUBLIC;
GRANT SELECT ON hashindex.index TO PUBLIC;
GRANT SELECT (id, name, version, method, dimension, n_bits, cuts, metric, created_at) ON hashindex.model TO PUBLIC;

-- The role that owns schema hashindex; triggers run as it.
CREATE OR REPLACE FUNCTION hashindex._administrator() RETURNS oid
LANGUAGE sql STABLE PARALLEL UNSAFE
RETURN (SELECT n.nspowner FROM pg_namespace n WHERE n.nspname = 'hashindex');

-- Refuses a role that is neither the administrator nor a member of it.
CREATE OR REPLACE FUNCTION hashindex._check_administrator() RETURNS void
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    administrator oid := hashindex._administrator();
BEGIN
    IF NOT pg_has_role(administrator, 'USAGE') THEN
        RAISE EXCEPTION 'role "%" does not administer schema hashindex', current_user
            USING ERRCODE = 'insufficient_privilege',
                  HINT = format('Connect as role %s, which owns the schema, or as a member of it.', administrator::regrole);
    END IF;
END
$$;

-- Privileges that roles hold on a table or on one of its columns, the owner's included; SQL reads the name public as PUBLIC.
CREATE OR REPLACE FUNCTION hashindex._grants_on(relation oid) RETURNS TABLE (grantee oid, role text, privilege text, column_name name)
LANGUAGE sql STABLE PARALLEL UNSAFE
BEGIN ATOMIC
    SELECT x.grantee, CASE x.grantee WHEN 0 THEN 'public' ELSE pg_get_userbyid(x.grantee)::text END, x.privilege_type, o.column_name
    FROM (
        SELECT coalesce(c.relacl, acldefault('r', c.relowner)) AS rights, NULL::name AS column_name FROM pg_class c WHERE c.oid = relation
        UNION ALL
        SELECT a.attacl, a.attname FROM pg_attribute a WHERE a.attrelid = relation
    ) o CROSS JOIN aclexplode(o.rights) x;
END;

-- Whether row security of a table hides rows from the administrator.
CREATE OR REPLACE FUNCTION hashindex._is_hidden(base regclass) RETURNS boolean
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN (
        SELECT c.relrowsecurity AND NOT (r.rolsuper OR r.rolbypassrls)
            AND (c.relforcerowsecurity OR NOT pg_has_role(r.oid, c.relowner, 'USAGE'))
        FROM pg_class c, pg_roles r WHERE c.oid = base AND r.oid = hashindex._administrator()
    );
END
$$;

-- Refuses a table whose rows the administrator may not read and lock, or does not see.
CREATE OR REPLACE FUNCTION hashindex._check_keeper(i hashindex.index) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    administrator regrole := hashindex._administrator();
    base regclass := format('%I.%I', i.schema_name, i.table_name);
    missing text;
BEGIN
    -- Encoding locks rows, which needs UPDATE.
    SELECT string_agg(r, ', ') INTO missing FROM unnest('{SELECT,UPDATE,TRIGGER}'::text[]) r WHERE NOT has_table_privilege(administrator, base, r);
    IF NOT has_schema_privilege(administrator, i.schema_name, 'USAGE') THEN
        RAISE EXCEPTION 'the administrator % may not keep an index of table %: it may not use schema %', administrator, base, quote_ident(i.schema_name)
            USING ERRCODE = 'insufficient_privilege', HINT = format('Have the owner of the schema run: GRANT USAGE ON SCHEMA %I TO %s;', i.schema_name, administrator);
    ELSIF missing IS NOT NULL THEN
        RAISE EXCEPTION 'the administrator % may not keep an index of table %', administrator, base
            USING ERRCODE = 'insufficient_privilege', HINT = format('Have the owner of the table run: GRANT %s ON %s TO %s;', missing, base, administrator);
    ELSIF hashindex._is_hidden(base) THEN
        RAISE EXCEPTION 'row security of % hides rows from role %, which keeps the codes', base, administrator
            USING ERRCODE = 'insufficient_privilege', HINT = format(
                'Run: ALTER TABLE %s NO FORCE ROW LEVEL SECURITY; or ALTER ROLE %s BYPASSRLS;', base, administrator
            );
    END IF;
END
$$;
