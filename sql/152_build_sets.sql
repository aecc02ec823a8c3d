-- Builds sets: their rows in the catalog, and pgvector's indexes.

-- Statements that make pgvector's index of a set. Online, a partitioned table gets an index of its own that the indexes of its partitions, each
-- built without keeping writers out, are attached to.
CREATE OR REPLACE FUNCTION hashindex._build_statements(i hashindex.index, s hashindex.index_set, online boolean DEFAULT false) RETURNS SETOF text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base regclass := hashindex._base_of(i);
    in_parts boolean := online AND c.relkind = 'p' FROM pg_class c WHERE c.oid = base;
    held record := hashindex._set_sql(i, s);
    made text := format(
        ' USING %s (%s %s) WITH (%s)', s.access, held.expression, held.opclass,
        CASE s.access WHEN 'hnsw' THEN 'ef_construction = 128' ELSE format('lists = %s', hashindex._ivfflat_lists(hashindex._rows_of(base))) END
    );
    part record;
BEGIN
    IF NOT in_parts THEN
        RETURN NEXT format('CREATE INDEX%s %I ON %s%s', CASE WHEN online THEN ' CONCURRENTLY' END, s.relation, base, made);
        RETURN;
    END IF;
    RETURN NEXT format('CREATE INDEX %I ON ONLY %s%s', s.relation, base, made);
    FOR part IN
        SELECT t.isleaf, t.relid, n.nspname, format('%s_%s', left(s.relation, 52), t.relid::oid) AS named,
            CASE WHEN t.parentrelid = base THEN format('%I.%I', i.schema_name, s.relation) ELSE format('%I.%I', p.nspname, format('%s_%s', left(s.relation, 52), t.parentrelid::oid)) END AS above
        FROM pg_partition_tree(base) t JOIN pg_class c ON c.oid = t.relid JOIN pg_namespace n ON n.oid = c.relnamespace
        LEFT JOIN pg_class q ON q.oid = t.parentrelid LEFT JOIN pg_namespace p ON p.oid = q.relnamespace
        WHERE t.relid <> base ORDER BY t.level, t.relid
    LOOP
        RETURN NEXT format('CREATE INDEX %s %I ON %s %s%s', CASE WHEN part.isleaf THEN 'CONCURRENTLY' END, part.named, CASE WHEN NOT part.isleaf THEN 'ONLY' END, part.relid::regclass, made);
        RETURN NEXT format('ALTER INDEX %s ATTACH PARTITION %I.%I', part.above, part.nspname, part.named);
    END LOOP;
END
$$;

-- Kilobytes of maintenance_work_mem in which a graph of a set is built without a second pass, at most 1 GB.
CREATE OR REPLACE FUNCTION hashindex._build_memory(i hashindex.index, s hashindex.index_set) RETURNS bigint
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN least(1.5 * hashindex._set_bytes(s, (SELECT m.n_bits FROM hashindex.model m WHERE m.id = s.model_id), hashindex._rows_of(hashindex._base_of(i))), 1073741824) / 1024;
END
$$;

-- Makes pgvector's index of a set in this transaction.
CREATE OR REPLACE FUNCTION hashindex._build_relation(i hashindex.index, s hashindex.index_set) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    workers text := current_setting('max_parallel_maintenance_workers');
    statement text := hashindex._build_statements(i, s);
    memory text := current_setting('maintenance_work_mem');
    done text;
BEGIN
    IF hashindex._build_memory(i, s) > pg_size_bytes(memory) / 1024 THEN
        done := set_config('maintenance_work_mem', hashindex._build_memory(i, s) || 'kB', true);
    END IF;
    BEGIN
        EXECUTE statement;
    EXCEPTION WHEN disk_full OR insufficient_resources THEN
        -- Parallel workers find no shared memory where /dev/shm is small, as in a container: one process builds the index.
        done := set_config('max_parallel_maintenance_workers', '0', true);
        EXECUTE statement;
        done := set_config('max_parallel_maintenance_workers', workers, true);
    WHEN insufficient_privilege THEN
        RAISE EXCEPTION '%', SQLERRM USING ERRCODE = 'insufficient_privilege',
            HINT = format('Have a role that may create in the table''s schema run this, then run the same again: %s;', statement);
    END;
    done := set_config('maintenance_work_mem', memory, true);
