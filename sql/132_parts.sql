-- Values of the placeholders in the templates of an index's functions, by what they are about. Names are quoted; types are read from
-- PostgreSQL's catalog.

-- Values of the placeholders for the key of an index. Those of a key of several columns find rows by its b-tree whatever the planner knows.
CREATE OR REPLACE FUNCTION hashindex._key_parts(i hashindex.index) RETURNS jsonb
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base text := format('%I.%I', i.schema_name, i.table_name);
    several boolean := cardinality(i.key_columns) > 1;
    key_type text := hashindex._key_type(i);
    kept text[] := hashindex._code_keys(i);
    shown text[] := hashindex._answer_keys(i);
    ids text := hashindex._columns_of(NULL, kept);
    rows_before text := format(
        '(SELECT DISTINCT k.* FROM unnest(%%s) k) k CROSS JOIN LATERAL (SELECT %s FROM ',
        replace(hashindex._columns_of('b', i.key_columns || i.column_name || ARRAY(SELECT f FROM unnest(i.filter_columns) f WHERE f <> ALL (i.key_columns))), '%', '%%')
    );
    rows_after text := format(' b WHERE %s OFFSET 0) b WHERE true', hashindex._same_key(i, 'b', 'k'));
    fits text := hashindex._fitting(i);
    -- The columns by which the table is divided into partitions or shards: with their values, the parts that hold no key are left out.
    dividing record;
    named record;
