-- Makes an installation the extension pg_hashindex, and an extension an installation without one. Both have the same objects; those
-- of indexes are never members, so pg_dump takes them along as it does tables of yours.

CREATE OR REPLACE FUNCTION hashindex.join_extension()
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    grants jsonb;
    part record;
BEGIN
    PERFORM hashindex._check_administrator();
    IF EXISTS (SELECT FROM hashindex.orphans()) THEN
        RAISE EXCEPTION 'schema hashindex holds objects of indexes that no longer exist'
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'First run: SELECT hashindex.drop_orphans();';
    END IF;
    CREATE EXTENSION pg_hashindex VERSION 'unpackaged';
    -- pg_dump leaves out rights that an object has when it becomes a member, so they are granted again later.
    SELECT jsonb_agg(jsonb_build_array(format('%s%s ON %s', g.privilege, ' (' || quote_ident(g.column_name) || ')', c.oid::regclass), quote_ident(g.role))) INTO grants
    FROM pg_class c CROSS JOIN hashindex._grants_on(c.oid) g
    WHERE c.relnamespace = 'hashindex'::regnamespace AND g.grantee NOT IN (0, c.relowner);
    FOR part IN SELECT g ->> 0 AS privilege, g ->> 1 AS role FROM jsonb_array_elements(grants) g LOOP
        EXECUTE format('REVOKE %s FROM %s', part.privilege, part.role);
    END LOOP;
    FOR part IN
        SELECT o.type, o.identity
        FROM pg_depend d CROSS JOIN LATERAL pg_identify_object(d.classid, d.objid, 0) o
        WHERE d.refclassid = 'pg_namespace'::regclass AND d.refobjid = 'hashindex'::regnamespace
          AND o.type IN ('function', 'sequence', 'table', 'type', 'view')
          AND d.objid NOT IN (SELECT e.id FROM hashindex.object o JOIN hashindex._existing() e USING (kind, name))
    LOOP
        EXECUTE format('ALTER EXTENSION pg_hashindex ADD %s %s', part.type, part.identity);
    END LOOP;
    ALTER EXTENSION pg_hashindex UPDATE;
    FOR part IN SELECT g ->> 0 AS privilege, g ->> 1 AS role FROM jsonb_array_elements(grants) g LOOP
        EXECUTE format('GRANT %s TO %s', part.privilege, part.role);
    END LOOP;
    PERFORM hashindex.rebuild_functions();
END
$$;

COMMENT ON FUNCTION hashindex.join_extension() IS
    'makes an installation by pg-hashindex schema upgrade, or by its script, the extension pg_hashindex';

CREATE OR REPLACE FUNCTION hashindex.leave_extension()
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    part record;
BEGIN
    PERFORM hashindex._check_administrator();
    FOR part IN
        SELECT d.objid::regprocedure::text AS name FROM pg_extension e JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
        JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
        -- Any role can have a function of its own depend on it.
        WHERE e.extname = 'pg_hashindex' AND d.deptype = 'x' AND p.pronamespace = 'hashindex'::regnamespace
    LOOP
        EXECUTE format('ALTER FUNCTION %s NO DEPENDS ON EXTENSION pg_hashindex', part.name);
    END LOOP;
    FOR part IN
        SELECT o.type, o.identity
        FROM pg_extension e JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
        CROSS JOIN LATERAL pg_identify_object(d.classid, d.objid, 0) o
        -- The row type of a table follows it.
        WHERE e.extname = 'pg_hashindex' AND NOT (d.classid = 'pg_type'::regclass AND EXISTS (
            SELECT FROM pg_depend x WHERE x.classid = d.classid AND x.objid = d.objid AND x.deptype = 'i'
        ))
    LOOP
        EXECUTE format('ALTER EXTENSION pg_hashindex DROP %s %s', part.type, part.identity);
    END LOOP;
    DROP EXTENSION pg_hashindex;
END
$$;

COMMENT ON FUNCTION hashindex.leave_extension() IS
    'makes the extension pg_hashindex an installation without one, which pg-hashindex schema upgrade keeps up to date';
