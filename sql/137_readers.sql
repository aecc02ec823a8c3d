-- Roles that read the codes of an index: who may, what a grant would reveal, and who reads more than he should.

-- A view reads tables with its owner's rights, and calls functions with the caller's. Without the barrier, a function of the caller's
-- could see other models.
CREATE OR REPLACE VIEW hashindex.readable_model WITH (security_barrier) AS
SELECT m.* FROM hashindex.model m
WHERE has_column_privilege('hashindex.model', 'layers', 'SELECT') OR EXISTS (
    SELECT FROM hashindex.index_set s JOIN pg_attribute a ON a.attrelid = to_regclass(format('hashindex.set_%s_codes', s.id))
    WHERE s.model_id = m.id AND a.attname = 'code' AND has_column_privilege(a.attrelid, a.attnum, 'SELECT')
);
CREATE OR REPLACE VIEW hashindex.readable_model_part WITH (security_barrier) AS
SELECT p.* FROM hashindex.model_part p WHERE p.model_id IN (SELECT m.id FROM hashindex.readable_model m);
COMMENT ON VIEW hashindex.readable_model IS 'models that the caller may read: models of indexes whose codes he was granted';
COMMENT ON VIEW hashindex.readable_model_part IS 'parts of the models that the caller may read';
GRANT SELECT ON hashindex.readable_model, hashindex.readable_model_part TO PUBLIC;

-- The rows that codes of an index reveal to readers beyond those that they may read, or NULL. Without this, a grant would tell a role
-- what the table does not. Codes follow policies that name no column but the tenant's, of which they hold a copy.
CREATE OR REPLACE FUNCTION hashindex._reveals(i hashindex.index, s hashindex.index_set) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base regclass := to_regclass(format('%I.%I', i.schema_name, i.table_name));
    hides boolean := CASE WHEN i.tenant_column IS NULL THEN c.relrowsecurity ELSE hashindex._hides_rows(base) END FROM pg_class c WHERE c.oid = base;
BEGIN
    RETURN coalesce(CASE
        WHEN NOT hides THEN NULL
        WHEN i.tenant_column IS NULL THEN
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
        WHERE m.id = s.model_id AND EXISTS (SELECT FROM unnest(m.layers) l WHERE l.kind IN ('rbf', 'affinity'))
    ));
END
$$;

-- Roles that were granted the codes of an index, and whether by --reveal-codes. The right REFERENCES on the codes allows nothing else. It
-- marks a grant that was made although it reveals more.
CREATE OR REPLACE FUNCTION hashindex._readers_of(s hashindex.index_set) RETURNS TABLE (role text, reveals boolean)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    codes regclass := hashindex._table_of(s, 'codes');
BEGIN
    RETURN QUERY SELECT g.role, bool_or(g.column_name = 'code' AND g.privilege = 'REFERENCES') IS TRUE
    FROM hashindex._grants_on(codes) g
    WHERE g.grantee <> hashindex._administrator() AND coalesce(g.column_name, 'code') = 'code'
    GROUP BY g.role HAVING bool_or(g.privilege = 'SELECT');
END
$$;

-- Whether a role may read the columns that codes tell of.
CREATE OR REPLACE FUNCTION hashindex._may_read_rows(i hashindex.index, role text) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN NOT EXISTS (
        SELECT FROM unnest(hashindex._read_columns(i)) r(name)
        LEFT JOIN pg_attribute a ON a.attrelid = to_regclass(format('%I.%I', i.schema_name, i.table_name)) AND a.attname = r.name
        WHERE has_column_privilege(role, a.attrelid, a.attnum, 'SELECT') IS NOT TRUE
    );
END
$$;

-- Grants a role the codes and landmarks that searches by an index read, or revokes them.
CREATE OR REPLACE FUNCTION hashindex._let_read(i hashindex.index, s hashindex.index_set, role text, reads boolean DEFAULT true, reveals boolean DEFAULT false)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    codes text := hashindex._table_of(s, 'codes');
    landmarks text := hashindex._table_of(s, 'landmarks');
    grantee text := quote_ident(nullif(role, ''));