END
$$;

-- The index and the set that a declaration asks for, or an error; nothing is made yet.
CREATE OR REPLACE FUNCTION hashindex._declared_set(
    name text, base regclass, column_name text, model text, access text, store boolean, code_column text, metric text, tenant text, key_columns text[],
    candidates integer, effort integer, OUT i hashindex.index, OUT s hashindex.index_set
)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
#variable_conflict use_variable
DECLARE
    used hashindex.model;
    missing text := CASE WHEN name IS NULL THEN 'name' WHEN base IS NULL THEN 'table_name' WHEN column_name IS NULL THEN 'column_name' END;
BEGIN
    IF missing IS NOT NULL THEN
        RAISE EXCEPTION '% is NULL', missing USING ERRCODE = 'null_value_not_allowed', HINT = 'Pass a value.';
    ELSIF name !~ '^[A-Za-z0-9_][A-Za-z0-9_-]{0,39}$' THEN
        RAISE EXCEPTION 'index name "%" is not 1 to 40 letters a to z, digits, _ and -', name USING ERRCODE = 'invalid_name', HINT = 'Choose another name.';
    ELSIF EXISTS (SELECT FROM hashindex.index x WHERE x.name = name) THEN
        RAISE EXCEPTION 'index "%" exists already', name USING ERRCODE = 'duplicate_object', HINT = 'Choose another name, or give it another set by a swap.';
    ELSIF EXISTS (SELECT FROM pg_proc p WHERE p.pronamespace = 'hashindex'::regnamespace AND p.proname = 'search_' || name) THEN
        RAISE EXCEPTION 'function hashindex.search_% exists, and is not of an index', name USING ERRCODE = 'duplicate_function', HINT = 'Choose another name, or drop the function.';
    ELSIF metric NOT IN ('l2', 'cosine', 'ip') THEN
        RAISE EXCEPTION 'metric "%" is unknown', metric USING ERRCODE = 'invalid_parameter_value', HINT = 'Use l2, cosine or ip.';
    END IF;
    IF candidates < 1 THEN
        PERFORM hashindex._refuse('candidates', candidates, '1 or more');
    ELSIF effort < 1 THEN
        PERFORM hashindex._refuse('effort', effort, '1 or more');
    END IF;
    IF model <> 'none' THEN
        used := hashindex.find_model(model);
        PERFORM hashindex._check_evaluated(used, base, column_name);
    END IF;
    IF access IN ('lists', 'scan') THEN
        PERFORM hashindex._admit_lists(base, column_name, ARRAY[column_name], used);
    END IF;
    PERFORM hashindex._check_vector_column(base, column_name, used.dimension);
    PERFORM hashindex._check_names(base);
    SELECT n.nspname, c.relname INTO STRICT i.schema_name, i.table_name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = base;
    SELECT k.key_columns, k.key_types INTO STRICT i.key_columns, i.key_types FROM hashindex._find_key(base, key_columns) k;
    i.name := name;
    i.column_name := column_name;
    i.tenant_column := tenant;
    i.metric := coalesce(metric, hashindex._indexed_metric(base, column_name), used.metric, 'cosine');
    i.created_at := now();
    PERFORM hashindex._check_tenant(i, base);
    s.index_name := name;
    s.model_id := used.id;
    s.access := coalesce(access, 'hnsw');
    s.column_name := column_name;
    s.code_column := code_column;
    s.stores := store;
    s.candidates := candidates;
    s.effort := effort;
    PERFORM hashindex._check_set(i, s);
    s.dimension := coalesce(used.dimension, hashindex._dimension_of(base, column_name));
END
$$;