BEGIN
    SELECT string_agg(format('b.%I AS %I', k.name, k.kept), ', ' ORDER BY k.n) AS row_ids,
           string_agg(format('%I %s', k.shown, k.type), ', ' ORDER BY k.n) AS answer,
           string_agg(format('coalesce(n.%1$I, o.%1$I)', k.name), ', ' ORDER BY k.n) AS changed,
           string_agg(format('n.%1$I = o.%1$I', k.name), ' AND ' ORDER BY k.n) AS same_rows
    INTO named
    FROM unnest(i.key_columns, kept, shown, hashindex._base_types(i)) WITH ORDINALITY k(name, kept, shown, type, n);
    SELECT coalesce(string_agg(format(E'\n    hashindex_part_%s %s[];', k.n, k.type), '' ORDER BY k.n), '') AS variables,
           coalesce(string_agg(format(
               E'\n        hashindex_part_%1$s := ARRAY(SELECT DISTINCT k.id_%1$s FROM unnest(hashindex_keys) k);', k.n), '' ORDER BY k.n), '') AS values,
           coalesce(string_agg(format(' AND %s.%I = ANY (hashindex_part_%s)', base, k.name, k.n), '' ORDER BY k.n), '') AS condition
    INTO dividing
    FROM unnest(i.key_columns, hashindex._base_types(i)) WITH ORDINALITY k(name, type, n)
    WHERE several AND (k.name = (hashindex._distribution_of(to_regclass(base))).column_name OR EXISTS (
        SELECT FROM hashindex._parts_of(to_regclass(base)) t JOIN pg_partitioned_table d ON d.partrelid = t.part
        JOIN pg_attribute a ON a.attrelid = t.part AND a.attnum = ANY (d.partattrs::smallint[])
        WHERE a.attname = k.name
    ));
    RETURN jsonb_build_object(
        'fits', fits, 'key_type', key_type, 'ids', ids, 'answer', named.answer,
        'candidate_ids', hashindex._columns_of('c', shown), 'candidate_key', hashindex._key_value(i, 'c', shown),
        'c_ids', hashindex._columns_of('c', kept), 'r_ids', hashindex._columns_of('r', kept), 't_ids', hashindex._columns_of('t', kept),
        'e_ids', hashindex._key_of_text(i, 'e.id'), 'f_ids', hashindex._key_of_text(i, 'f.id'),
        'row_ids', named.row_ids, 'row_columns', hashindex._columns_of('b', i.key_columns), 'key_text', hashindex._key_text('b', i.key_columns),
        'old_key', hashindex._key_value(i, 'o', i.key_columns),
        'new_key', hashindex._key_value(i, 'n', i.key_columns),
        'table_key', hashindex._key_value(i, base, i.key_columns) || CASE WHEN several THEN '' ELSE '::' || key_type END,
        -- A row of NULLs is not NULL, so columns are taken one by one.
        'changed_key', format(CASE WHEN several THEN 'ROW(%s)::%s' ELSE '%s' END, named.changed, key_type),
        'same_key', hashindex._same_key(i, 'b', 'c'), 'same_rows', named.same_rows
    ) || CASE WHEN several THEN jsonb_build_object(
        'row_among', format('(%s) IN (SELECT %s FROM unnest', hashindex._columns_of('b', i.key_columns), hashindex._columns_of('k', kept)),
        'table_among', format('(%s) IN (SELECT %s FROM unnest', hashindex._columns_of(base, i.key_columns), hashindex._columns_of('k', kept)),
        'code_among', format('(%s) IN (SELECT %s FROM unnest', hashindex._columns_of('c', kept), hashindex._columns_of('k', kept)),
        'among_end', ' k)',
        -- Rows of keys: only those that are in the answer become values.
        'pack', format('SELECT ROW(%s)::%s FROM (', hashindex._columns_of('c', kept), key_type), 'packed', format(') c(%s)', ids),
        'found_ids', 'SELECT k.* FROM unnest(hashindex_ids) k',
        'found', 'SELECT k.* FROM unnest(hashindex_ids, hashindex_distances) k',
        -- Index scans one by one: there is no bitmap over keys of several columns.
        'key_scan', 'on',
        'gone_variable', format(E'\n    hashindex_gone %s;', key_type),
        -- A plan that was made while the tables were small stays in use, and must look up keys even so: OFFSET 0 leaves no other.
        'delete_gone', format(
            E'FOR hashindex_gone IN SELECT k.* FROM unnest($1) k WHERE NOT EXISTS (\n'
            '        SELECT FROM %s b WHERE %s AND b.%I IS NOT NULL%s OFFSET 0\n'
            '    ) LOOP\n        DELETE FROM hashindex.%I c WHERE %s;\n    END LOOP;',
            base, hashindex._same_key(i, 'b', 'k'), i.column_name, fits, i.code_table,
            (SELECT string_agg(format('c.%1$I = hashindex_gone.%1$I', k), ' AND ' ORDER BY n) FROM unnest(kept) WITH ORDINALITY u(k, n))
        ),
        -- Nor may a join take the key for unique: a snapshot may show a row that was deleted since, and another one with its key.
        'rows_before', format(rows_before, '$1'), 'rows_after', rows_after, 'rows_of_touched', format(rows_before, 'hashindex_touched') || base || rows_after
    ) ELSE jsonb_build_object(
        'row_among', format('b.%I = ANY ', i.key_columns[1]), 'table_among', format('%s.%I = ANY ', base, i.key_columns[1]),
        'code_among', 'c.id = ANY ', 'among_end', '', 'pack', '', 'packed', '',
        'found_ids', 'SELECT unnest(hashindex_ids)', 'found', 'SELECT unnest(hashindex_ids), unnest(hashindex_distances)',
        'key_scan', 'off', 'gone_variable', '',
        'delete_gone', format(
            E'DELETE FROM hashindex.%I c WHERE c.id = ANY ($1) AND NOT EXISTS (\n'
            '        SELECT FROM %s b WHERE %s AND b.%I IS NOT NULL%s\n'
            '    );', i.code_table, base, hashindex._same_key(i, 'b', 'c'), i.column_name, fits
        ),
        'rows_before', '', 'rows_after', format(' b WHERE b.%I = ANY ($1)', i.key_columns[1]),
        'rows_of_touched', format('%s b WHERE b.%I = ANY (hashindex_touched)', base, i.key_columns[1])
    ) END || jsonb_build_object('part_variables', dividing.variables, 'part_values', dividing.values, 'in_parts', dividing.condition);
END
$$;

-- The table, the functions of the index, and how they are planned.
CREATE OR REPLACE FUNCTION hashindex._table_parts(i hashindex.index) RETURNS jsonb
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base text := format('%I.%I', i.schema_name, i.table_name);
    code_table text := format('hashindex.%I', i.code_table);
    divided boolean := hashindex._is_partitioned(to_regclass(base));
    dimension integer := m.dimension FROM hashindex.readable_model m WHERE m.id = i.model_id;
