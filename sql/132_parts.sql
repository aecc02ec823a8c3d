-- Values of the placeholders in the templates of an index's functions, by what they are about. Names are quoted; types are read from
-- PostgreSQL's catalog. The value of a condition, {if name}, is NULL, empty or false where there is none.

-- Values that all sets have: the names of the index and its table, the columns of the key, the functions, and the comparison of vectors.
CREATE OR REPLACE FUNCTION hashindex._name_parts(i hashindex.index, s hashindex.index_set) RETURNS jsonb
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base text := format('%I.%I', i.schema_name, i.table_name);
    -- A set that is not in use is measured by functions of its own.
    named text := CASE s.state WHEN 'used' THEN i.name ELSE '~' || s.id END;
BEGIN
    RETURN jsonb_build_object(
        -- The schema of pgvector.
        'ext', '{ext}',
        -- The index, also as a literal.
        'index_name', i.name, 'index', quote_literal(i.name),
        -- The table; its columns of vectors and of tenants.
        'table', base, 'table_literal', quote_literal(base),
        'column', quote_ident(i.column_name),
        'tenant', quote_ident(i.tenant_column), 'tenant_literal', quote_literal(i.tenant_column),
        -- The set, and its tables of codes, of landmarks, of written keys, and of codes that are yet to be put in order.
        'set_id', s.id, 'code_table', 'hashindex.' || hashindex._part_of(s, 'codes'), 'code_table_literal', quote_literal('hashindex.' || hashindex._part_of(s, 'codes')),
        'landmarks', 'hashindex.' || hashindex._part_of(s, 'landmarks'), 'log', 'hashindex.' || hashindex._part_of(s, 'log'),
        'staged', 'hashindex.' || hashindex._part_of(s, 'staged'),
        -- Lists: the key's columns in the table, in the table of codes and in answers; variables for a key.
        'key', i.key_columns, 'id', hashindex._code_keys(i), 'shown', hashindex._answer_keys(i),
        'variable', ARRAY(SELECT 'hashindex_' || k FROM unnest(hashindex._code_keys(i)) k),
        -- Whether the key has several columns; its type as one value, and its text of row b.
        'several', cardinality(i.key_columns) > 1, 'key_type', hashindex._key_type(i), 'key_text', hashindex._key_text('b', i.key_columns),
        -- Columns of an answer, with their types; and its key, from the text a.id. Declarations of variables for a key.
        'answer', (
            SELECT string_agg(format('%I %s', k.shown, k.type), ', ' ORDER BY k.n)
            FROM unnest(hashindex._answer_keys(i), hashindex._base_types(i)) WITH ORDINALITY k(shown, type, n)
        ),
        'key_of_text', hashindex._key_of_text(i, 'a.id'),
        'key_variables', (SELECT string_agg(format('hashindex_%s %s;', k.name, k.type), ' ') FROM unnest(hashindex._code_keys(i), hashindex._base_types(i)) k(name, type)),
        -- That row b may have a code: a tenant that is too long for an index has none. The type of tenants beside codes.
        'fits', coalesce(' AND hashindex._fits(b.' || quote_ident(i.tenant_column) || '::text)', ''),
        'tenant_type', CASE WHEN i.tenant_column IS NOT NULL THEN hashindex._tenant_type(i) END,
        -- The functions of the set.
        'search', format('hashindex.%I', 'search_' || named), 'sync', format('hashindex.%I', hashindex._sync_name(i.name)), 'refresh', 'hashindex.refresh_' || s.id,
        -- The column's type, and the metric's operator; arguments of the exact search; whether row r has a distance, also
        -- in a statement whose parameter $1 is the query.
        'vector_type', hashindex._vector_type(hashindex._base_of(i), i.column_name), 'operator', hashindex._distance_operator(i.metric),
        'exact', format('%L::regclass, %L, %L, %L', base, i.key_columns, i.column_name, i.metric),
        'is_comparable', hashindex._is_comparable(i.metric, 'hashindex_point'), 'is_comparable_to_parameter', hashindex._is_comparable(i.metric, '$1')
    );
END
$$;

