-- Finds an index, and says which operators and types its statements use.

-- Refuses the name of an index that does not exist, and says what has it.
CREATE OR REPLACE FUNCTION hashindex._refuse_unknown(index_name text) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    kind text := CASE
        WHEN EXISTS (SELECT FROM hashindex.model m WHERE m.name = split_part(index_name, ':', 1)) THEN 'model'
        WHEN EXISTS (SELECT FROM pg_proc p WHERE p.pronamespace = 'hashindex'::regnamespace AND p.proname = index_name) THEN 'function'
        WHEN EXISTS (SELECT FROM hashindex.index i WHERE i.table_name = index_name) THEN 'table'
    END;
BEGIN
    RAISE EXCEPTION 'index "%" does not exist', coalesce(index_name, 'NULL')
        USING ERRCODE = '42X02', HINT = concat('There is a ' || kind || ' of that name. ', 'List indexes: pg-hashindex index show.');
END
$$;

-- The gate of every function that takes the name of an index, before any other statement: its catalog row, for a caller who may do what
-- the function does. Whoever changes something administers the schema. Where the table is read, its owner has the administrator's rights: he
-- can run code as whoever names the table.
CREATE OR REPLACE FUNCTION hashindex._require(index_name text, administers boolean DEFAULT false, reads boolean DEFAULT true)
RETURNS hashindex.index
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index;
BEGIN
    SELECT x.* INTO i FROM hashindex.index x WHERE x.name = index_name;
    IF NOT FOUND THEN
        PERFORM hashindex._refuse_unknown(index_name);
    END IF;
    IF administers THEN
        PERFORM hashindex._check_administrator();
    END IF;
    -- A set of pgvector is searched and built with the caller's rights.
    IF reads THEN
        PERFORM hashindex._require_read(i);
    END IF;
    RETURN i;
END
$$;

-- Whether a set of an index is kept by lists.
CREATE OR REPLACE FUNCTION hashindex._has_lists(i hashindex.index) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN EXISTS (SELECT FROM hashindex.index_set s WHERE s.index_name = i.name AND s.access IN ('lists', 'scan'));
END
$$;

-- The lists that an index searches, or an error where pgvector keeps its set.
CREATE OR REPLACE FUNCTION hashindex._used_lists(i hashindex.index) RETURNS hashindex.index_set
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    s hashindex.index_set := hashindex._used_set(i);
BEGIN
    IF s.access IN ('lists', 'scan') THEN
        RETURN s;
    END IF;
    RAISE EXCEPTION 'index "%" is kept by pgvector, and this needs lists', i.name
        USING ERRCODE = 'object_not_in_prerequisite_state', HINT = format('Run: pg-hashindex index swap %s --access lists%s', i.name, CASE WHEN s.model_id IS NULL THEN ' --model MODEL' END);
END
$$;

-- A set of lists with its index, whose column of vectors is the set's.
CREATE OR REPLACE FUNCTION hashindex._lists_of(set_id bigint, OUT i hashindex.index, OUT s hashindex.index_set)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    SELECT x.* INTO s FROM hashindex.index_set x WHERE x.id = set_id AND x.access IN ('lists', 'scan');
    IF NOT FOUND THEN
        RAISE EXCEPTION 'another session dropped or gave up the lists of set %', set_id
            USING ERRCODE = 'object_in_use', HINT = 'See what there is: pg-hashindex index show; and run it again.';
    END IF;
    SELECT x.* INTO STRICT i FROM hashindex.index x WHERE x.name = s.index_name;
    i.column_name := s.column_name;
END
$$;

-- The same, with the lock of the index's row: one session at a time begins a set, reads its log, or drops it. The rows are as they are after the
-- wait.
CREATE OR REPLACE FUNCTION hashindex._locked_lists(set_id bigint, OUT i hashindex.index, OUT s hashindex.index_set)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    kept record := hashindex._lists_of(set_id);
BEGIN
    PERFORM FROM hashindex.index x WHERE x.name = (kept.i).name FOR NO KEY UPDATE;
    kept := hashindex._lists_of(set_id);
    i := kept.i;
    s := kept.s;
END
$$;

