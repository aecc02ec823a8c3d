-- Asks for the owners of a table before a statement names it: PostgreSQL runs their code in whoever plans the statement.

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
-- Otherwise each search of a partitioned table plans this again.
SET plan_cache_mode = force_generic_plan
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

-- Refuses a table if its owner, or that of a partition or a schema, could run code as the caller and is not trusted. PostgreSQL runs
-- functions of a table's owner, in partial indexes, policies and CHECK constraints, in whoever plans a query on the table: so this is
-- checked before a statement names it.
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
