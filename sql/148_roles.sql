-- Roles that search an index, and roles that maintain it. What it consists of belongs to one role,
-- whose members replace its functions and drop its tables.

-- The index, and what it is being swapped for or was before.
CREATE OR REPLACE FUNCTION hashindex._with_swaps(index_name text)
RETURNS SETOF hashindex.index
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN NEXT hashindex.find_index(index_name);
    RETURN QUERY SELECT x.* FROM hashindex.index x WHERE x.swap_of = index_name;
END
$$;

COMMENT ON FUNCTION hashindex._with_swaps(text) IS
    'catalog rows of an index: its own, and that of its swap if there is one';

CREATE OR REPLACE FUNCTION hashindex.grant_reader(index_name text, role text)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex.find_index(index_name);
    base regclass := format('%I.%I', i.schema_name, i.table_name)::regclass;
    reader oid := hashindex._find_role(role);
BEGIN
    IF NOT has_schema_privilege(reader, i.schema_name, 'USAGE') THEN
        RAISE EXCEPTION 'role "%" may not use schema "%", where table % is', role, i.schema_name, base
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('Run before: GRANT USAGE ON SCHEMA %I TO %s;', i.schema_name, hashindex._role_term(reader));
    ELSIF NOT (has_column_privilege(reader, base, i.id_column, 'SELECT')
        AND has_column_privilege(reader, base, i.column_name, 'SELECT'))
    THEN
        RAISE EXCEPTION 'role "%" may not read columns "%" and "%" of %', role, i.id_column, i.column_name, base
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('Searching reads them. Run before: GRANT SELECT (%I, %I) ON %s TO %s;',
                                i.id_column, i.column_name, base, hashindex._role_term(reader));
    END IF;
    PERFORM hashindex._grant_reading(x, reader) FROM hashindex._with_swaps(i.name) x;
END
$$;

COMMENT ON FUNCTION hashindex.grant_reader(text, text) IS
    'lets a role that may read the table search an index of it, and nothing else';

-- What stays in the schema when the index changes its access path or model.
CREATE OR REPLACE FUNCTION hashindex._give(i hashindex.index, owner oid)
RETURNS void
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    part text;
BEGIN
    FOR part IN
        SELECT format('TABLE %s', t.relation) FROM hashindex._tables_of(i) t JOIN pg_class c ON c.oid = t.relation
        WHERE c.relowner <> owner
        UNION ALL
        SELECT format('FUNCTION %s', f) FROM hashindex._functions_of(i) f JOIN pg_proc p ON p.oid = f
        WHERE p.proowner <> owner
    LOOP
        EXECUTE format('ALTER %s OWNER TO %s', part, hashindex._role_term(owner));
    END LOOP;
END
$$;

COMMENT ON FUNCTION hashindex._give(hashindex.index, oid) IS
    'makes a role the owner of what an index consists of';

CREATE OR REPLACE FUNCTION hashindex._owner_of(i hashindex.index)
RETURNS oid
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN p.proowner FROM pg_proc p WHERE p.oid = to_regproc(format('hashindex.%I', 'sync_' || i.storage));
END
$$;

COMMENT ON FUNCTION hashindex._owner_of(hashindex.index) IS
    'the role that owns what an index consists of, by its trigger function';

-- PostgreSQL lets only owners replace functions, drop tables and drop triggers. So the index is given
-- to the owner of its table, and the role has to be that or a member of it.
CREATE OR REPLACE FUNCTION hashindex.grant_owner(index_name text, role text)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex.find_index(index_name);
    base regclass := format('%I.%I', i.schema_name, i.table_name)::regclass;
    owner oid := c.relowner FROM pg_class c WHERE c.oid = base;
    maintainer oid := hashindex._find_role(role);