-- Name of a table of a set of lists, in schema hashindex: codes, landmarks, log, staged or ranges.
CREATE OR REPLACE FUNCTION hashindex._part_of(s hashindex.index_set, part text) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN format('set_%s_%s', s.id, part);
END
$$;

-- A table of a set of lists; NULL if it is not there.
CREATE OR REPLACE FUNCTION hashindex._table_of(s hashindex.index_set, part text) RETURNS regclass
LANGUAGE sql STABLE PARALLEL UNSAFE
RETURN to_regclass('hashindex.' || quote_ident(hashindex._part_of(s, part)));

CREATE OR REPLACE FUNCTION hashindex.find_index(index_name text) RETURNS hashindex.index
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN hashindex._require(index_name);
END
$$;

COMMENT ON FUNCTION hashindex.find_index(text) IS 'catalog row of an index, or an error; also if an owner of its table lacks the administrator''s rights';

-- Name of the index that is declared under a name on a table. Of tables of one name, the first one's index has the name, and those in other
-- schemas have it with their schema.
CREATE OR REPLACE FUNCTION hashindex._declared_name(name text, base regclass) RETURNS text
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    own record;
    named text;
BEGIN
    SELECT n.nspname, c.relname INTO own FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = base;
    named := CASE WHEN format('%s_%s', own.nspname, name) ~ '^[A-Za-z0-9_][A-Za-z0-9_-]{0,39}$' THEN format('%s_%s', own.nspname, name)
        ELSE left(name, 31) || '_' || left(md5(own.nspname), 8) END;
    RETURN CASE WHEN EXISTS (
        SELECT FROM hashindex.index i
        WHERE i.table_name = own.relname AND (i.name = named AND i.schema_name = own.nspname OR i.name = _declared_name.name AND i.schema_name <> own.nspname)
    ) THEN named ELSE name END;
END
$$;

-- Name of the index that is declared under a name on a table, for a statement that joins its answers by some columns. Other values than those
-- of the index's key would join other rows.
CREATE OR REPLACE FUNCTION hashindex._searched_name(name text, base regclass, joined_by text[]) RETURNS text
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    found text := hashindex._declared_name(name, base);
    key text[] := (SELECT i.key_columns FROM hashindex.index i WHERE i.name = found);
BEGIN
    IF NOT (key @> joined_by AND key <@ joined_by) THEN
        PERFORM hashindex._refuse_renamed(hashindex._require(found));
        RAISE EXCEPTION 'index "%" has the key (%), and the search joins its answers by (%)',
            found, array_to_string(key, ', '), array_to_string(joined_by, ', ')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Name the key of the index as key_columns of its declaration, or as key of the search.';
    END IF;
    RETURN found;
END
$$;