-- Dimension of the vectors in a column, by its type or by a row; an error where neither says it.
CREATE OR REPLACE FUNCTION hashindex._dimension_of(base regclass, column_name text) RETURNS integer
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    dimension integer := nullif(a.atttypmod, -1) FROM pg_attribute a WHERE a.attrelid = base AND a.attname = column_name AND NOT a.attisdropped;
BEGIN
    IF dimension IS NULL AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = base AND a.attname = column_name) THEN
        EXECUTE format('SELECT {ext}.vector_dims(b.%I) FROM %s b WHERE b.%I IS NOT NULL LIMIT 1', column_name, base, column_name) INTO dimension;
    END IF;
    IF dimension IS NULL THEN
        RAISE EXCEPTION 'column "%" of % has no dimension, and no row has a vector', column_name, base
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = format('Load the rows first, or run: ALTER TABLE %s ALTER COLUMN %I TYPE {ext}.vector(N);', base, column_name);
    END IF;
    RETURN dimension;
END
$$;

-- Refuses what a set of pgvector cannot be. Lists are checked with their model, by _check_lists.
CREATE OR REPLACE FUNCTION hashindex._check_set(i hashindex.index, s hashindex.index_set) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base regclass := hashindex._base_of(i);
    used hashindex.model := m FROM hashindex.model m WHERE m.id = s.model_id;
    filled text := format('pg-hashindex model encode %s --table %s --column %s --into ', hashindex._shell_word(format('%s:%s', used.name, used.version)),
        hashindex._shell_word(base::text), hashindex._shell_word(s.column_name));
    wrong bigint;
BEGIN
    IF s.access IN ('lists', 'scan') THEN
        -- When they are begun.
        RETURN;
    ELSIF s.access NOT IN ('hnsw', 'ivfflat') THEN
        RAISE EXCEPTION 'access "%" is unknown', s.access USING ERRCODE = 'invalid_parameter_value', HINT = 'Use hnsw, ivfflat or lists.';
    ELSIF s.code_column IS NOT NULL AND s.stores THEN
        RAISE EXCEPTION 'store and code_column are both given' USING ERRCODE = 'invalid_parameter_value', HINT = 'You fill a column of your own; store makes one that PostgreSQL fills.';
    ELSIF s.model_id IS NULL AND s.code_column IS NOT NULL THEN
        RAISE EXCEPTION 'column "%" holds codes, and no model is named that made them', s.code_column USING ERRCODE = 'invalid_parameter_value', HINT = 'Name the model.';
    ELSIF i.metric <> used.metric THEN
        RAISE EXCEPTION 'model "%:%" was trained for %, and index "%" ranks by %', used.name, used.version, used.metric, i.name, i.metric
            USING ERRCODE = 'invalid_parameter_value', HINT = format('Train a model for %s, or name metric %s.', i.metric, used.metric);
    ELSIF used.n_bits > 64000 THEN
        PERFORM hashindex._refuse('bits', used.n_bits, '64000 or fewer, which pgvector indexes');
    ELSIF s.model_id IS NOT NULL AND NOT {strong hashindex._administrator()} AND EXISTS (SELECT FROM pg_class c WHERE c.oid = base AND {strong c.relowner}) THEN
        RAISE EXCEPTION '% belongs to a superuser, and its writers would run a function of role %', base, hashindex._administrator()::regrole
            USING ERRCODE = 'insufficient_privilege', HINT = 'Search its vectors, with model none, or give the table to another role.';
    ELSIF s.code_column IS NOT NULL AND NOT s.stores THEN
        IF NOT EXISTS (
            SELECT FROM pg_attribute a
            WHERE a.attrelid = base AND a.attname = s.code_column AND a.atttypid = 'bit'::regtype AND a.atttypmod = used.n_bits AND NOT a.attisdropped
        ) THEN
            RAISE EXCEPTION 'column "%" of % is not of type bit(%)', s.code_column, base, used.n_bits USING ERRCODE = 'datatype_mismatch', HINT = format('Fill one: %sCOLUMN', filled);
        END IF;
        EXECUTE format('SELECT count(*) FROM %s b WHERE b.%I IS NOT NULL AND b.%I IS NULL', base, s.column_name, s.code_column) INTO wrong;
        IF wrong > 0 THEN
            RAISE EXCEPTION '% rows of % have a vector and no code in column "%"', wrong, base, s.code_column
                USING ERRCODE = 'object_not_in_prerequisite_state', HINT = format('Run: %s%s', filled, hashindex._shell_word(s.code_column));
        END IF;
    END IF;
