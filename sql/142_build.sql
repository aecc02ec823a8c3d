-- Builds landmarks beside searches and writers, as pg_repack builds a table: it writes a new code table in the order of landmarks,
-- logs the keys that are written meanwhile, and exchanges the tables in a short transaction. pg-hashindex index encode runs these steps.

-- Finds the tables of an index in schema hashindex by their names. One that is not in use was left by a run that was cut off, or by a
-- former build.
CREATE OR REPLACE FUNCTION hashindex._tables_of(i hashindex.index)
RETURNS TABLE (relation regclass, in_use boolean)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN QUERY
    SELECT c.oid::regclass, coalesce(
        c.relname IN (CASE WHEN i.layout = 'table' THEN i.code_table END, i.landmark_table)
        OR i.next_generation IS NOT NULL AND c.relname IN (
            i.storage || '_codes_' || i.next_generation, i.storage || '_landmarks_' || i.next_generation,
            i.storage || '_staged', i.storage || '_touched'
        ), false
    )
    FROM pg_class c
    WHERE c.relnamespace = 'hashindex'::regnamespace AND c.relkind IN ('r', 'p') AND starts_with(c.relname, i.storage || '_')
      AND substr(c.relname, length(i.storage) + 2) ~ '^(codes|(codes|landmarks)_[0-9]+|staged|touched)$';
END
$$;

COMMENT ON FUNCTION hashindex._tables_of(hashindex.index) IS
    'tables of an index in schema hashindex, and whether it uses them';

-- The catalog row as it will be after the build, for making the functions that will be used then.
CREATE OR REPLACE FUNCTION hashindex._next_of(i hashindex.index)
RETURNS hashindex.index
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    i.generation := i.next_generation;
    i.code_table := i.storage || '_codes_' || i.next_generation;
    i.landmark_table := i.storage || '_landmarks_' || i.next_generation;
    i.access := 'landmarks';
    i.building := NULL;
    i.next_generation := NULL;
    i.built_pages := NULL;
    i.built_from := NULL;
    RETURN i;
END
$$;

COMMENT ON FUNCTION hashindex._next_of(hashindex.index) IS 'catalog row that an index will have when the landmarks that are being built are in use';

CREATE OR REPLACE FUNCTION hashindex._locked_index(name text)
RETURNS hashindex.index
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index;
BEGIN
    PERFORM hashindex.find_index(_locked_index.name);
    SELECT x.* INTO STRICT i FROM hashindex.index x WHERE x.name = _locked_index.name FOR UPDATE;
    RETURN i;
END
$$;

COMMENT ON FUNCTION hashindex._locked_index(text) IS 'catalog row of an index, locked against other changes of it';

-- Starts over after a run that was cut off, and drops what it left.
CREATE OR REPLACE FUNCTION hashindex._begin_generation(name text)
RETURNS hashindex.index
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex._locked_index(_begin_generation.name);
    later hashindex.index;
    base regclass := format('%I.%I', i.schema_name, i.table_name)::regclass;
BEGIN
    UPDATE hashindex.index x SET next_generation = NULL WHERE x.name = i.name;
    PERFORM hashindex.drop_unused(i.name);
    i.next_generation := hashindex._new_generation(i.generation);
    i.built_pages := 0;
    UPDATE hashindex.index x SET (next_generation, built_pages) = (i.next_generation, 0) WHERE x.name = i.name;
    later := hashindex._next_of(i);
    EXECUTE format(
        'CREATE %s TABLE hashindex.%I (landmark integer PRIMARY KEY, centre {ext}.halfvec(%s) NOT NULL)',
        nullif(hashindex._logging(base), 'LOGGED'),
        later.landmark_table, (SELECT m.dimension FROM hashindex.model m WHERE m.id = i.model_id)
    );
    EXECUTE format(
        'COMMENT ON TABLE hashindex.%I IS %L', later.landmark_table,
        format('landmarks of index %s, which rows of %s are listed under', i.name, base)
    );
    RETURN i;
END
$$;

COMMENT ON FUNCTION hashindex._begin_generation(text) IS
    'gives an index the generation that it will have with new landmarks, and makes their table; returns its catalog row';

-- The caller holds SHARE ROW EXCLUSIVE on the table.
CREATE OR REPLACE FUNCTION hashindex._begin_build(name text)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex._begin_generation(_begin_build.name);
    later hashindex.index := hashindex._next_of(i);
