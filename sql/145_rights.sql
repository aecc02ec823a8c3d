-- The owner of schema hashindex and its members administer it; the owner owns everything in it. Trigger functions run with its
-- rights, searches with those of the reader.

-- Searches by exact distance read only the catalog, which holds nothing of vectors. Layers of models may: readable_model gives them to
-- those that read the codes of an index.
GRANT USAGE ON SCHEMA hashindex TO PUBLIC;
GRANT SELECT ON hashindex.index TO PUBLIC;
GRANT SELECT (id, name, version, method, dimension, n_bits, cuts, metric, network, created_at) ON hashindex.model TO PUBLIC;

-- Whether the caller was granted the codes of an index.
CREATE OR REPLACE FUNCTION hashindex._may_read_codes(i hashindex.index) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM pg_attribute a
        WHERE a.attrelid = to_regclass(format('hashindex.%I', i.code_table)) AND a.attname = 'code' AND NOT a.attisdropped
          AND has_column_privilege(a.attrelid, a.attnum, 'SELECT')
    );
END
$$;

-- A view reads tables with its owner's rights, and calls functions with the caller's. Without the barrier, a function of the caller's
-- could see other models.
CREATE OR REPLACE VIEW hashindex.readable_model WITH (security_barrier) AS
SELECT m.* FROM hashindex.model m
WHERE has_column_privilege('hashindex.model', 'layers', 'SELECT')
   OR EXISTS (SELECT FROM hashindex.index i WHERE i.model_id = m.id AND hashindex._may_read_codes(i));
CREATE OR REPLACE VIEW hashindex.readable_model_part WITH (security_barrier) AS
SELECT p.* FROM hashindex.model_part p WHERE p.model_id IN (SELECT m.id FROM hashindex.readable_model m);
COMMENT ON VIEW hashindex.readable_model IS 'models that the caller may read: those of indexes whose codes he was granted';
COMMENT ON VIEW hashindex.readable_model_part IS 'parts of the models that the caller may read';
GRANT SELECT ON hashindex.readable_model, hashindex.readable_model_part TO PUBLIC;

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

-- Owners of a table, of its partitions, their schemas and types of columns that are neither the caller nor the administrator, nor trusted.
CREATE OR REPLACE FUNCTION hashindex._untrusted_owners(base oid, trusted text[], administered boolean DEFAULT true, columns text[] DEFAULT NULL)
RETURNS TABLE (owner text, refusal text, mark text)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 1
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    {untrusted_owners};
END
$$;

-- Whether the administrator trusts the owners of a table, of its partitions and schemas, and of the types of some columns: if not, no
-- function of his may name it.
CREATE OR REPLACE FUNCTION hashindex._is_trusted(base oid, trusted text[], columns text[]) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    -- Objects of the administrator are looked up in one step, which costs 50 us, and 3 for each partition.
    RETURN EXISTS (
        -- By pg_inherits, since pg_partition_tree locks all partitions.
        SELECT count(*) FROM (
            WITH RECURSIVE tree (oid) AS (SELECT base UNION SELECT h.inhrelid FROM tree t JOIN pg_inherits h ON h.inhparent = t.oid)
            SELECT t.oid FROM tree t
        ) p(oid)
        CROSS JOIN LATERAL (SELECT x.* FROM pg_class x WHERE x.oid = p.oid OFFSET 0) c JOIN pg_namespace n ON n.oid = c.relnamespace
        JOIN pg_namespace h ON h.nspname = 'hashindex' JOIN pg_database b ON b.datname = current_database()
        CROSS JOIN LATERAL (SELECT CASE WHEN n.nspowner = 'pg_database_owner'::regrole THEN b.datdba ELSE n.nspowner END) s(owner)
        HAVING bool_and(
            (c.relkind = 'p' OR c.relkind = 'r' AND NOT c.relhassubclass)
            AND (pg_has_role(c.relowner, h.nspowner, 'USAGE') OR concat(c.relowner, ':', pg_get_userbyid(c.relowner)) = ANY (trusted))
            AND (pg_has_role(s.owner, h.nspowner, 'USAGE') OR concat(s.owner, ':', pg_get_userbyid(s.owner)) = ANY (trusted))
        ) AND NOT EXISTS (
            SELECT FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
            WHERE a.attrelid = base AND a.attname = ANY (columns) AND t.typnamespace <> 'pg_catalog'::regnamespace AND (t.typtype <> 'b' OR t.typcategory = 'A')
        )
    -- A snapshot may be older than the table that has the name now.
    ) OR EXISTS (SELECT FROM pg_class c WHERE c.oid = base) AND NOT EXISTS (SELECT FROM hashindex._untrusted_owners(base, trusted, NULL, columns));