BEGIN
    EXECUTE format('REVOKE ALL ON %s FROM %s', concat_ws(', ', codes, landmarks), grantee);
    IF reads THEN
        IF NOT reveals THEN
            PERFORM hashindex._follow_policies(i, s);
        END IF;
        EXECUTE format('GRANT SELECT ON %s TO %s', concat_ws(', ', codes, landmarks), grantee);
        IF reveals THEN
            EXECUTE format('GRANT REFERENCES (code) ON %s TO %s', codes, grantee);
        END IF;
    END IF;
END
$$;

-- Gives new codes of an index their readers: the readers of former codes, or roles that may read the rows. With another set, the readers are
-- its: who was revoked there stays revoked. Without one, those that may read the columns that codes tell of. Default
-- privileges give no role anything, and a table with row security gives nothing without a grant.
CREATE OR REPLACE FUNCTION hashindex._set_readers(i hashindex.index, s hashindex.index_set, other hashindex.index_set DEFAULT NULL) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base regclass := format('%I.%I', i.schema_name, i.table_name);
    reason text := hashindex._reveals(i, s);
    hides boolean := c.relrowsecurity FROM pg_class c WHERE c.oid = base;
    reader record;
    kept text[] := '{}';
    left_out text[] := '{}';
BEGIN
    FOR reader IN
        SELECT r.* FROM hashindex._readers_of(other) r WHERE other.id IS NOT NULL
        UNION ALL
        SELECT DISTINCT g.role, false FROM hashindex._grants_on(base) g
        WHERE other.id IS NULL AND g.privilege = 'SELECT' AND g.grantee <> hashindex._administrator()
        ORDER BY role
    LOOP
        IF NOT hashindex._may_read_rows(i, reader.role) THEN
            CONTINUE;
        ELSIF NOT reader.reveals AND (reason IS NOT NULL OR other.id IS NULL AND hides) THEN
            left_out := left_out || reader.role;
        ELSE
            kept := kept || reader.role;
            PERFORM hashindex._let_read(i, s, reader.role, true, reader.reveals);
        END IF;
    END LOOP;
    IF other.id IS NOT NULL AND left_out <> '{}' THEN
        RAISE WARNING 'roles that read the former codes will search by exact distance: %; %', array_to_string(left_out, ', '), reason
            USING HINT = format('To let them read all the same: pg-hashindex index grant %s ROLE --reveal-codes.', i.name);
    END IF;
    FOR reader IN
        SELECT r.role FROM hashindex._readers_of(s) r
        UNION
        SELECT g.role FROM pg_class c CROSS JOIN hashindex._grants_on(c.oid) g
        WHERE c.oid IN (hashindex._table_of(s, 'codes'), hashindex._table_of(s, 'landmarks')) AND g.column_name IS NULL AND g.grantee <> c.relowner
    LOOP
        IF reader.role <> ALL (kept) THEN
            PERFORM hashindex._let_read(i, s, reader.role, false);
        END IF;
    END LOOP;
END
$$;

-- Roles that may read more of an index than they should, and what to do. Rights change after an index was made: the table's are revoked,
-- row security is enabled, default privileges reach new tables.
CREATE OR REPLACE FUNCTION hashindex._rights_faults(i hashindex.index, s hashindex.index_set) RETURNS TABLE (status text, fault text, consequence text, advice text)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base regclass := to_regclass(format('%I.%I', i.schema_name, i.table_name));
    codes regclass := hashindex._table_of(s, 'codes');
    reason text := hashindex._reveals(i, s);
    named text := i.name;
    administrator regrole := hashindex._administrator();
