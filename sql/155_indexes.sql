-- Verbs on indexes that SQL runs in one transaction: create, swap, rollback, prune, configure, rename.

-- Has Citus use one connection to each node in this transaction, to this node too: it makes functions and indexes there, and reads a table in
-- shards. It explains a statement by a connection in any case, and then refuses to mix the two.
CREATE OR REPLACE FUNCTION hashindex._go_in_sequence(base regclass) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    IF hashindex._is_sharded(base) THEN
        PERFORM set_config('citus.multi_shard_modify_mode', 'sequential', true), set_config('citus.enable_local_execution', 'off', true);
    END IF;
END
$$;

-- Begins an index with a set of pgvector: its row and that of the set, with a model that is trained if none is named.
CREATE OR REPLACE FUNCTION hashindex._begin_create(
    name text, base regclass, column_name text, model text, access text, store boolean, code_column text, metric text, tenant text, key_columns text[],
    candidates integer, effort integer, reveal_anchors boolean, OUT i hashindex.index, OUT s hashindex.index_set
)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
#variable_conflict use_variable
DECLARE
    wanted text := model;
    declared record;
BEGIN
    PERFORM hashindex._check_administrator();
    PERFORM hashindex._go_in_sequence(base);
    -- A small table needs no codes, unless they are asked for.
    IF wanted IS NULL AND access IS NULL AND NOT store AND code_column IS NULL AND hashindex._rows_of(base) < 1000 THEN
        wanted := 'none';
    END IF;
    IF wanted IS NULL THEN
        IF code_column IS NOT NULL THEN
            RAISE EXCEPTION 'column "%" holds codes, and no model is named that made them', code_column USING ERRCODE = 'invalid_parameter_value', HINT = 'Name the model.';
        END IF;
        -- All else is checked before a model is trained.
        declared := hashindex._declared_set(name, base, column_name, 'none', access, store, NULL, metric, tenant, key_columns, candidates, effort);
        wanted := hashindex._trained(name, base, column_name, (declared.i).metric);
    END IF;
    declared := hashindex._declared_set(name, base, column_name, wanted, access, store, code_column, metric, tenant, key_columns, candidates, effort);
    i := declared.i;
    INSERT INTO hashindex.index SELECT (i).*;
    s := hashindex._begin_set(i, declared.s, reveal_anchors);
END
$$;

-- Trains the model of an index for which none is named.
CREATE OR REPLACE FUNCTION hashindex._trained(name text, base regclass, column_name text, metric text) RETURNS text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    made text := hashindex.train(name, base, column_name, 'thermometer', metric => metric);
BEGIN
    IF made <> name || ':1' THEN
        RAISE NOTICE 'a model "%" is there; the index has its new version, %', name, made;
    END IF;
    RETURN made;
END
$$;

CREATE OR REPLACE FUNCTION hashindex.create_index(
    name text, table_name regclass, column_name text, model text DEFAULT NULL, access text DEFAULT NULL, store boolean DEFAULT false, code_column text DEFAULT NULL,
    metric text DEFAULT NULL, tenant text DEFAULT NULL, key_columns text[] DEFAULT NULL, candidates integer DEFAULT NULL, effort integer DEFAULT NULL,
    reveal_anchors boolean DEFAULT false
)
RETURNS TABLE ("set" text, index text, mb numeric, candidates_used integer, recall double precision)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    begun record;
    measured record;
BEGIN
    PERFORM hashindex._check_administrator();
    IF $5 IN ('lists', 'scan') THEN
        RETURN QUERY SELECT l.* FROM hashindex._create_lists(
            $1, $2, $3, coalesce($4, hashindex._trained($1, $2, $3, coalesce($8, hashindex._indexed_metric($2, $3), 'cosine'))), jsonb_build_object(
                'key_columns', $10, 'metric', $8, 'access', $5, 'candidates', $11, 'effort', $12, 'tenant', $9
            )
        ) l;
        RETURN;
    END IF;
    begun := hashindex._begin_create($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13);
    IF (begun.s).owns_relation THEN
        PERFORM hashindex._build_relation(begun.i, begun.s);
    END IF;
    measured := hashindex._finish_set(begun.i, (begun.s).id);
    PERFORM hashindex._exchange_set($1, (begun.s).id);
    RETURN QUERY SELECT hashindex._set_text(measured.s), (measured.s).relation,
        round((hashindex._relation_bytes(begun.i, measured.s) / 1e6)::numeric, 1), (measured.s).candidates, round(measured.recall::numeric, 4)::double precision;
END
$$;

