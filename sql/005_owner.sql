-- Checks the server, and makes schema hashindex, or asks whose it is before anything in it is read: its owner can run code as whoever reads a view or
-- writes to a table there. Every file of this folder may be run again.

-- Until the transaction ends, names resolve in pg_catalog. Functions keep this path (SET search_path FROM CURRENT) and
-- qualify every other name. So no other role can change what they call: not by a search path, nor by temporary objects, nor by
-- objects in pgvector's schema.
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

DO $$
DECLARE
    installed text;
BEGIN
    IF current_setting('server_version_num')::integer < 150000 THEN
        RAISE EXCEPTION 'PostgreSQL % is too old: pg_hashindex needs 15 or later', current_setting('server_version')
            USING ERRCODE = '0AX01', HINT = 'Upgrade the server.';
    END IF;
    SELECT extversion INTO installed FROM pg_extension WHERE extname = 'vector';
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the extension pgvector is not installed in database %', current_database()
            USING ERRCODE = '42X03', HINT = 'Run: CREATE EXTENSION vector;';
    ELSIF (string_to_array(installed, '.'))[:2]::integer[] < ARRAY[0, 8] THEN
        RAISE EXCEPTION 'pgvector is older than 0.8'
            USING ERRCODE = '0AX01', HINT = 'Run: ALTER EXTENSION vector UPDATE;';
    END IF;
END
$$;

DO $$
DECLARE
    -- The owner of a database could choose a default for the setting.
    named text := CASE WHEN NOT EXISTS (
        SELECT FROM pg_db_role_setting s, unnest(s.setconfig) c
        WHERE lower(c) = lower('hashindex.owner=' || current_setting('hashindex.owner', true)) AND s.setdatabase IN (0, (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
    ) THEN nullif(current_setting('hashindex.owner', true), '') END;
    owner name;
    -- A superuser, whatever role was set since: code that runs as the owner can set it back.
    me record;
    stranger record;
BEGIN
    SELECT c.* INTO STRICT me FROM (
        {callers}
    ) c ORDER BY c.super DESC, c.name = current_user DESC LIMIT 1;
    -- Two upgrades cannot run at once: creating a schema waits for another session that creates it, and so does commenting on it.
    -- CREATE SCHEMA IF NOT EXISTS needs the right to create a schema even where it exists.
    LOOP
        BEGIN
            IF to_regnamespace('hashindex') IS NULL THEN
                EXECUTE 'CREATE SCHEMA hashindex' || coalesce(' AUTHORIZATION ' || quote_ident(named), '');
            END IF;
            owner := pg_get_userbyid(n.nspowner) FROM pg_namespace n WHERE n.nspname = 'hashindex';
            IF owner <> named THEN
                RAISE EXCEPTION 'schema hashindex belongs to role %, not to %', quote_ident(owner), quote_ident(named)
                    USING ERRCODE = 'insufficient_privilege',
                          HINT = 'Name that role if it is to administer the schema; else have the schema dropped.';
            ELSIF NOT pg_has_role(owner, me.name, 'USAGE') AND (named IS NULL OR me.super AND EXISTS (
                -- Something is there already, which could be a trap for him.
                SELECT FROM pg_depend d WHERE d.refclassid = 'pg_namespace'::regclass AND d.refobjid = to_regnamespace('hashindex')
                  AND d.classid <> 'pg_extension'::regclass
            )) AND NOT EXISTS (
                -- It was checked when the current role installed the extension.
                SELECT FROM pg_extension e JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
                WHERE e.extname = 'pg_hashindex' AND pg_has_role(e.extowner, me.name, 'USAGE')
                  AND d.classid = 'pg_class'::regclass AND d.objid = to_regclass('hashindex.alembic_version')
            ) THEN
                RAISE EXCEPTION 'schema hashindex belongs to role %, which can run code as %: as any role that uses the schema',
                    quote_ident(owner), quote_ident(me.name)
                    USING ERRCODE = 'insufficient_privilege', HINT = format(
                        'If that role is to administer it, connect as role %I; a role that is not a superuser may name it instead: '
                        'pg-hashindex schema upgrade --owner %I, or in SQL first: SET hashindex.owner = %L. Else have the schema dropped.', owner, owner, owner
                    );
            END IF;
            -- A member of the owner, or a superuser, may run this: all new objects belong to the schema's owner.
            PERFORM set_config('role', owner, true);
            EXECUTE format('COMMENT ON SCHEMA hashindex IS %L', obj_description(to_regnamespace('hashindex'), 'pg_namespace'));
            EXIT;
        EXCEPTION WHEN duplicate_schema OR unique_violation OR invalid_schema_name THEN
            -- Another session created or dropped it meanwhile.
        END;
    END LOOP;
    SELECT s.object, s.owner::regrole AS owner INTO stranger FROM ({strangers}) s LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '% belongs to role %, not to the owner of the schema', stranger.object, stranger.owner
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Drop it if you did not make it, or make the owner of schema hashindex its owner.';
    END IF;
END
$$;