BEGIN
    IF maintainer = 0 OR NOT pg_has_role(maintainer, owner, 'USAGE') THEN
        RAISE EXCEPTION 'role "%" does not own %, nor is it a member of its owner %', role, base, owner::regrole
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = CASE WHEN maintainer = 0 THEN 'Name a role.' ELSE format(
                      'Run before: ALTER TABLE %s OWNER TO %s; or, where that is meant: GRANT %s TO %2$s;',
                      base, hashindex._role_term(maintainer), owner::regrole
                  ) END;
    END IF;
    -- PostgreSQL gives nothing to a role that may not create it there.
    PERFORM hashindex._grant_rights(r, 'SCHEMA', 'hashindex', '{USAGE,CREATE}') FROM unnest(ARRAY[owner, maintainer]) r;
    PERFORM hashindex._give(x, owner) FROM hashindex._with_swaps(i.name) x;
    PERFORM hashindex._grant_reading(x, r)
    FROM hashindex._with_swaps(i.name) x, unnest(ARRAY[owner, maintainer]) r;
    PERFORM hashindex._grant_rights(maintainer, 'TABLE', w.written, w.rights)
    FROM (VALUES
        ('hashindex.index', '{INSERT,UPDATE,DELETE}'::text[]),
        ('hashindex.model', '{INSERT,DELETE}'),
        ('hashindex.model_part', '{INSERT}'),
        ('hashindex.query_set', '{SELECT,INSERT,DELETE}'),
        ('hashindex.saved_query', '{SELECT,INSERT,DELETE}'),
        ('hashindex.recall_history', '{INSERT,DELETE}'),
        ('hashindex.job', '{INSERT,UPDATE,DELETE}')
    ) w(written, rights);
    -- Who wrote to the table until now goes on.
    PERFORM hashindex.grant_like_table(x.name) FROM hashindex._with_swaps(i.name) x;
END
$$;

COMMENT ON FUNCTION hashindex.grant_owner(text, text) IS
    'lets the owner of a table, or a member of it, maintain an index: encode, configure, swap, tune and drop it';

CREATE OR REPLACE FUNCTION hashindex.revoke_all(index_name text, role text)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex.find_index(index_name);
    base regclass := format('%I.%I', i.schema_name, i.table_name)::regclass;
    holder oid := hashindex._find_role(role);
    term text := hashindex._role_term(holder);
    x hashindex.index;
    part text;
    reads boolean;
    maintains boolean;
BEGIN
    FOR x IN SELECT * FROM hashindex._with_swaps(i.name) LOOP
        IF hashindex._owner_of(x) = holder THEN
            PERFORM hashindex._give(x, c.relowner) FROM pg_class c WHERE c.oid = base;
        END IF;
        FOREACH part IN ARRAY ARRAY[
            CASE WHEN x.layout = 'table' THEN format('%I.%I', x.code_schema, x.code_table) END,
            'hashindex.' || quote_ident(x.landmark_table)
        ] LOOP
            IF to_regclass(part) IS NOT NULL THEN
                EXECUTE format('REVOKE ALL ON %s FROM %s', part, term);
            END IF;
        END LOOP;
        IF x.layout = 'column' THEN
            EXECUTE format('REVOKE ALL (%I) ON %s FROM %s', x.code_column, base, term);
        END IF;
    END LOOP;
    -- What indexes share stays where the role has something to do with another one.
    SELECT coalesce(bool_or(o.reads), false), coalesce(bool_or(o.maintains), false) INTO reads, maintains
    FROM (
        SELECT has_any_column_privilege(holder, to_regclass(format('%I.%I', n.code_schema, n.code_table)), 'SELECT') AS reads,
               holder <> 0 AND pg_has_role(holder, hashindex._owner_of(n), 'USAGE') AS maintains
        FROM hashindex.index n WHERE i.name NOT IN (n.name, coalesce(n.swap_of, n.name))
    ) o;
    FOR part IN SELECT string_agg(s, ', ') FROM hashindex._shared_tables('{read,kept}') s LOOP
        IF NOT maintains THEN
            EXECUTE format('REVOKE INSERT, UPDATE, DELETE ON %s FROM %s', part, term);
            EXECUTE format('REVOKE SELECT ON hashindex.query_set, hashindex.saved_query FROM %s', term);
            EXECUTE format('REVOKE CREATE ON SCHEMA hashindex FROM %s', term);
        END IF;
        IF NOT maintains AND NOT reads THEN
            EXECUTE format('REVOKE SELECT ON %s FROM %s', part, term);
            EXECUTE format('REVOKE USAGE ON SCHEMA hashindex FROM %s', term);
        END IF;
    END LOOP;