BEGIN
    RETURN jsonb_build_object(
        'index', quote_literal(i.name),
        'candidates', format('hashindex.%I', 'candidates_' || i.name),
        'search', format('hashindex.%I', 'search_' || i.name),
        'within', format('hashindex.%I', 'within_' || i.name),
        'sync', format('hashindex.%I', hashindex._sync_name(i.triggers)),
        'refresh', format('hashindex.%I', hashindex._refresh_name(i)),
        'refresher', CASE WHEN hashindex._encoded_in_python(i) THEN 'forget' ELSE 'refresh' END,
        'table', base, 'table_literal', quote_literal(base),
        'column', quote_ident(i.column_name), 'column_literal', quote_literal(i.column_name),
        'triggers_literal', quote_literal(i.triggers),
        'code_table', code_table, 'code_table_literal', quote_literal(code_table),
        'ext', '{ext}', 'operator', hashindex._distance_operator(i.metric), 'vector_type', hashindex._vector_type(to_regclass(base), i.column_name), 'plans', 'force_generic_plan',
        -- A plan that knows the keys leaves out the partitions that hold none of them.
        'table_plans', CASE WHEN divided THEN 'force_custom_plan' ELSE 'force_generic_plan' END,
        'table_indexscan', CASE WHEN divided THEN 'on' ELSE 'off' END,
        'table_seqscan', CASE WHEN i.tenant_column IS NULL THEN 'on' ELSE 'off' END,
        'dimension', dimension,
        'n', i.candidates, 'probes', coalesce(i.probes, 1), 'seqscan', CASE i.access WHEN 'landmarks' THEN 'off' ELSE 'on' END,
        'checked_query', format(
            'CASE WHEN {ext}.vector_dims($1::{ext}.vector) = %1$s THEN $1::{ext}.vector(%1$s) '
            'ELSE hashindex._refuse_vector($1::{ext}.vector, %1$s) END', dimension
        ),
        'exact', format('%L::regclass, %L, %L, %L', base, i.key_columns, i.column_name, i.metric),
        'is_comparable', hashindex._is_comparable(i.metric, 'hashindex_query'),
        'row_is_visible', format(
            -- Few keys are looked up one by one; the planner would expect a third of the table, and join.
            E'\n      AND EXISTS (SELECT FROM %s WHERE %s OFFSET 0)', base, hashindex._same_key(i, base, 'c')
        )
    );
END
$$;

-- Whether codes may be used: who owns what the functions read, whose codes they are, and who asks.
CREATE OR REPLACE FUNCTION hashindex._rights_parts(i hashindex.index) RETURNS jsonb
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base text := format('%I.%I', i.schema_name, i.table_name);
    code_table text := format('hashindex.%I', i.code_table);
    has_tenant boolean := i.tenant_column IS NOT NULL;
    seen text := format('x.name = %L AND x.generation = %s AND x.encoded', i.name, i.generation);
    -- A table that was dropped and recreated, or took this one's name, does not have this trigger; one that was restored has another oid.
    kept text := format(
        '(x.table_oid = t.tgrelid) = (x.codes_oid = to_regclass(%4$L)) '
        'AND t.tgrelid = %1$L::regclass AND t.tgname = %2$L AND t.tgfoid = to_regproc(%3$L)' || CASE WHEN hashindex._is_partitioned(to_regclass(base)) THEN
            ' AND (x.table_oid <> t.tgrelid OR NOT EXISTS ('
            -- By pg_inherits, since pg_partition_tree locks all partitions.
            'SELECT FROM (WITH RECURSIVE tree (oid) AS (SELECT t.tgrelid UNION SELECT h.inhrelid FROM tree p JOIN pg_inherits h ON h.inhparent = p.oid) '
            'SELECT p.oid FROM tree p WHERE p.oid <> t.tgrelid EXCEPT SELECT unnest(x.part_oids) OFFSET 0) p '
            'WHERE EXISTS (SELECT FROM pg_trigger o WHERE (o.tgrelid, o.tgname, o.tgfoid) = (p.oid, t.tgname, t.tgfoid) OFFSET 0)))' ELSE '' END,
        base, (hashindex._trigger_names(i))[1], format('hashindex.%I', hashindex._sync_name(i.triggers)), code_table
    );
    in_use text := format('EXISTS (SELECT FROM hashindex.index x, pg_trigger t WHERE %s AND %s)', seen, kept);
    lists_are_there text := CASE WHEN i.landmark_table IS NULL THEN 'true'
        ELSE format('to_regclass(%L) IS NOT NULL', 'hashindex.' || quote_ident(i.landmark_table)) END;
    -- A node of a Citus cluster has other oids.
    trusted text[] := CASE WHEN hashindex._is_distributed(i) THEN ARRAY(SELECT regexp_replace(t, '^[0-9]+', '') FROM unnest(i.trusted_owners) t)
        ELSE i.trusted_owners END;
    rows_are_hidden text := format(CASE WHEN has_tenant THEN
        '(row_security_active(%1$L) OR row_security_active(to_regclass(%2$L))) AND hashindex._rows_are_hidden(%1$L, %2$L)'
    ELSE 'row_security_active(%1$L)' END, base, code_table);
    types record;