END
$$;

-- Refuses a transaction whose snapshot shows how a table was before somebody altered it, and perhaps gave it another owner: what is planned
-- follows the present catalog.
CREATE OR REPLACE FUNCTION hashindex._refuse_altered(base regclass) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    here bigint := pg_current_xact_id()::text::bigint;
BEGIN
    IF EXISTS (
        SELECT FROM hashindex._parts_of(base) p JOIN pg_class c ON c.oid = p.part
        -- Transactions are numbered modulo 2^32.
        WHERE c.xmax <> '0'::xid
          AND pg_xact_status((here + ((c.xmax::text::bigint - here + 2147483648) & 4294967295) - 2147483648)::text::xid8) = 'committed'
    ) THEN
        RAISE EXCEPTION 'could not serialize access: table % was altered since this transaction began', base
            USING ERRCODE = 'serialization_failure', HINT = 'Run the transaction again.';
    END IF;
END
$$;

-- Refuses the table of an index unless it is trusted, or belongs to the caller. Returns true, so that a declaration can ask it.
CREATE OR REPLACE FUNCTION hashindex._require_trust(schema_name text, table_name text, trusted text[], columns text[], index_name text) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base oid := hashindex._oid_of(schema_name, table_name);
BEGIN
    IF NOT hashindex._is_trusted(base, trusted, columns) THEN
        PERFORM hashindex._check_owners(base, trusted, format('pg-hashindex index configure %s --trust-owner', index_name), columns);
    END IF;
    RETURN true;
END
$$;

-- Refuses a table if its owner, or that of a partition or a schema, could run code as the caller and is not trusted. PostgreSQL runs
-- functions of a table's owner, in partial indexes, policies and CHECK constraints, in whoever plans a query on the table: so this is
-- asked before a statement names it.
CREATE OR REPLACE FUNCTION hashindex._check_owners(
    base oid, trusted text[], remedy text DEFAULT '--trust-owner (trust_owner => true)', columns text[] DEFAULT NULL
)
RETURNS void
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    untrusted record;
BEGIN
    SELECT u.* INTO untrusted FROM hashindex._untrusted_owners(base, trusted, true, columns) u LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '%, when a query on it is planned', untrusted.refusal
            USING ERRCODE = 'insufficient_privilege',
                  HINT = format('Connect as role %I, or if that role may do all that you may: %s', untrusted.owner, remedy);
    END IF;
END
$$;

-- The table that has a name now, or NULL: another one may have been put in its place. Not by to_regclass, which fails in a schema that the caller may not use.
CREATE OR REPLACE FUNCTION hashindex._oid_of(schema_name text, table_name text) RETURNS oid
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN c.oid FROM pg_namespace n JOIN pg_class c ON c.relnamespace = n.oid
    WHERE n.nspname = _oid_of.schema_name AND c.relname = _oid_of.table_name;
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
    grants text;