END
$$;

COMMENT ON FUNCTION hashindex.revoke_all(text, text) IS
    'takes away what a role holds on an index, and on what all indexes share if it has no other one';

-- The catalog of indexes is written by all who maintain one; each row is for those of its own table
-- alone. The type of the key stands in functions as it is: another would be a way into them.
CREATE OR REPLACE FUNCTION hashindex._guard_index()
RETURNS trigger
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    catalog_owner oid := c.relowner FROM pg_class c WHERE c.oid = TG_RELID;
    x hashindex.index;
    base regclass;
BEGIN
    IF pg_has_role(catalog_owner, 'USAGE') THEN
        RETURN coalesce(NEW, OLD);
    END IF;
    FOREACH x IN ARRAY ARRAY[OLD, NEW] LOOP
        CONTINUE WHEN x.name IS NULL;
        base := to_regclass(format('%I.%I', x.schema_name, x.table_name));
        IF coalesce(
            pg_has_role((SELECT c.relowner FROM pg_class c WHERE c.oid = base), 'USAGE')
            -- Of a table that is gone, or of another role that let this one make triggers.
            OR TG_OP <> 'INSERT' AND (x.schema_name, x.table_name) = (OLD.schema_name, OLD.table_name)
                AND pg_has_role(hashindex._owner_of(OLD), 'USAGE')
            OR TG_OP = 'INSERT' AND has_table_privilege(base, 'TRIGGER'),
            false
        ) THEN
            CONTINUE;
        END IF;
        RAISE EXCEPTION 'role % may not change index "%" of table %.%', current_user, x.name, x.schema_name, x.table_name
            USING ERRCODE = 'insufficient_privilege', HINT = 'Connect as the owner of the table, or a member of it.';
    END LOOP;
    IF TG_OP <> 'DELETE' AND base IS NOT NULL AND (TG_OP = 'INSERT' OR NEW.id_type <> OLD.id_type)
        AND NEW.id_type IS DISTINCT FROM (hashindex._find_key(base, NEW.id_column)).id_type
    THEN
        RAISE EXCEPTION 'the key of index "%" is not of type %', NEW.name, NEW.id_type
            USING ERRCODE = 'insufficient_privilege', HINT = 'Make indexes with hashindex.create_index.';
    END IF;
    RETURN coalesce(NEW, OLD);
END
$$;

COMMENT ON FUNCTION hashindex._guard_index() IS
    'trigger: keeps roles that maintain one index from changing the catalog row of another';

CREATE OR REPLACE TRIGGER guarded BEFORE INSERT OR UPDATE OR DELETE ON hashindex.index
FOR EACH ROW EXECUTE FUNCTION hashindex._guard_index();

-- Our functions look names up in pg_catalog, where pgvector lives, and nowhere else. Whoever may make
-- functions there could make one that fits a call of theirs better than the one that is meant.
CREATE OR REPLACE FUNCTION hashindex._who_may_intrude()
RETURNS TABLE (schema_name text, role text)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN QUERY
    SELECT n.nspname::text, hashindex._role_term(acl.grantee)
    FROM pg_namespace n, aclexplode(n.nspacl) acl
    WHERE acl.privilege_type = 'CREATE' AND acl.grantee <> n.nspowner
      AND (n.nspname = 'hashindex'
           OR n.oid = (SELECT e.extnamespace FROM pg_extension e WHERE e.extname = 'vector'))
    ORDER BY 1, 2;
END
$$;

COMMENT ON FUNCTION hashindex._who_may_intrude() IS
    'roles that may create objects where our functions look names up, and have to be trusted for it';

DO $$
DECLARE
    exposed text;
BEGIN
    SELECT w.schema_name INTO exposed FROM hashindex._who_may_intrude() w WHERE w.role = 'PUBLIC' LIMIT 1;
    IF FOUND THEN
        RAISE WARNING 'everybody may create functions in schema "%", which those of hashindex could call', exposed
            USING HINT = format('Run: REVOKE CREATE ON SCHEMA %I FROM PUBLIC;', exposed);
    END IF;
END
$$;