END
$$;

-- Refuses a model whose function is PL/pgSQL while roles that write to the table may not use pgvector's schema, whose functions it calls.
CREATE OR REPLACE FUNCTION hashindex._check_writers(base regclass, used hashindex.model) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    roles text := string_agg(DISTINCT quote_ident(g.role), ', ') FROM hashindex._grants_on(base) g
        WHERE g.privilege IN ('INSERT', 'UPDATE') AND NOT has_schema_privilege(g.role, (SELECT e.extnamespace FROM pg_extension e WHERE e.extname = 'vector'), 'USAGE');
BEGIN
    IF roles IS NOT NULL AND EXISTS (SELECT FROM unnest(used.layers) l WHERE l.kind IN ('affine', 'rbf')) THEN
        RAISE EXCEPTION 'roles that write to % may not use the schema of pgvector, and model "%:%" calls its functions: %', base, used.name, used.version, roles
            USING ERRCODE = 'insufficient_privilege', HINT = format('Run: GRANT USAGE ON SCHEMA %s TO %s;', '{ext}', roles);
    END IF;
END
$$;

-- A name for pgvector's index of a set that no relation has.
CREATE OR REPLACE FUNCTION hashindex._free_relation(i hashindex.index, s hashindex.index_set) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN r.named FROM (SELECT n, concat_ws('_', i.name, s.access, nullif(n, 1)) AS named FROM generate_series(1, 1000) n) r
    WHERE hashindex._oid_of(i.schema_name, r.named) IS NULL ORDER BY r.n LIMIT 1;
END
$$;

-- Adds the column of codes that a set stores.
CREATE OR REPLACE FUNCTION hashindex._add_code_column(base regclass, used hashindex.model, s hashindex.index_set) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    statement text := format(
        'ALTER TABLE %s ADD COLUMN %I bit(%s) GENERATED ALWAYS AS (hashindex.%I(%I)) STORED',
        base, s.code_column, used.n_bits, hashindex._function_name(used, 'code'), s.column_name
    );
    workers text := current_setting('max_parallel_maintenance_workers');
    done text;
BEGIN
    RAISE NOTICE 'column "%" is added to %: the table and its indexes are written again, and searches and writes wait', s.code_column, base;
    EXECUTE statement;
EXCEPTION WHEN disk_full OR insufficient_resources THEN
    -- As where pgvector's index is made.
    done := set_config('max_parallel_maintenance_workers', '0', true);
    EXECUTE statement;
    done := set_config('max_parallel_maintenance_workers', workers, true);
END
$$;

-- Begins a set: its row, and what it takes beside pgvector's index, which is functions of the model, and a column of codes if it stores them.
CREATE OR REPLACE FUNCTION hashindex._begin_set(i hashindex.index, INOUT s hashindex.index_set, reveal_anchors boolean DEFAULT false)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base regclass := hashindex._base_of(i);
    used hashindex.model := m FROM hashindex.model m WHERE m.id = s.model_id;
    unfit boolean;