BEGIN
    -- Encoding locks rows, which needs UPDATE; partitions are read and locked by the rights on their parent.
    SELECT string_agg(format('GRANT %s ON %s TO %s;', l.missing, p.part, administrator), ' ' ORDER BY p.is_partition, p.part) INTO grants
    FROM hashindex._parts_of(base) p CROSS JOIN LATERAL (
        SELECT string_agg(r, ', ') AS missing FROM unnest('{SELECT,UPDATE,TRIGGER}'::text[]) r
        WHERE NOT (p.is_partition AND r <> 'TRIGGER') AND NOT has_table_privilege(administrator, p.part, r)
    ) l
    WHERE l.missing IS NOT NULL;
    IF grants IS NOT NULL THEN
        RAISE EXCEPTION 'the administrator % may not keep an index of table %', administrator, base
            USING ERRCODE = 'insufficient_privilege', HINT = 'Have the owner of the table run: ' || grants;
    ELSIF NOT hashindex._is_distributed(i) AND hashindex._is_hidden(base) THEN
        RAISE EXCEPTION 'row security of % hides rows from role %, which keeps the codes', base, administrator
            USING ERRCODE = 'insufficient_privilege', HINT = format(
                'Run: ALTER TABLE %s NO FORCE ROW LEVEL SECURITY; or ALTER ROLE %s BYPASSRLS;', base, administrator
            );
    END IF;
END
$$;

-- Makes the administrator the owner of the tables of an index. A member of the administrator, or a superuser, creates tables as itself.
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

-- Policies of a table that decide what roles may read, as text of which each change is seen.
CREATE OR REPLACE FUNCTION hashindex._policies_of(base oid) RETURNS text
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN md5(coalesce(jsonb_agg(jsonb_build_array(
        p.polname, p.polpermissive, ARRAY(SELECT pg_get_userbyid(r) FROM unnest(p.polroles) r), pg_get_expr(p.polqual, p.polrelid)
    ) ORDER BY p.polname)::text, ''))
    FROM pg_policy p WHERE p.polrelid = base AND p.polcmd IN ('r', '*');
END
$$;

-- Whether the codes of a table let a role read those rows alone that the table's policies let it read. After a change of the policies the
-- codes hide all rows.
CREATE OR REPLACE FUNCTION hashindex._follows_policies(base oid, codes oid) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid JOIN pg_class b ON b.oid = base JOIN pg_namespace n ON n.oid = b.relnamespace
        WHERE c.oid = codes AND c.relrowsecurity AND p.polname = 'policies_are_unchanged'
          AND strpos(pg_get_expr(p.polqual, p.polrelid), format('(%L::text, %L::text)', n.nspname, b.relname)) > 0
          AND strpos(pg_get_expr(p.polqual, p.polrelid), quote_literal(hashindex._policies_of(base))) > 0
    );
END
$$;

-- Whether row security hides rows of a table that its codes show the caller, or the other way round.
CREATE OR REPLACE FUNCTION hashindex._rows_are_hidden(base text, codes text) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN row_security_active(to_regclass(base)) IS DISTINCT FROM row_security_active(to_regclass(codes))
        OR row_security_active(to_regclass(base)) AND NOT hashindex._follows_policies(to_regclass(base), to_regclass(codes));
END
$$;

-- Refuses to read codes that hide rows which the table lets the caller read.
CREATE OR REPLACE FUNCTION hashindex._require_policies(index_name text, base text, codes text) RETURNS void
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    IF row_security_active(to_regclass(codes)) AND hashindex._rows_are_hidden(base, codes) THEN
        RAISE EXCEPTION 'the codes of index "%" do not follow the policies of % as they are now', index_name, base
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = format('As the administrator, run: pg-hashindex index grant %s ROLE', index_name);
    END IF;
END
$$;

-- Makes codes and landmarks follow the policies of their table, which name no column but the tenant's: a role reads those of its tenants.
-- They hide all rows as soon as a policy of the table changes. Where the table has no row security, they have none.
CREATE OR REPLACE FUNCTION hashindex._follow_policies(i hashindex.index) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base regclass := to_regclass(format('%I.%I', i.schema_name, i.table_name));
    hides boolean := c.relrowsecurity FROM pg_class c WHERE c.oid = base;
    kept record;
    policy record;