BEGIN
    PERFORM hashindex._create_code_table(later, format('%I.%I', i.schema_name, i.table_name)::regclass);
    EXECUTE format(
        'CREATE UNLOGGED TABLE hashindex.%1$I AS SELECT c.id, c.landmark, c.code FROM hashindex.%2$I c WITH NO DATA',
        i.storage || '_staged', later.code_table
    );
    EXECUTE format('ALTER TABLE hashindex.%I ALTER COLUMN code SET STORAGE PLAIN', i.storage || '_staged');
    EXECUTE format(
        'COMMENT ON TABLE hashindex.%I IS %L', i.storage || '_staged', format('codes of index %s that are still to be put in order', i.name)
    );
    -- Unlogged, since the build begins again after a crash.
    EXECUTE format(
        'CREATE UNLOGGED TABLE hashindex.%1$I AS SELECT c.id FROM hashindex.%2$I c WITH NO DATA',
        i.storage || '_touched', later.code_table
    );
    EXECUTE format(
        'COMMENT ON TABLE hashindex.%I IS %L', i.storage || '_touched', format('keys that were written while index %s is built', i.name)
    );
    PERFORM hashindex._create_functions(i);
END
$$;

COMMENT ON FUNCTION hashindex._begin_build(text) IS
    'makes the tables that landmarks are built in, and has the trigger log what is written meanwhile';

-- Measured on 10,321 landmarks: 64 lists hold .955 of the true ten. With ef_construction = 200 building takes 1.7 times as long and they
-- hold .956; with m = 16 and ef_construction = 120 they hold .949.
CREATE OR REPLACE FUNCTION hashindex._index_landmarks(name text)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex._next_of(hashindex.find_index(_index_landmarks.name));
    dimension integer := m.dimension FROM hashindex.model m WHERE m.id = i.model_id;
BEGIN
    -- pgvector's HNSW takes a halfvec of up to 4,000 dimensions; without a graph a search compares all landmarks.
    IF dimension <= 4000 THEN
        EXECUTE format(
            'CREATE INDEX ON hashindex.%I USING hnsw (centre %s) WITH (m = 24, ef_construction = 100)',
            i.landmark_table, CASE i.metric WHEN 'l2' THEN '{ext}.halfvec_l2_ops' ELSE '{ext}.halfvec_cosine_ops' END
        );
    END IF;
    EXECUTE format('ANALYZE hashindex.%I', i.landmark_table);
END
$$;

COMMENT ON FUNCTION hashindex._index_landmarks(text) IS 'builds the graph over landmarks that have just been written';

-- The codes of one landmark are stored next to each other, so that reading its list takes a page or two.
CREATE OR REPLACE FUNCTION hashindex._order_build(name text)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex.find_index(_order_build.name);
    later hashindex.index := hashindex._next_of(i);
    targets text := '';
    sources text := '';
BEGIN
    IF i.filter_columns <> '{}' THEN
        SELECT string_agg(format(', filter_%s', f.n), '' ORDER BY f.n), string_agg(format(', b.%I', f.name), '' ORDER BY f.n)
        INTO targets, sources FROM unnest(i.filter_columns) WITH ORDINALITY f(name, n);
    END IF;
    EXECUTE format(
        'INSERT INTO hashindex.%1$I (id, landmark, code%2$s) SELECT s.id, s.landmark, s.code%3$s FROM hashindex.%4$I s %5$s '
        -- A row that moved while the table was read may have been read twice, or not at all. Its key is in the log, as are those of deleted rows.
        'WHERE NOT EXISTS (SELECT FROM hashindex.%6$I t WHERE t.id = s.id) ORDER BY s.landmark',
        later.code_table, targets, sources, i.storage || '_staged',
        CASE WHEN i.filter_columns <> '{}' THEN
            format('JOIN %I.%I b ON b.%I = s.id', i.schema_name, i.table_name, i.id_column) END,
        i.storage || '_touched'
    );
    EXECUTE format('ALTER TABLE hashindex.%I ADD PRIMARY KEY (id)', later.code_table);
    EXECUTE format('CREATE INDEX ON hashindex.%I (landmark)', later.code_table);
    EXECUTE format('ANALYZE hashindex.%I', later.code_table);
    -- The staged codes stay until the build ends: if they are gone, a crash has emptied the log of keys too.
    PERFORM hashindex._create_refresh(
        later, hashindex._parts(later) || jsonb_build_object('refresh', format('hashindex.%I', 'renew_' || i.storage))
    );
END
$$;

COMMENT ON FUNCTION hashindex._order_build(text) IS 'writes the codes that were read in the order of their landmarks, and indexes them';