BEGIN
    -- Nothing of the state of the set that it is to replace.
    s := jsonb_populate_record(NULL::hashindex.index_set, to_jsonb(s) - '{encoded,unverified,trained_rows,generation,table_oid,codes_oid,relation}'::text[]);
    s.halves := false;
    s.owns_relation := false;
    s.state := 'building';
    s.created_at := now();
    s.id := nextval('hashindex.index_set_id_seq');
    IF s.access IN ('lists', 'scan') THEN
        s := hashindex._begin_set_of_lists(i, s);
        RETURN;
    END IF;
    IF s.model_id IS NULL AND s.stores THEN
        RAISE EXCEPTION 'store keeps codes, and the set has vectors' USING ERRCODE = 'invalid_parameter_value', HINT = 'Name a model, or leave store out.';
    END IF;
    -- By it a repair knows the table after a rename.
    s.table_oid := base;
    IF s.model_id IS NULL THEN
        s.halves := hashindex._vector_type(base, s.column_name) = '{ext}.halfvec';
        IF NOT s.halves THEN
            -- An index of the user's is taken as it is, that over the halfvec cast first.
            s.halves := true;
            s.halves := hashindex._serving_relation(i, s) IS NOT NULL;
        END IF;
        IF NOT s.halves AND hashindex._serving_relation(i, s) IS NULL THEN
            -- Too large for a halfvec, or by cosine so small that it would have no direction.
            EXECUTE format(
                'SELECT bool_or(n.norm < 0.001 OR 65504 < ANY (b.%2$I::real[]) OR -65504 > ANY (b.%2$I::real[])) FROM %1$s b '
                'CROSS JOIN LATERAL (SELECT {ext}.vector_norm(b.%2$I) OFFSET 0) n(norm) WHERE n.norm > 65504 OR %3$L AND n.norm > 0 AND n.norm < 0.001',
                base, s.column_name, i.metric = 'cosine'
            ) INTO unfit;
            s.halves := unfit IS NOT true;
        END IF;
        IF s.dimension > (CASE WHEN s.halves THEN 4000 ELSE 2000 END) THEN
            RAISE NOTICE 'pgvector indexes no vectors of % dimensions: searches of index "%" are exact', s.dimension, i.name;
            s.access := NULL;
        END IF;
    ELSE
        IF s.code_column IS NULL OR s.stores THEN
            PERFORM hashindex._check_writers(base, used);
        END IF;
        -- A query is encoded by them, also where codes stand in a column.
        PERFORM hashindex.create_functions(format('%s:%s', used.name, used.version), reveal_anchors);
    END IF;
    IF s.stores THEN
        SELECT r.named INTO s.code_column FROM (SELECT n, concat_ws('_', i.name, 'code', nullif(n, 1)) AS named FROM generate_series(1, 1000) n) r
        WHERE NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = base AND a.attname = r.named) ORDER BY r.n LIMIT 1;
        PERFORM hashindex._add_code_column(base, used, s);
    END IF;
    s.relation := hashindex._serving_relation(i, s);
    s.owns_relation := s.relation IS NULL AND s.access IS NOT NULL;
    IF s.owns_relation THEN
        s.relation := hashindex._free_relation(i, s);
    END IF;
    INSERT INTO hashindex.index_set OVERRIDING SYSTEM VALUE SELECT (s).*;
END
$$;

-- Begins a set of lists: its row; and all of it where the table is empty, as nothing is to be built.
CREATE OR REPLACE FUNCTION hashindex._begin_set_of_lists(i hashindex.index, INOUT s hashindex.index_set)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base regclass := hashindex._base_of(i);
    filled boolean := true;
BEGIN
    i.column_name := s.column_name;
    PERFORM hashindex._check_lists(i, s);
    s.stores := false;
    s.encoded := false;
    s.unverified := false;
    INSERT INTO hashindex.index_set OVERRIDING SYSTEM VALUE SELECT (s).*;
    -- A build locks the table, so a table that others keep in use is refused before anything is made.
    PERFORM hashindex._lock_against_writers(i);
    -- An older snapshot could miss rows that are there.
    IF current_setting('transaction_isolation') = 'read committed' THEN
        EXECUTE format('SELECT EXISTS (SELECT FROM %s b WHERE b.%I IS NOT NULL)', base, s.column_name) INTO filled;
    END IF;
    IF NOT filled THEN
        PERFORM hashindex._begin_lists(s.id);
        PERFORM hashindex._order_lists(s.id, NULL);
        PERFORM hashindex._finish_lists(s.id);
    END IF;
    SELECT x.* INTO STRICT s FROM hashindex.index_set x WHERE x.id = s.id;
END
$$;

-- Locks an index before its sets change, and its table where lists are concerned: no session writes then, and a second change waits here. Returns
-- the index, the set in use and the other one, as they are after the wait.
CREATE OR REPLACE FUNCTION hashindex._locked_sets(
    index_name text, lists boolean, OUT i hashindex.index, OUT used hashindex.index_set, OUT other hashindex.index_set
)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
#variable_conflict use_variable
BEGIN
    i := hashindex._require(index_name, administers => true);
    -- NULL: where the index has any.
    IF coalesce(lists, hashindex._has_lists(i)) THEN
        PERFORM hashindex._lock_against_writers(i);
    END IF;
    PERFORM FROM hashindex.index x WHERE x.name = index_name FOR NO KEY UPDATE;
    i := hashindex._require(index_name, administers => true);
    used := hashindex._set_of(i.name);
    SELECT x.* INTO other FROM hashindex.index_set x WHERE x.index_name = i.name AND x.state <> 'used';