BEGIN
    RETURN QUERY
    SELECT 'warning', w.fault, NULL, w.advice FROM (
        SELECT format('role %s may read the codes, ', quote_ident(r.role)) || CASE
                WHEN NOT hashindex._may_read_rows(i, r.role) THEN format('and not %s of %s', hashindex._named(hashindex._read_columns(i)), base)
                ELSE 'and ' || reason END,
            format('pg-hashindex index grant %s %s --revoke', named, hashindex._shell_word(r.role))
                || CASE WHEN hashindex._may_read_rows(i, r.role) THEN format(
                    '; or, if that is meant: pg-hashindex index grant %s %s --reveal-codes', named, hashindex._shell_word(r.role)
                ) ELSE '' END
        FROM hashindex._readers_of(s) r
        WHERE base IS NOT NULL AND (NOT hashindex._may_read_rows(i, r.role) OR reason IS NOT NULL AND NOT r.reveals)
        UNION ALL
        SELECT format('the codes that role %s may read do not follow the policies of %s as they are now', quote_ident(r.role), base),
            format('pg-hashindex index grant %s %s; or: pg-hashindex index grant %s %s --revoke', named, hashindex._shell_word(r.role), named, hashindex._shell_word(r.role))
        FROM hashindex._readers_of(s) r JOIN pg_class c ON c.oid = codes
        WHERE reason IS NULL AND NOT r.reveals AND (c.relrowsecurity OR (SELECT t.relrowsecurity FROM pg_class t WHERE t.oid = base)) AND NOT hashindex._follows_policies(base, codes)
        UNION ALL
        -- Nothing here grants these.
        SELECT format('role %s may read %s', quote_ident(g.role), c.oid::regclass), format('REVOKE SELECT ON %s FROM %I', c.oid::regclass, g.role)
        FROM pg_class c CROSS JOIN hashindex._grants_on(c.oid) g
        WHERE g.grantee <> c.relowner AND g.privilege = 'SELECT' AND g.column_name IS NULL AND (
            c.oid = ANY ('{hashindex.model,hashindex.model_part,hashindex.recall_history}'::regclass[])
            OR c.oid IN (SELECT o.id FROM hashindex._objects_of(i) o WHERE o.kind = 'table')
                AND g.role NOT IN (SELECT r.role FROM hashindex._readers_of(s) r)
        )
    ) w(fault, advice)
    UNION ALL
    SELECT 'broken', w.wrong, format('only role %s may create and write in the schema', administrator),
        'drop what you did not make, and REVOKE the rights'
    FROM (
        SELECT format('%s belongs to role %s', n.object, n.owner::regrole) FROM hashindex._strangers() n
        UNION ALL
        SELECT format('role %s holds %s on %s', CASE x.grantee WHEN 0 THEN 'public' ELSE x.grantee::regrole::text END, string_agg(x.privilege_type, ', ' ORDER BY x.privilege_type), o.name)
        FROM (
            SELECT 'schema hashindex' AS name, n.nspacl AS rights FROM pg_namespace n WHERE n.nspname = 'hashindex'
            UNION ALL
            SELECT c.oid::regclass::text, c.relacl FROM pg_class c WHERE c.relnamespace = 'hashindex'::regnamespace
        ) o CROSS JOIN aclexplode(o.rights) x
        WHERE x.grantee <> administrator AND x.privilege_type NOT IN ('USAGE', 'SELECT', 'MAINTAIN')
        GROUP BY x.grantee, o.name
    ) w(wrong)
    UNION ALL
    -- Searches run as the caller and look up names in these schemas.
    SELECT 'warning', format('role %s may create functions in schema %I, beside pgvector', r.role, n.nspname), 'searches could call them',
        format('REVOKE CREATE ON SCHEMA %I FROM %s; or have pgvector in a schema of its own', n.nspname, r.role)
    FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace CROSS JOIN aclexplode(n.nspacl) x
    CROSS JOIN LATERAL (SELECT CASE x.grantee WHEN 0 THEN 'public' ELSE x.grantee::regrole::text END) r(role)
    WHERE e.extname = 'vector' AND x.privilege_type = 'CREATE' AND x.grantee NOT IN (n.nspowner, administrator);