-- Pgvector's distance operator for a metric. Operator and type are qualified, since a query may run under a caller's search_path.
CREATE OR REPLACE FUNCTION hashindex._distance_operator(metric text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE metric
    WHEN 'l2' THEN 'OPERATOR({ext}.<->)' WHEN 'cosine' THEN 'OPERATOR({ext}.<=>)' WHEN 'ip' THEN 'OPERATOR({ext}.<#>)'
END;

-- Type of a column, halfvec or vector. Queries are cast to the column's type. With halfvec on one side and vector on the other PostgreSQL
-- would choose among operators, and an operator that somebody added to pgvector's schema could be a better match.
CREATE OR REPLACE FUNCTION hashindex._vector_type(base regclass, column_name text) RETURNS text
LANGUAGE sql STABLE PARALLEL UNSAFE
RETURN CASE WHEN EXISTS (
    SELECT FROM pg_attribute a
    WHERE a.attrelid = base AND a.attname = column_name AND NOT a.attisdropped AND a.atttypid = '{ext}.halfvec'::regtype
) THEN '{ext}.halfvec' ELSE '{ext}.vector' END;

-- A key of one column is column id of a table of codes, and one of several is columns id_1, id_2, ... Statements take a key of several
-- columns apart, so that they use its b-tree; only arrays of keys have values of the index's own composite type.

-- A type as SQL writes it under any search_path. The catalog's text is looked up as the name of a type and never becomes SQL.
CREATE OR REPLACE FUNCTION hashindex._base_type(type_name text) RETURNS text
LANGUAGE sql STABLE STRICT PARALLEL UNSAFE
-- If the type was dropped, so was the key, and any type serves.
RETURN coalesce((
    SELECT format('%I.%I', n.nspname, t.typname) FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace
    WHERE t.oid = to_regtype(nullif(type_name, ''))
), 'pg_catalog.text');

-- Types of the columns of the key of an index, without lengths.
CREATE OR REPLACE FUNCTION hashindex._base_types(i hashindex.index) RETURNS text[]
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN ARRAY(SELECT hashindex._base_type(t.name) FROM unnest(i.key_types) WITH ORDINALITY t(name, n) ORDER BY t.n);
END
$$;

-- Type of a key of an index: that of its column, or a composite type that belongs to the index.
CREATE OR REPLACE FUNCTION hashindex._key_type(i hashindex.index) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN CASE cardinality(i.key_columns) WHEN 1 THEN hashindex._base_type(i.key_types[1]) ELSE format('hashindex.%I', i.name || '_key') END;
END
$$;

-- Names of the key's columns in a table of codes.
CREATE OR REPLACE FUNCTION hashindex._code_keys(i hashindex.index) RETURNS text[]
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN CASE cardinality(i.key_columns) WHEN 1 THEN '{id}' ELSE ARRAY(SELECT 'id_' || n FROM generate_series(1, cardinality(i.key_columns)) n) END;
END
$$;

-- Names of the key's columns in the answers of searches: their own, unless an argument has that name, which an answer cannot have.
CREATE OR REPLACE FUNCTION hashindex._answer_keys(i hashindex.index) RETURNS text[]
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN ARRAY(
        SELECT CASE WHEN k.name ~ '^\$[0-9]+$' OR k.name = 'tenant' AND i.tenant_column IS NOT NULL OR k.name = ANY (
            '{query,k,n,candidates,effort,radius,filter,where_equals,all_tenants,caller_path,by_code,distance}'
        ) THEN (
            SELECT named FROM generate_series(0, cardinality(i.key_columns)) more, concat(kept, repeat('_', more)) named
            WHERE named <> ALL (i.key_columns) ORDER BY more LIMIT 1
        ) ELSE k.name END
        FROM unnest(i.key_columns, hashindex._code_keys(i)) WITH ORDINALITY k(name, kept, place) ORDER BY k.place
    );
END
$$;

-- Columns of the table that an index reads: key, vector and tenant.
CREATE OR REPLACE FUNCTION hashindex._read_columns(i hashindex.index) RETURNS text[]
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN i.key_columns || i.column_name || CASE WHEN i.tenant_column <> ALL (i.key_columns) THEN ARRAY[i.tenant_column] ELSE '{}' END;
END
$$;

-- A list of columns under the name that a statement gives their table, and under other names: b.tenant_id AS id_1, b.item AS id_2.
CREATE OR REPLACE FUNCTION hashindex._columns_of(alias text, names text[], others text[] DEFAULT '{}') RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (
    SELECT string_agg(concat(alias || '.', quote_ident(c.name), ' AS ' || quote_ident(c.other)), ', ' ORDER BY c.n)
    FROM unnest(names, others) WITH ORDINALITY c(name, other, n)
);

-- Names of columns as messages have them: "tenant_id", "id" and "embedding".
CREATE OR REPLACE FUNCTION hashindex._named(names text[]) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN (
    SELECT string_agg(
        CASE WHEN c.n = 1 THEN '' WHEN c.n = cardinality(names) THEN ' and ' ELSE ', ' END || '"' || c.name || '"', '' ORDER BY c.n
    ) FROM unnest(names) WITH ORDINALITY c(name, n)
);

-- A key as text, which is a JSON array if it has several columns: [7, 12]. Means the same under any search_path.
CREATE OR REPLACE FUNCTION hashindex._key_text(alias text, names text[]) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN format(
    CASE cardinality(names) WHEN 1 THEN '%s::pg_catalog.text' ELSE 'pg_catalog.json_build_array(%s)::pg_catalog.text' END,
    hashindex._columns_of(alias, names)
);

-- The values of a key that a text stands for, as a list. The text is given as SQL.
CREATE OR REPLACE FUNCTION hashindex._key_of_text(i hashindex.index, given text) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    IF cardinality(i.key_columns) = 1 THEN
        RETURN format('%s::%s', given, hashindex._key_type(i));
    END IF;
    -- An element of type jsonb is not unpacked: "a" is its text, not a.
    RETURN string_agg(format(
        CASE WHEN to_regtype(t.name) = 'jsonb'::regtype THEN 'json_array_element(%s::json, %s)::text::%s' ELSE 'json_array_element_text(%s::json, %s)::%s' END,
        given, t.n - 1, t.name
    ), ', ' ORDER BY t.n)
    FROM unnest(hashindex._base_types(i)) WITH ORDINALITY t(name, n);
END
$$;

-- Makes the composite type of an index's keys, if it is missing. It has the collations of the columns, since keys
-- are compared with them.
CREATE OR REPLACE FUNCTION hashindex._create_key_type(i hashindex.index) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    key_type text := hashindex._key_type(i);
    columns text;
BEGIN
    IF cardinality(i.key_columns) = 1 OR to_regtype(key_type) IS NOT NULL THEN
        RETURN;
    END IF;
    SELECT string_agg(format('id_%s %s%s', k.n, k.type, CASE WHEN l.collname IS NOT NULL THEN format(' COLLATE %I.%I', n.nspname, l.collname) END), ', ' ORDER BY k.n)
    INTO columns
    FROM unnest(i.key_columns, hashindex._base_types(i)) WITH ORDINALITY k(name, type, n)
    LEFT JOIN pg_attribute a ON a.attrelid = to_regclass(format('%I.%I', i.schema_name, i.table_name)) AND a.attname = k.name AND NOT a.attisdropped
    LEFT JOIN pg_collation l ON l.oid = a.attcollation LEFT JOIN pg_namespace n ON n.oid = l.collnamespace;
    EXECUTE format('CREATE TYPE %s AS (%s)', key_type, columns);
    PERFORM hashindex._adopt(i, key_type, 'its key');
END
$$;

-- Name of a trigger function. It needs no quotes, since an extension that repeats GRANT and REVOKE on other nodes leaves them out. No
-- index's name has a $.
CREATE OR REPLACE FUNCTION hashindex._sync_name(index_name text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN 'sync_' || CASE WHEN index_name ~ '^[a-z0-9_]+$' THEN index_name ELSE translate(lower(index_name), '~-', '$$') || '$' || left(md5(index_name), 8) END;

-- A name as a shell takes it for one word of a command.
CREATE OR REPLACE FUNCTION hashindex._shell_word(word text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN word ~ '^[A-Za-z0-9_.,:/=@%+-]+$' THEN word ELSE '''' || replace(word, '''', '''\''''') || '''' END;

-- Whether the table of a set of lists is the one that its codes are of: a table that is restored alone comes back with its triggers, but with
-- other rows, and codes that are restored alone are of rows as they were.
CREATE OR REPLACE FUNCTION hashindex._is_bound(i hashindex.index, s hashindex.index_set) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN ((s.table_oid = to_regclass(format('%I.%I', i.schema_name, i.table_name))::oid) = (s.codes_oid = hashindex._table_of(s, 'codes')::oid)) IS TRUE;
END
$$;

-- Binds a set to its table after a restore of the table and of what the set keeps, which is codes in lists or pgvector's index; or anyway.
CREATE OR REPLACE FUNCTION hashindex._bind(set_id bigint, anyway boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    s hashindex.index_set := x FROM hashindex.index_set x WHERE x.id = set_id;
    i hashindex.index := x FROM hashindex.index x WHERE x.name = s.index_name;
    base oid := hashindex._base_of(i);
    codes oid := hashindex._table_of(s, 'codes');
    relation oid := hashindex._oid_of(i.schema_name, s.relation);
BEGIN
    IF anyway OR s.table_oid <> base AND s.codes_oid <> codes
        OR EXISTS (SELECT FROM pg_index r WHERE r.indexrelid = relation AND r.indrelid = base) THEN
        UPDATE hashindex.index_set x SET (table_oid, codes_oid) = (base, codes) WHERE x.id = set_id;
    END IF;
END
$$;
