-- A set is what an index searches: vectors, or codes of a model, in an index of pgvector's, which PostgreSQL keeps, or in lists. An index has
-- one set in use and at most one other: one that is built or ready beside it, or the former one. Create, swap and rollback are the same steps
-- with other arguments: a row of hashindex.index_set, a build, a measure, and an exchange of the search function.

GRANT SELECT ON hashindex.index_set TO PUBLIC;

-- Set of an index that is in use, or in another state.
CREATE OR REPLACE FUNCTION hashindex._set_of(index_name text, state text DEFAULT 'used') RETURNS hashindex.index_set
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN s FROM hashindex.index_set s WHERE s.index_name = _set_of.index_name AND s.state = _set_of.state;
END
$$;

-- The set that an index searches, or an error where its first one is not built yet.
CREATE OR REPLACE FUNCTION hashindex._used_set(i hashindex.index) RETURNS hashindex.index_set
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    s hashindex.index_set := hashindex._set_of(i.name);
BEGIN
    IF s.id IS NULL THEN
        RAISE EXCEPTION 'index "%" has no set in use yet', i.name
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = CASE WHEN hashindex._has_lists(i)
                THEN format('Build it: pg-hashindex index encode %s', i.name) ELSE format('Create it again: its first build was cut off: pg-hashindex index create %s ...', i.name) END;
    END IF;
    RETURN s;
END
$$;

-- Rows of a table with its partitions by the planner's estimate; NULL where it was never analyzed.
CREATE OR REPLACE FUNCTION hashindex._estimated_rows(base regclass) RETURNS double precision
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    IF hashindex._is_sharded(base) THEN
        RETURN (hashindex._estimate('SELECT FROM ' || base)).matching;
    END IF;
    -- An empty partition has no estimate, and no rows.
    RETURN sum(c.reltuples) FROM pg_class c
    WHERE c.relkind = 'r' AND (c.oid = base OR c.oid IN (SELECT t.relid FROM pg_partition_tree(base) t))
      AND (c.reltuples > 0 OR pg_relation_size(c.oid) > 0)
    HAVING min(c.reltuples) > 0;
END
$$;

-- The same, counted where there is no estimate.
CREATE OR REPLACE FUNCTION hashindex._rows_of(base regclass) RETURNS double precision
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    rows double precision := hashindex._estimated_rows(base);
BEGIN
    IF NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = base) THEN
        RETURN NULL;
    ELSIF rows IS NULL OR hashindex._is_sharded(base) THEN
        EXECUTE format('SELECT count(*) FROM %s', base) INTO rows;
    END IF;
    RETURN rows;
END
$$;

-- The table of an index, or NULL.
CREATE OR REPLACE FUNCTION hashindex._base_of(i hashindex.index) RETURNS regclass
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN hashindex._oid_of(i.schema_name, i.table_name);
END
$$;

-- SQL of a set: the expression of the table's columns that pgvector's index holds, its operators' class and operator, the type of
-- what is ranked, and what a query, given as SQL, is ranked by. Reads only what every role may.
CREATE OR REPLACE FUNCTION hashindex._set_sql(
    i hashindex.index, s hashindex.index_set, query text DEFAULT NULL,
    OUT expression text, OUT opclass text, OUT operator text, OUT ranked_type text, OUT ranked_query text
)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
SET quote_all_identifiers = off
AS $$
DECLARE
    own_type text := hashindex._vector_type(hashindex._base_of(i), s.column_name);
    used record;
BEGIN
    IF s.model_id IS NULL THEN
        ranked_type := CASE WHEN s.halves THEN '{ext}.halfvec' ELSE '{ext}.vector' END;
        expression := CASE WHEN ranked_type = own_type THEN quote_ident(s.column_name) ELSE format('((%I)::{ext}.halfvec(%s))', s.column_name, s.dimension) END;
        opclass := format('%s_%s_ops', ranked_type, i.metric);
        operator := hashindex._distance_operator(i.metric);
        -- A component above 65504 has no halfvec. Lengths do not count for the cosine.
        ranked_query := format(CASE WHEN s.halves AND i.metric = 'cosine' THEN '{ext}.l2_normalize(%s::{ext}.vector)::%s' ELSE '%s::%s' END, query, ranked_type);
    ELSE
        SELECT m.n_bits, concat_ws('_', 'code', m.name, nullif(m.version, 1)) AS code INTO STRICT used FROM hashindex.model m WHERE m.id = s.model_id;
        ranked_type := format('bit(%s)', used.n_bits);
        expression := coalesce(quote_ident(s.code_column), format('((hashindex.%I(%I))::%s)', used.code, s.column_name, ranked_type));
        opclass := '{ext}.bit_hamming_ops';
        operator := 'OPERATOR({ext}.<~>)';
        ranked_query := format('hashindex.%I(%s)::%s', used.code, query, ranked_type);
    END IF;