END
$$;

CREATE OR REPLACE FUNCTION hashindex.grant_reader(index_name text, role text, reveal_codes boolean DEFAULT false)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex._require(index_name, administers => true);
    base regclass := format('%I.%I', i.schema_name, i.table_name);
    s hashindex.index_set := hashindex._used_lists(i);
    reason text := max(hashindex._reveals(i, x)) FROM hashindex.index_set x WHERE x.index_name = i.name AND x.access IN ('lists', 'scan');
    other text;
BEGIN
    IF role IS NULL THEN
        RAISE EXCEPTION 'role is NULL' USING ERRCODE = 'null_value_not_allowed', HINT = 'Pass a value.';
    ELSIF NOT hashindex._may_read_rows(i, role) THEN
        RAISE EXCEPTION 'role "%" may not read columns % of %', role, hashindex._named(hashindex._read_columns(i)), base
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('Searches read them. First run: GRANT SELECT (%s) ON %s TO %s;',
                                hashindex._columns_of(NULL, hashindex._read_columns(i)), base, quote_ident(role));
    ELSIF reveal_codes IS NOT TRUE AND reason IS NOT NULL THEN
        RAISE EXCEPTION '%', reason
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Without the grant searches are exact. To let the role read them all the same: --reveal-codes (reveal_codes => true).';
    END IF;
    -- Policies hold for all readers of the codes.
    SELECT r.role INTO other FROM hashindex._readers_of(s) r
    WHERE r.role <> grant_reader.role AND r.reveals <> coalesce(reveal_codes, false)
      AND (SELECT bool_or(c.relrowsecurity) FROM pg_class c WHERE c.oid IN (base, hashindex._table_of(s, 'codes')))
    LIMIT 1;
    IF other IS NOT NULL AND i.tenant_column IS NOT NULL THEN
        RAISE EXCEPTION 'role "%" reads the codes of index "%" % --reveal-codes, and role "%" is to read them %', other, i.name,
                CASE WHEN reveal_codes THEN 'without' ELSE 'by' END, role, CASE WHEN reveal_codes THEN 'by it' ELSE 'without' END
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('The codes follow policies for all roles or for none. First run: pg-hashindex index grant %s %s --revoke', i.name, hashindex._shell_word(other));
    END IF;
    PERFORM hashindex._let_read(i, x, role, true, coalesce(reveal_codes, false)) FROM hashindex.index_set x
    WHERE x.index_name = i.name AND hashindex._table_of(x, 'codes') IS NOT NULL;
END
$$;

COMMENT ON FUNCTION hashindex.grant_reader(text, text, boolean) IS
    'lets a role that may read the table search it by the codes of an index, which is faster than by exact distance';

CREATE OR REPLACE FUNCTION hashindex.revoke_reader(index_name text, role text) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex._require(index_name, administers => true, reads => false);
BEGIN
    IF NOT hashindex._has_lists(i) THEN
        RAISE EXCEPTION 'index "%" has no codes in lists that roles could read', i.name
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Whoever may read the table may search: REVOKE SELECT on the table.';
    ELSIF role IS NULL THEN
        RAISE EXCEPTION 'role is NULL' USING ERRCODE = 'null_value_not_allowed', HINT = 'Pass a value.';
    ELSIF role <> 'public' AND NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = role) THEN
        RAISE EXCEPTION 'role "%" does not exist', role USING ERRCODE = 'undefined_object';
    END IF;
    PERFORM hashindex._let_read(i, x, role, false) FROM hashindex.index_set x WHERE x.index_name = i.name AND hashindex._table_of(x, 'codes') IS NOT NULL;
END
$$;

COMMENT ON FUNCTION hashindex.revoke_reader(text, text) IS
    'takes the codes of an index from a role; builds and swaps do not give them back';
