-- Gives an index another model, another column or other filter columns, while it is searched. A second index with a name of its own is made beside it, and encoded,
-- built and kept fresh like any other. Then the two exchange everything but their names: two rows of the catalog, and the
-- functions that search. That locks neither the table nor codes, so no session waits. The former codes stay, kept fresh,
-- until they are pruned.

-- Catalog row of the codes that an index is swapped to (next, ready) or was swapped from (previous).
CREATE OR REPLACE FUNCTION hashindex._find_swap(index_name text, states text[]) RETURNS hashindex.index
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    beside hashindex.index;
BEGIN
    SELECT x.* INTO beside FROM hashindex.index x
    WHERE x.swap_of = index_name AND x.swap_state = ANY (states);
    RETURN beside;
END
$$;

CREATE OR REPLACE FUNCTION hashindex.begin_swap(
    name text, model text, column_name text DEFAULT NULL, options jsonb DEFAULT '{}'
) RETURNS text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    -- A second swap waits here, and then finds the first.
    i hashindex.index := hashindex._locked_index(begin_swap.name);
    before hashindex.model;
    used hashindex.model := hashindex.find_model(model);
    beside hashindex.index;
    asked jsonb;
    next_name text;
    wanted text;
    vectors text;
    filters text[];
BEGIN
    SELECT m.* INTO STRICT before FROM hashindex.model m WHERE m.id = i.model_id;
    IF i.swap_of IS NOT NULL THEN
        RAISE EXCEPTION 'index "%" is a part of the swap of index "%"', i.name, i.swap_of
            USING ERRCODE = 'object_in_use', HINT = format('Swap the model of index %s.', i.swap_of);
    END IF;
    vectors := coalesce(begin_swap.column_name, i.column_name);
    asked := hashindex._checked_options(i.name, used, options);
    options := hashindex._options_of(i) || asked;
    filters := hashindex._kept_columns(i, (jsonb_populate_record(i, options)).filter_columns);
    IF used.dimension <> before.dimension AND vectors = i.column_name THEN
        PERFORM hashindex._check_vector_column(
            format('%I.%I', i.schema_name, i.table_name)::regclass, i.column_name, used.dimension
        );
        -- With vectors of another dimension, the former codes could neither be compared nor used again.
        RAISE EXCEPTION 'model "%:%" takes vectors of % dimensions, and those of index "%" had %',
            used.name, used.version, used.dimension, i.name, before.dimension
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'The column has changed since: drop the index, and create it again with this model.';
    END IF;
    wanted := options ->> 'access';
    beside := hashindex._find_swap(i.name, '{next,ready}');
    IF (beside.model_id, beside.column_name, beside.filter_columns) = (used.id, vectors, filters)
        AND coalesce(asked ->> 'access' = coalesce(beside.building, beside.access), true) THEN
        -- A former run was cut off; this one continues it.
        RETURN beside.name;
    ELSIF beside.name IS NOT NULL THEN
        RAISE EXCEPTION 'index "%" is being swapped to model % of column % by access path %, with filter columns %', i.name,
            (SELECT format('%s:%s', m.name, m.version) FROM hashindex.model m WHERE m.id = beside.model_id),
            beside.column_name, coalesce(beside.building, beside.access), beside.filter_columns
            USING ERRCODE = 'object_in_use',
                  HINT = format('Finish that swap, or give it up: pg-hashindex index repair %s --undo.', i.name);
    END IF;
    beside := hashindex._find_swap(i.name, '{previous}');
    IF beside.name IS NOT NULL AND (i.model_id, i.column_name, i.filter_columns) = (used.id, vectors, filters)
            AND coalesce(asked ->> 'access' = coalesce(i.building, i.access), true) THEN
        RAISE EXCEPTION 'index "%" has model %:% already', i.name, used.name, used.version
            USING ERRCODE = 'object_in_use', HINT = format('Drop its former codes with: pg-hashindex index prune %s.', i.name);
    ELSIF beside.name IS NOT NULL THEN
        RAISE EXCEPTION 'index "%" still has its former codes, of model %', i.name,
            (SELECT format('%s:%s', m.name, m.version) FROM hashindex.model m WHERE m.id = beside.model_id)
            USING ERRCODE = 'object_in_use',
                  HINT = format('Return to them with: pg-hashindex index rollback %s%s.', i.name,
                                CASE WHEN (beside.model_id, beside.column_name, beside.filter_columns) <> (used.id, vectors, filters) THEN format(', or drop them with: pg-hashindex index prune %s', i.name) END);
    END IF;
    -- Objects get names made from it, so no index may have used it before. 34 bytes leave space for a number within the 40 bytes of
    -- an index's name.
    SELECT format('%s~%s', s.stem, n) INTO next_name
    FROM (SELECT CASE WHEN octet_length(i.name) <= 34 THEN i.name ELSE md5(i.name) END AS stem) s, generate_series(2, 99999) n
    WHERE NOT EXISTS (SELECT FROM hashindex.index x WHERE format('%s~%s', s.stem, n) IN (x.name, x.storage))
    ORDER BY n LIMIT 1;
    -- A ranking is kept if the user chose it; a default gives way to the new model's default. So are candidates.
    IF i.ranking = (hashindex._rankings(before))[1] OR i.ranking <> ALL (hashindex._rankings(used)) THEN
        options := options - 'ranking';
    END IF;
    IF i.candidates = hashindex._usual_candidates(i, before) THEN
        options := options - 'candidates';
    END IF;
    IF wanted <> 'landmarks' THEN
        options := options - 'probes';
    END IF;
    PERFORM hashindex._create_index(
        next_name, format('%I.%I', i.schema_name, i.table_name)::regclass, vectors, format('%s:%s', used.name, used.version),
        -- Searches by landmarks begin once it is a part of the swap, since its notice is not for users.
        options - 'probes' || '{"access": "scan"}',
        true  -- as they were asked for above
    );
    UPDATE hashindex.index x SET swap_of = i.name, swap_state = 'next' WHERE x.name = next_name;
    PERFORM hashindex._set_readers(x, i) FROM hashindex.index x WHERE x.name = next_name;
    PERFORM hashindex._configure_index(next_name, jsonb_build_object('access', wanted, 'probes', options -> 'probes'));
    RETURN next_name;