BEGIN
    FOR kept IN
        SELECT c.oid::regclass AS relation, c.relname AS name, t.tenant, c.relrowsecurity AS follows
        FROM (VALUES (format('hashindex.%I', i.code_table), 'filter_1'), ('hashindex.' || quote_ident(i.landmark_table), 'tenant')) t(place, tenant)
        JOIN pg_class c ON c.oid = to_regclass(t.place)
        WHERE i.tenant_column IS NOT NULL
          AND CASE WHEN hides THEN NOT hashindex._follows_policies(base, c.oid) ELSE c.relrowsecurity END
    LOOP
        FOR policy IN SELECT p.polname AS name FROM pg_policy p WHERE p.polrelid = kept.relation LOOP
            EXECUTE format('DROP POLICY %I ON %s', policy.name, kept.relation);
        END LOOP;
        EXECUTE format('ALTER TABLE %s %s ROW LEVEL SECURITY', kept.relation, CASE WHEN hides THEN 'ENABLE' ELSE 'DISABLE' END);
        CONTINUE WHEN NOT hides;
        EXECUTE format(
            'CREATE POLICY policies_are_unchanged ON %s AS RESTRICTIVE FOR SELECT '
            'USING ((SELECT hashindex._policies_of(hashindex._oid_of(%L, %L))) = %L)',
            kept.relation, i.schema_name, i.table_name, hashindex._policies_of(base)
        );
        FOR policy IN
            SELECT p.polname AS name, CASE WHEN p.polpermissive THEN 'PERMISSIVE' ELSE 'RESTRICTIVE' END AS kind, (
                    SELECT string_agg(CASE r WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(r)) END, ', ') FROM unnest(p.polroles) r
                ) AS roles, pg_get_expr(p.polqual, p.polrelid) AS condition, row_number() OVER (ORDER BY p.polname) AS n
            FROM pg_policy p WHERE p.polrelid = base AND p.polcmd IN ('r', '*') AND p.polqual IS NOT NULL
        LOOP
            EXECUTE format(
                'CREATE POLICY %I ON %s AS %s FOR SELECT TO %s USING (EXISTS (SELECT FROM (SELECT %I.%I AS %I) %I WHERE %s))',
                'policy_' || policy.n, kept.relation, policy.kind, policy.roles, kept.name, kept.tenant, i.tenant_column, i.table_name,
                policy.condition
            );
        END LOOP;
    END LOOP;
END
$$;

-- The rows that codes of an index reveal to readers beyond those that they may read, or NULL. Without this, a grant would tell a role
-- what the table does not. Codes follow policies that name no column but the tenant's, of which they hold a copy.
CREATE OR REPLACE FUNCTION hashindex._reveals(i hashindex.index) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base regclass := to_regclass(format('%I.%I', i.schema_name, i.table_name));
    hiding regclass[] := ARRAY(SELECT p.part FROM hashindex._parts_of(base) p JOIN pg_class c ON c.oid = p.part WHERE c.relrowsecurity);
BEGIN
    RETURN coalesce(CASE
        WHEN hiding = '{}' THEN NULL
        -- Policies of a partition hold for those who name it.
        WHEN i.tenant_column IS NULL OR hashindex._is_distributed(i) OR hiding <> ARRAY[base] THEN
            format('row security of %s hides rows, and their codes tell what is in them', base)
        ELSE (
            SELECT format('policy "%s" of %s depends on more than the tenant, and codes tell what is in rows', min(p.polname), base)
            FROM pg_policy p
            WHERE p.polrelid = base AND p.polcmd IN ('r', '*') AND (
                -- Columns of the row's own, and whole rows, which are not dependencies.
                EXISTS (
                    SELECT FROM pg_depend d JOIN pg_attribute a ON a.attrelid = base AND a.attnum = d.refobjsubid
                    WHERE d.classid = 'pg_policy'::regclass AND d.objid = p.oid AND d.refclassid = 'pg_class'::regclass AND d.refobjid = base
                      AND a.attname <> i.tenant_column
                ) OR p.polqual::text ~ ':varattno (0|-)'
            ) HAVING count(*) > 0
        )
    END, (
        SELECT format('model "%s" keeps vectors that it was trained on, as anchors, and searches read them', m.name)
        FROM hashindex.readable_model m
        WHERE m.id = i.model_id AND EXISTS (SELECT FROM unnest(m.layers) l WHERE l.kind IN ('rbf', 'affinity'))
    ));