END
$$;

-- Gives an index another set, and the former one its place: one short transaction. Searches that have begun end by the former set. Where lists
-- come into use or leave it, no session writes after the lock, so the coming ones catch up with the last keys.
CREATE OR REPLACE FUNCTION hashindex._exchange_set(index_name text, set_id bigint) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    locked record := hashindex._locked_sets(index_name, NULL);
    i hashindex.index := locked.i;
    former hashindex.index_set := locked.used;
    coming hashindex.index_set := locked.other;
    -- A prune was cut off, or has ended while this waited for the lock of its DROP INDEX.
    lost boolean := coming.relation IS NOT NULL AND hashindex._serving_relation(i, coming) IS NULL;
BEGIN
    IF (coming.id = set_id AND coming.state <> 'building') IS NOT TRUE THEN
        RAISE EXCEPTION 'index "%" has no such set that is ready', i.name USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'See what it has: pg-hashindex index show.';
    ELSIF lost AND EXISTS (SELECT FROM hashindex.index_set x WHERE x.id = set_id) THEN
        RAISE EXCEPTION 'the % set of index "%" has lost its index %: %', coming.state, i.name, coming.relation, hashindex._set_text(coming)
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = format('Drop the rest of it: pg-hashindex index prune %s', i.name);
    END IF;
    IF coming.access IN ('lists', 'scan') THEN
        IF current_setting('transaction_isolation') <> 'read committed' THEN
            RAISE EXCEPTION 'sets of index "%" are exchanged after the last written keys, which this transaction may not see', i.name
                USING ERRCODE = 'active_sql_transaction', HINT = 'Run it at isolation level READ COMMITTED.';
        END IF;
        WHILE hashindex._has_logged(coming) LOOP
            PERFORM hashindex._catch_up(coming.id);
        END LOOP;
        -- Its own search functions measured it.
        PERFORM hashindex._drop('table', hashindex._part_of(coming, 'log'));
        PERFORM hashindex._drop(o.kind, o.name) FROM hashindex.object o
        WHERE o.index_name = i.name AND o.kind = 'function' AND o.name ~ format('^search_~%s[(]', coming.id);
    END IF;
    UPDATE hashindex.index_set x SET state = 'former' WHERE x.id = former.id RETURNING x.* INTO former;
    IF coming.candidates IS NULL THEN
        -- The measure failed, or there are no rows.
        coming := (hashindex._measure_set(i, coming, sample => 0)).s;
    END IF;
    UPDATE hashindex.index_set x SET (state, candidates, effort) = ('used', coming.candidates, coming.effort) WHERE x.id = coming.id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'set % of index "%" was dropped meanwhile', coming.id, i.name USING ERRCODE = 'serialization_failure', HINT = 'See what it has: pg-hashindex index show.';
    END IF;
    UPDATE hashindex.index x SET column_name = coming.column_name WHERE x.name = i.name RETURNING x.* INTO i;
    PERFORM hashindex._create_search(i);
    IF former.access IN ('lists', 'scan') THEN
        PERFORM hashindex._create_log(i, former);
        PERFORM hashindex._create_list_search((f).i, (f).s) FROM hashindex._lists_of(former.id) f;
    END IF;
    PERFORM hashindex._create_writer(i);
END
$$;