COMMENT ON FUNCTION hashindex.create_index IS
    'creates an index: a name that search_NAME searches, and behind it a set of vectors (model none) or of codes of a model, which is trained if none is named; returns the set, pgvector''s index, its megabytes, the candidates and the recall that were measured';

-- Creates a declared index that may wait for its model: only one that is missing, and whose model exists.
CREATE OR REPLACE FUNCTION hashindex._declare_deferred(
    name text, table_name regclass, column_name text, model text DEFAULT NULL, access text DEFAULT NULL, store boolean DEFAULT false,
    code_column text DEFAULT NULL, metric text DEFAULT NULL, tenant text DEFAULT NULL, key_columns text[] DEFAULT NULL, candidates integer DEFAULT NULL,
    effort integer DEFAULT NULL, reveal_anchors boolean DEFAULT false
)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    IF EXISTS (
        SELECT FROM hashindex.index x WHERE x.name = $1 AND x.column_name = $3 AND to_regclass(format('%I.%I', x.schema_name, x.table_name)) = $2
    ) THEN
        RETURN;
    ELSIF model <> 'none' AND NOT EXISTS (SELECT FROM hashindex.model m WHERE $4 IN (m.name, format('%s:%s', m.name, m.version))) THEN
        RAISE WARNING 'index "%" is not made: model "%" does not exist', name, model
            USING HINT = format('Once it is there, run: pg-hashindex index create %s ...', name);
        RETURN;
    END IF;
    PERFORM hashindex.create_index($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13);
END
$$;

-- Gives an index the set that a declaration states, with its settings; what is NULL stays. Returns whether that is complete: lists keep their
-- model where rows have to be encoded for another one.
CREATE OR REPLACE FUNCTION hashindex._declare_swap(
    index_name text, model text DEFAULT NULL, access text DEFAULT NULL, store boolean DEFAULT NULL, code_column text DEFAULT NULL,
    reveal_anchors boolean DEFAULT false, candidates integer DEFAULT NULL, effort integer DEFAULT NULL
)
RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
#variable_conflict use_variable
DECLARE
    i hashindex.index := hashindex._require(index_name, administers => true);
    wanted hashindex.index_set;
    found hashindex.index_set;
    complete boolean := true;
BEGIN
    IF i.code_table IS NOT NULL THEN
        IF access IN ('hnsw', 'ivfflat') OR store OR code_column IS NOT NULL OR model = 'none' THEN
            PERFORM hashindex.swap_index(i.name, model, access, store, NULL, code_column);
        ELSIF model IS NOT NULL THEN
            complete := hashindex._declare_model(i, model);
        END IF;
        IF num_nonnulls(access, candidates, effort) > 0 THEN
            PERFORM hashindex._configure_lists(i.name, jsonb_build_object('access', access, 'candidates', candidates, 'effort', effort));
        END IF;
        RETURN complete;
    END IF;
    found := hashindex._used_set(i);
    wanted := found;
    wanted.model_id := CASE WHEN model IS NULL THEN found.model_id WHEN model <> 'none' THEN (hashindex.find_model(model)).id END;
    wanted.access := coalesce(access, found.access);
    wanted.stores := coalesce(store, found.stores AND wanted.model_id IS NOT NULL);
    wanted.code_column := coalesce(
        code_column, CASE WHEN store IS NULL AND NOT found.stores AND wanted.model_id IS NOT DISTINCT FROM found.model_id THEN found.code_column END
    );
    -- A set without access is of vectors that pgvector does not index.
    SELECT x.* INTO found FROM hashindex.index_set x
    WHERE x.index_name = i.name AND x.state IN ('used', 'former') AND coalesce(x.access = wanted.access, true)
      AND (x.model_id, x.stores, x.column_name) IS NOT DISTINCT FROM (wanted.model_id, wanted.stores, wanted.column_name)
      AND (x.stores OR x.code_column IS NOT DISTINCT FROM wanted.code_column)
    ORDER BY x.state = 'used' DESC LIMIT 1;
    IF found.id IS NULL THEN
        PERFORM hashindex.prune_index(i.name);
        PERFORM hashindex.swap_index(i.name, model, access, store, NULL, code_column, force => true, reveal_anchors => reveal_anchors);
    ELSIF found.state = 'former' THEN
        PERFORM hashindex.rollback_index(i.name);
    END IF;
    IF num_nonnulls(candidates, effort) > 0 THEN
        PERFORM hashindex.configure_index(i.name, candidates => candidates, effort => effort);
    END IF;
    RETURN true;
END
$$;

-- Gives up what a run that was cut off left of an index: a set that was not built to its end, and the index itself if it has no other.
CREATE OR REPLACE FUNCTION hashindex._give_up(name text) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := x FROM hashindex.index x WHERE x.name = _give_up.name FOR NO KEY UPDATE;
    left_over hashindex.index_set := hashindex._set_of(i.name, 'building');