END
$$;

-- Roles that were granted the codes of an index, and whether by --reveal-codes. The right REFERENCES on the codes allows nothing else. It
-- marks a grant that was made although it reveals more.
CREATE OR REPLACE FUNCTION hashindex._readers_of(i hashindex.index) RETURNS TABLE (role text, reveals boolean)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    codes regclass := to_regclass(format('hashindex.%I', i.code_table));
BEGIN
    RETURN QUERY SELECT CASE acl.grantee WHEN 0 THEN 'public' ELSE pg_get_userbyid(acl.grantee)::text END,
        bool_or(acl.by_column AND acl.privilege_type = 'REFERENCES')
    FROM (
        SELECT true AS by_column, (aclexplode(a.attacl)).* FROM pg_attribute a WHERE a.attrelid = codes AND a.attname = 'code'
        UNION ALL
        SELECT false, (aclexplode(c.relacl)).* FROM pg_class c WHERE c.oid = codes
    ) acl
    WHERE acl.grantee <> hashindex._administrator()
    GROUP BY acl.grantee HAVING bool_or(acl.privilege_type = 'SELECT');
END
$$;

-- Takes from all roles what default privileges gave them when a table was made.
CREATE OR REPLACE FUNCTION hashindex._hide(made text) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    others text := string_agg(DISTINCT CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE acl.grantee::regrole::text END, ', ')
        FROM pg_class c, aclexplode(c.relacl) acl WHERE c.oid = to_regclass(made) AND acl.grantee <> c.relowner;
BEGIN
    IF others IS NOT NULL THEN
        EXECUTE format('REVOKE ALL ON %s FROM %s', made, others);
    END IF;
END
$$;

-- Columns that a reader of codes must be allowed to read: key, vector, and the tenant, by which codes are in order.
CREATE OR REPLACE FUNCTION hashindex._columns_of_readers(i hashindex.index) RETURNS text[]
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN i.key_columns || i.column_name || CASE WHEN i.tenant_column <> ALL (i.key_columns) THEN ARRAY[i.tenant_column] ELSE '{}' END;
END
$$;

-- Whether a role may read these columns.
CREATE OR REPLACE FUNCTION hashindex._may_read_rows(i hashindex.index, role text) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN count(*) = cardinality(hashindex._columns_of_readers(i)) AND bool_and(has_column_privilege(role, a.attrelid, a.attnum, 'SELECT'))
    FROM pg_attribute a
    WHERE a.attrelid = to_regclass(format('%I.%I', i.schema_name, i.table_name)) AND a.attname = ANY (hashindex._columns_of_readers(i));
END
$$;

-- Grants a role the codes and landmarks that searches by an index read, or revokes them.
CREATE OR REPLACE FUNCTION hashindex._let_read(i hashindex.index, role text, reads boolean DEFAULT true, reveals boolean DEFAULT false)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base regclass := to_regclass(format('%I.%I', i.schema_name, i.table_name));
    codes text := format('hashindex.%I', i.code_table);
    landmarks text := 'hashindex.' || quote_ident(i.landmark_table);
    grantee text := CASE role WHEN 'public' THEN 'PUBLIC' ELSE quote_ident(nullif(role, '')) END;
    -- Copies of filter columns that the role may not read stay hidden.
    filters text[] := ARRAY(
        SELECT 'filter_' || f.n FROM unnest(i.filter_columns) WITH ORDINALITY f(name, n)
        JOIN pg_attribute a ON a.attrelid = base AND a.attname = f.name AND NOT a.attisdropped
        WHERE has_column_privilege(role, base, a.attnum, 'SELECT') ORDER BY f.n
    );