END
$$;

COMMENT ON FUNCTION hashindex.begin_swap IS
    'makes a second index with another model, of another column or with other filter columns if they are named, beside an index, to be encoded and then exchanged with it; returns its name';

-- Called once all codes are committed: transactions that begin later see all of them.
CREATE OR REPLACE FUNCTION hashindex.swap_is_ready(name text) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    beside hashindex.index;
    empty boolean;
BEGIN
    PERFORM hashindex._require(swap_is_ready.name, administers => true);
    SELECT x.* INTO beside FROM hashindex.index x
    WHERE x.swap_of = swap_is_ready.name AND x.swap_state IN ('next', 'ready') FOR UPDATE;
    IF beside.name IS NULL THEN
        RAISE EXCEPTION 'index "%" is not being swapped', swap_is_ready.name
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Begin with: pg-hashindex index swap.';
    END IF;
    IF beside.building = 'landmarks' THEN
        -- Landmarks cannot be trained on an empty table. They are built when it has rows.
        EXECUTE format('SELECT NOT EXISTS (SELECT 1 FROM hashindex.%I)', beside.code_table) INTO empty;
    END IF;
    IF beside.building IS NOT NULL AND empty IS NOT TRUE THEN
        RAISE EXCEPTION 'the access path % of index "%" is not built', beside.building, beside.name
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('Run: pg-hashindex index encode %s', beside.name);
    END IF;
    UPDATE hashindex.index x SET swap_state = 'ready' WHERE x.name = beside.name;
END
$$;

COMMENT ON FUNCTION hashindex.swap_is_ready(text) IS 'marks the codes that an index is swapped to as encoded and built';

CREATE OR REPLACE FUNCTION hashindex.exchange(name text, state text) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    beside text;
BEGIN
    PERFORM hashindex._locked_index(exchange.name);
    SELECT x.name INTO beside FROM hashindex.index x
    WHERE x.swap_of = exchange.name AND x.swap_state = exchange.state FOR UPDATE;
    IF beside IS NULL THEN
        RAISE EXCEPTION 'index "%" has no % codes of another model', exchange.name,
            CASE exchange.state WHEN 'previous' THEN 'former' ELSE coalesce(exchange.state, 'NULL') END
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'A swap makes them, and index prune drops them; index list shows what there is.';
    END IF;
    -- Sessions that encode or build lock the names of both the index and its storage.
    IF (
        SELECT bool_or(hashindex._is_at_work(w.work, n.name))
        FROM unnest(ARRAY[exchange.name, beside]) n(name), unnest('{encode,access}'::text[]) w(work)
    ) THEN
        RAISE EXCEPTION 'index "%" is being encoded or built by another session', exchange.name
            USING ERRCODE = 'lock_not_available', HINT = 'Wait for it.';
    END IF;
    -- One statement, since storage is unique.
    UPDATE hashindex.index x
    SET (model_id, column_name, code_table, access, building, ranking, candidates,
         probes, trained_rows, storage, landmark_table, encoded, next_generation, built_pages, built_from, filter_columns, table_oid, codes_oid, part_oids, generation)
        = (o.model_id, o.column_name, o.code_table, o.access, o.building,
           o.ranking, o.candidates, o.probes, o.trained_rows, o.storage, o.landmark_table, o.encoded,
           o.next_generation, o.built_pages, o.built_from, o.filter_columns, o.table_oid, o.codes_oid, o.part_oids, hashindex._new_generation(greatest(x.generation, o.generation)))
    FROM hashindex.index o
    WHERE (x.name, o.name) IN ((exchange.name, beside), (beside, exchange.name));
    UPDATE hashindex.index x SET swap_state = 'previous' WHERE x.name = beside;
    PERFORM hashindex._create_functions(x) FROM hashindex.index x
    WHERE x.name IN (exchange.name, beside);
END
$$;

COMMENT ON FUNCTION hashindex.exchange(text, text) IS
    'exchanges the codes of an index with those that are ready (a swap) or previous (a rollback); the former ones become the previous';
