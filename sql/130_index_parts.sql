-- Finds an index, and says which operators, types and rankings its statements use.

-- Catalog row of an index whose table will not be read, or an error.
CREATE OR REPLACE FUNCTION hashindex._row_of(index_name text) RETURNS hashindex.index
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    found hashindex.index;
BEGIN
    SELECT i.* INTO found FROM hashindex.index i WHERE i.name = index_name;
    IF found.name IS NULL THEN
        RAISE EXCEPTION 'index "%" does not exist', coalesce(index_name, 'NULL')
            USING ERRCODE = '42X02', HINT = 'See SELECT name, table_name FROM hashindex.index.';
    END IF;
    RETURN found;
END
$$;

CREATE OR REPLACE FUNCTION hashindex.find_index(index_name text) RETURNS hashindex.index
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    found hashindex.index := hashindex._row_of(index_name);
BEGIN
    PERFORM hashindex._check_trust(found);
    RETURN found;
END
$$;

COMMENT ON FUNCTION hashindex.find_index(text) IS 'catalog row of an index, or an error; also if an owner of its table is not trusted';

-- The schema that pgvector is in now, quoted.
CREATE OR REPLACE FUNCTION hashindex._vector_schema() RETURNS text
LANGUAGE sql STABLE STRICT PARALLEL UNSAFE
BEGIN ATOMIC
    SELECT quote_ident(n.nspname) FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector';
END;

-- Pgvector's distance operator for a metric. Operator and type are qualified, since a query may run under a caller's search_path.
CREATE OR REPLACE FUNCTION hashindex._distance_operator(metric text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE metric
    WHEN 'l2' THEN 'OPERATOR({ext}.<->)' WHEN 'cosine' THEN 'OPERATOR({ext}.<=>)' WHEN 'ip' THEN 'OPERATOR({ext}.<#>)'
END;

-- Type of a column, halfvec or vector. Queries are cast to the column's type. With halfvec on one side and vector on the other PostgreSQL
-- would choose among operators, and an operator that somebody added to pgvector's schema could be a better match.
CREATE OR REPLACE FUNCTION hashindex._vector_type(base regclass, column_name text) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN CASE WHEN EXISTS (
        SELECT FROM pg_attribute a
        WHERE a.attrelid = base AND a.attname = column_name
          AND NOT a.attisdropped AND a.atttypid = '{ext}.halfvec'::regtype
    ) THEN '{ext}.halfvec' ELSE '{ext}.vector' END;
END
$$;

-- Name of the trigger function of an index that has this storage. Citus does not quote a function's name when it grants or revokes
-- EXECUTE, so these names need no quotes. No index's name has a $.
CREATE OR REPLACE FUNCTION hashindex._sync_name(storage text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN 'sync_' || CASE WHEN storage ~ '^[a-z0-9_]+$' THEN storage ELSE translate(lower(storage), '~-', '$$') || '$' || left(md5(storage), 8) END;

-- A name as a shell takes it for one word of a command.
CREATE OR REPLACE FUNCTION hashindex._shell_word(word text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN word ~ '^[A-Za-z0-9_.,:/=@%+-]+$' THEN word ELSE '''' || replace(word, '''', '''\''''') || '''' END;

-- A table and all of its partitions, of whatever level.
CREATE OR REPLACE FUNCTION hashindex._parts_of(table_name regclass) RETURNS TABLE (part regclass, is_partition boolean)
LANGUAGE sql STABLE STRICT PARALLEL UNSAFE
BEGIN ATOMIC
    SELECT p.relid, p.relid <> table_name FROM (SELECT t.relid FROM pg_partition_tree(table_name) t UNION SELECT table_name) p;
END;

-- A number that the codes of an index never had before. An index that is dropped and created again must not get a number that it had
-- before.
CREATE OR REPLACE FUNCTION hashindex._new_generation(before bigint) RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL UNSAFE
RETURN greatest(before + 1, pg_current_xact_id()::text::bigint);

-- Whether the model of an index has a network, which SQL cannot evaluate.
CREATE OR REPLACE FUNCTION hashindex._encoded_in_python(i hashindex.index) RETURNS boolean
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN m.network IS NOT NULL FROM hashindex.model m WHERE m.id = i.model_id;
END
$$;

-- Whether the model of an index keeps codes of its training rows, which only Python looks up. The parts of a model without a network are
-- learned codes.
CREATE OR REPLACE FUNCTION hashindex._has_learned_codes(i hashindex.index) RETURNS boolean
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN NOT hashindex._encoded_in_python(i) AND EXISTS (SELECT FROM hashindex.readable_model_part p WHERE p.model_id = i.model_id);
END
$$;

-- Orders of candidates that a model can serve, the finest first, which new indexes have.
CREATE OR REPLACE FUNCTION hashindex._rankings(used hashindex.model) RETURNS text[]
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    -- With 4 levels, the two levels next to 0 differ in both bits, so plain Hamming distance ranks them wrongly.
    RETURN CASE WHEN used.bit_weights IS NULL THEN '{}' ELSE ARRAY['weighted'] END
        || CASE WHEN used.network IS NULL THEN ARRAY['asymmetric'] ELSE '{}' END
        || CASE WHEN used.levels = 2 THEN ARRAY['hamming'] ELSE '{}' END;
END
$$;