BEGIN
    EXECUTE format('REVOKE ALL ON %s FROM %s', concat_ws(', ', codes, landmarks), grantee);
    IF reads THEN
        IF NOT reveals THEN
            PERFORM hashindex._follow_policies(i);
        END IF;
        EXECUTE format('GRANT SELECT%s ON %s TO %s', CASE
            WHEN cardinality(filters) < cardinality(i.filter_columns) THEN format(' (%s)', array_to_string(
                ARRAY(SELECT a.attname FROM pg_attribute a WHERE a.attrelid = to_regclass(codes)
                        AND a.attname = ANY (hashindex._code_keys(i) || '{landmark,code,length,fit}'::text[])
                      ORDER BY a.attnum) || filters, ', '
            ))
        END, codes, grantee);
        IF landmarks IS NOT NULL THEN
            EXECUTE format('GRANT SELECT ON %s TO %s', landmarks, grantee);
        END IF;
        IF reveals THEN
            EXECUTE format('GRANT REFERENCES (code) ON %s TO %s', codes, grantee);
        END IF;
    END IF;
    -- A query on a shard reads no view, so readers of an index of a distributed table get the layers of all of these.
    IF to_regclass('hashindex.node_index') IS NOT NULL AND hashindex._is_distributed(i) AND (reads OR NOT EXISTS (
        SELECT FROM hashindex.index x, hashindex._readers_of(x) r WHERE x.storage <> i.storage AND r.role = _let_read.role AND hashindex._is_distributed(x)
    )) THEN
        EXECUTE format(CASE WHEN reads THEN 'GRANT SELECT (layers) ON hashindex.node_index TO %s' ELSE 'REVOKE SELECT (layers) ON hashindex.node_index FROM %s' END, grantee);
    END IF;
END
$$;

-- Gives new codes of an index their readers: those of former codes, or those that may read the rows. With another index, the readers are
-- its: who was revoked there stays revoked. Without one, those that may read the columns that codes tell of. Default
-- privileges give no role anything, and a table with row security gives nothing without a grant.
CREATE OR REPLACE FUNCTION hashindex._set_readers(i hashindex.index, other hashindex.index DEFAULT NULL) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base regclass := format('%I.%I', i.schema_name, i.table_name);
    reason text := hashindex._reveals(i);
    hides boolean := c.relrowsecurity FROM pg_class c WHERE c.oid = base;
    reader record;
    kept text[] := '{}';
    left_out text[] := '{}';
BEGIN
    FOR reader IN
        SELECT r.* FROM hashindex._readers_of(other) r WHERE other.name IS NOT NULL
        UNION ALL
        SELECT DISTINCT CASE acl.grantee WHEN 0 THEN 'public' ELSE pg_get_userbyid(acl.grantee)::text END, false
        FROM (
            SELECT (aclexplode(coalesce(c.relacl, acldefault('r', c.relowner)))).* FROM pg_class c WHERE c.oid = base
            UNION ALL
            SELECT (aclexplode(a.attacl)).* FROM pg_attribute a WHERE a.attrelid = base
        ) acl
        WHERE other.name IS NULL AND acl.privilege_type = 'SELECT' AND acl.grantee <> hashindex._administrator()
        ORDER BY role
    LOOP
        IF NOT hashindex._may_read_rows(i, reader.role) THEN
            CONTINUE;
        ELSIF NOT reader.reveals AND (reason IS NOT NULL OR other.name IS NULL AND hides) THEN
            left_out := left_out || reader.role;
        ELSE
            kept := kept || reader.role;
            PERFORM hashindex._let_read(i, reader.role, true, reader.reveals);
        END IF;
    END LOOP;
    IF other.name IS NOT NULL AND left_out <> '{}' THEN
        RAISE WARNING 'roles that read the former codes will search by exact distance: %; %', array_to_string(left_out, ', '), reason
            USING HINT = format('To let them read all the same: pg-hashindex index grant %s ROLE --reveal-codes.', coalesce(i.swap_of, i.name));
    END IF;
    FOR reader IN
        SELECT r.role FROM hashindex._readers_of(i) r
        UNION
        SELECT CASE acl.grantee WHEN 0 THEN 'public' ELSE pg_get_userbyid(acl.grantee)::text END
        FROM pg_class c, aclexplode(c.relacl) acl
        WHERE c.oid IN (SELECT t.relation FROM hashindex._tables_of(i) t WHERE t.in_use) AND acl.grantee <> c.relowner
    LOOP
        IF reader.role <> ALL (kept) THEN
            PERFORM hashindex._let_read(i, reader.role, false);
        END IF;
    END LOOP;