BEGIN
    -- The types that columns have, unless the index was made for others.
    SELECT string_agg(format('pg_typeof(n.%I) <> %L::regtype', k.name, CASE WHEN k.kept = ANY (t.bases) THEN a.atttypid ELSE k.kept END::regtype), ' OR ' ORDER BY k.n) AS differ,
           string_agg(format(CASE WHEN k.n < 100 THEN 'n.%1$I = ' ELSE '' END || 'n.%1$I::text::%2$s', k.name, k.kept::regtype), ', ' ORDER BY k.n) AS kept
    INTO types
    FROM (
        SELECT u.n, u.name, u.type::regtype::oid AS kept FROM unnest(i.key_columns, hashindex._base_types(i)) WITH ORDINALITY u(name, type, n)
        UNION ALL
        SELECT 100 + f.n, f.name, c.atttypid FROM unnest(i.filter_columns) WITH ORDINALITY f(name, n)
        JOIN pg_attribute c ON c.attrelid = to_regclass(code_table) AND c.attname = 'filter_' || f.n
    ) k
    LEFT JOIN pg_attribute a ON a.attrelid = to_regclass(base) AND a.attname = k.name AND NOT a.attisdropped
    CROSS JOIN LATERAL (
        WITH RECURSIVE below AS (
            SELECT a.atttypid AS type UNION ALL SELECT d.typbasetype FROM below b JOIN pg_type d ON d.oid = b.type WHERE d.typtype = 'd'
        )
        SELECT array_agg(b.type) AS bases FROM below b
    ) t;
    RETURN jsonb_build_object(
        'types_differ', types.differ, 'as_kept', types.kept,
        'trusted', format('%L, %L', trusted, hashindex._read_columns(i)),
        'require_trust', format(
            'hashindex._require_trust(%L, %L, %L, %L, %L)', i.schema_name, i.table_name, trusted, hashindex._read_columns(i),
            coalesce(i.swap_of, i.name)
        ),
        'codes_are_seen', format('EXISTS (SELECT FROM hashindex.index x WHERE %s)', seen),
        'codes_are_kept', format('EXISTS (SELECT FROM hashindex.index x, pg_trigger t WHERE x.name = %L AND %s)', i.name, kept),
        'codes_are_there', format('(to_regclass(%L) IS NOT NULL AND %s)', code_table, lists_are_there),
        -- The table is searched by exact distance where the caller may not read all rows or codes, where the codes are not complete yet,
        -- are younger than the snapshot, or belong to another table.
        'codes_are_hidden', format(
            -- A build drops tables that a search under way may still look for.
            '%s OR has_column_privilege(to_regclass(%L), ''%s'', ''SELECT'') IS NOT TRUE OR NOT %s OR NOT %s',
            -- A role that may not read the tenants has the codes, but not their copies of tenants.
            rows_are_hidden, code_table, CASE WHEN has_tenant THEN 'filter_1' ELSE 'code' END, lists_are_there, in_use
        ),
        'require_policies', CASE WHEN has_tenant THEN format(E'\n    PERFORM hashindex._require_policies(%L, %L, %L);', i.name, base, code_table) ELSE '' END
    );
END
$$;

