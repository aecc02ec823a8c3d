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

-- Begins an index: its row and that of its set, with a model that is trained if none is named. Searches compare all rows until lists are built.
-- Called by create_index and index/sets.py.
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
    -- Lists have a gate of their own.
    IF access IS NULL OR access NOT IN ('lists', 'scan') THEN
        PERFORM hashindex._require_owner(base);
    END IF;
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
        wanted := hashindex.train(name, base, column_name, 'thermometer', metric => (declared.i).metric);
        IF wanted <> name || ':1' THEN
            RAISE NOTICE 'a model "%" is there; the index has its new version, %', name, wanted;
        END IF;
    END IF;
    declared := hashindex._declared_set(name, base, column_name, wanted, access, store, code_column, metric, tenant, key_columns, candidates, effort);
    i := declared.i;
    INSERT INTO hashindex.index SELECT (i).* ON CONFLICT ON CONSTRAINT index_pkey DO NOTHING;
    -- Another session has created it since it was looked for.
    IF NOT FOUND THEN
        RAISE EXCEPTION 'index "%" exists already', name USING ERRCODE = 'duplicate_object', HINT = 'Choose another name, or give it another set by a swap.';
    END IF;
    s := hashindex._begin_set(i, declared.s, reveal_anchors);
    IF s.encoded = false THEN
        PERFORM hashindex._create_search(i);
    END IF;
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
    begun := hashindex._begin_create($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13);
    IF (begun.s).access IN ('lists', 'scan') THEN
        IF (begun.s).state = 'ready' THEN
            PERFORM hashindex._exchange_set($1, (begun.s).id);
        ELSE
            -- A class of its own, for those who encode the rows next.
            RAISE WARNING 'searches of index "%" are exact until its rows are encoded', $1 USING ERRCODE = '01X01', HINT = format('Run: pg-hashindex index encode %s', $1);
        END IF;
        RETURN QUERY SELECT hashindex._set_text(begun.s), hashindex._part_of(begun.s, 'codes'), 0::numeric, (begun.s).candidates, NULL::double precision;
        RETURN;
    ELSIF (begun.s).owns_relation THEN
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

-- Creates a declared index that may wait for its model: only one that is missing, and whose model exists. Called by contrib/sqlalchemy.
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

-- Gives an index the set that a declaration states, with its settings; what is NULL stays. Returns whether that is in use: where rows have to be
-- encoded for lists, the index keeps its set until then. A first set that is not built yet gives way at once. Called by contrib/sqlalchemy.
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
    before hashindex.index_set;
    wanted hashindex.index_set;
    found hashindex.index_set;
BEGIN
    SELECT x.* INTO STRICT before FROM hashindex.index_set x WHERE x.index_name = i.name ORDER BY x.state = 'used' DESC, x.id LIMIT 1;
    wanted := before;
    wanted.model_id := CASE WHEN model IS NULL THEN before.model_id WHEN model <> 'none' THEN (hashindex.find_model(model)).id END;
    wanted.access := coalesce(access, before.access);
    wanted.stores := coalesce(store, before.stores AND wanted.model_id IS NOT NULL AND wanted.access NOT IN ('lists', 'scan'));
    wanted.code_column := coalesce(
        code_column, CASE WHEN store IS NULL AND NOT before.stores AND wanted.model_id IS NOT DISTINCT FROM before.model_id THEN before.code_column END
    );
    -- A set without access is of vectors that pgvector does not index.
    SELECT x.* INTO found FROM hashindex.index_set x
    WHERE x.index_name = i.name AND (x.state <> 'building' OR x.encoded IS NOT NULL) AND coalesce(x.access = wanted.access, true)
      AND (x.model_id, x.stores, x.column_name) IS NOT DISTINCT FROM (wanted.model_id, wanted.stores, wanted.column_name)
      AND (x.stores OR x.code_column IS NOT DISTINCT FROM wanted.code_column)
    ORDER BY x.state = 'used' DESC LIMIT 1;
    IF found.id IS NULL AND hashindex._is_at_work('swap', i.name) THEN
        RAISE EXCEPTION 'index "%" is being built by another session', i.name USING ERRCODE = 'object_in_use', HINT = 'Wait for it.';
    ELSIF found.id IS NULL AND before.state <> 'used' THEN
        PERFORM hashindex.drop_index(i.name);
        PERFORM hashindex.create_index(
            i.name, hashindex._base_of(i), i.column_name, coalesce((SELECT format('%s:%s', m.name, m.version) FROM hashindex.model m WHERE m.id = wanted.model_id), 'none'),
            wanted.access, wanted.stores, wanted.code_column, i.metric, i.tenant_column, i.key_columns, candidates, effort, reveal_anchors
        );
        RETURN (hashindex._set_of(i.name)).id IS NOT NULL;
    ELSIF found.id IS NULL AND wanted.access IN ('lists', 'scan') THEN
        PERFORM hashindex.prune_index(i.name);
        found := (hashindex._begin_swap(i.name, model, access, store, NULL, code_column, reveal_anchors)).s;
    ELSIF found.id IS NULL THEN
        PERFORM hashindex.prune_index(i.name);
        PERFORM hashindex.swap_index(i.name, model, access, store, NULL, code_column, force => true, reveal_anchors => reveal_anchors);
        found := hashindex._set_of(i.name);
    ELSIF found.state = 'used' AND NOT hashindex._is_at_work('swap', i.name) THEN
        -- A set that was declared meanwhile, and is not built.
        PERFORM hashindex._drop_set(i, x) FROM hashindex.index_set x WHERE x.index_name = i.name AND x.state = 'building';
    END IF;
    IF num_nonnulls(candidates, effort) > 0 THEN
        PERFORM hashindex._configure_set(found, candidates, effort);
    END IF;
    IF found.state = 'building' THEN
        RAISE WARNING 'index "%" gets its set when its rows are encoded: %', i.name, hashindex._set_text(found)
            USING ERRCODE = '01X01', HINT = format('Run: pg-hashindex index encode %s', i.name);
        RETURN false;
    ELSIF found.state <> 'used' THEN
        PERFORM hashindex._exchange_set(i.name, found.id);
    ELSIF num_nonnulls(candidates, effort) > 0 THEN
        PERFORM hashindex._create_search(x) FROM hashindex.index x WHERE x.name = i.name;
    END IF;
    RETURN true;
