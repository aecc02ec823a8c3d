-- Gives an index another model, another column or another access path, while it is searched. Codes with a name of their own are made beside
-- those in use, and encoded and built like those of any other index. Meanwhile triggers write the codes in use and log the keys, since writing
-- both costs more; the codes beside catch up with the log. Then the two exchange everything but their names and triggers, under a short lock.
-- The former codes stay beside, with a log of the keys written since, until they are pruned.

CREATE OR REPLACE FUNCTION hashindex.begin_swap(
    name text, model text, column_name text DEFAULT NULL, access text DEFAULT NULL
) RETURNS text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex._require(begin_swap.name, administers => true);
    before hashindex.model;
    used hashindex.model := hashindex.find_model(model);
    beside hashindex.index;
    base regclass;
    vectors text;
    wanted text;
    is_same boolean;
BEGIN
    PERFORM hashindex._check_evaluated(
        used, format('%I.%I', i.schema_name, i.table_name)::regclass, coalesce(begin_swap.column_name, i.column_name)
    );
    IF NOT EXISTS (SELECT FROM hashindex.index x WHERE x.swap_of = i.name AND x.swap_state = 'next') THEN
        PERFORM hashindex._lock_against_writers(i);
    END IF;
    -- A second swap waits here, and then finds the first.
    i := hashindex._locked_index(begin_swap.name);
    SELECT m.* INTO STRICT before FROM hashindex.model m WHERE m.id = i.model_id;
    IF i.swap_of IS NOT NULL THEN
        RAISE EXCEPTION 'index "%" is a part of the swap of index "%"', i.name, i.swap_of
            USING ERRCODE = 'object_in_use', HINT = format('Swap the model of index %s.', i.swap_of);
    END IF;
    base := format('%I.%I', i.schema_name, i.table_name)::regclass;
    vectors := coalesce(begin_swap.column_name, i.column_name);
    wanted := coalesce(begin_swap.access, i.building, i.access);
    PERFORM hashindex._checked_options(i.name, used, jsonb_build_object('access', begin_swap.access));
    IF used.dimension <> before.dimension AND vectors = i.column_name THEN
        PERFORM hashindex._check_vector_column(base, i.column_name, used.dimension);
        -- With vectors of another dimension, the former codes could neither be compared nor used again.
        RAISE EXCEPTION 'model "%:%" takes vectors of % dimensions, and those of index "%" had %',
            used.name, used.version, used.dimension, i.name, before.dimension
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'The column has changed since: drop the index, and create it again with this model.';
    END IF;
    SELECT x.* INTO beside FROM hashindex.index x WHERE x.swap_of = i.name;
    is_same := (beside.model_id, beside.column_name) = (used.id, vectors);
    IF beside.swap_state = 'next' AND is_same AND coalesce(begin_swap.access = coalesce(beside.building, beside.access), true) THEN
        -- A former run was cut off; this one continues it.
        RETURN beside.name;
    ELSIF beside.swap_state = 'next' THEN
        RAISE EXCEPTION 'index "%" is being swapped to model % of column % by access path %', i.name,
            (SELECT format('%s:%s', m.name, m.version) FROM hashindex.model m WHERE m.id = beside.model_id),
            beside.column_name, coalesce(beside.building, beside.access)
            USING ERRCODE = 'object_in_use',
                  HINT = format('Finish that swap, or give it up: pg-hashindex index repair %s --undo.', i.name);
    ELSIF beside.name IS NOT NULL AND (i.model_id, i.column_name) = (used.id, vectors)
            AND coalesce(begin_swap.access = coalesce(i.building, i.access), true) THEN
        RAISE EXCEPTION 'index "%" has model %:% already', i.name, used.name, used.version
            USING ERRCODE = 'object_in_use', HINT = format('Drop its former codes with: pg-hashindex index prune %s.', i.name);
    ELSIF beside.name IS NOT NULL THEN
        RAISE EXCEPTION 'index "%" still has its former codes, of model %', i.name,
            (SELECT format('%s:%s', m.name, m.version) FROM hashindex.model m WHERE m.id = beside.model_id)
            USING ERRCODE = 'object_in_use',
                  HINT = format('Return to them with: pg-hashindex index rollback %s%s.', i.name,
                                CASE WHEN NOT is_same THEN format(', or drop them with: pg-hashindex index prune %s', i.name) END);
    END IF;
    PERFORM hashindex._check_plain(base, vectors);
    PERFORM hashindex._check_vector_column(base, vectors, used.dimension);
    -- Those that are not named here are the same.
    beside := i;
    -- Objects get names made from it, so no index may have used it before. 34 bytes leave space for a number within the 40 bytes of
    -- an index's name.
    SELECT format('%s~%s', s.stem, n) INTO beside.name
    FROM (SELECT CASE WHEN octet_length(i.name) <= 34 THEN i.name ELSE md5(i.name) END AS stem) s, generate_series(2, 99999) n
    WHERE NOT EXISTS (SELECT FROM hashindex.index x WHERE format('%s~%s', s.stem, n) IN (x.name, x.storage, x.triggers))
    ORDER BY n LIMIT 1;
    beside.storage := beside.name;
    beside.swap_of := i.name;
    beside.swap_state := 'next';
    beside.model_id := used.id;
    beside.column_name := vectors;
    -- Candidates are kept if the user chose them; a default gives way to the new model's default.
    beside.candidates := nullif(i.candidates, hashindex._usual_candidates(i, before));
    beside.building := NULL;
    beside.effort := NULL;
    beside.trained_rows := NULL;
    beside.landmark_table := NULL;
    beside.next_generation := NULL;
    PERFORM hashindex._make_generation(beside, used, base, jsonb_build_object(
        'access', wanted, 'effort', CASE wanted WHEN 'lists' THEN hashindex._options_of(i) -> 'effort' END
    ));
    PERFORM hashindex._set_readers(x, i) FROM hashindex.index x WHERE x.name = beside.name;
    RETURN beside.name;