-- Projections and codes of a query and of the row r, and what codes are ordered by.
CREATE OR REPLACE FUNCTION hashindex._code_parts(i hashindex.index) RETURNS jsonb
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    used hashindex.model := m FROM hashindex.readable_model m WHERE m.id = i.model_id;
    in_python boolean := used.network IS NOT NULL;
    kept_keys text[] := hashindex._code_keys(i);
    code_table text := format('hashindex.%I', i.code_table);
    u text[] := ARRAY(SELECT format('hashindex_u%s', n) FROM generate_series(1, 5) n);
    given text[] := ARRAY(SELECT format('$%s', n) FROM generate_series(1, 5) n);
    -- The code of a query; the projection of the row raw; the code of the row r, which has its projection.
    query_code text := CASE WHEN in_python THEN format('hashindex._checked_code(query_code, %s)', used.n_bits)
        ELSE format('{ext}.binary_quantize(%s)::bit varying', hashindex._above_cuts(used, 'hashindex_projection')) END;
    layers text := format('hashindex._layers_of(%s)', used.id);
    row_projection text := CASE WHEN in_python THEN 'NULL::{ext}.vector' ELSE hashindex._projection(used, 'raw.vector', layers) END;
    row_code text := CASE WHEN in_python THEN 'NULL'
        ELSE format('{ext}.binary_quantize(%s)', hashindex._above_cuts(used, 'r.projection')) END;
    -- Percent signs are doubled because these texts go through format() once more.
    named record;
    shown text;
BEGIN
    SELECT replace(quote_ident(i.table_name), '%', '%%') AS bare,
           replace(hashindex._columns_of(quote_ident(i.table_name), i.key_columns), '%', '%%') AS keys,
           replace(string_agg(format('c.%I AS %I', k.kept, k.name), ', ' ORDER BY k.n), '%', '%%') AS kept_keys
    INTO named
    FROM unnest(i.key_columns, kept_keys) WITH ORDINALITY k(name, kept, n);
    shown := coalesce(string_agg(format(', c.filter_%s AS %I', f.n, f.name), '' ORDER BY f.n), '')
    FROM unnest(i.filter_columns) WITH ORDINALITY f(name, n) WHERE f.name <> ALL (i.key_columns);
    RETURN jsonb_build_object(
        'n_bits', used.n_bits,
        'projection', CASE WHEN in_python THEN 'NULL' ELSE format(
            'CASE WHEN query_code IS NULL OR hashindex._checked_code(query_code, NULL) IS NULL THEN %s END',
            hashindex._projection(used, 'hashindex_query', layers)
        ) END,
        'code', query_code,
        'distance', hashindex._code_order(i.ranking, 'c.code', u, false),
        -- The codes that a rougher order keeps, of which the finer one is computed.
        'kept', format(
            '(SELECT %s, c.code FROM %s c%s ORDER BY %s LIMIT hashindex_pool)', hashindex._columns_of('c', kept_keys), code_table,
            CASE WHEN i.tenant_column IS NOT NULL THEN ' WHERE $7 IS NULL OR c.filter_1 = $7' END,
            hashindex._code_order(i.ranking, 'c.code', u, true)
        ),
        'pool', CASE WHEN i.ranking = 'hamming' THEN 'hashindex_n'
            ELSE 'greatest(10 * hashindex_n::bigint, 2000)' END,
        'filtered', quote_literal(format(
            E'SELECT %2$s FROM (SELECT %6$s%3$s, %4$s AS hashindex_distance FROM %5$s c WHERE %%1$s) %1$s WHERE (%%2$s'
            '\n) ORDER BY %1$s.hashindex_distance LIMIT $6',
            named.bare, named.keys, replace(shown, '%', '%%'),
            hashindex._code_order(i.ranking, 'c.code', given, false), replace(code_table, '%', '%%'),
            named.kept_keys
        )),
        'row_projection', row_projection, 'row_code', row_code,
        'query_codes', CASE i.ranking
            WHEN 'asymmetric' THEN format(
                'hashindex._asymmetric_codes(%s, hashindex._steps(%s))', hashindex._compared(used, i.metric, 'hashindex_projection'), used.n_bits
            )
            WHEN 'weighted' THEN format(
                'hashindex._weighted_codes(%s, %L)', query_code, hashindex._weight_planes(used.bit_weights)::text
            )
            ELSE format('ARRAY[%s]', query_code)
        END
    );
END
$$;

-- Number of projections of a row or query that are compared with landmarks; NULL where its vector is. Lists are of rows with near
-- projections, which are shorter than vectors and are computed for the code anyway. A few projections tell less than the vector: on
-- 300,000 x 384, 64 lists hold .961 of the true ten by vectors or 256 projections, .958 by 192, .950 by 128. Vectors are compared where
-- the length of a vector counts for the metric and not for the model, or the other way round.
CREATE OR REPLACE FUNCTION hashindex._list_projections(used hashindex.model, metric text) RETURNS integer
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    projections integer := used.n_bits / cardinality(used.cuts);
BEGIN
    IF used.network IS NULL AND projections >= least(192, used.dimension) AND ((used.layers[1]).kind = 'normalize') = (metric <> 'l2') THEN
        RETURN projections;
    END IF;
    RETURN NULL;