BEGIN
    IF left_over.id IS NOT NULL THEN
        PERFORM hashindex._drop_set(i, left_over);
        IF (hashindex._set_of(i.name)).id IS NULL THEN
            PERFORM hashindex.drop_index(i.name);
        END IF;
    END IF;
    RETURN left_over.id IS NOT NULL;
END
$$;

-- Bytes of pgvector's index of a set, with those of partitions.
CREATE OR REPLACE FUNCTION hashindex._relation_bytes(i hashindex.index, s hashindex.index_set) RETURNS bigint
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    made regclass := hashindex._oid_of(i.schema_name, s.relation);
    bytes bigint;
BEGIN
    IF hashindex._is_sharded(hashindex._base_of(i)) THEN
        -- The index of a shard has the number of the shard behind its name.
        EXECUTE 'SELECT sum(r.result::bigint) FROM run_command_on_shards($1, $2) r' INTO bytes USING hashindex._base_of(i), format(
            'SELECT coalesce(sum(coalesce((SELECT sum(pg_relation_size(t.relid)) FROM pg_partition_tree(x.indexrelid) t), pg_relation_size(x.indexrelid))), 0) FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid '
            'WHERE x.indrelid = ''%%1$s''::regclass AND c.relname = %L || substring(''%%1$s'' FROM ''_[0-9]+"?$'')', s.relation
        );
        RETURN bytes;
    END IF;
    RETURN coalesce((SELECT sum(pg_relation_size(t.relid)) FROM pg_partition_tree(made) t), pg_relation_size(made));
END
$$;

-- Ends a build: what the set was measured to take is kept, and the set is ready.
CREATE OR REPLACE FUNCTION hashindex._finish_set(i hashindex.index, set_id bigint, goal double precision DEFAULT 0.95, OUT s hashindex.index_set, OUT recall double precision)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    measured record;
BEGIN
    PERFORM hashindex._go_in_sequence(hashindex._base_of(i));
    SELECT x.* INTO STRICT s FROM hashindex.index_set x WHERE x.id = set_id FOR UPDATE;
    measured := hashindex._measure_set(i, s, goal);
    recall := measured.recall;
    UPDATE hashindex.index_set x SET (candidates, effort, state) = ((measured.s).candidates, (measured.s).effort, 'ready') WHERE x.id = set_id RETURNING x.* INTO s;
END
$$;

-- Begins the set that a swap asks for: the one in use, but for what is named.
CREATE OR REPLACE FUNCTION hashindex._begin_swap(
    index_name text, model text, access text, store boolean, column_name text, code_column text, reveal_anchors boolean,
    OUT i hashindex.index, OUT s hashindex.index_set
)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
#variable_conflict use_variable
DECLARE
    before hashindex.index_set;
    other hashindex.index_set;
    base regclass;
    used hashindex.model;
BEGIN
    i := hashindex._require(index_name, administers => true);
    IF access IN ('lists', 'scan') OR i.code_table IS NOT NULL THEN
        RAISE EXCEPTION 'index "%" cannot be swapped % lists', i.name, CASE WHEN i.code_table IS NOT NULL THEN 'from' ELSE 'to' END
            USING ERRCODE = 'feature_not_supported', HINT = 'Create an index of another name beside it, and drop this one then.';
    END IF;
    PERFORM hashindex._go_in_sequence(hashindex._base_of(i));
    -- A second swap waits here, and then finds the first.
    SELECT x.* INTO i FROM hashindex.index x WHERE x.name = index_name FOR NO KEY UPDATE;
    before := hashindex._used_set(i);
    SELECT x.* INTO other FROM hashindex.index_set x WHERE x.index_name = index_name AND x.state <> 'used';
    IF other.id IS NOT NULL THEN
        RAISE EXCEPTION 'index "%" has a % set beside the one in use: %', index_name, other.state, hashindex._set_text(other)
            USING ERRCODE = 'object_in_use', HINT = format('Drop it: pg-hashindex index prune %s', index_name);
    END IF;
    s := before;
    base := hashindex._base_of(i);
    s.column_name := coalesce(column_name, s.column_name);
    s.access := coalesce(access, s.access, 'hnsw');
    s.stores := coalesce(store, s.stores);
    s.candidates := NULL;
    s.effort := NULL;
    IF model = 'none' THEN
        s.model_id := NULL;
        s.stores := coalesce(store, false);
    ELSIF model IS NOT NULL THEN
        s.model_id := (hashindex.find_model(model)).id;
    END IF;
    SELECT m.* INTO used FROM hashindex.model m WHERE m.id = s.model_id;
    PERFORM hashindex._check_vector_column(base, s.column_name, used.dimension);
    s.dimension := coalesce(used.dimension, hashindex._dimension_of(base, s.column_name));
    -- A column of codes is of the model and the vectors that filled it.
    s.code_column := coalesce(code_column, CASE WHEN NOT before.stores AND (s.model_id, s.column_name) = (before.model_id, before.column_name) AND store IS NULL THEN before.code_column END);
    IF (s.model_id, s.access, s.stores, s.column_name) IS NOT DISTINCT FROM (before.model_id, coalesce(before.access, 'hnsw'), before.stores, before.column_name)
        AND (s.stores OR s.code_column IS NOT DISTINCT FROM before.code_column) THEN
        RAISE EXCEPTION 'index "%" has this set already: %', index_name, hashindex._set_text(before)
            USING ERRCODE = 'object_in_use', HINT = 'Name another model, access or column, or store.';
    END IF;
    IF used.id IS NOT NULL THEN
        PERFORM hashindex._check_evaluated(used, base, s.column_name);
    END IF;
    PERFORM hashindex._check_set(i, s);
    s := hashindex._begin_set(i, s, reveal_anchors);