END
$$;

-- Gives up what a run that was cut off left of an index: a set that was not built to its end, and the index itself if it has no other. Lists
-- are continued by the next run, unless they are given up by name. Called by index/sets.py.
CREATE OR REPLACE FUNCTION hashindex._give_up(name text, lists boolean DEFAULT false) RETURNS text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := x FROM hashindex.index x WHERE x.name = _give_up.name FOR NO KEY UPDATE;
    left_over hashindex.index_set;
    named text;
BEGIN
    SELECT x.* INTO left_over FROM hashindex.index_set x
    WHERE x.index_name = i.name AND (x.state = 'building' AND x.access IS DISTINCT FROM 'lists' AND x.access IS DISTINCT FROM 'scan' OR lists AND x.state IN ('building', 'ready'));
    IF FOUND THEN
        named := hashindex._set_text(left_over);
        PERFORM hashindex._drop_set(i, left_over);
        IF (hashindex._set_of(i.name)).id IS NULL THEN
            PERFORM hashindex.drop_index(i.name);
        END IF;
    END IF;
    RETURN named;
END
$$;

-- Bytes of pgvector's index of a set, partitions included.
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
    locked record;
    before hashindex.index_set;
    other hashindex.index_set;
    is_other boolean;
    base regclass;
    used hashindex.model;
    halved hashindex.index_set;