END
$$;

-- The set as commands name it, with its column where the index has sets of several.
CREATE OR REPLACE FUNCTION hashindex._set_text(s hashindex.index_set) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN concat_ws(
        ' ', coalesce((SELECT format('codes of %s:%s', m.name, m.version) FROM hashindex.model m WHERE m.id = s.model_id), CASE WHEN s.halves THEN 'vectors as halfvec' ELSE 'vectors' END),
        CASE WHEN EXISTS (SELECT FROM hashindex.index_set x WHERE x.index_name = s.index_name AND x.column_name <> s.column_name) THEN format('of column %I', s.column_name) END,
        CASE WHEN s.stores THEN 'stored' WHEN s.code_column IS NOT NULL THEN format('in column %I', s.code_column) END, CASE s.access WHEN 'scan' THEN 'in lists without landmarks' ELSE coalesce('in ' || s.access, 'without an index') END
    );
END
$$;

-- An index of pgvector's that serves a set as it is: valid, not partial, over the same expression with the same operators, whatever its options.
CREATE OR REPLACE FUNCTION hashindex._serving_relation(i hashindex.index, s hashindex.index_set) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET quote_all_identifiers = off
AS $$
DECLARE
    wanted record := hashindex._set_sql(i, s);
BEGIN
    RETURN c.relname FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid JOIN pg_am a ON a.oid = c.relam
    JOIN pg_opclass o ON o.oid = x.indclass[0] JOIN pg_namespace n ON n.oid = o.opcnamespace
    WHERE x.indrelid = hashindex._base_of(i) AND x.indisvalid AND x.indpred IS NULL AND a.amname = s.access
      AND x.indnatts = 1 AND format('%I.%I', n.nspname, o.opcname) = wanted.opclass
      -- Both are written under this path; they differ in brackets.
      AND translate(pg_get_indexdef(x.indexrelid, 1, false), '() ', '') = translate(wanted.expression, '() ', '')
    ORDER BY c.relname = s.relation DESC, c.relname LIMIT 1;
END
$$;

-- Metric of a pgvector index of a column, if there is one.
CREATE OR REPLACE FUNCTION hashindex._indexed_metric(base regclass, column_name text) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN substring(o.opcname FROM '^(?:vector|halfvec)_(l2|cosine|ip)_ops$')
    FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid JOIN pg_am a ON a.oid = c.relam JOIN pg_opclass o ON o.oid = x.indclass[0]
    JOIN pg_attribute k ON k.attrelid = base AND k.attname = _indexed_metric.column_name
    WHERE x.indrelid = base AND x.indisvalid AND a.amname IN ('hnsw', 'ivfflat') AND o.opcname ~ '^(vector|halfvec)_(l2|cosine|ip)_ops$'
      -- The column itself, or an expression of it.
      AND (x.indkey[0] = k.attnum OR x.indkey[0] = 0 AND EXISTS (
          SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = x.indexrelid AND d.refclassid = 'pg_class'::regclass AND d.refobjid = base AND d.refobjsubid = k.attnum
      ))
    ORDER BY c.relname LIMIT 1;
END
$$;

-- Bytes of a set in an index of pgvector's: of a vector or code, its heads, and the links of a graph with m = 16.
CREATE OR REPLACE FUNCTION hashindex._set_bytes(s hashindex.index_set, bits integer, rows double precision) RETURNS bigint
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN rows * (
        CASE WHEN s.model_id IS NOT NULL THEN bits / 8 WHEN s.halves THEN 2 * s.dimension ELSE 4 * s.dimension END
        + CASE s.access WHEN 'hnsw' THEN 340 ELSE 44 END
    );
END
$$;

-- Statement of a search of a set for the query $1 and what it is ranked by, $2, both as text, with literals for the candidates and k.
CREATE OR REPLACE FUNCTION hashindex._set_statement(i hashindex.index, s hashindex.index_set, n integer, k integer, filter text DEFAULT 'true') RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base text := format('%I.%I', i.schema_name, i.table_name);
    kept text[] := hashindex._code_keys(i);
    held record := hashindex._set_sql(i, s);