END
$$;

COMMENT ON FUNCTION hashindex.begin_swap IS
    'makes codes of another model, of another column or with another access path if they are named, beside those of an index, to be encoded and then exchanged with them; returns their name';

CREATE OR REPLACE FUNCTION hashindex.exchange(name text, state text) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex._require(exchange.name, administers => true);
    beside hashindex.index;
    lacks boolean;
    latest bigint;
BEGIN
    -- No session writes after this lock, so the codes beside catch up with the last keys. The table is locked before the catalog's row, as
    -- by builds.
    IF EXISTS (SELECT FROM hashindex.index x WHERE x.swap_of = i.name) THEN
        PERFORM hashindex._lock_against_writers(i);
    END IF;
    i := hashindex._locked_index(i.name);
    SELECT x.* INTO beside FROM hashindex.index x WHERE x.swap_of = exchange.name AND x.swap_state = exchange.state FOR UPDATE;
    IF beside.name IS NULL THEN
        RAISE EXCEPTION 'index "%" has no % codes of another model', exchange.name,
            CASE exchange.state WHEN 'previous' THEN 'former' ELSE coalesce(exchange.state, 'NULL') END
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'A swap makes them, and index prune drops them; index list shows what there is.';
    END IF;
    -- Sessions that encode or build lock the names of both the index and its storage.
    IF (
        SELECT bool_or(hashindex._is_at_work(w.work, n.name))
        FROM unnest(ARRAY[exchange.name, beside.name]) n(name), unnest('{encode,access}'::text[]) w(work)
    ) THEN
        RAISE EXCEPTION 'index "%" is being encoded or built by another session', exchange.name
            USING ERRCODE = 'lock_not_available', HINT = 'Wait for it.';
    ELSIF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'codes of index "%" are exchanged after the last written keys, which this transaction may not see', exchange.name
            USING ERRCODE = 'active_sql_transaction', HINT = 'Run it at isolation level READ COMMITTED.';
    ELSIF beside.swap_state = 'next' THEN
        -- A role that does not see every row cannot say that all are encoded.
        lacks := NOT beside.encoded AND NOT row_security_active(format('%I.%I', i.schema_name, i.table_name));
        IF beside.building IS NOT NULL AND NOT lacks THEN
            -- Landmarks cannot be trained on an empty table. They are built when it has rows.
            EXECUTE format('SELECT EXISTS (SELECT 1 FROM hashindex.%I)', beside.code_table) INTO lacks;
        END IF;
        IF lacks THEN
            RAISE EXCEPTION 'index "%" is not encoded, or its access path % is not built', beside.name, coalesce(beside.building, beside.access)
                USING ERRCODE = 'object_not_in_prerequisite_state', HINT = format('Run: pg-hashindex index encode %s', beside.name);
        END IF;
    END IF;
    -- A rebalance of these codes that was cut off is given up, so that they catch up themselves, after a TRUNCATE too.
    UPDATE hashindex.index x SET (next_generation, building) = (NULL, nullif(x.building, x.access)) WHERE x.name = beside.name;
    WHILE hashindex._has_logged(beside) LOOP
        PERFORM hashindex._catch_up(beside.name);
    END LOOP;
    -- Names, and when they were made, stay; each other column is exchanged, in one statement since storage is unique.
    EXECUTE format(
        'UPDATE hashindex.index x SET (%1$s) = (SELECT %1$s FROM hashindex.index o WHERE o.name IN ($1, $2) AND o.name <> x.name) '
        'WHERE x.name IN ($1, $2)',
        (
            SELECT string_agg(quote_ident(a.attname), ', ') FROM pg_attribute a
            WHERE a.attrelid = 'hashindex.index'::regclass AND a.attnum > 0 AND NOT a.attisdropped
                AND a.attname <> ALL ('{name,created_at,swap_of,swap_state}')
        )
    ) USING exchange.name, beside.name;
    -- A rebalance that was cut off is given up.
    SELECT max(x.generation) INTO STRICT latest FROM hashindex.index x WHERE x.name IN (exchange.name, beside.name);
    UPDATE hashindex.index x
    SET (generation, building, next_generation, swap_state)
        = (hashindex._new_generation(latest), nullif(x.building, x.access), NULL, CASE x.name WHEN beside.name THEN 'previous' END)
    WHERE x.name IN (exchange.name, beside.name);
    UPDATE hashindex.object o SET index_name = CASE o.index_name WHEN beside.name THEN exchange.name ELSE beside.name END
    WHERE o.index_name IN (exchange.name, beside.name) AND o.kind = 'table';
    PERFORM hashindex._drop(o.kind, o.name) FROM hashindex.object o WHERE o.index_name IN (exchange.name, beside.name) AND starts_with(o.name, 'renew_');
    -- The former log is of the codes that are in use now.
    PERFORM hashindex._drop('table', x.storage || '_touched') FROM hashindex.index x WHERE x.name IN (exchange.name, beside.name);
    PERFORM hashindex._create_log(x, format('%I.%I', x.schema_name, x.table_name)::regclass) FROM hashindex.index x WHERE x.name = beside.name;
    PERFORM hashindex._create_functions(x) FROM hashindex.index x WHERE x.name IN (exchange.name, beside.name);