BEGIN
    PERFORM hashindex._drop_outgrown(index_name);
    -- A set of pgvector's is begun without the lock: that may read all rows.
    locked := hashindex._locked_sets(index_name, coalesce(
        access, CASE WHEN model = 'none' THEN 'hnsw' ELSE (hashindex._set_of(index_name)).access END
    ) IN ('lists', 'scan'));
    i := locked.i;
    other := locked.other;
    before := hashindex._used_set(i);
    s := before;
    base := hashindex._base_of(i);
    PERFORM hashindex._go_in_sequence(base);
    s.column_name := coalesce(column_name, s.column_name);
    -- Lists are of codes.
    s.access := coalesce(access, CASE WHEN model = 'none' AND s.access IN ('lists', 'scan') THEN 'hnsw' END, s.access, 'hnsw');
    s.stores := coalesce(store, s.stores);
    IF s.access IN ('lists', 'scan') THEN
        s.stores := coalesce(store, false);
    END IF;
    s.candidates := NULL;
    s.effort := NULL;
    IF model = 'none' THEN
        s.model_id := NULL;
        s.stores := coalesce(store, false);
    ELSIF model IS NOT NULL THEN
        s.model_id := (hashindex.find_model(model)).id;
    END IF;
    SELECT m.* INTO used FROM hashindex.model m WHERE m.id = s.model_id;
    IF s.access IN ('lists', 'scan') THEN
        PERFORM hashindex._admit_lists(base, s.column_name, hashindex._read_columns(i) || s.column_name, used);
    ELSE
        PERFORM hashindex._require_owner(base);
    END IF;
    PERFORM hashindex._check_vector_column(base, s.column_name, used.dimension);
    s.dimension := coalesce(used.dimension, hashindex._dimension_of(base, s.column_name));
    IF s.column_name = before.column_name AND s.dimension <> before.dimension THEN
        RAISE EXCEPTION 'column "%" of % holds vectors of % dimensions, and had % when index "%" was made', s.column_name, base, s.dimension, before.dimension, i.name
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Drop the index, and create it again.';
    END IF;
    -- A column of codes is of the model and the vectors that filled it.
    s.code_column := coalesce(code_column, CASE WHEN s.access NOT IN ('lists', 'scan') AND NOT before.stores AND (s.model_id, s.column_name) = (before.model_id, before.column_name) AND store IS NULL THEN before.code_column END);
    halved := before;
    halved.halves := true;
    is_other := other.id IS NOT NULL AND (s.model_id, s.access, s.column_name) IS NOT DISTINCT FROM (other.model_id, other.access, other.column_name);
    IF other.id IS NOT NULL AND NOT (other.state IN ('building', 'ready') AND other.access IN ('lists', 'scan')) THEN
        RAISE EXCEPTION 'index "%" has a % set beside the one in use: %', index_name, other.state, hashindex._set_text(other)
            USING ERRCODE = 'object_in_use', HINT = concat(
                CASE WHEN other.state = 'former' THEN format('Return to it: pg-hashindex index rollback %s', index_name) END,
                CASE WHEN other.state = 'ready' THEN format('Take it: pg-hashindex index swap %s --force', index_name) END,
                CASE WHEN other.state = 'ready' OR other.state = 'former' AND NOT is_other THEN '; or drop it: ' WHEN other.state <> 'former' THEN 'Drop it: ' END,
                CASE WHEN NOT is_other OR other.state <> 'former' THEN format('pg-hashindex index prune %s', index_name) END
            );
    ELSIF is_other THEN
        -- A former run was cut off, or built a set that found less; this one continues it.
        s := other;
        RETURN;
    ELSIF other.id IS NOT NULL THEN
        RAISE EXCEPTION 'index "%" is being swapped to another set: %', index_name, hashindex._set_text(other)
            USING ERRCODE = 'object_in_use', HINT = format('Finish that: pg-hashindex index encode %s; or give it up: pg-hashindex index repair %s --undo', index_name, index_name);
    ELSIF (s.model_id, s.access, s.stores, s.column_name) IS NOT DISTINCT FROM (before.model_id, coalesce(before.access, 'hnsw'), before.stores, before.column_name)
        AND (s.stores OR s.code_column IS NOT DISTINCT FROM before.code_column)
        -- A smaller index of the vectors that is there since is another set.
        AND (before.model_id IS NOT NULL OR before.halves OR hashindex._serving_relation(i, halved) IS NULL) THEN
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

-- Begins a set of lists like the one in use, with landmarks of the rows as they are now; returns its id, or that of such a set which a run that
-- was cut off left. Called by index/build.py.
CREATE OR REPLACE FUNCTION hashindex._begin_rebalance(name text) RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    locked record;
    i hashindex.index;
    s hashindex.index_set;
    other hashindex.index_set;
BEGIN
    PERFORM hashindex._drop_outgrown(name);
    locked := hashindex._locked_sets(name, NULL);
    i := locked.i;
    other := locked.other;
    s := hashindex._used_lists(i);
    IF s.access = 'scan' THEN
        RAISE EXCEPTION 'index "%" has lists without landmarks', i.name
            USING ERRCODE = 'invalid_parameter_value', HINT = format('For landmarks run: pg-hashindex index swap %s --access lists', i.name);
    ELSIF other.state IN ('building', 'ready') AND (other.model_id, other.column_name) = (s.model_id, s.column_name) AND other.access = 'lists' THEN
        RETURN other.id;
    ELSIF other.id IS NOT NULL THEN
        RAISE EXCEPTION 'index "%" has a % set beside the one in use: %', i.name, other.state, hashindex._set_text(other)
            USING ERRCODE = 'object_in_use', HINT = format('Drop it: pg-hashindex index prune %s', i.name);
    END IF;
    RETURN (hashindex._begin_set(i, s)).id;
END
$$;