-- Drops functions that search an index, or one of its sets, where the key has other columns now, or the tenant another type: a function is not
-- replaced by one with other columns in its answer, or other arguments.
CREATE OR REPLACE FUNCTION hashindex._drop_other_answers(i hashindex.index) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM hashindex._drop(o.kind, o.name) FROM hashindex._objects_of(i) o JOIN pg_proc p ON o.kind = 'function' AND p.oid = o.id
    WHERE p.proname ~ '^search_' AND (
        array_remove(p.proargnames[p.pronargs + 1:], 'distance') <> hashindex._answer_keys(i)
        OR p.proallargtypes[p.pronargs + 1:p.pronargs + cardinality(i.key_types)] <> ARRAY(SELECT t.name::regtype::oid FROM unnest(hashindex._base_types(i)) WITH ORDINALITY t(name, n) ORDER BY t.n)
        OR p.proargtypes[array_position(p.proargnames, 'tenant') - 1] <> to_regtype(hashindex._tenant_type(i))
    );
END
$$;

-- Makes the search function of an index from the set that it uses.
CREATE OR REPLACE FUNCTION hashindex._create_search(i hashindex.index) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
SET extra_float_digits = 1
SET quote_all_identifiers = off
SET standard_conforming_strings = on
AS $$
DECLARE
    s hashindex.index_set := hashindex._set_of(i.name);
    by_lists boolean := coalesce(s.access IN ('lists', 'scan'), false);
    held record;
BEGIN
    PERFORM hashindex._drop_other_answers(i);
    IF by_lists THEN
        PERFORM hashindex._create_list_search(i, s);
        RETURN;
    ELSIF s.id IS NULL THEN
        -- The first set is being built: searches compare all vectors.
        SELECT x.* INTO STRICT s FROM hashindex.index_set x WHERE x.index_name = i.name ORDER BY x.id LIMIT 1;
        s.state := 'used';
        s.model_id := NULL;
        s.access := NULL;
        s.candidates := 40;
        s.relation := NULL;
        s.code_column := NULL;
        s.stores := false;
        s.halves := hashindex._vector_type(hashindex._base_of(i), s.column_name) = '{ext}.halfvec';
    END IF;
    held := hashindex._set_sql(i, s, 'hashindex_query');
    PERFORM hashindex._create_function('search_pgvector', hashindex._name_parts(i, s) || jsonb_build_object(
        'sharded', hashindex._is_sharded(hashindex._base_of(i)), 'dimension', s.dimension,
        'ranked_type', held.ranked_type, 'ranked_query', held.ranked_query, 'ranking', concat_ws(' ', held.expression, held.operator),
        'n', s.candidates,
        -- It was measured with the usual candidates; more of them are spread over more lists of an IVFFlat index.
        'effort', CASE WHEN s.access = 'ivfflat' AND s.effort IS NOT NULL THEN format('ceil(%s * sqrt(greatest(1, hashindex_n::double precision / %s)))::integer', s.effort, s.candidates)
            ELSE coalesce(s.effort::text, 'NULL') END,
        'few', CASE WHEN s.relation IS NULL THEN quote_literal('Infinity') ELSE 'sqrt(400 * hashindex_rows)' END
    ), format('index %s: nearest rows of %I.%I', i.name, i.schema_name, i.table_name));
END
$$;

-- Makes all functions of an index and of its sets, or replaces them by this release's.
CREATE OR REPLACE FUNCTION hashindex._create_functions(i hashindex.index) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    kept record;
BEGIN
    IF hashindex._has_lists(i) THEN
        PERFORM hashindex._create_key_type(i);
    END IF;
    PERFORM hashindex._drop_other_answers(i);
    FOR kept IN
        SELECT l.i, l.s FROM hashindex.index_set x CROSS JOIN LATERAL hashindex._lists_of(x.id) l
        WHERE x.index_name = i.name AND x.access IN ('lists', 'scan') AND x.state <> 'building'
    LOOP
        PERFORM hashindex._create_refresh(kept.i, kept.s);
        IF (kept.s).state <> 'used' THEN
            PERFORM hashindex._create_list_search(kept.i, kept.s);
        END IF;
    END LOOP;
    PERFORM hashindex._create_writer(i);
    PERFORM hashindex._create_search(i);
END
$$;

-- Drops what a set keeps: tables of lists; pgvector's index, if the set made it and no other set has it, and its column of codes.
CREATE OR REPLACE FUNCTION hashindex._drop_kept(i hashindex.index, s hashindex.index_set) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    -- The table may have another name since, and another table its name.
    bases oid[] := ARRAY[s.table_oid, hashindex._base_of(i)];
    heir bigint;
    kept regclass;
