-- Row security of a table: whether codes hide the rows that it hides, and how they are made to.

-- Policies of a table that decide what roles may read, as text of which each change is seen.
CREATE OR REPLACE FUNCTION hashindex._policies_of(base oid) RETURNS text
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
-- Constants are written by these.
SET quote_all_identifiers = off
SET timezone = 'UTC'
SET datestyle = 'ISO'
SET intervalstyle = 'postgres'
SET extra_float_digits = 1
SET bytea_output = 'hex'
AS $$
BEGIN
    RETURN md5(coalesce(jsonb_agg(jsonb_build_array(
        p.polname, p.polpermissive, ARRAY(SELECT pg_get_userbyid(r) FROM unnest(p.polroles) r), pg_get_expr(p.polqual, p.polrelid)
    ) ORDER BY p.polname)::text, ''))
    FROM pg_policy p WHERE p.polrelid = base AND p.polcmd IN ('r', '*');
END
$$;

-- Whether row security hides rows of a table, or would if it were switched on again.
CREATE OR REPLACE FUNCTION hashindex._hides_rows(base oid) RETURNS boolean
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN EXISTS (SELECT FROM pg_class c WHERE c.oid = base AND c.relrowsecurity)
        OR EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = base AND p.polcmd IN ('r', '*'));
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

-- Makes codes and landmarks follow the policies of their table, which name no column but the tenant's: a role reads the codes of its tenants.
-- They hide all rows as soon as a policy of the table changes. They keep
-- them while row security of the table is switched off: it may be switched on again.
CREATE OR REPLACE FUNCTION hashindex._follow_policies(i hashindex.index, s hashindex.index_set) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base regclass := to_regclass(format('%I.%I', i.schema_name, i.table_name));
    kept record;
    policy record;
BEGIN
    FOR kept IN
        SELECT c.oid::regclass AS relation, c.relname AS name
        FROM pg_class c
        WHERE c.relnamespace = 'hashindex'::regnamespace AND c.relname IN (hashindex._part_of(s, 'codes'), hashindex._part_of(s, 'landmarks'))
          AND i.tenant_column IS NOT NULL
          AND hashindex._hides_rows(base) AND NOT hashindex._follows_policies(base, c.oid)
    LOOP
        FOR policy IN SELECT p.polname AS name FROM pg_policy p WHERE p.polrelid = kept.relation LOOP
            EXECUTE format('DROP POLICY %I ON %s', policy.name, kept.relation);
        END LOOP;
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', kept.relation);
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
                'CREATE POLICY %I ON %s AS %s FOR SELECT TO %s USING (EXISTS (SELECT FROM (SELECT %I.tenant AS %I) %I WHERE %s))',
                'policy_' || policy.n, kept.relation, policy.kind, policy.roles, kept.name, i.tenant_column, i.table_name,
                policy.condition
            );
        END LOOP;
    END LOOP;
END
$$;