END
$$;

-- Roles that may read more of an index than they should, and what to do. Rights change after an index was made: the table's are revoked,
-- row security is enabled, default privileges reach new tables.
CREATE OR REPLACE FUNCTION hashindex._rights_faults(i hashindex.index) RETURNS TABLE (fault text, advice text)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base regclass := to_regclass(format('%I.%I', i.schema_name, i.table_name));
    codes regclass := to_regclass(format('hashindex.%I', i.code_table));
    reason text := hashindex._reveals(i);
    named text := coalesce(i.swap_of, i.name);
BEGIN
    RETURN QUERY
    SELECT format('role %s may read the codes, ', quote_ident(r.role)) || CASE
            WHEN NOT hashindex._may_read_rows(i, r.role) THEN format('and not %s of %s', hashindex._named(hashindex._columns_of_readers(i)), base)
            ELSE 'and ' || reason END,
        format('pg-hashindex index grant %s %s --revoke', named, hashindex._shell_word(r.role))
            || CASE WHEN hashindex._may_read_rows(i, r.role) THEN format(
                '; or, if that is meant: pg-hashindex index grant %s %s --reveal-codes', named, hashindex._shell_word(r.role)
            ) ELSE '' END
    FROM hashindex._readers_of(i) r
    WHERE base IS NOT NULL AND (NOT hashindex._may_read_rows(i, r.role) OR reason IS NOT NULL AND NOT r.reveals)
    UNION ALL
    SELECT format('the codes that role %s may read do not follow the policies of %s as they are now', quote_ident(r.role), base),
        format('pg-hashindex index grant %s; or: pg-hashindex index grant %s --revoke', VARIADIC array_fill(concat_ws(' ', named, hashindex._shell_word(r.role)), '{2}'))
    FROM hashindex._readers_of(i) r JOIN pg_class t ON t.oid = base JOIN pg_class c ON c.oid = codes
    WHERE reason IS NULL AND NOT r.reveals AND (t.relrowsecurity OR c.relrowsecurity)
      AND NOT (t.relrowsecurity AND hashindex._follows_policies(base, codes))
    UNION ALL
    SELECT format('role %s may read the copy of column "%s", and not the column itself', quote_ident(r.role), f.name),
        format('pg-hashindex index grant %s %s', named, hashindex._shell_word(r.role)) || CASE WHEN r.reveals THEN ' --reveal-codes' ELSE '' END
    FROM hashindex._readers_of(i) r CROSS JOIN unnest(i.filter_columns) WITH ORDINALITY f(name, n)
    JOIN pg_attribute kept ON kept.attrelid = codes AND kept.attname = 'filter_' || f.n
    JOIN pg_attribute a ON a.attrelid = base AND a.attname = f.name
    WHERE has_column_privilege(r.role, codes, kept.attnum, 'SELECT') AND NOT has_column_privilege(r.role, base, a.attnum, 'SELECT')
    UNION ALL
    -- Nothing here grants these.
    SELECT format('role %s may read %s', CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE acl.grantee::regrole::text END, c.oid::regclass),
        format('REVOKE SELECT ON %s FROM %s', c.oid::regclass, CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE acl.grantee::regrole::text END)
    FROM pg_class c, aclexplode(c.relacl) acl
    WHERE acl.grantee <> c.relowner AND acl.privilege_type = 'SELECT' AND (
        c.oid = ANY ('{hashindex.model,hashindex.model_part,hashindex.recall_history}'::regclass[])
        OR c.oid IN (SELECT t.relation FROM hashindex._tables_of(i) t) AND c.relname <> i.storage || '_shards' AND NOT EXISTS (
            SELECT FROM hashindex._readers_of(i) r WHERE r.role = CASE acl.grantee WHEN 0 THEN 'public' ELSE pg_get_userbyid(acl.grantee)::text END
        )
    );