-- Refuses another column of vectors while rows have a vector in the present one alone. Called by index/sets.py.
CREATE OR REPLACE FUNCTION hashindex._check_filled(i hashindex.index, column_name text) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    unfilled bigint;
BEGIN
    IF column_name <> i.column_name AND EXISTS (
        SELECT FROM pg_attribute a WHERE a.attrelid = hashindex._base_of(i) AND a.attname = column_name AND NOT a.attisdropped
    ) THEN
        EXECUTE format('SELECT count(*) FROM %s b WHERE b.%I IS NOT NULL AND b.%I IS NULL', hashindex._base_of(i), i.column_name, column_name) INTO unfilled;
        IF unfilled > 0 THEN
            RAISE EXCEPTION '% rows of % have a vector in column % and none in %, and no search would find them', unfilled, hashindex._base_of(i), i.column_name, column_name
                USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Fill the column, and run the swap again; force takes the new column as it is.';
        END IF;
    END IF;
END
$$;

-- Measures a set that was built beside the one in use on the same table, until it finds as much; returns whether it may come into use.
-- Called by index/build.py.
CREATE OR REPLACE FUNCTION hashindex._compare_set(name text, set_id bigint, tolerance double precision, force boolean)
RETURNS TABLE ("set" text, candidates integer, effort integer, recall double precision, former_recall double precision, in_use boolean)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    i hashindex.index := hashindex._require($1);
    measured record;
    s hashindex.index_set := x FROM hashindex.index_set x WHERE x.id = set_id;
BEGIN
    PERFORM hashindex._go_in_sequence(hashindex._base_of(i));
    IF NOT force THEN
        PERFORM hashindex._check_filled(i, s.column_name);
    END IF;
    measured := hashindex._measure_set(i, hashindex._set_of(i.name));
    former_recall := measured.recall;
    measured := hashindex._finish_set(i, set_id, least(1, greatest(coalesce(former_recall, 0.95 + tolerance) - tolerance, 0)));
    s := measured.s;
    recall := measured.recall;
    in_use := force OR recall IS NULL OR former_recall IS NULL OR recall >= former_recall - tolerance;
    IF NOT in_use THEN
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
    compared record;
    -- With force and nothing else, the set that is ready.
    made bigint := s.id FROM hashindex.index_set s WHERE s.index_name = $1 AND s.state = 'ready' AND $8 AND num_nonnulls($2, $3, $4, $5, $6) = 0;
BEGIN
    PERFORM hashindex._check_administrator();
    IF made IS NULL THEN
        begun := hashindex._begin_swap($1, $2, $3, $4, $5, $6, $9);
        made := (begun.s).id;
        IF (begun.s).access IN ('lists', 'scan') AND (begun.s).state <> 'ready' THEN
            RAISE EXCEPTION 'lists are built by a command: SQL does not read the rows of index "%"', $1
                USING ERRCODE = 'feature_not_supported', HINT = format('Run: pg-hashindex index swap %s --access %s%s', $1, (begun.s).access, ' --model ' || $2);
        ELSIF (begun.s).owns_relation THEN
            PERFORM hashindex._build_relation(begun.i, begun.s);
        END IF;
    END IF;
    SELECT c.* INTO compared FROM hashindex._compare_set($1, made, $7, $8) c;
    IF compared.in_use THEN
        PERFORM hashindex._exchange_set($1, made);
    END IF;
    RETURN QUERY SELECT compared."set", compared.candidates, compared.effort, compared.recall, compared.former_recall, compared.in_use;
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
    IF s.id IS NULL OR s.encoded = false THEN
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
    IF (hashindex._set_of(i.name)).id IS NULL THEN
        -- The first set is being built.
        RETURN 0;
    ELSIF (hashindex._set_of(i.name, 'building')).id IS NOT NULL AND hashindex._is_at_work('swap', i.name, elsewhere => true) THEN
        RAISE EXCEPTION 'another session is building a set of index "%"', i.name USING ERRCODE = 'object_in_use', HINT = 'See which: pg-hashindex index show.';
    END IF;
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
    -- Triggers that also fire on a subscriber.
    always text[] := ARRAY(SELECT substring(t.tgname FROM '[a-z]+$') FROM hashindex._triggers_of(i) t WHERE t.tgenabled = 'A');
