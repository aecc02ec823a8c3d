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

-- Owners of a table, of its partitions, their schemas and types of columns without the administrator's rights. With columns NULL, as the query says.
CREATE OR REPLACE FUNCTION hashindex._other_owners(base oid, columns text[]) RETURNS TABLE (owner text, refusal text)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 1
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    {other_owners};
END
$$;

-- Whether the owners of a table, of its schema, and of the types of some columns have the administrator's rights: if not, no function of
-- his may name it. With a remedy, an error if they have not.
CREATE OR REPLACE FUNCTION hashindex._require_owner(base oid, columns text[], remedy text DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    other text;
BEGIN
    -- Most tables are plain, with keys of built-in types, and are looked up in one step.
    IF EXISTS (
        SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        JOIN pg_namespace h ON h.nspname = 'hashindex' JOIN pg_database b ON b.datname = current_database()
        WHERE c.oid = base AND c.relkind = 'r' AND NOT c.relhassubclass AND pg_has_role(c.relowner, h.nspowner, 'USAGE')
          AND pg_has_role(CASE WHEN n.nspowner = 'pg_database_owner'::regrole THEN b.datdba ELSE n.nspowner END, h.nspowner, 'USAGE')
          AND NOT EXISTS (
              SELECT FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
              WHERE a.attrelid = base AND a.attname = ANY (columns) AND t.typnamespace <> 'pg_catalog'::regnamespace AND (t.typtype <> 'b' OR t.typcategory = 'A')
          )
    ) THEN
        RETURN true;
    END IF;
    SELECT o.refusal INTO other FROM hashindex._other_owners(base, columns) o LIMIT 1;
    IF other IS NOT NULL AND remedy IS NOT NULL THEN
        RAISE EXCEPTION '%', other USING ERRCODE = 'insufficient_privilege', HINT = remedy;
    END IF;
    -- A snapshot may be older than the table that has the name now.
    RETURN other IS NULL AND (remedy IS NOT NULL OR EXISTS (SELECT FROM pg_class c WHERE c.oid = base));
END
$$;

-- First in each transaction that reads a user's table with rights that its owner may lack: locks the table and what it consists of, so that ALTER TABLE
-- OWNER waits, and then asks. A statement that is analysed, and not planned, locks what it names and runs nothing of anybody's; LOCK TABLE
-- wants a right on the whole table, and takes no materialised view. Columns as in _other_owners. pg_hashindex/db/gate.py does the same.
CREATE OR REPLACE FUNCTION hashindex._require_read(base oid, columns text[] DEFAULT NULL, remedy text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    other record;
BEGIN
    -- An index or a type is not read.
    IF NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = base AND c.relkind IN ('r', 'p', 'v', 'm', 'f')) THEN
        RETURN;
    END IF;
    EXECUTE 'PREPARE hashindex_read AS SELECT FROM ' || ({read_with});
    DEALLOCATE hashindex_read;
    SELECT o.* INTO other FROM hashindex._other_owners(base, columns) o LIMIT 1;
    IF other.owner IS NOT NULL THEN
        RAISE EXCEPTION '%', other.refusal USING ERRCODE = 'insufficient_privilege',
            HINT = coalesce(remedy, format('Connect as role %s, or copy the rows into a table of your own (COPY).', quote_ident(other.owner)));
    ELSIF other.refusal IS NOT NULL THEN
        RAISE EXCEPTION 'could not serialize access: %', other.refusal USING ERRCODE = 'serialization_failure', HINT = 'Run the transaction again.';
    END IF;
END
$$;

-- The gate of the table of an index with lists.
CREATE OR REPLACE FUNCTION hashindex._require_read(i hashindex.index) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    IF i.code_table IS NOT NULL THEN
        PERFORM hashindex._require_read(hashindex._oid_of(i.schema_name, i.table_name), hashindex._read_columns(i), hashindex._owner_remedy(i));
    END IF;
END
$$;

-- Advice about the table of an index that got another owner.
CREATE OR REPLACE FUNCTION hashindex._owner_remedy(i hashindex.index) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN format('give it to role %s, or drop the index: pg-hashindex index drop %s', hashindex._administrator()::regrole, coalesce(i.swap_of, i.name));
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
        SELECT FROM pg_class c
        -- Transactions are numbered modulo 2^32.
        WHERE c.oid = base AND c.xmax <> '0'::xid
          AND pg_xact_status((here + ((c.xmax::text::bigint - here + 2147483648) & 4294967295) - 2147483648)::text::xid8) = 'committed'
    ) THEN
        RAISE EXCEPTION 'could not serialize access: table % was altered since this transaction began', base
            USING ERRCODE = 'serialization_failure', HINT = 'Run the transaction again.';
    END IF;
END
$$;