-- Returns the number of keys, or -1 if the table was emptied meanwhile and the build has to begin again.
CREATE OR REPLACE FUNCTION hashindex._apply_touched(name text)
RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
-- row_security = off makes a policy that hides rows an error; otherwise hidden rows would pass for deleted ones.
SET row_security = off
AS $$
DECLARE
    i hashindex.index := hashindex.find_index(_apply_touched.name);
    emptied boolean;
    applied bigint;
BEGIN
    EXECUTE format('SELECT EXISTS (SELECT FROM hashindex.%I t WHERE t.id IS NULL)', i.storage || '_touched') INTO emptied;
    IF emptied THEN
        RETURN -1;
    END IF;
    -- Keys are read before the table, since a key that is written in between is logged again.
    EXECUTE format(
        'WITH t AS (DELETE FROM hashindex.%I RETURNING id) SELECT count(*), hashindex.%I(array_agg(DISTINCT t.id))::text FROM t',
        i.storage || '_touched', 'renew_' || i.storage
    ) INTO applied;
    RETURN applied;
END
$$;

COMMENT ON FUNCTION hashindex._apply_touched(text) IS
    'brings the codes being built up to date for the keys that were written meanwhile; returns how many, or -1 if the table was emptied';

-- The caller holds SHARE ROW EXCLUSIVE on the table and has applied the last keys. No lock on code tables is taken, so nobody is waited for.
CREATE OR REPLACE FUNCTION hashindex._finish_build(name text, trained_rows bigint)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex._locked_index(_finish_build.name);
    later hashindex.index := hashindex._next_of(i);
BEGIN
    PERFORM hashindex._allow_shard_changes();
    EXECUTE format('DROP FUNCTION IF EXISTS hashindex.%I(%s[])', 'renew_' || i.storage, hashindex._key_type(i.id_type));
    UPDATE hashindex.index x
    SET (code_table, landmark_table, access, building, generation, next_generation, built_pages, built_from, trained_rows, chunks)
        = (later.code_table, later.landmark_table, 'landmarks', NULL, later.generation, NULL, NULL, NULL, _finish_build.trained_rows, NULL)
    WHERE x.name = i.name;
    PERFORM hashindex._create_functions(later);
    PERFORM hashindex._let_read(later, r) FROM hashindex._readers_of(i) r;
END
$$;

COMMENT ON FUNCTION hashindex._finish_build(text, bigint) IS 'lets searches and writers use the landmarks that were built';

-- Runs in a transaction of its own: searches under way read what it drops, and it must not wait for them while it holds locks on the table.
CREATE OR REPLACE FUNCTION hashindex.drop_unused(name text)
RETURNS SETOF text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex.find_index(drop_unused.name);
    unused regclass;
BEGIN
    FOR unused IN SELECT t.relation FROM hashindex._tables_of(i) t WHERE NOT t.in_use ORDER BY t.relation::text LOOP
        RETURN NEXT unused::text;
        EXECUTE format('DROP TABLE %s', unused);
    END LOOP;
END
$$;

COMMENT ON FUNCTION hashindex.drop_unused(text) IS 'drops tables that an index no longer uses; returns their names';

-- Needed because pg-hashindex index encode writes codes without firing triggers of the table.
CREATE OR REPLACE FUNCTION hashindex._assign_missing(name text)
RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex.find_index(_assign_missing.name);
    parts jsonb := hashindex._parts(i);
    effort text := coalesce(current_setting('hnsw.ef_search', true), '40');
    assigned bigint := 0;
BEGIN
    IF i.landmark_table IS NOT NULL THEN
        PERFORM set_config('hnsw.ef_search', '40', true);
        EXECUTE hashindex._fill(
            -- A writer assigns the landmark of a code that he has locked; waiting for him could be a deadlock.
            'UPDATE {code_table} c SET landmark = {row_landmark}{filter_values} FROM ('
            'SELECT b.{key} AS id{filter_reads}, b.{column}::{ext}.vector AS vector FROM {table} b JOIN ('
            'SELECT k.id FROM {code_table} k WHERE k.landmark IS NULL FOR NO KEY UPDATE SKIP LOCKED'
            ') k ON k.id = b.{key} WHERE b.{column} IS NOT NULL) r WHERE r.id = c.id',
            parts
        );
        GET DIAGNOSTICS assigned = ROW_COUNT;
        PERFORM set_config('hnsw.ef_search', effort, true);
    END IF;
    RETURN assigned;
END
$$;

COMMENT ON FUNCTION hashindex._assign_missing(text) IS
    'assigns a landmark to codes that have none; returns how many';