END
$$;

-- Measures a set that was built beside the one in use on the same table, until it finds as much, and exchanges the two if it does.
CREATE OR REPLACE FUNCTION hashindex._finish_swap(name text, set_id bigint, tolerance double precision, force boolean)
RETURNS TABLE ("set" text, candidates integer, effort integer, recall double precision, former_recall double precision, in_use boolean)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    i hashindex.index := hashindex._require($1);
    measured record;
    s hashindex.index_set;
BEGIN
    PERFORM hashindex._go_in_sequence(hashindex._base_of(i));
    measured := hashindex._measure_set(i, hashindex._set_of(i.name));
    former_recall := measured.recall;
    measured := hashindex._finish_set(i, set_id, least(1, greatest(coalesce(former_recall, 0.95 + tolerance) - tolerance, 0)));
    s := measured.s;
    recall := measured.recall;
    in_use := force OR recall IS NULL OR former_recall IS NULL OR recall >= former_recall - tolerance;
    IF in_use THEN
        PERFORM hashindex._exchange_set(i.name, set_id);
    ELSE
        RAISE WARNING 'index "%" keeps its set: % finds %, and the one in use %', i.name, hashindex._set_text(s), round(recall::numeric, 3), round(former_recall::numeric, 3)
            USING HINT = format('It is ready: take it with force, or drop it: pg-hashindex index prune %s', i.name);
    END IF;
    "set" := hashindex._set_text(s);
    candidates := s.candidates;
    effort := s.effort;
    RETURN NEXT;
END
$$;

CREATE OR REPLACE FUNCTION hashindex.swap_index(
    name text, model text DEFAULT NULL, access text DEFAULT NULL, store boolean DEFAULT NULL, column_name text DEFAULT NULL, code_column text DEFAULT NULL,
    tolerance double precision DEFAULT 0.01, force boolean DEFAULT false, reveal_anchors boolean DEFAULT false
)
RETURNS TABLE ("set" text, candidates integer, effort integer, recall double precision, former_recall double precision, in_use boolean)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    begun record;
    -- With force and nothing else, the set that is ready.
    ready bigint := s.id FROM hashindex.index_set s WHERE s.index_name = $1 AND s.state = 'ready';
BEGIN
    PERFORM hashindex._check_administrator();
    IF $8 AND ready IS NOT NULL AND num_nonnulls($2, $3, $4, $5, $6) = 0 THEN
        RETURN QUERY SELECT f.* FROM hashindex._finish_swap($1, ready, $7, true) f;
        RETURN;
    END IF;
    begun := hashindex._begin_swap($1, $2, $3, $4, $5, $6, $9);
    IF (begun.s).owns_relation THEN
        PERFORM hashindex._build_relation(begun.i, begun.s);
    END IF;
    RETURN QUERY SELECT f.* FROM hashindex._finish_swap($1, (begun.s).id, $7, $8) f;
END
$$;

COMMENT ON FUNCTION hashindex.swap_index IS
    'builds another set of an index beside the one in use, measures both, and exchanges them if it finds as many of the nearest rows, less a tolerance; what is not named stays';

CREATE OR REPLACE FUNCTION hashindex.rollback_index(name text) RETURNS text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex._require(name, administers => true);
    s hashindex.index_set := hashindex._set_of(name, 'former');