END
$$;

COMMENT ON FUNCTION hashindex.exchange(text, text) IS
    'exchanges the codes of an index with those that are next (a swap) or previous (a rollback); the former ones become the previous';

-- Gives an index that is kept by lists another model if no row has to be encoded for it, else warns with the command that does; returns whether
-- it has the model.
CREATE OR REPLACE FUNCTION hashindex._declare_model(i hashindex.index, model text) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    used hashindex.model := hashindex.find_model(model);
    named text := format('%s:%s', used.name, used.version);
    former hashindex.index := x FROM hashindex.index x WHERE x.swap_of = i.name AND x.swap_state = 'previous';
    empty boolean := false;
BEGIN
    IF i.model_id = used.id THEN
        RETURN true;
    ELSIF former.model_id = used.id THEN
        -- The former codes lack only the keys written since the last swap.
        PERFORM hashindex.exchange(i.name, 'previous');
        RETURN true;
    END IF;
    PERFORM hashindex._check_evaluated(used, format('%I.%I', i.schema_name, i.table_name)::regclass, i.column_name);
    IF current_setting('transaction_isolation') = 'read committed' THEN
        EXECUTE format('SELECT NOT EXISTS (SELECT FROM %I.%I WHERE %I IS NOT NULL)', i.schema_name, i.table_name, i.column_name) INTO empty;
    END IF;
    IF empty THEN
        IF former.name IS NOT NULL THEN
            PERFORM hashindex.drop_index(former.name);
        END IF;
        PERFORM hashindex.begin_swap(i.name, named);
        PERFORM hashindex.exchange(i.name, 'next');
    ELSE
        RAISE WARNING 'index "%" keeps its model until its rows are encoded by %', i.name, named
            USING ERRCODE = '01X01', HINT = format('Run: pg-hashindex index swap %s --model %s', i.name, hashindex._shell_word(named));
    END IF;
    RETURN empty;
END
$$;