BEGIN
    RETURN format(
        $statement$SELECT %1$s AS id, r.distance FROM (
            SELECT %2$s, %3$s.%4$I %5$s $1::pg_catalog.text::%6$s AS distance FROM %3$s WHERE %3$s.%4$I IS NOT NULL AND (%7$s
            ) ORDER BY %8$s %9$s $2::pg_catalog.text::%10$s LIMIT %11$s
        ) r WHERE %12$s ORDER BY r.distance, %13$s LIMIT %14$s$statement$,
        hashindex._key_text('r', kept), hashindex._columns_of(base, i.key_columns, kept), base, s.column_name,
        hashindex._distance_operator(i.metric), hashindex._vector_type(base::regclass, s.column_name), filter, held.expression, held.operator, held.ranked_type, n,
        hashindex._is_comparable(i.metric, '$1::pg_catalog.text::{ext}.vector'), hashindex._columns_of('r', kept), k
    );
END
$$;

-- Whether a search of a set would use pgvector's index: a transaction that updated rows may not (indcheckxmin).
CREATE OR REPLACE FUNCTION hashindex._uses_relation(i hashindex.index, s hashindex.index_set) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    plan jsonb;
    before jsonb;
BEGIN
    IF s.relation IS NULL THEN
        RETURN false;
    END IF;
    before := hashindex._put_settings('{"enable_seqscan": "off"}');
    -- The parameters, and no name that has such a part.
    EXECUTE 'EXPLAIN (FORMAT JSON) ' || regexp_replace(hashindex._set_statement(i, s, 10, 10), '\$[12](?=::pg_catalog\.text)', '(SELECT NULL)', 'g') INTO plan;
    before := hashindex._put_settings(before);
    -- On Citus the plan is of a task.
    RETURN plan @? '$.** ? (@."Node Type" == "Index Scan" && exists(@."Order By"))';
END
$$;

-- Settings of pgvector by which a set is scanned, whichever of its indexes the planner takes, by their names.
CREATE OR REPLACE FUNCTION hashindex._scan_settings(effort integer, tuples double precision, iterates boolean) RETURNS jsonb
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN jsonb_build_object(
    'hnsw.ef_search', least(effort, 1000), 'ivfflat.probes', least(effort, 32768),
    'hnsw.iterative_scan', CASE WHEN iterates THEN 'relaxed_order' ELSE 'off' END, 'ivfflat.iterative_scan', CASE WHEN iterates THEN 'relaxed_order' ELSE 'off' END,
    'hnsw.max_scan_tuples', least(greatest(20000, tuples), 2147483647)::bigint, 'hnsw.scan_mem_multiplier', 8,
    'ivfflat.max_probes', 32768, 'enable_seqscan', 'off', 'enable_sort', 'off'
);

-- Puts settings on for this transaction, on the nodes of Citus too: it sends them SET LOCAL, and no set_config, from a function that a
-- statement within another calls: this one is called by PERFORM, and not in an expression. Nodes get them with the BEGIN of the transaction, or
-- at once where that has begun.
CREATE OR REPLACE FUNCTION hashindex._put_on_nodes(settings jsonb) RETURNS void
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    sent text := current_setting('citus.propagate_set_commands');
    done text := set_config('citus.propagate_set_commands', 'local', true);
    setting text;
BEGIN
    FOR setting IN SELECT format('SET LOCAL %s = %L', s.name, s.value) FROM jsonb_each_text(settings) s(name, value) LOOP
        EXECUTE setting;
    END LOOP;
    done := set_config('citus.propagate_set_commands', sent, true);
END
$$;

-- Puts settings on for this transaction, and returns what they were, to be put on again after the statement that they are for. Before pgvector is
-- loaded, its settings are as they usually are.
CREATE OR REPLACE FUNCTION hashindex._put_settings(settings jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    usual jsonb := '{"hnsw.ef_search": 40, "ivfflat.probes": 1, "hnsw.iterative_scan": "off", "ivfflat.iterative_scan": "off", "hnsw.max_scan_tuples": 20000,
        "hnsw.scan_mem_multiplier": 1, "ivfflat.max_probes": 32768}';
    before jsonb := jsonb_object_agg(s.name, coalesce(nullif(current_setting(s.name, true), ''), usual ->> s.name)) FROM jsonb_object_keys(settings) s(name);
BEGIN
    IF current_setting('citus.propagate_set_commands', true) IS NULL THEN
        PERFORM set_config(s.name, s.value, true) FROM jsonb_each_text(settings) s(name, value);
    ELSE
        PERFORM hashindex._put_on_nodes(settings);
    END IF;
    RETURN before;
END
$$;