END
$$;

-- Landmarks near a query, and that of a row.
CREATE OR REPLACE FUNCTION hashindex._list_parts(i hashindex.index) RETURNS jsonb
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    used hashindex.model := m FROM hashindex.readable_model m WHERE m.id = i.model_id;
    lists boolean := i.landmark_table IS NOT NULL;
    has_tenant boolean := i.tenant_column IS NOT NULL;
    projections integer := hashindex._list_projections(used, i.metric);
    -- Numbers beyond 65504 do not fit into a halfvec, so longer vectors are normalised, as all are where the metric ignores length.
    point text := format(
        CASE WHEN projections > 0 OR i.metric = 'l2' THEN
            'CASE WHEN {ext}.vector_norm(%%1$s) < 65504 THEN %%1$s ELSE {ext}.l2_normalize(%%1$s) END::{ext}.halfvec(%1$s)'
        ELSE '{ext}.l2_normalize(%%1$s)::{ext}.halfvec(%1$s)' END, coalesce(projections, used.dimension)
    );
    landmarks text := 'hashindex.' || quote_ident(i.landmark_table);
    n_landmarks real := CASE WHEN hashindex._is_distributed(i) THEN hashindex._rows_of_copy(to_regclass(landmarks))
        ELSE (SELECT c.reltuples FROM pg_class c WHERE c.oid = to_regclass(landmarks)) END;
    row_point text := format(point, CASE WHEN projections > 0 THEN 'r.projection' ELSE 'r.vector' END);
BEGIN
    RETURN jsonb_build_object(
        'landmarks', coalesce(landmarks, ''),
        'point', format(point, CASE WHEN projections > 0 THEN 'hashindex_projection' ELSE 'hashindex_query' END), 'row_point', row_point,
        -- Finding one more landmark by the graph takes as long as comparing 18 to 32 landmarks (measured on 10,361); ef_search is
        -- at most 1000.
        'graph_probes', greatest(64, least(1000, n_landmarks / 20))::integer,
        -- 36,000 landmarks: ef_search 64 finds .956 of the true ten in 64 lists, which hold .987; 100 finds .9695 in 32, in the same time.
        'graph_effort', CASE WHEN n_landmarks > 20000
            THEN 'least(100, 16 + 4 * n_probes)' ELSE 'least(64, 16 + 2 * n_probes)' END,
        -- Without this check, a row would get a code that is in no list.
        'refuse_hidden_landmarks', CASE WHEN lists AND used.network IS NULL THEN format(
            E'\n        IF NOT EXISTS (SELECT FROM hashindex.index x WHERE x.storage = %L AND x.generation = %s) THEN'
            '\n            RAISE EXCEPTION ''index "%%" has been built again since this transaction began'', %L'
            '\n                USING ERRCODE = ''serialization_failure'', HINT = ''Run it again.'';'
            '\n        END IF;', i.storage, i.generation, i.name
        ) ELSE '' END,
        'row_landmark', CASE WHEN lists THEN format(
            '(SELECT l.landmark FROM %1$s l%3$s ORDER BY l.centre OPERATOR({ext}.<->) %2$s LIMIT 1)', landmarks, row_point,
            CASE WHEN has_tenant THEN format(
                ' WHERE l.leader = ANY (ARRAY(SELECT o.landmark FROM %s o WHERE o.tenant = r.filter_1 AND o.leader = o.landmark '
                'ORDER BY o.centre OPERATOR({ext}.<->) %s LIMIT 8))', landmarks, row_point
            ) END
        ) ELSE 'NULL::integer' END,
        'among_landmarks', CASE WHEN has_tenant THEN ' l WHERE l.tenant = r.filter_1' ELSE ' l' END,
        'is_unlisted', CASE WHEN has_tenant THEN format('c.landmark IS NULL AND EXISTS (SELECT FROM %s l WHERE l.tenant = c.filter_1)', landmarks)
            ELSE 'c.landmark IS NULL' END
    );
END
$$;