BEGIN
    PERFORM hashindex._drop_lists(s);
    IF s.owns_relation THEN
        SELECT x.id INTO heir FROM hashindex.index_set x JOIN hashindex.index o ON o.name = x.index_name
        WHERE (o.schema_name, o.table_name, x.relation) = (i.schema_name, i.table_name, s.relation) ORDER BY x.id LIMIT 1;
        IF heir IS NOT NULL THEN
            UPDATE hashindex.index_set x SET owns_relation = true WHERE x.id = heir;
        ELSE
            -- One that became part of an index of a parent table stays; so does its table's column of codes. Indexes of parts that a build which was
            -- cut off did not attach go too.
            FOR kept IN
                SELECT c.oid FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid
                WHERE NOT c.relispartition AND (c.relname = s.relation AND x.indrelid = (
                    SELECT y.indrelid FROM pg_index y JOIN pg_class d ON d.oid = y.indexrelid WHERE d.relname = s.relation AND y.indrelid = ANY (bases)
                    ORDER BY array_position(bases, y.indrelid) LIMIT 1
                ) OR x.indrelid IN (SELECT t.relid FROM unnest(bases) b CROSS JOIN LATERAL pg_partition_tree(b) t) AND c.relname = format('%s_%s', left(s.relation, 52), x.indrelid))
            LOOP
                EXECUTE format('DROP INDEX %s', kept);
            END LOOP;
        END IF;
    END IF;
    IF s.stores THEN
        SELECT x.id INTO heir FROM hashindex.index_set x JOIN hashindex.index o ON o.name = x.index_name
        WHERE (o.schema_name, o.table_name, x.code_column) = (i.schema_name, i.table_name, s.code_column) ORDER BY x.id LIMIT 1;
        SELECT a.attrelid INTO kept FROM pg_attribute a
        WHERE a.attrelid = ANY (bases) AND a.attname = s.code_column AND a.attgenerated = 's' AND a.attinhcount = 0 AND NOT a.attisdropped
        ORDER BY array_position(bases, a.attrelid) LIMIT 1;
        IF heir IS NOT NULL THEN
            UPDATE hashindex.index_set x SET stores = true WHERE x.id = heir;
        ELSIF kept IS NOT NULL THEN
            EXECUTE format('ALTER TABLE %s DROP COLUMN %I', kept, s.code_column);
        END IF;
    END IF;
END
$$;

-- Drops a set that is not in use, with what it keeps.
CREATE OR REPLACE FUNCTION hashindex._drop_set(i hashindex.index, s hashindex.index_set) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    part text;
BEGIN
    IF s.access IN ('lists', 'scan') THEN
        -- Codes first: a session that has searched by them may then want to write, and would wait for a lock on the table. Writers hold the log.
        FOREACH part IN ARRAY ARRAY[hashindex._table_of(s, 'codes')::text, hashindex._table_of(s, 'landmarks')::text] LOOP
            IF part IS NOT NULL THEN
                EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', part);
            END IF;
        END LOOP;
        PERFORM hashindex._lock_against_writers(i);
    END IF;
    DELETE FROM hashindex.index_set x WHERE x.id = s.id AND x.state = s.state;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'index "%" was swapped meanwhile', i.name USING ERRCODE = 'serialization_failure', HINT = 'Run it again.';
    END IF;
    PERFORM hashindex._drop_kept(i, s);
    IF s.access IN ('lists', 'scan') THEN
        PERFORM hashindex._create_writer(i);
    END IF;
END
$$;

-- Drops a former set whose log has passed its limit: it cannot come into use again, and another set can be built in its place.
CREATE OR REPLACE FUNCTION hashindex._drop_outgrown(index_name text) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex._require(index_name, administers => true);
    s hashindex.index_set := hashindex._set_of(index_name, 'former');
BEGIN
    IF hashindex._has_logged(s, gap => true) THEN
        RAISE WARNING 'the former set of index "%" is dropped, since more was written than its log holds: %', i.name, hashindex._set_text(s);
        PERFORM hashindex._drop_set(i, s);
    END IF;
END
$$;