-- Whether codes may be used: who owns what the functions read, whose codes they are, and who asks.
CREATE OR REPLACE FUNCTION hashindex._rights_parts(i hashindex.index, s hashindex.index_set, parts jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    types record;
    -- Conditions on row x of the catalog, of which the last is also on a trigger t.
    conditions jsonb := parts || jsonb_build_object(
        -- A snapshot in which the set is in another state does not see the last keys that were applied to it.
        'seen', format('x.id = %s AND x.state = %L AND x.encoded', s.id, s.state),
        'lists_are_there', format('to_regclass(%L) IS NOT NULL', parts ->> 'landmarks'),
        'trigger', quote_literal((hashindex._trigger_names(i))[1]), 'sync_literal', quote_literal(parts ->> 'sync')
    );
BEGIN
    -- A table that was dropped and recreated, or took this one's name, does not have this trigger; one that was restored has another oid.
    -- A write through a table above or below it fires none of its triggers. That costs 2 us: it is looked up once, by the constant.
    conditions := conditions || jsonb_build_object('kept', hashindex._fill(
        $kept$(x.table_oid = t.tgrelid) = (x.codes_oid = to_regclass({code_table_literal}))
            AND t.tgrelid = {table_literal}::regclass AND t.tgname = {trigger} AND t.tgfoid = to_regproc({sync_literal})
            AND NOT EXISTS (SELECT FROM pg_inherits h WHERE {table_literal}::regclass IN (h.inhrelid, h.inhparent))$kept$, conditions
    ));
    -- The types that columns have, unless the index was made for others.
    SELECT string_agg(format('pg_typeof(NEW.%I) <> %L::regtype', k.name, CASE WHEN k.kept = ANY (t.bases) THEN a.atttypid ELSE k.kept END::regtype), ' OR ' ORDER BY k.n) AS differ,
           string_agg(concat(CASE WHEN k.n < 100 THEN format('NEW.%I = ', k.name) END, format('NEW.%I::text::%s', k.name, k.kept::regtype)), ', ' ORDER BY k.n) AS kept
    INTO types
    FROM (
        SELECT u.n, u.name, u.type::regtype::oid AS kept FROM unnest(i.key_columns, hashindex._base_types(i)) WITH ORDINALITY u(name, type, n)
        UNION ALL
        SELECT 100, i.tenant_column, to_regtype(parts ->> 'tenant_type')::oid WHERE i.tenant_column <> ALL (i.key_columns)
    ) k
    LEFT JOIN pg_attribute a ON a.attrelid = to_regclass(parts ->> 'table') AND a.attname = k.name AND NOT a.attisdropped
    CROSS JOIN LATERAL (
        WITH RECURSIVE below AS (
            SELECT a.atttypid AS type UNION ALL SELECT d.typbasetype FROM below b JOIN pg_type d ON d.oid = b.type WHERE d.typtype = 'd'
        )
        SELECT array_agg(b.type) AS bases FROM below b
    ) t;
    RETURN jsonb_build_object(
        -- Whether a written row has other types than the index keeps, and whether its values fit into those.
        'types_differ', types.differ, 'as_kept', types.kept,
        -- Whether a trigger may name its table: not if that was renamed, and another has its name, nor if an owner lacks the administrator's
        -- rights. Where types are built in, the owner of the table alone is looked up for each row, and all where a strict snapshot may show a former one.
        'is_readable', concat('(TG_TABLE_SCHEMA, TG_TABLE_NAME) = ', format('(%L, %L)', i.schema_name, i.table_name), ' AND (', CASE WHEN NOT EXISTS (
            SELECT FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
            WHERE a.attrelid = to_regclass(parts ->> 'table') AND a.attname = ANY (hashindex._read_columns(i))
              AND t.typnamespace <> 'pg_catalog'::regnamespace AND (t.typtype <> 'b' OR t.typcategory = 'A')
        ) THEN 'EXISTS (SELECT FROM pg_class c WHERE c.oid = TG_RELID AND pg_has_role(c.relowner, current_user, ''USAGE'') AND (NOT hashindex_strict OR c.xmax = ''0''::xid)) OR '
        END, format('NOT EXISTS (SELECT FROM hashindex._other_owners(TG_RELID, %L)))', hashindex._read_columns(i))),
        -- Whether a build has not dropped the codes.
        'codes_are_there', hashindex._fill('(to_regclass({code_table_literal}) IS NOT NULL AND {lists_are_there})', conditions),
        -- The table is searched by exact distance where the caller may not read all rows or codes, where the codes are not complete yet,
        -- are younger than the snapshot, or belong to another table. A build drops tables that a search under way may still look for.
        'codes_are_hidden', hashindex._fill(
            $hidden${if tenant}(row_security_active({table_literal}) OR row_security_active(to_regclass({code_table_literal})))
            AND hashindex._rows_are_hidden({table_literal}, {code_table_literal}){else tenant}row_security_active({table_literal}){end tenant}
            OR has_column_privilege(to_regclass({code_table_literal}), 'code', 'SELECT') IS NOT TRUE
            OR NOT {lists_are_there}
            OR NOT EXISTS (SELECT FROM hashindex.index_set x, pg_trigger t WHERE {seen} AND {kept})$hidden$, conditions
        )
    );
END
$$;

-- Projections and codes of a query and of the row r, and what codes are ordered by.
CREATE OR REPLACE FUNCTION hashindex._code_parts(i hashindex.index, s hashindex.index_set, parts jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    used hashindex.model := m FROM hashindex.readable_model m WHERE m.id = s.model_id;
    weights integer[] := CASE WHEN used.bit_weights IS NOT NULL THEN '{15,1,2,4,8}' ELSE '{4,2,1}' END;
    layers text := format('hashindex._layers_of(%s)', used.id);
    code text := format('{ext}.binary_quantize(%s)::bit varying', hashindex._above_cuts(used, 'hashindex_projection'));
BEGIN
    RETURN jsonb_build_object(
        -- Numbers in a vector, and bits of a code; the query, refused if it has another dimension.
        'dimension', used.dimension, 'n_bits', used.n_bits,
        'checked_query', hashindex._fill(
            'CASE WHEN {ext}.vector_dims($1::{ext}.vector) = {dimension} THEN $1::{ext}.vector({dimension}) '
            'ELSE hashindex._refuse_vector($1::{ext}.vector, {dimension}) END', jsonb_build_object('dimension', used.dimension)
        ),
        -- The projection of the query, and the codes that it is ranked by.
        'projection', hashindex._projection(used, 'hashindex_query', layers),
        'query_codes', CASE WHEN used.bit_weights IS NOT NULL THEN
            format('hashindex._weighted_codes(%s, %L)', code, hashindex._weight_planes(used.bit_weights)::text)
        ELSE format(
            'hashindex._asymmetric_codes(%s, hashindex._steps(%s))', hashindex._compared(used, i.metric, 'hashindex_projection', layers), used.n_bits
        ) END,
        -- The distance of code c to the codes of the query, hashindex_u1 to hashindex_u5.
        'distance', (
            SELECT string_agg(format('%s(c.code OPERATOR({ext}.<~>) hashindex_u%s)', CASE WHEN w > 1 THEN w || ' * ' END, n), ' + ' ORDER BY n)
            FROM unnest(weights) WITH ORDINALITY x(w, n)
        ),
        -- The projection of the row raw, and the code of the row r, which has its projection.
        'row_projection', hashindex._projection(used, 'raw.vector', layers),
        'row_code', format('{ext}.binary_quantize(%s)', hashindex._above_cuts(used, 'r.projection'))
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
    IF projections >= least(192, used.dimension) AND ((used.layers[1]).kind = 'normalize') = (metric <> 'l2') THEN
        RETURN projections;
    END IF;
    RETURN NULL;
END
$$;

-- Landmarks near a query, and that of a row.
CREATE OR REPLACE FUNCTION hashindex._list_parts(i hashindex.index, s hashindex.index_set, parts jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    used hashindex.model := m FROM hashindex.readable_model m WHERE m.id = s.model_id;
    projections integer := hashindex._list_projections(used, i.metric);
    n_landmarks real := c.reltuples FROM pg_class c WHERE c.oid = to_regclass(nullif(parts ->> 'landmarks', ''));
    -- Numbers beyond 65504 do not fit into a halfvec, so longer vectors are normalised, as all are where the metric ignores length.
    point text := CASE WHEN projections > 0 OR i.metric = 'l2' THEN 'CASE WHEN {ext}.vector_norm({v}) < 65504 THEN {v} ELSE {ext}.l2_normalize({v}) END::{ext}.halfvec({numbers})'
        ELSE '{ext}.l2_normalize({v})::{ext}.halfvec({numbers})' END;
    own jsonb := jsonb_build_object('numbers', coalesce(projections, used.dimension));
    row_parts jsonb := parts || jsonb_build_object('row_point', hashindex._fill(
        point, own || jsonb_build_object('v', CASE WHEN projections > 0 THEN 'r.projection' ELSE 'r.vector' END)
    ));
BEGIN
    RETURN jsonb_build_object(
        -- The points of the query and of the row r that are compared with landmarks.
        'point', hashindex._fill(point, own || jsonb_build_object('v', CASE WHEN projections > 0 THEN 'hashindex_projection' ELSE 'hashindex_query' END)),
        'row_point', row_parts ->> 'row_point',
        -- Defaults of candidates and effort; whether candidates are looked for in lists.
        'n', coalesce(s.candidates, 40), 'effort', coalesce(s.effort, 80), 'lists', s.trained_rows IS NOT NULL,
        -- Up to how many effort the graph of landmarks is read. Finding one more landmark by the graph takes as long as comparing 18 to 32
        -- landmarks (measured on 10,361); ef_search is at most 1000.
        'graph_probes', greatest(64, least(1000, n_landmarks / 20))::integer,
        -- 36,000 landmarks: ef_search 64 finds .956 of the true ten in 64 lists, which hold .987; 100 finds .9695 in 32, in the same time.
        'graph_effort', CASE WHEN n_landmarks > 20000
            THEN 'least(100, 16 + 4 * hashindex_probes)' ELSE 'least(64, 16 + 2 * hashindex_probes)' END,
        -- The landmark of the row r.
        'row_landmark', CASE WHEN s.trained_rows IS NULL THEN 'NULL::integer' ELSE hashindex._fill(
            '(SELECT l.landmark FROM {landmarks} l{if tenant} WHERE l.leader = ANY (ARRAY(SELECT o.landmark FROM {landmarks} o WHERE o.tenant = r.tenant '
            'AND o.leader = o.landmark ORDER BY o.centre OPERATOR({ext}.<->) {row_point} LIMIT 8)){end tenant} '
            'ORDER BY l.centre OPERATOR({ext}.<->) {row_point} LIMIT 1)', row_parts
        ) END,
        -- Codes c that are to have a landmark and have none.
        'is_unlisted', hashindex._fill(
            'c.landmark IS NULL{if tenant} AND EXISTS (SELECT FROM {landmarks} l WHERE l.tenant = c.tenant){end tenant}', parts
        ),
        -- A transaction older than the landmarks, or than their use, may not write: a row would get a code that is in no list.
        'refuse_hidden_landmarks', CASE WHEN s.trained_rows IS NOT NULL THEN hashindex._fill(
            $refuse$
        IF NOT EXISTS (SELECT FROM hashindex.index_set x WHERE x.id = {set_id} AND x.state = 'used' AND x.generation = {generation}) THEN
            RAISE EXCEPTION 'index "%" has been built again since this transaction began', {index}
                USING ERRCODE = 'serialization_failure', HINT = 'Run it again.';
        END IF;$refuse$, parts, jsonb_build_object('generation', s.generation)
        ) ELSE '' END
    );
END
$$;

-- All of these values; and the changes of vectors and tenants, and the log of the keys that the other set of lists, beside the one in use, is brought
-- up to date by.
CREATE OR REPLACE FUNCTION hashindex._parts(i hashindex.index, s hashindex.index_set) RETURNS jsonb
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    parts jsonb := hashindex._name_parts(i, s);
    kept_keys text[] := hashindex._code_keys(i);
    -- The vectors of all sets of lists are read.
    read text[] := hashindex._read_columns(i) || array_remove(hashindex._written_vectors(i), i.column_name);
    beside hashindex.index_set := x FROM hashindex.index_set x
        WHERE x.index_name = i.name AND x.access IN ('lists', 'scan') AND x.state <> 'used' AND hashindex._table_of(x, 'log') IS NOT NULL;
    log text := 'hashindex.' || hashindex._part_of(beside, 'log');
    write text := format(E'\n        INSERT INTO %s (%s) VALUES (%%s);', log, hashindex._columns_of(NULL, kept_keys));
BEGIN
    -- The log of a former set has a limit, since only a command of the administrator empties it. A writer beyond it sees a mark that says so, or adds one:
    -- it waits for no other writer, which may roll back. The limit is a literal: the size of the codes would take a lock that prune holds.
    IF beside.state = 'former' THEN
        write := format(
            E'\n        IF pg_relation_size(%L::regclass) > %s THEN\n            INSERT INTO %s (gap) SELECT true WHERE NOT EXISTS (SELECT FROM %s l WHERE l.gap);\n        ELSE%s\n        END IF;',
            log, hashindex._log_limit(beside), log, log, replace(write, E'\n', E'\n    ')
        );
    END IF;
    RETURN parts || hashindex._rights_parts(i, s, parts) || hashindex._code_parts(i, s, parts) || hashindex._list_parts(i, s, parts) || jsonb_build_object(
        -- Columns of the old and the new row that codes are of.
        'is_changed', (SELECT format('ROW(%s), ROW(%s)', hashindex._columns_of('OLD', read), hashindex._columns_of('NEW', read))),
        -- Columns that the triggers read, and their types when they were made.
        'read_columns', quote_literal(read::text), 'read_types', quote_literal(ARRAY(
            SELECT a.atttypid::regtype::text FROM unnest(read) WITH ORDINALITY k(name, n)
            LEFT JOIN pg_attribute a ON a.attrelid = to_regclass(format('%I.%I', i.schema_name, i.table_name)) AND a.attname = k.name ORDER BY k.n
        )::text),
        -- Touched keys, TRUNCATE; and moved rows, since any update moves one: a build that reads the table by ctid may miss it, or read it twice.
        'log_touched', CASE WHEN beside.id IS NULL THEN '' ELSE format(write, hashindex._columns_of(NULL, ARRAY(SELECT 'hashindex_' || k FROM unnest(kept_keys) k))) END,
        'log_moved', CASE WHEN beside.state = 'building' THEN replace(format(write, hashindex._columns_of('NEW', i.key_columns)), E'\n', E'\n    ') ELSE '' END,
        'log_truncate', CASE WHEN beside.id IS NULL THEN '' ELSE format(E'\n        INSERT INTO %s (%I) VALUES (NULL);', log, kept_keys[1]) END
    );
END
$$;
