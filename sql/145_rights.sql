-- The owner of schema hashindex and its members administer it; the owner owns everything in it. Trigger functions run with its
-- rights, searches with those of the reader.

-- Searches by exact distance read only the catalog, which holds nothing of vectors. Layers of models may, so nobody gets them here.
GRANT USAGE ON SCHEMA hashindex TO PUBLIC;
GRANT SELECT ON hashindex.index TO PUBLIC;
GRANT SELECT (id, name, version, method, dimension, n_bits, levels, metric, network, created_at) ON hashindex.model TO PUBLIC;

CREATE OR REPLACE FUNCTION hashindex._administrator() RETURNS oid
LANGUAGE sql STABLE PARALLEL UNSAFE
RETURN (SELECT n.nspowner FROM pg_namespace n WHERE n.nspname = 'hashindex');

COMMENT ON FUNCTION hashindex._administrator IS 'the role that owns schema hashindex; triggers run as it';

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

COMMENT ON FUNCTION hashindex._check_administrator IS 'refuses a role that is neither the administrator nor a member of it';

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

COMMENT ON FUNCTION hashindex._is_hidden IS 'whether row security of a table hides rows from the administrator';

-- A table's owner can make everybody who reads it run his code, by policies, partial indexes and CHECK constraints.
CREATE OR REPLACE FUNCTION hashindex._check_owner(i hashindex.index, trust_owner boolean) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    administrator regrole := hashindex._administrator();
    base regclass := format('%I.%I', i.schema_name, i.table_name);
    owned record;
    grants text;
BEGIN
    -- Encoding locks rows, which needs UPDATE; partitions are read and locked by the rights on their parent.
    SELECT string_agg(format('GRANT %s ON %s TO %s;', l.missing, p.part, administrator), ' ' ORDER BY p.is_partition, p.part) INTO grants
    FROM hashindex._parts_of(base) p CROSS JOIN LATERAL (
        SELECT string_agg(r, ', ') AS missing FROM unnest('{SELECT,UPDATE,TRIGGER}'::text[]) r
        WHERE NOT (p.is_partition AND r <> 'TRIGGER') AND NOT has_table_privilege(administrator, p.part, r)
    ) l
    WHERE l.missing IS NOT NULL;
    SELECT p.part, c.relowner::regrole AS owner INTO owned
    FROM hashindex._parts_of(base) p JOIN pg_class c ON c.oid = p.part
    WHERE NOT pg_has_role(c.relowner, administrator, 'USAGE') ORDER BY p.is_partition LIMIT 1;
    IF FOUND AND trust_owner IS NOT TRUE THEN
        RAISE EXCEPTION 'table % belongs to role %, not to the administrator %', owned.part, owned.owner, administrator
            USING ERRCODE = 'insufficient_privilege', HINT = format(
                'Its owner can run code as %s, through policies, partial indexes and CHECK constraints. Where he may be trusted with '
                'that, %screate the index with --trust-owner (trust_owner => true).', administrator, 'run: ' || grants || ' then '
            );
    ELSIF grants IS NOT NULL THEN
        RAISE EXCEPTION 'the administrator % may not keep an index of table %', administrator, base
            USING ERRCODE = 'insufficient_privilege', HINT = 'Have the owner of the table run: ' || grants;
    ELSIF i.layout = 'table' AND NOT hashindex._is_distributed(i) AND hashindex._is_hidden(base) THEN
        RAISE EXCEPTION 'row security of % hides rows from role %, which keeps the codes', base, administrator
            USING ERRCODE = 'insufficient_privilege', HINT = format(
                'Run: ALTER TABLE %s NO FORCE ROW LEVEL SECURITY; or ALTER ROLE %s BYPASSRLS; or use layout column.', base, administrator
            );
    END IF;
END
$$;

COMMENT ON FUNCTION hashindex._check_owner IS 'refuses a table that the administrator may not index, or whose owner is not trusted';

-- A member of the administrator, or a superuser, creates tables as itself.
CREATE OR REPLACE FUNCTION hashindex._take_over(i hashindex.index) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    administrator regrole := hashindex._administrator();
    made regclass;
BEGIN
    FOR made IN
        SELECT t.relation FROM hashindex._tables_of(i) t JOIN pg_class c ON c.oid = t.relation WHERE c.relowner <> administrator
    LOOP
        EXECUTE format('ALTER TABLE %s OWNER TO %s', made, administrator);
    END LOOP;
END
$$;

COMMENT ON FUNCTION hashindex._take_over IS 'makes the administrator the owner of the tables of an index';

-- Returns roles with SELECT on the codes. Without row security also those that may read key and vector: codes tell them nothing new.
CREATE OR REPLACE FUNCTION hashindex._readers_of(i hashindex.index) RETURNS SETOF text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base regclass := format('%I.%I', i.schema_name, i.table_name);
    secured boolean := bool_or(c.relrowsecurity) FROM hashindex._parts_of(base) p JOIN pg_class c ON c.oid = p.part;