END
$$;

CREATE OR REPLACE FUNCTION hashindex.grant_reader(index_name text, role text, reveal_codes boolean DEFAULT false)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex.find_index(index_name);
    base regclass := format('%I.%I', i.schema_name, i.table_name);
    reason text := max(hashindex._reveals(x)) FROM hashindex.index x WHERE i.name IN (x.name, x.swap_of);
    other text;
BEGIN
    PERFORM hashindex._check_administrator();
    IF role IS NULL THEN
        RAISE EXCEPTION 'role is NULL' USING ERRCODE = 'null_value_not_allowed', HINT = 'Pass a value.';
    ELSIF (SELECT bool_and(has_column_privilege(role, base, c.name, 'SELECT')) FROM unnest(hashindex._columns_of_readers(i)) c(name)) IS NOT TRUE THEN
        RAISE EXCEPTION 'role "%" may not read columns % of %', role, hashindex._named(hashindex._columns_of_readers(i)), base
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('Searches read them. First run: GRANT SELECT (%s) ON %s TO %s;',
                                hashindex._columns_of(NULL, hashindex._columns_of_readers(i)), base, quote_ident(role));
    ELSIF reveal_codes IS NOT TRUE AND reason IS NOT NULL THEN
        RAISE EXCEPTION '%', reason
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Without the grant searches are exact. To let the role read them all the same: --reveal-codes (reveal_codes => true).';
    END IF;
    -- Policies hold for all readers of the codes.
    SELECT r.role INTO other FROM hashindex._readers_of(i) r
    WHERE r.role <> grant_reader.role AND r.reveals <> coalesce(reveal_codes, false)
      AND (SELECT bool_or(c.relrowsecurity) FROM pg_class c WHERE c.oid IN (base, to_regclass(format('hashindex.%I', i.code_table))))
    LIMIT 1;
    IF other IS NOT NULL AND i.tenant_column IS NOT NULL THEN
        RAISE EXCEPTION 'role "%" reads the codes of index "%" % --reveal-codes, and role "%" is to read them %', other, i.name,
                CASE WHEN reveal_codes THEN 'without' ELSE 'by' END, role, CASE WHEN reveal_codes THEN 'by it' ELSE 'without' END
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('The codes follow policies for all roles or for none. First run: pg-hashindex index grant %s %s --revoke', i.name, hashindex._shell_word(other));
    END IF;
    PERFORM hashindex._let_read(x, role, true, coalesce(reveal_codes, false)) FROM hashindex.index x WHERE i.name IN (x.name, x.swap_of);
END
$$;

COMMENT ON FUNCTION hashindex.grant_reader(text, text, boolean) IS
    'lets a role that may read the table search it by the codes of an index, which is faster than by exact distance';

CREATE OR REPLACE FUNCTION hashindex.revoke_reader(index_name text, role text) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex._row_of(index_name);
BEGIN
    PERFORM hashindex._check_administrator();
    IF role IS NULL THEN
        RAISE EXCEPTION 'role is NULL' USING ERRCODE = 'null_value_not_allowed', HINT = 'Pass a value.';
    ELSIF role <> 'public' AND NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = role) THEN
        RAISE EXCEPTION 'role "%" does not exist', role USING ERRCODE = 'undefined_object';
    END IF;
    PERFORM hashindex._let_read(x, role, false) FROM hashindex.index x WHERE i.name IN (x.name, x.swap_of);
END
$$;

COMMENT ON FUNCTION hashindex.revoke_reader(text, text) IS
    'takes the codes of an index from a role; builds and swaps do not give them back';