BEGIN
    IF new IS NULL OR new !~ '^[A-Za-z0-9_][A-Za-z0-9_-]{0,39}$' THEN
        RAISE EXCEPTION 'index name "%" is not 1 to 40 letters a to z, digits, _ and -', new USING ERRCODE = 'invalid_name', HINT = 'Choose another name.';
    ELSIF EXISTS (SELECT FROM hashindex.index x WHERE x.name = new) OR EXISTS (
        SELECT FROM pg_proc p WHERE p.pronamespace = 'hashindex'::regnamespace AND p.proname = 'search_' || new
    ) THEN
        RAISE EXCEPTION 'index "%" or its function exists already', new USING ERRCODE = 'duplicate_object', HINT = 'Choose another name.';
    ELSIF hashindex._is_at_work('swap', old, elsewhere => true) OR hashindex._is_at_work('repair', old, elsewhere => true) THEN
        RAISE EXCEPTION 'another session works on index "%"', old USING ERRCODE = 'object_in_use', HINT = 'See which: pg-hashindex index show.';
    ELSIF EXISTS (SELECT FROM hashindex.index_set x WHERE x.index_name = old AND x.state = 'building' AND x.access IN ('lists', 'scan')) THEN
        -- The build calls its functions by their names.
        RAISE EXCEPTION 'lists of index "%" are being built', old USING ERRCODE = 'object_in_use',
            HINT = format('Finish them: pg-hashindex index encode %s; or give them up: pg-hashindex index repair %s --undo', old, old);
    END IF;
    IF hashindex._has_lists(i) THEN
        -- Triggers have the index's name.
        PERFORM hashindex._lock_against_writers(i);
        -- Writes went unseen where one is missing or disabled, and this makes all.
        UPDATE hashindex.index_set x SET unverified = true
        WHERE x.index_name = old AND x.unverified IS NOT NULL AND EXISTS (SELECT FROM hashindex._object_faults(i, '{trigger}'));
        PERFORM hashindex._drop('function', hashindex._sync_name(old) || '()', 'CASCADE');
    END IF;
    PERFORM hashindex._drop(o.kind, o.name) FROM hashindex.object o WHERE o.index_name = old AND o.kind NOT IN ('table', 'trigger') ORDER BY o.kind;
    DELETE FROM hashindex.object o WHERE o.index_name = old AND o.kind = 'trigger';
    UPDATE hashindex.index x SET name = new WHERE x.name = old RETURNING x.* INTO i;
    UPDATE hashindex.object o SET index_name = new WHERE o.index_name = old;
    PERFORM hashindex._create_functions(i);
    PERFORM hashindex._fire_always(t.tgrelid, t.tgname) FROM hashindex._triggers_of(i) t WHERE substring(t.tgname FROM '[a-z]+$') = ANY (always);
END
$$;

COMMENT ON FUNCTION hashindex.rename_index(text, text) IS 'gives an index, and its search function, another name';

-- Changes the settings of a set; NULL leaves one as it is.
CREATE OR REPLACE FUNCTION hashindex._configure_set(s hashindex.index_set, candidates integer, effort integer) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    IF candidates < 1 THEN
        PERFORM hashindex._refuse('candidates', candidates, '1 or more');
    ELSIF effort < 1 OR effort > 1000 AND s.access = 'lists' THEN
        PERFORM hashindex._refuse('effort', effort, CASE s.access WHEN 'lists' THEN '1 to 1000' ELSE '1 or more' END);
    ELSIF effort IS NOT NULL AND s.access = 'scan' THEN
        RAISE EXCEPTION 'effort is for lists with landmarks, and index "%" has none', s.index_name
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave effort out.';
    END IF;
    UPDATE hashindex.index_set x
    SET (candidates, effort) = (coalesce(_configure_set.candidates, x.candidates), coalesce(_configure_set.effort, x.effort)) WHERE x.id = s.id;
END
$$;

CREATE OR REPLACE FUNCTION hashindex.configure_index(
    name text,
    candidates integer DEFAULT NULL,
    effort integer DEFAULT NULL
)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    -- A swap that commits meanwhile may have changed the column.
    i hashindex.index := (hashindex._locked_sets(configure_index.name, false)).i;
    shown hashindex.index_set;
BEGIN
    SELECT s.* INTO STRICT shown FROM hashindex.index_set s WHERE s.index_name = i.name ORDER BY s.state = 'used' DESC, s.id LIMIT 1;
    -- A set that is built to take its place has the same.
    PERFORM hashindex._configure_set(s, configure_index.candidates, configure_index.effort) FROM hashindex.index_set s
    WHERE s.index_name = i.name AND (s.id = shown.id OR s.state = 'building' AND s.access = shown.access);
    PERFORM hashindex._create_search(i);
END
$$;

COMMENT ON FUNCTION hashindex.configure_index IS
    'sets the candidates and the effort of an index''s searches';

-- The options of an index with a set, as creation takes them. Called by sql/queries/catalog.sql and alembic.sql.
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