-- Searches within a tenant. Its argument comes after those of an index without tenants.
CREATE OR REPLACE FUNCTION hashindex._tenant_parts(i hashindex.index, keys jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base text := format('%I.%I', i.schema_name, i.table_name);
    has_tenant boolean := i.tenant_column IS NOT NULL;
    tenant_type text := CASE WHEN has_tenant THEN hashindex._tenant_type(i) END;
    -- The rows of a smaller tenant are compared exactly.
    few constant integer := 300;
BEGIN
    RETURN jsonb_build_object(
        'tenant_argument', CASE WHEN has_tenant THEN format(', tenant %s DEFAULT NULL', tenant_type) ELSE '' END,
        'tenant_type', coalesce(tenant_type, ''), 'tenant', coalesce(quote_ident(i.tenant_column), ''),
        -- Keys of a tenant without landmarks. Where they are in shards, this would be one more round trip.
        'few_keys', CASE WHEN i.landmark_table IS NOT NULL AND has_tenant AND NOT hashindex._is_distributed(i) THEN hashindex._fill(
            format(
                'ARRAY({pack}SELECT {c_ids} FROM hashindex.%I c WHERE c.landmark IS NULL AND c.filter_1 = $9 AND NOT EXISTS ('
                'SELECT FROM hashindex.%I l WHERE l.tenant = $9) LIMIT {few} + 1{packed})', i.code_table, i.landmark_table
            ), keys || jsonb_build_object('few', few)
        ) ELSE 'NULL' END,
        'few', few,
        -- An index on the tenants alone would lead to all rows of the tenant; only parts of a table are chosen by them.
        'of_tenant', CASE WHEN has_tenant THEN format(
            CASE WHEN hashindex._is_partitioned(to_regclass(base)) OR hashindex._is_distributed(i) THEN '%s.%I = $9 AND ' ELSE '(%s.%I = $9) IS TRUE AND ' END, base, i.tenant_column
        ) ELSE '' END,
        -- A table that is distributed by its tenants has the codes of one in one shard.
        'tenant_shard', coalesce((
            SELECT format('c.%I = $7 AND ', k.kept) FROM unnest(i.key_columns, hashindex._code_keys(i)) k(name, kept)
            WHERE k.name = i.tenant_column AND k.name = (hashindex._distribution_of(to_regclass(base))).column_name
        ), ''),
        'given_tenant', CASE WHEN has_tenant THEN ', false, $7' ELSE '' END,
        'searched_tenant', CASE WHEN has_tenant THEN ', $9' ELSE '' END, 'tenant_text', CASE WHEN has_tenant THEN ', $9::text' ELSE '' END,
        'require_tenant', CASE WHEN has_tenant THEN format(
            -- A role that sees the rows of its tenant alone, or may not read tenants, names none.
            E'\n    IF $9 IS NULL AND $6 IS NULL AND ($7 <> ''{}'') IS NOT TRUE AND NOT row_security_active(%1$L)'
            ' AND has_column_privilege(%1$L, %3$L, ''SELECT'') THEN'
            '\n        PERFORM hashindex._refuse_all_tenants(%2$L, %3$L);\n    END IF;', base, coalesce(i.swap_of, i.name), i.tenant_column
        ) ELSE '' END,
        'no_tenant', CASE WHEN has_tenant THEN '$9 IS NULL OR ' ELSE '' END,
        'scanned', CASE WHEN has_tenant THEN 'coalesce(format(''c.filter_1 = %L'', $7), ''true'')' ELSE quote_literal('true') END
    );
END
$$;

-- Columns beside codes, changes of them and of vectors, and the logs of keys that codes beside those in use are brought up to date by.
CREATE OR REPLACE FUNCTION hashindex._change_parts(i hashindex.index) RETURNS jsonb
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    kept_keys text[] := hashindex._code_keys(i);
    beside hashindex.index := x FROM hashindex._logged_for(i) x;
    vectors text[] := i.column_name || array_remove(ARRAY[nullif(beside.column_name, i.column_name)], NULL);
    copied text[] := i.filter_columns || ARRAY(SELECT c FROM unnest(beside.filter_columns) c WHERE c <> ALL (i.filter_columns));
    read text[] := i.key_columns || vectors || copied;
    filters record;
    changed text;
    logs record;
BEGIN
    SELECT coalesce(string_agg(format(', filter_%s', f.n), '' ORDER BY f.n), '') AS targets,
           coalesce(string_agg(format(', r.filter_%s', f.n), '' ORDER BY f.n), '') AS sources,
           coalesce(string_agg(format(', b.%I AS filter_%s', f.name, f.n), '' ORDER BY f.n), '') AS reads,
           coalesce(string_agg(format(', filter_%s = excluded.filter_%1$s', f.n), '' ORDER BY f.n), '') AS sets,
           coalesce(string_agg(format(', filter_%s = r.filter_%1$s', f.n), '' ORDER BY f.n), '') AS values
    INTO filters FROM unnest(i.filter_columns) WITH ORDINALITY f(name, n);
    changed := concat_ws(' OR ',
        (SELECT string_agg(format('((n.%1$I OPERATOR({ext}.=) o.%1$I) IS NOT TRUE AND (n.%1$I IS NOT NULL OR o.%1$I IS NOT NULL))', v), ' OR ') FROM unnest(vectors) v),
        -- Compared byte by byte: json has no =, and values that are equal by = may differ in a filter.
        (SELECT string_agg(format('record_image_ne(ROW(n.%I), ROW(o.%1$I))', c), ' OR ') FROM unnest(copied) c));
    SELECT coalesce(string_agg(format(E'\n    INSERT INTO hashindex.%I (%s) %s;', l.log, hashindex._columns_of(NULL, kept_keys),
               CASE cardinality(kept_keys) WHEN 1 THEN 'SELECT unnest(hashindex_touched)' ELSE 'SELECT k.* FROM unnest(hashindex_touched) k' END), ''), '') AS touched,
           coalesce(string_agg(format(E'\n        INSERT INTO hashindex.%I (%s) SELECT %s FROM new_rows n;', l.log,
               hashindex._columns_of(NULL, kept_keys), hashindex._columns_of('n', i.key_columns)), '') FILTER (WHERE l.reads), '') AS moved,
           coalesce(string_agg(format(E'\n        INSERT INTO hashindex.%I (%I) VALUES (NULL);', l.log, kept_keys[1]), ''), '') AS truncated
    INTO logs FROM (
        SELECT hashindex._log_name(i.storage) AS log, true AS reads WHERE i.next_generation IS NOT NULL
        UNION ALL
        SELECT hashindex._log_name(beside.storage), beside.next_generation IS NOT NULL WHERE beside.name IS NOT NULL
    ) l;
    RETURN jsonb_build_object(
        'filter_targets', filters.targets, 'filter_sources', filters.sources, 'filter_reads', filters.reads,
        'filter_sets', filters.sets, 'filter_values', filters.values, 'is_changed', changed,
        'read_columns', quote_literal(read::text), 'read_types', quote_literal(ARRAY(
            SELECT a.atttypid::regtype::text FROM unnest(read) WITH ORDINALITY k(name, n)
            LEFT JOIN pg_attribute a ON a.attrelid = to_regclass(format('%I.%I', i.schema_name, i.table_name)) AND a.attname = k.name ORDER BY k.n
        )::text),
        'log_touched', logs.touched, 'log_truncate', logs.truncated,
        -- Any update moves a row: a build that reads the table by ctid may miss it, or read it twice.
        'log_moved', logs.moved
    );
END
$$;

-- All of these values, those of shards, and statements that stand in several functions.
CREATE OR REPLACE FUNCTION hashindex._parts(i hashindex.index) RETURNS jsonb
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    keys jsonb := hashindex._key_parts(i);
    parts jsonb := keys || hashindex._table_parts(i) || hashindex._rights_parts(i) || hashindex._code_parts(i) || hashindex._list_parts(i)
        || hashindex._tenant_parts(i, keys) || hashindex._change_parts(i) || '{"search_shards": ""}';
BEGIN
    parts := CASE WHEN hashindex._is_distributed(i) THEN hashindex._shard_parts(i, parts) ELSE parts END;
    RETURN parts || jsonb_build_object(
        'nearest_landmarks', hashindex._fill(hashindex._template('nearest_landmarks'), parts),
        'landmarks_of_tenant', hashindex._fill(hashindex._template('landmarks_of_tenant'), parts || '{"tenant_value": "$7"}'),
        'refresh_codes', hashindex._fill(hashindex._template('refresh_codes'), parts),
        'exact_rows', hashindex._fill(CASE WHEN i.tenant_column IS NOT NULL THEN hashindex._template('exact_in_tenant')
            ELSE '    RETURN QUERY SELECT {e_ids}, e.distance FROM hashindex._exact_search({exact}, hashindex_query, hashindex_k) e;' END, parts)
    );
END
$$;