BEGIN
    RETURN QUERY SELECT DISTINCT CASE acl.grantee WHEN 0 THEN 'public' ELSE pg_get_userbyid(acl.grantee)::text END
    FROM (
        SELECT false AS codes, (aclexplode(coalesce(c.relacl, acldefault('r', c.relowner)))).* FROM pg_class c WHERE c.oid = base
        UNION ALL
        SELECT a.attname = i.code_column, (aclexplode(a.attacl)).* FROM pg_attribute a WHERE a.attrelid = base
        UNION ALL
        SELECT true, (aclexplode(c.relacl)).* FROM pg_class c
        WHERE i.layout = 'table' AND c.oid = to_regclass(format('%I.%I', i.code_schema, i.code_table))
    ) acl
    WHERE acl.privilege_type = 'SELECT' AND acl.grantee <> hashindex._administrator()
      AND (acl.codes OR NOT secured) AND has_column_privilege(acl.grantee, base, i.id_column, 'SELECT')
      AND has_column_privilege(acl.grantee, base, i.column_name, 'SELECT');
END
$$;

COMMENT ON FUNCTION hashindex._readers_of IS 'roles that may read the codes of an index, or the keys and vectors themselves';

CREATE OR REPLACE FUNCTION hashindex._let_read(i hashindex.index, role text, reads boolean DEFAULT true) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    verb text := CASE WHEN reads THEN 'GRANT' ELSE 'REVOKE' END;
    grantee text := CASE WHEN reads THEN ' TO ' ELSE ' FROM ' END || CASE role WHEN 'public' THEN 'PUBLIC' ELSE quote_ident(nullif(role, '')) END;
BEGIN
    EXECUTE format(
        '%s SELECT%s ON %s', verb, CASE i.layout WHEN 'column' THEN format('(%I)', i.code_column) END,
        concat_ws(', ', format('%I.%I', i.code_schema, i.code_table), 'hashindex.' || quote_ident(i.landmark_table))
    ) || grantee;
    IF reads OR NOT EXISTS (SELECT FROM hashindex.index x, hashindex._readers_of(x) r WHERE x.storage <> i.storage AND r = role) THEN
        EXECUTE verb || ' SELECT (parameters, training, layers, checksum, bit_weights, profile) ON hashindex.model' || grantee;
        EXECUTE verb || ' SELECT ON hashindex.model_part' || grantee;
        IF to_regclass('hashindex.node_index') IS NOT NULL THEN EXECUTE verb || ' SELECT (layers) ON hashindex.node_index' || grantee; END IF;
    END IF;
END
$$;

COMMENT ON FUNCTION hashindex._let_read IS 'grants a role the codes, landmarks and models that searches by an index read, or revokes them';

CREATE OR REPLACE FUNCTION hashindex.grant_reader(index_name text, role text, reveal_codes boolean DEFAULT false)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex.find_index(index_name);
    base regclass := format('%I.%I', i.schema_name, i.table_name);
BEGIN
    PERFORM hashindex._check_administrator();
    IF role IS NULL THEN
        RAISE EXCEPTION 'role is NULL' USING ERRCODE = 'null_value_not_allowed', HINT = 'Pass a value.';
    ELSIF (has_column_privilege(role, base, i.id_column, 'SELECT') AND has_column_privilege(role, base, i.column_name, 'SELECT')) IS NOT TRUE THEN
        RAISE EXCEPTION 'role "%" may not read columns "%" and "%" of %', role, i.id_column, i.column_name, base
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('Searches read them. First run: GRANT SELECT (%I, %I) ON %s TO %s;', i.id_column, i.column_name, base, quote_ident(role));
    ELSIF reveal_codes IS NOT TRUE AND (SELECT bool_or(c.relrowsecurity) FROM hashindex._parts_of(base) p JOIN pg_class c ON c.oid = p.part) THEN
        RAISE EXCEPTION 'row security of % hides rows, and their codes tell what is in them', base
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Without the grant searches are exact. To let the role read the codes of all rows: --reveal-codes (reveal_codes => true).';
    END IF;
    PERFORM hashindex._let_read(x, role) FROM hashindex.index x WHERE i.name IN (x.name, x.swap_of);
END
$$;

COMMENT ON FUNCTION hashindex.grant_reader(text, text, boolean) IS
    'lets a role that may read the table search it by the codes of an index, which is faster than by exact distance';

CREATE OR REPLACE FUNCTION hashindex.revoke_reader(index_name text, role text) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex.find_index(index_name);
BEGIN
    PERFORM hashindex._check_administrator();
    IF role IS NULL THEN
        RAISE EXCEPTION 'role is NULL' USING ERRCODE = 'null_value_not_allowed', HINT = 'Pass a value.';
    END IF;
    PERFORM hashindex._let_read(x, role, false) FROM hashindex.index x WHERE i.name IN (x.name, x.swap_of);
END
$$;

COMMENT ON FUNCTION hashindex.revoke_reader(text, text) IS
    'takes the codes of an index from a role, and models where it reads no other index';
