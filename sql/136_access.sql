-- The access path of an index, and the defaults of its searches.

CREATE OR REPLACE FUNCTION hashindex.configure_index(
    name text,
    access text DEFAULT NULL,
    ranking text DEFAULT NULL,
    candidates integer DEFAULT NULL,
    probes integer DEFAULT NULL
)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index;
    used hashindex.model;
    -- What the searches will go by: a path that is still being built has its probes already.
    meant text;
    given_up text;
BEGIN
    PERFORM hashindex.find_index(configure_index.name);
    SELECT x.* INTO STRICT i FROM hashindex.index x WHERE x.name = configure_index.name FOR UPDATE;
    SELECT m.* INTO STRICT used FROM hashindex.model m WHERE m.id = i.model_id;
    IF configure_index.access NOT IN ('scan', 'lookup', 'landmarks', 'hnsw') THEN
        RAISE EXCEPTION 'access path "%" is unknown', configure_index.access
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Use scan, lookup, landmarks or hnsw.';
    END IF;
    meant := coalesce(configure_index.access, i.building, i.access);
    IF meant = 'landmarks' AND i.layout = 'column' THEN
        RAISE EXCEPTION 'index "%" has its codes in a column, landmarks need them in a table', i.name
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Use another access path, or make the index with layout table.';
    END IF;
    IF meant <> 'scan' AND hashindex.is_distributed(i) THEN
        RAISE EXCEPTION 'index "%" is on a distributed table, which has no access path %', i.name, meant
            USING ERRCODE = 'feature_not_supported', HINT = 'Use scan: each shard scans its codes.';
    END IF;
    IF configure_index.ranking <> ALL (hashindex.rankings(used)) THEN
        RAISE EXCEPTION 'ranking "%" cannot be served by model "%" of index "%"',
            configure_index.ranking, used.name, i.name
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = format('Use one of: %s.', array_to_string(hashindex.rankings(used), ', '));
    END IF;
    IF configure_index.candidates < 1 THEN
        RAISE EXCEPTION 'candidates is %; it must be 1 or more', configure_index.candidates
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF configure_index.probes NOT BETWEEN 1 AND 1000 THEN
        RAISE EXCEPTION 'probes is %; it must be 1 to 1000', configure_index.probes
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF configure_index.probes IS NOT NULL AND meant <> 'landmarks' THEN
        RAISE EXCEPTION 'probes are of landmarks, and index "%" has the access path %', i.name, meant
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave probes out.';
    END IF;
    i.ranking := coalesce(configure_index.ranking, i.ranking);
    i.candidates := coalesce(configure_index.candidates, i.candidates);
    IF 'landmarks' IN (meant, i.access) THEN
        i.probes := coalesce(configure_index.probes, i.probes, 24);
    END IF;
    given_up := nullif(i.building, meant);
    i.building := CASE WHEN meant <> i.access THEN meant END;
    UPDATE hashindex.index x
    SET ranking = i.ranking, candidates = i.candidates, probes = i.probes, building = i.building
    WHERE x.name = i.name;
    IF given_up = 'landmarks' THEN
        PERFORM hashindex.wait_for_writers(i);
    END IF;
    IF i.building = 'scan' THEN
        -- There is nothing to build.
        PERFORM hashindex.finish_access(i.name);
    ELSE
        PERFORM hashindex.create_functions(i);
    END IF;
    IF given_up = 'landmarks' THEN
        -- The sign that there is something to go on with.
        EXECUTE format('DROP TABLE IF EXISTS hashindex.%I', i.storage || '_listed');
    ELSIF given_up IS NOT NULL THEN
        PERFORM hashindex.drop_access(i, given_up);
    END IF;
END
$$;

COMMENT ON FUNCTION hashindex.configure_index(text, text, text, integer, integer) IS
    'sets the defaults of an index''s searches; another access path takes over once pg-hashindex index encode has built it';

-- The path that was being built takes over from the one in use, which is taken down.
CREATE OR REPLACE FUNCTION hashindex.finish_access(name text)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index;
    before text;
BEGIN
    PERFORM hashindex.find_index(finish_access.name);
    SELECT x.* INTO STRICT i FROM hashindex.index x WHERE x.name = finish_access.name FOR UPDATE;
    IF i.building IS NULL THEN
        RAISE EXCEPTION 'no access path is being built for index "%"', i.name
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Ask for one with hashindex.configure_index.';
    END IF;
    before := i.access;
    i.access := i.building;
    i.building := NULL;
    IF i.access = 'landmarks' THEN
        PERFORM hashindex.pack_lists(i.name);
    END IF;
    IF i.access <> 'landmarks' THEN
        i.probes := NULL;
        i.trained_rows := NULL;
    END IF;
    UPDATE hashindex.index x
    SET access = i.access, building = NULL, probes = i.probes, trained_rows = i.trained_rows
    WHERE x.name = i.name;
    IF before = 'landmarks' THEN
        PERFORM hashindex.wait_for_writers(i);
    END IF;
    PERFORM hashindex.create_functions(i);
    IF before <> 'landmarks' THEN
        PERFORM hashindex.drop_access(i, before);
    END IF;
END
$$;

COMMENT ON FUNCTION hashindex.finish_access(text) IS
    'lets the searches of an index go by the access path that was built for it';

-- Until the end of the transaction there are none. Triggers of writers under way are those of
-- before: they write to lists that are about to go, or do not yet write to those that are new.
CREATE OR REPLACE FUNCTION hashindex.wait_for_writers(i hashindex.index)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    -- Bulk encoding writes to the codes alone.
    EXECUTE format(
        'LOCK TABLE %I.%I, %I.%I IN SHARE ROW EXCLUSIVE MODE',
        i.schema_name, i.table_name, i.code_schema, i.code_table
    );
END
$$;

COMMENT ON FUNCTION hashindex.wait_for_writers(hashindex.index) IS
    'keeps writers from an index''s table until the transaction ends';

-- After another path has taken over, and in a transaction of its own: searches under way read the
-- lists, and holding the lock of wait_for_writers while waiting for them could be a deadlock.
CREATE OR REPLACE FUNCTION hashindex.drop_unused(name text)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex.find_index(drop_unused.name);
BEGIN
    IF 'landmarks' NOT IN (i.access, coalesce(i.building, i.access)) THEN
        PERFORM hashindex.drop_access(i, 'landmarks');
    END IF;
END
$$;

COMMENT ON FUNCTION hashindex.drop_unused(text) IS
    'drops landmarks that an index no longer goes by';

CREATE OR REPLACE FUNCTION hashindex.drop_access(i hashindex.index, access text)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    part text;
BEGIN
    IF drop_access.access = 'landmarks' THEN
        FOREACH part IN ARRAY ARRAY['landmarks', 'lists', 'listed'] LOOP
            part := format('hashindex.%I', i.storage || '_' || part);
            -- By IF EXISTS each drop would say what is missing.
            IF to_regclass(part) IS NOT NULL THEN
                EXECUTE 'DROP TABLE ' || part;
            END IF;
        END LOOP;
    ELSIF drop_access.access IN ('lookup', 'hnsw') THEN
        PERFORM hashindex.drop_code_indexes(i, drop_access.access);
    END IF;
END
$$;

COMMENT ON FUNCTION hashindex.drop_access(hashindex.index, text) IS
    'takes down what an access path of an index consists of';
