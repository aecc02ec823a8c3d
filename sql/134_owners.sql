-- Asks for the owners of a table before a statement names it: PostgreSQL runs their code, in partial indexes, policies and CHECK constraints, in
-- whoever plans the statement.

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

-- Owners of a table and of what it consists of who could do more as the caller, as the query says: the only question about owners. Fails where the
-- snapshot is older than the table is.
CREATE OR REPLACE FUNCTION hashindex._other_owners(base oid, columns text[]) RETURNS TABLE (owner text, refusal text)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 1
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
BEGIN
    FOR owner, refusal IN
        {other_owners}
    LOOP
        IF owner IS NULL THEN
            RAISE EXCEPTION 'could not serialize access: %', refusal USING ERRCODE = 'serialization_failure', HINT = 'Run the transaction again.';
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;

-- Locks tables, named as in FROM, until the transaction ends. A statement that is analysed, and not planned, locks what it names and runs nothing
-- of anybody's; LOCK TABLE wants a right on the whole table, and takes no materialised view. Called by the two gates below.
CREATE OR REPLACE FUNCTION hashindex._lock_to_read(tables text) RETURNS void
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    BEGIN
        EXECUTE 'PREPARE hashindex_read AS SELECT FROM ' || tables;
    EXCEPTION
        WHEN duplicate_prepared_statement THEN
            -- The name is left where a statement was cancelled just here.
            DEALLOCATE hashindex_read;
            EXECUTE 'PREPARE hashindex_read AS SELECT FROM ' || tables;
        WHEN insufficient_privilege THEN
            -- While a materialised view is filled, PostgreSQL prepares nothing.
            EXECUTE format('LOCK TABLE %s IN ACCESS SHARE MODE', tables);
            RETURN;
    END;
    DEALLOCATE hashindex_read;
END
$$;

-- The gate. First in each transaction that reads a user's table with rights that its owner may lack: locks the table and what it consists of, so that
-- ALTER TABLE OWNER waits, and then asks. Columns as in _other_owners. pg_hashindex/db/gate.py does the same.
CREATE OR REPLACE FUNCTION hashindex._require_read(base oid, columns text[] DEFAULT NULL, remedy text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    other record;
BEGIN
    PERFORM hashindex._lock_to_read(({read_with}));
    SELECT o.* INTO other FROM hashindex._other_owners(base, columns) o LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '%', other.refusal USING ERRCODE = 'insufficient_privilege',
            HINT = coalesce(remedy, format('Connect as role %s, or copy the rows into a table of your own (COPY).', quote_ident(other.owner)));
    END IF;
END
$$;

-- The gate of sets of pgvector, whose statements run as the caller: planning them runs the owner's code, so the owner is the caller, or a role that
-- the caller is a member of; and a superuser trusts superusers alone.
CREATE OR REPLACE FUNCTION hashindex._require_owner(base regclass) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    owner regrole;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = base) THEN
        -- Whoever reads it next says so.
        RETURN;
    END IF;
    -- ALTER TABLE OWNER waits then.
    PERFORM hashindex._lock_to_read(format('ONLY %s', base));
    SELECT c.relowner INTO owner FROM pg_class c WHERE c.oid = base;
    IF NOT pg_has_role(owner, 'USAGE') THEN
        RAISE EXCEPTION '% belongs to role %, whose code runs as % when a query on it is planned', base, owner, quote_ident(current_user)
            USING ERRCODE = 'insufficient_privilege', HINT = format('Connect as role %s, or as a member of it.', owner);
    ELSIF EXISTS (SELECT FROM ({callers}) c WHERE c.super) THEN
        PERFORM hashindex._require_read(base);
    END IF;
END
$$;

-- The gate of the table of an index with lists.
CREATE OR REPLACE FUNCTION hashindex._require_read(i hashindex.index) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base oid;
BEGIN
    -- While this waits for a lock, another table may take the name.
    WHILE hashindex._has_lists(i) AND hashindex._oid_of(i.schema_name, i.table_name) IS DISTINCT FROM base LOOP
        base := hashindex._oid_of(i.schema_name, i.table_name);
        PERFORM hashindex._require_read(base, hashindex._read_columns(i), hashindex._owner_remedy(i));
    END LOOP;
END
$$;

-- Advice about the table of an index that got another owner.
CREATE OR REPLACE FUNCTION hashindex._owner_remedy(i hashindex.index) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN format('give it to role %s, or drop the index: pg-hashindex index drop %s', hashindex._administrator()::regrole, i.name);
END
$$;
