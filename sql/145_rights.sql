-- Searches run with the reader's rights: whoever may read the table may read its codes, unless row security keeps rows from him.
-- Triggers run as the index's owner, so writers need nothing. Roles go by oid here, 0 for PUBLIC.

CREATE OR REPLACE FUNCTION hashindex._find_role(role text)
RETURNS oid
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    -- No role can have that name.
    id oid := CASE WHEN role = 'public' THEN 0 ELSE (SELECT r.oid FROM pg_roles r WHERE r.rolname = role) END;
BEGIN
    IF id IS NULL THEN
        RAISE EXCEPTION 'role "%" does not exist', coalesce(role, 'NULL')
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Write its name as it is, without quotes; see SELECT rolname FROM pg_roles.';
    END IF;
    RETURN id;
END
$$;

COMMENT ON FUNCTION hashindex._find_role(text) IS 'a role by its name (public: 0), or an error';

CREATE OR REPLACE FUNCTION hashindex._role_term(role oid)
RETURNS text
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN CASE WHEN role = 0 THEN 'PUBLIC' ELSE role::regrole::text END;
END
$$;

COMMENT ON FUNCTION hashindex._role_term(oid) IS 'SQL for a role to grant to';

-- Only what it does not hold: who may not pass a right on can then still do so where it is not needed.
CREATE OR REPLACE FUNCTION hashindex._grant_rights(role oid, kind text, object text, rights text[])
RETURNS void
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    me oid := r.oid FROM pg_roles r WHERE r.rolname = current_user;
    named text := CASE kind WHEN 'SCHEMA' THEN format('SCHEMA %s', object::regnamespace)
        ELSE format('TABLE %s', object::regclass) END;
    missing text[];
    refused text[];
BEGIN
    SELECT array_agg(m.wanted), array_agg(m.wanted) FILTER (WHERE NOT m.allowed)
    INTO missing, refused
    FROM (
        SELECT u.wanted, CASE kind
            WHEN 'SCHEMA' THEN has_schema_privilege(me, object::regnamespace, u.wanted || ' WITH GRANT OPTION')
            ELSE has_table_privilege(me, object::regclass, u.wanted || ' WITH GRANT OPTION')
        END AS allowed
        FROM unnest(rights) u(wanted)
        WHERE NOT CASE kind
            WHEN 'SCHEMA' THEN has_schema_privilege(role, object::regnamespace, u.wanted)
            ELSE has_table_privilege(role, object::regclass, u.wanted)
        END
    ) m;
    IF refused IS NOT NULL THEN
        RAISE EXCEPTION 'role % may not grant % on %', current_user, array_to_string(refused, ', '), object
            USING ERRCODE = 'insufficient_privilege',
                  HINT = format('Have its owner run: GRANT %s ON %s TO %s;',
                                array_to_string(refused, ', '), named, hashindex._role_term(role));
    ELSIF missing IS NOT NULL THEN
        EXECUTE format(
            'GRANT %s ON %s TO %s', array_to_string(missing, ', '), named, hashindex._role_term(role)
        );
    END IF;
END
$$;

COMMENT ON FUNCTION hashindex._grant_rights(oid, text, text, text[]) IS
    'grants rights on a table or schema, out of several those that a role has not';

-- Recall and jobs are for every reader to see; saved queries are vectors of rows that he may not see.
CREATE OR REPLACE FUNCTION hashindex._shared_tables(kinds text[])
RETURNS SETOF text
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN QUERY
    SELECT 'hashindex.' || t.name
    FROM (VALUES
        ('model', 'read'), ('model_part', 'read'), ('index', 'read'), ('recall_history', 'read'),
        ('job', 'read'), ('jobs', 'read'), ('node_index', 'read'), ('query_set', 'kept'), ('saved_query', 'kept')
    ) t(name, kind)
    WHERE t.kind = ANY (kinds) AND to_regclass('hashindex.' || t.name) IS NOT NULL;
END
$$;

COMMENT ON FUNCTION hashindex._shared_tables(text[]) IS
    'tables that all indexes share: those that readers read, and those that are kept from them';

CREATE OR REPLACE FUNCTION hashindex._grant_reading(i hashindex.index, role oid)
RETURNS void
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base regclass := format('%I.%I', i.schema_name, i.table_name)::regclass;
BEGIN
    PERFORM hashindex._grant_rights(role, 'SCHEMA', 'hashindex', '{USAGE}');
    PERFORM hashindex._grant_rights(role, 'TABLE', t, '{SELECT}') FROM hashindex._shared_tables('{read}') t;
    IF i.layout = 'table' THEN
        PERFORM hashindex._grant_rights(role, 'TABLE', format('%I.%I', i.code_schema, i.code_table), '{SELECT}');
    ELSIF has_column_privilege(role, base, i.id_column, 'SELECT')
        AND has_column_privilege(role, base, i.column_name, 'SELECT')
        AND NOT has_column_privilege(role, base, i.code_column, 'SELECT')
    THEN
        -- One who reads some columns of the table.
        EXECUTE format('GRANT SELECT (%I) ON %s TO %s', i.code_column, base, hashindex._role_term(role));
    END IF;
    IF i.landmark_table IS NOT NULL THEN
        PERFORM hashindex._grant_rights(role, 'TABLE', 'hashindex.' || quote_ident(i.landmark_table), '{SELECT}');
    END IF;
END
$$;

COMMENT ON FUNCTION hashindex._grant_reading(hashindex.index, oid) IS
    'grants a role what a search reads beside the table itself';

CREATE OR REPLACE FUNCTION hashindex.grant_like_table(index_name text)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex.find_index(index_name);
    base regclass := format('%I.%I', i.schema_name, i.table_name)::regclass;
    holder record;
    hint text;
BEGIN
    FOR holder IN
        SELECT DISTINCT acl.grantee AS role
        FROM (
            -- Partitions are read directly, too. Without a list of rights the owner has all.
            SELECT (aclexplode(coalesce(c.relacl, acldefault('r', c.relowner)))).*
            FROM pg_class c
            WHERE c.oid = base OR c.oid IN (SELECT relid FROM pg_partition_tree(base))
            UNION ALL
            SELECT (aclexplode(a.attacl)).* FROM pg_attribute a WHERE a.attrelid = base
        ) acl
        WHERE acl.privilege_type = 'SELECT' AND acl.grantee <> (SELECT oid FROM pg_roles WHERE rolname = current_user)
          AND has_column_privilege(acl.grantee, base, i.id_column, 'SELECT')
          AND has_column_privilege(acl.grantee, base, i.column_name, 'SELECT')
    LOOP
        BEGIN
            PERFORM hashindex._grant_reading(i, holder.role);
        EXCEPTION WHEN insufficient_privilege THEN
            -- An index is not refused for it: others than its maker grant rights on what all share.
            GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
            RAISE WARNING 'role % holds rights on %, and got none on index "%": %',
                hashindex._role_term(holder.role), base, i.name, SQLERRM
                USING ERRCODE = 'warning', HINT = hint;
        END;
    END LOOP;
END
$$;

COMMENT ON FUNCTION hashindex.grant_like_table(text) IS
    'lets roles that read the key and the vectors of a table search an index of it; run it again after new grants';