BEGIN
    IF s.id IS NULL THEN
        RAISE EXCEPTION 'index "%" has no former set', name USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'A swap leaves one, until it is pruned.';
    END IF;
    PERFORM hashindex._exchange_set(name, s.id);
    RETURN hashindex._set_text(s);
END
$$;

COMMENT ON FUNCTION hashindex.rollback_index(text) IS 'exchanges the set of an index with the former one; returns the set that is in use then';

CREATE OR REPLACE FUNCTION hashindex.prune_index(name text) RETURNS integer
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex._require(name, administers => true);
    s hashindex.index_set;
    pruned integer := 0;
BEGIN
    FOR s IN SELECT x.* FROM hashindex.index_set x WHERE x.index_name = i.name AND x.state <> 'used' FOR UPDATE LOOP
        PERFORM hashindex._drop_set(i, s);
        pruned := pruned + 1;
    END LOOP;
    RETURN pruned;
END
$$;

COMMENT ON FUNCTION hashindex.prune_index(text) IS 'drops the sets of an index that are not in use; returns how many';

CREATE OR REPLACE FUNCTION hashindex.rename_index(old text, new text) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex._require(old, administers => true);
BEGIN
    IF i.code_table IS NOT NULL THEN
        RAISE EXCEPTION 'index "%" is kept by lists, and keeps its name', old USING ERRCODE = 'feature_not_supported', HINT = 'Create it again under the other name.';
    ELSIF new IS NULL OR new !~ '^[A-Za-z0-9_][A-Za-z0-9_~-]{0,39}$' THEN
        RAISE EXCEPTION 'index name "%" is not 1 to 40 letters a to z, digits, _ and -', new USING ERRCODE = 'invalid_name', HINT = 'Choose another name.';
    ELSIF EXISTS (SELECT FROM hashindex.index x WHERE x.name = new) OR EXISTS (
        SELECT FROM pg_proc p WHERE p.pronamespace = 'hashindex'::regnamespace AND p.proname = 'search_' || new
    ) THEN
        RAISE EXCEPTION 'index "%" or its function exists already', new USING ERRCODE = 'duplicate_object', HINT = 'Choose another name.';
    END IF;
    PERFORM hashindex._drop(o.kind, o.name) FROM hashindex.object o WHERE o.index_name = old;
    UPDATE hashindex.index x SET name = new WHERE x.name = old RETURNING x.* INTO i;
    IF (hashindex._set_of(new)).id IS NOT NULL THEN
        PERFORM hashindex._create_search(i);
    END IF;
END
$$;

COMMENT ON FUNCTION hashindex.rename_index(text, text) IS 'gives an index, and its search function, another name';

CREATE OR REPLACE FUNCTION hashindex.configure_index(
    name text,
    access text DEFAULT NULL,
    candidates integer DEFAULT NULL,
    effort integer DEFAULT NULL
)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex._require(configure_index.name, administers => true);
BEGIN
    IF i.code_table IS NOT NULL THEN
        PERFORM hashindex._configure_lists(i.name, jsonb_build_object('access', access, 'candidates', candidates, 'effort', effort));
        RETURN;
    ELSIF access IS NOT NULL THEN
        RAISE EXCEPTION 'the access of index "%" changes by a swap', i.name
            USING ERRCODE = 'invalid_parameter_value', HINT = format('Run: pg-hashindex index swap %s --access %s', i.name, hashindex._shell_word(access));
    ELSIF candidates < 1 THEN
        PERFORM hashindex._refuse('candidates', candidates, '1 or more');
    ELSIF effort < 1 THEN
        PERFORM hashindex._refuse('effort', effort, '1 or more');
    END IF;
    UPDATE hashindex.index_set s
    SET (candidates, effort) = (coalesce(configure_index.candidates, s.candidates), coalesce(configure_index.effort, s.effort))
    WHERE s.id = (hashindex._used_set(i)).id;
    PERFORM hashindex._create_search(i);
END
$$;

COMMENT ON FUNCTION hashindex.configure_index IS
    'sets the candidates and the effort of an index''s searches; of lists also the access path, which takes over once pg-hashindex index encode has built it';

-- The options of an index with a set of pgvector, as creation takes them.
CREATE OR REPLACE FUNCTION hashindex._options_of_set(i hashindex.index, s hashindex.index_set) RETURNS jsonb
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN jsonb_build_object(
        'key_columns', i.key_columns, 'metric', i.metric, 'access', s.access, 'store', s.stores, 'code_column', CASE WHEN NOT s.stores THEN s.code_column END,
        'candidates', s.candidates, 'effort', s.effort, 'tenant', i.tenant_column
    );
END
$$;
