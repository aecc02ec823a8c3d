-- Builds codes beside searches and writers, as pg_repack builds a table: triggers log the keys that are written while others read the rows
-- and write the new codes, which then catch up with the log and are exchanged in a short transaction. A build of landmarks writes a code
-- table in their order; a swap has another model. pg-hashindex index encode runs the steps of a build.

-- Catalog row that an index will have after the build, for making the functions that will be used then.
CREATE OR REPLACE FUNCTION hashindex._next_of(i hashindex.index) RETURNS hashindex.index
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    IF i.next_generation IS NULL THEN
        RAISE EXCEPTION 'another session gave up this build of index "%"', i.name
            USING ERRCODE = 'object_in_use', HINT = 'Wait for the other session, and run it again.';
    END IF;
    i.generation := i.next_generation;
    i.code_table := i.storage || '_codes_' || i.next_generation;
    i.landmark_table := i.storage || '_landmarks_' || i.next_generation;
    i.access := 'lists';
    i.building := NULL;
    i.next_generation := NULL;
    RETURN i;
END
$$;

-- Catalog row of an index, locked against other changes of it.
CREATE OR REPLACE FUNCTION hashindex._locked_index(name text) RETURNS hashindex.index
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index;
BEGIN
    PERFORM hashindex._require(_locked_index.name, administers => true);
    PERFORM hashindex._bind(_locked_index.name);
    -- The index before the codes beside it, whose triggers serve both.
    PERFORM FROM hashindex.index x WHERE x.name = (SELECT b.swap_of FROM hashindex.index b WHERE b.name = _locked_index.name) FOR UPDATE;
    SELECT x.* INTO STRICT i FROM hashindex.index x WHERE x.name = _locked_index.name FOR UPDATE;
    RETURN i;
END
$$;

-- Records that all rows of an index have had their codes, so that searches use them. A role that does not see every row cannot have
-- encoded all of them.
CREATE OR REPLACE FUNCTION hashindex._mark_encoded(i hashindex.index) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    UPDATE hashindex.index x SET encoded = true
    WHERE x.name = i.name AND NOT x.encoded AND NOT row_security_active(format('%I.%I', x.schema_name, x.table_name));
END
$$;

-- Whether a tenant, as text, fits into the b-trees of codes and landmarks. Rows of longer ones have no code, and are compared exactly.
CREATE OR REPLACE FUNCTION hashindex._fits(tenant text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (octet_length(tenant) > 2000) IS NOT TRUE;

-- Number of landmarks for a tenant with this number of rows; 0 if it is small. All codes of a small tenant are ranked, in 2 ms. A search
-- compares all landmarks of a large one (.25 us each) and ranks the codes of some lists (.4 us each). So the number grows with the root of
-- the rows, from 25,600 rows on; before, there is one landmark for 20 rows.
CREATE OR REPLACE FUNCTION hashindex._tenant_landmarks(rows bigint) RETURNS integer
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE WHEN rows < 4000 THEN 0 ELSE least(rows / 20, 8 * sqrt(rows))::integer END;

-- Gives an index the generation that it will have with new landmarks, and makes their table; returns its catalog row. Starts over after a
-- run that was cut off, and drops what it left.
CREATE OR REPLACE FUNCTION hashindex._begin_generation(name text) RETURNS hashindex.index
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex._locked_index(_begin_generation.name);
    later hashindex.index;
    base regclass := format('%I.%I', i.schema_name, i.table_name)::regclass;
BEGIN
    IF NOT hashindex._is_bound(i) THEN
        RAISE EXCEPTION '% is not the table that index "%" has codes of: it was dropped and recreated, or restored',
            base, i.name
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = format('Run: pg-hashindex index repair %s', coalesce(i.swap_of, i.name));
    END IF;
    PERFORM hashindex._check_plain(base, i.column_name);
    UPDATE hashindex.index x SET next_generation = NULL WHERE x.name = i.name;
    PERFORM hashindex.drop_unused(i.name);
    PERFORM hashindex._drop(o.kind, o.name) FROM hashindex.object o WHERE o.index_name = i.name AND starts_with(o.name, 'renew_');
    i.next_generation := hashindex._new_generation(i.generation);
    UPDATE hashindex.index x SET (building, next_generation) = ('lists', i.next_generation)
    WHERE x.name = i.name RETURNING x.* INTO STRICT i;
    later := hashindex._next_of(i);
    -- The graph is built by more than one process, which takes half of the time; by its size alone, the table would get one.
    EXECUTE format(
        'CREATE %s TABLE hashindex.%I (landmark integer PRIMARY KEY, centre {ext}.halfvec(%s) NOT NULL%s) WITH (toast_tuple_target = 8160, parallel_workers = 2)',
        nullif(hashindex._logging(base), 'LOGGED'),
        later.landmark_table, (SELECT coalesce(hashindex._list_projections(m, i.metric), m.dimension) FROM hashindex.model m WHERE m.id = i.model_id),
        CASE WHEN i.tenant_column IS NOT NULL THEN (
            SELECT format(', tenant %s%s NOT NULL, leader integer NOT NULL', hashindex._tenant_type(i), ' COLLATE ' || nullif(a.attcollation, 0)::regcollation)
            FROM pg_attribute a WHERE a.attrelid = format('hashindex.%I', i.code_table)::regclass AND a.attname = 'tenant'
        ) END
    );
    -- Keeps centres of up to 4,000 dimensions in their rows: PostgreSQL computes the distance to each landmark found once more.
    EXECUTE format('ALTER TABLE hashindex.%I ALTER COLUMN centre SET STORAGE MAIN', later.landmark_table);
    PERFORM hashindex._adopt(i, format('hashindex.%I', later.landmark_table), format('landmarks, which rows of %s are listed under', base));
    RETURN i;
END
$$;

-- Makes the tables that landmarks are built in, and has the trigger log what is written meanwhile. The caller holds SHARE ROW EXCLUSIVE
-- on the table.
CREATE OR REPLACE FUNCTION hashindex._begin_build(name text) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex._begin_generation(_begin_build.name);
    later hashindex.index := hashindex._next_of(i);
    ids text := hashindex._columns_of(NULL, hashindex._code_keys(i));
BEGIN
    PERFORM hashindex._create_codes(later, format('%I.%I', i.schema_name, i.table_name)::regclass, false);
    IF i.swap_of IS NOT NULL THEN
        -- A build that reads all rows needs no word of a TRUNCATE before.
        PERFORM hashindex._delete_emptied(i);
    ELSE
        PERFORM hashindex._create_log(i, NULL);
    END IF;
    EXECUTE format(
        'CREATE UNLOGGED TABLE hashindex.%I AS SELECT %s, landmark, code FROM hashindex.%I WITH NO DATA',
        i.storage || '_staged', ids, later.code_table
    );
    EXECUTE format('ALTER TABLE hashindex.%I ALTER COLUMN code SET STORAGE PLAIN', i.storage || '_staged');
    PERFORM hashindex._adopt(i, format('hashindex.%I', i.storage || '_staged'), 'codes that are still to be put in order');
    -- A range of pages is written whole, in one transaction. A crash empties the list with the staged codes.
    EXECUTE format(
        'CREATE UNLOGGED TABLE hashindex.%I (number integer PRIMARY KEY, file bigint NOT NULL, first_page bigint NOT NULL, end_page bigint NOT NULL, written boolean NOT NULL)',
        i.storage || '_ranges'
    );
    PERFORM hashindex._adopt(i, format('hashindex.%I', i.storage || '_ranges'), 'pages that a build reads');
    -- No statement that writes has begun with the former functions. Those of codes in use log keys for the codes beside.
    PERFORM hashindex._create_functions(x) FROM hashindex.index x WHERE x.name = coalesce(i.swap_of, i.name);
END
$$;

-- Makes the log of the keys that were written and that some codes, being built or beside those in use, are not up to date with. One of codes
-- that last survives a crash as the table does; a build begins again after a crash, and passes no table.
CREATE OR REPLACE FUNCTION hashindex._create_log(i hashindex.index, base regclass) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    log text := format('hashindex.%I', i.storage || '_touched');
BEGIN
    EXECUTE format(
        'CREATE %s TABLE %s AS SELECT %s FROM hashindex.%I WITH NO DATA', CASE WHEN base IS NULL THEN 'UNLOGGED' ELSE nullif(hashindex._logging(base), 'LOGGED') END,
        log, hashindex._columns_of(NULL, hashindex._code_keys(i)), i.code_table
    );
    PERFORM hashindex._adopt(i, log, 'keys that were written while it is built or not in use');
END
$$;

-- Deletes the codes of rows that a TRUNCATE removed, if the log tells of one. Codes that are not complete go all: columns of the table
-- may have changed so that a key could not be logged.
CREATE OR REPLACE FUNCTION hashindex._delete_emptied(i hashindex.index) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    emptied boolean;
BEGIN
    EXECUTE format('WITH marks AS (DELETE FROM hashindex.%I t WHERE t.%I IS NULL RETURNING 1) SELECT count(*) > 0 FROM marks',
                   i.storage || '_touched', (hashindex._code_keys(i))[1]) INTO emptied;
    IF emptied THEN
        EXECUTE hashindex._fill(
            'DELETE FROM {code_table} c{if encoded} WHERE NOT EXISTS (SELECT FROM {table} b WHERE {same b.key c.id}){end encoded}',
            hashindex._name_parts(i), jsonb_build_object('encoded', i.encoded)
        );
    END IF;
END
$$;

-- Builds the graph over landmarks that have just been written. Measured on 10,361 landmarks of 256 numbers: 64 lists hold .953 of the
-- true ten (.960 if all landmarks are compared), and a search reads 1,000 pages, with ef_construction = 150. With m = 24 and ef_construction = 100 they
-- hold .950 in 1,200 pages, with m = 12 .949 in 875. 150 takes 1.35 times the CPU of 100, and finds
-- .982 of the 64 nearest of 13,200 landmarks instead of .979.
CREATE OR REPLACE FUNCTION hashindex._index_landmarks(name text) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex._next_of(hashindex._require(_index_landmarks.name));
    dimension integer := coalesce(hashindex._list_projections(m, i.metric), m.dimension) FROM hashindex.model m WHERE m.id = i.model_id;
    create_graph text := format(
        'CREATE INDEX ON hashindex.%I USING hnsw (centre {ext}.halfvec_l2_ops) WITH (m = 16, ef_construction = 100)', i.landmark_table
    );
    memory text := current_setting('maintenance_work_mem');
    workers text := current_setting('max_parallel_maintenance_workers');
    kilobytes bigint;
BEGIN
    IF i.tenant_column IS NOT NULL THEN
        -- The landmarks of a tenant are few enough for a search to compare one by one. A written row is compared with the leaders of its
        -- tenant, and then with the landmarks that the nearest of them lead.
        EXECUTE format('CREATE INDEX ON hashindex.%I (tenant)', i.landmark_table);
        EXECUTE format('CREATE INDEX ON hashindex.%I (tenant) WHERE leader = landmark', i.landmark_table);
        EXECUTE format('CREATE INDEX ON hashindex.%I (leader)', i.landmark_table);
        EXECUTE format('ANALYZE hashindex.%I', i.landmark_table);
        RETURN;
    END IF;
    -- pgvector's HNSW takes a halfvec of up to 4,000 dimensions; without a graph a search compares all landmarks. A run that was cut
    -- off may have left one.
    IF dimension <= 4000 AND NOT EXISTS (
        SELECT FROM pg_index x WHERE x.indrelid = format('hashindex.%I', i.landmark_table)::regclass AND NOT x.indisprimary
    ) THEN
        -- Memory of the graph (measured: 1.2 kB for each landmark of 256 numbers, and 4 MB). Less would make it many times slower. More
        -- would be allocated all the same: processes that build together share memory of the size of the setting.
        EXECUTE format('SELECT 8192 + count(*) * (2 * %s + 900) / 1024 FROM hashindex.%I', dimension, i.landmark_table) INTO kilobytes;
        PERFORM set_config('maintenance_work_mem', least(kilobytes, 2147483647) || 'kB', true);
        BEGIN
            EXECUTE create_graph;
        EXCEPTION WHEN disk_full OR out_of_memory THEN
            -- A container may have little memory to share (Docker: 64 MB). One process needs none.
            PERFORM set_config('max_parallel_maintenance_workers', '0', true);
            EXECUTE create_graph;
            PERFORM set_config('max_parallel_maintenance_workers', workers, true);
        END;
        PERFORM set_config('maintenance_work_mem', memory, true);
    END IF;
    EXECUTE format('ANALYZE hashindex.%I', i.landmark_table);
END
$$;

-- Writes the codes that were read in the order of their landmarks, and indexes them. The codes of one landmark are stored next to each
-- other, so that reading its list takes a page or two.
CREATE OR REPLACE FUNCTION hashindex._order_build(name text) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex._require(_order_build.name);
    later hashindex.index := hashindex._next_of(i);
    parts jsonb := hashindex._parts(later);
    kept text[] := hashindex._code_keys(i);
BEGIN
    EXECUTE hashindex._fill(
        $order$
        INSERT INTO {code_table} ({each id}, landmark, code{if tenant}, tenant{end tenant})
        SELECT {each s.id}, nullif(s.landmark, -1), s.code{if tenant}, b.{tenant}{end tenant} FROM {staged} s{if tenant} JOIN {table} b ON {same b.key s.id}{end tenant}
        -- A row that moved while the table was read may have been read twice, or not at all. Its key is in the log, as are those of deleted rows.
        WHERE NOT EXISTS (SELECT FROM {touched} t WHERE {same t.id s.id}){fits}
        -- A small tenant has no landmarks, and its codes are together all the same.
        ORDER BY {if tenant}b.{tenant}, {end tenant}s.landmark$order$, parts, jsonb_build_object(
            'staged', format('hashindex.%I', i.storage || '_staged'), 'touched', format('hashindex.%I', i.storage || '_touched')
        )
    );
    EXECUTE format('ALTER TABLE hashindex.%I ADD PRIMARY KEY (%s)', later.code_table, hashindex._columns_of(NULL, kept));
    PERFORM hashindex._record('table', format('hashindex.%I', later.code_table)::regclass, i.name);
    -- The tenant alone leads to codes without a landmark.
    EXECUTE format('CREATE INDEX ON hashindex.%I (landmark%s)', later.code_table, CASE WHEN later.tenant_column IS NOT NULL THEN ', tenant' END);
    EXECUTE format('ANALYZE hashindex.%I', later.code_table);
    -- The staged codes stay until the build ends: if they are gone, a crash has emptied the log of keys too.
    PERFORM hashindex._create_function(
        'write_lists', parts, format('index %s: makes the codes of keys what the table says', i.name),
        jsonb_build_object('trigger', false, 'writer', format('hashindex.%I', 'renew_' || i.storage))
    );
END
$$;

-- Whether a look finds anything in the log of an index.
CREATE OR REPLACE FUNCTION hashindex._has_logged(i hashindex.index) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    log regclass := to_regclass(format('hashindex.%I', i.storage || '_touched'));
    found boolean := false;
BEGIN
    IF log IS NOT NULL THEN
        EXECUTE format('SELECT EXISTS (SELECT FROM %s)', log) INTO found;
    END IF;
    RETURN found;
END
$$;

-- Brings codes that are being built, or lie beside those in use, up to date for some logged keys; returns how many entries of the log it
-- took, or -1 if the table was emptied and a build has to begin again. One session reads a log at a time: it holds the row of the index. A
-- second reader would wait for the keys that the first deletes, find none of them left, and take the log for empty.
CREATE OR REPLACE FUNCTION hashindex._catch_up(name text) RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
-- row_security = off makes a policy that hides rows an error; otherwise hidden rows would pass for deleted ones.
SET row_security = off
AS $$
DECLARE
    i hashindex.index := hashindex._require(_catch_up.name);
    renew text;
    is_beside boolean;
    names jsonb;
    emptied boolean;
    applied bigint;
BEGIN
    -- The row as it is once the session before has ended: an exchange gives other codes to the name.
    SELECT x.* INTO STRICT i FROM hashindex.index x WHERE x.name = i.name FOR NO KEY UPDATE;
    renew := format('hashindex.%I', 'renew_' || i.storage);
    is_beside := i.swap_of IS NOT NULL;
    names := hashindex._name_parts(i) || jsonb_build_object(
        'log', format('hashindex.%I', i.storage || '_touched'), 'first', quote_ident((hashindex._code_keys(i))[1])
    );
    PERFORM hashindex._require_read(i);
    IF NOT (is_beside OR i.next_generation IS NOT NULL) OR to_regclass(names ->> 'log') IS NULL THEN
        RETURN 0;
    END IF;
    EXECUTE hashindex._fill(
        'SELECT bool_or(t.{first} IS NULL) FROM (SELECT t.{first} FROM {log} t WHERE t.{first} IS NULL UNION ALL (SELECT t.{first} FROM {log} t LIMIT 1)) t', names
    ) INTO emptied;
    IF emptied AND i.next_generation IS NOT NULL THEN
        RETURN -1;
    ELSIF emptied THEN
        PERFORM hashindex._delete_emptied(i);
    ELSIF emptied IS NULL OR i.next_generation IS NOT NULL AND to_regproc(renew) IS NULL THEN
        -- There are no keys; or a build will leave them out of what it has read, and apply them then.
        RETURN 0;
    END IF;
    -- Keys are read before the table, since a key that is written in between is logged again. The mark of a TRUNCATE that came meanwhile
    -- stays for the next call. Triggers write the codes in use.
    EXECUTE hashindex._fill(
        $apply$
        WITH t AS (
            DELETE FROM {log} k WHERE k.ctid = ANY (ARRAY(SELECT l.ctid FROM {log} l WHERE l.{first} IS NOT NULL LIMIT 10000)) RETURNING {row k.id} AS id
        ), k AS MATERIALIZED (SELECT count(*) AS n, array_agg(DISTINCT t.id) AS keys FROM t)
        SELECT k.n, concat({if beside}{beside}(k.keys){end beside}{if both}, {end both}{if renew}{renew}(k.keys){end renew}) FROM k$apply$,
        names, jsonb_build_object(
            'beside', CASE WHEN is_beside THEN format('hashindex.%I', hashindex._refresh_name(i)) END,
            'renew', CASE WHEN i.next_generation IS NOT NULL THEN renew END, 'both', is_beside AND i.next_generation IS NOT NULL
        )
    ) INTO applied;
    RETURN applied;
END
$$;

-- Applies the last keys, and lets searches and writers use the landmarks that were built; returns false if the table was emptied. The caller
-- holds SHARE ROW EXCLUSIVE on the table. No lock on code tables is taken, so no session has to wait.
CREATE OR REPLACE FUNCTION hashindex._finish_build(name text, trained_rows bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex._locked_index(_finish_build.name);
    later hashindex.index := hashindex._next_of(i);
    applied bigint;
BEGIN
    WHILE hashindex._has_logged(i) LOOP
        applied := hashindex._catch_up(i.name);
        IF applied < 0 THEN
            RETURN false;
        ELSIF applied = 0 THEN
            RAISE EXCEPTION 'the keys that were written while index "%" was built cannot be applied: function hashindex.% is missing', i.name,
                quote_ident('renew_' || i.storage)
                USING ERRCODE = 'object_not_in_prerequisite_state', HINT = format('Run: pg-hashindex index repair %s --undo', coalesce(i.swap_of, i.name));
        END IF;
    END LOOP;
    PERFORM hashindex._drop(o.kind, o.name) FROM hashindex.object o WHERE o.index_name = i.name AND starts_with(o.name, 'renew_');
    UPDATE hashindex.index x
    SET (code_table, landmark_table, access, building, generation, next_generation, trained_rows, codes_oid)
        = (later.code_table, later.landmark_table, 'lists', NULL, later.generation, NULL, _finish_build.trained_rows,
           to_regclass(format('hashindex.%I', later.code_table))::oid)
    WHERE x.name = i.name;
    PERFORM hashindex._create_functions(x) FROM hashindex.index x WHERE x.name IN (i.name, i.swap_of);
    PERFORM hashindex._set_readers(later, i);
    RETURN true;
END
$$;

-- The books of codes, of an index or of what is built for it: rows with a vector, those of them that have a code, those that have none yet
-- and whose key is in the log, and the others, which no search would find. Called before codes come into use, without a lock: what is written
-- afterwards is logged.
CREATE OR REPLACE FUNCTION hashindex._books_of(i hashindex.index, built boolean, OUT rows bigint, OUT codes bigint, OUT logged bigint, OUT missing bigint)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
SET row_security = off
SET enable_nestloop = off
SET jit = off
AS $$
DECLARE
    parts jsonb := hashindex._name_parts(CASE WHEN built THEN hashindex._next_of(i) ELSE i END);
    log regclass := to_regclass(format('hashindex.%I', i.storage || '_touched'));
BEGIN
    PERFORM hashindex._require(i.name);
    EXECUTE hashindex._fill(
        $books$
        SELECT count(*), count(c.{one}), count(*) FILTER (WHERE c.{one} IS NULL AND {is_logged}), count(*) FILTER (WHERE c.{one} IS NULL AND NOT {is_logged})
        FROM {table} b LEFT JOIN {code_table} c ON {same b.key c.id}
        {if log}LEFT JOIN (SELECT DISTINCT {each k.id} FROM {log} k) t ON {same b.key t.id}{end log}
        WHERE b.{column} IS NOT NULL{fits}$books$,
        parts, jsonb_build_object(
            'one', quote_ident((hashindex._code_keys(i))[1]),
            'log', CASE WHEN built OR i.swap_of IS NOT NULL THEN log END,
            'is_logged', CASE WHEN (built OR i.swap_of IS NOT NULL) AND log IS NOT NULL THEN format('t.%I IS NOT NULL', (hashindex._code_keys(i))[1]) ELSE 'false' END
        )
    ) INTO rows, codes, logged, missing;
END
$$;

-- Locks the table of an index before its row in the catalog, as builds do; waits for those who write. A statement that has begun to write
-- may still run the triggers that log, so it must end before the log is dropped.
CREATE OR REPLACE FUNCTION hashindex._lock_against_writers(i hashindex.index) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    IF to_regclass(format('%I.%I', i.schema_name, i.table_name)) IS NOT NULL THEN
        EXECUTE format('LOCK TABLE %I.%I IN SHARE ROW EXCLUSIVE MODE', i.schema_name, i.table_name);
    END IF;
END
$$;

-- Runs in a transaction of its own: searches under way read what it drops, and it must not wait for them while it holds locks on the table.
CREATE OR REPLACE FUNCTION hashindex.drop_unused(name text) RETURNS SETOF text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex._require(drop_unused.name, administers => true, reads => false);
    unused record;
BEGIN
    FOR unused IN SELECT o.name, o.object FROM hashindex._objects_of(i) o WHERE NOT o.in_use LOOP
        RETURN NEXT unused.object;
        PERFORM hashindex._drop('table', unused.name);
    END LOOP;
    -- Those of tables that were dropped by hand.
    DELETE FROM hashindex.object o WHERE o.index_name = i.name AND o.kind = 'table' AND to_regclass(format('hashindex.%I', o.name)) IS NULL;
END
$$;

COMMENT ON FUNCTION hashindex.drop_unused(text) IS 'drops tables that an index no longer uses; returns their names';

-- Assigns a landmark to codes that have none, of an index or of what is built for it; returns how many. Needed because pg-hashindex index
-- encode writes codes without firing triggers of the table.
CREATE OR REPLACE FUNCTION hashindex._assign_missing(i hashindex.index) RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    parts jsonb := hashindex._parts(i);
    ef_search text := coalesce(current_setting('hnsw.ef_search', true), '40');
    assigned bigint := 0;
BEGIN
    PERFORM hashindex._require_read(i);
    IF i.landmark_table IS NOT NULL THEN
        PERFORM set_config('hnsw.ef_search', '40', true);
        EXECUTE hashindex._fill(
            -- A writer assigns the landmark of a code that he has locked; waiting for him could be a deadlock.
            'UPDATE {code_table} c SET landmark = {row_landmark}{if tenant}, tenant = r.tenant{end tenant} FROM ('
            'SELECT raw.*, {row_projection} AS projection FROM ('
            'SELECT {each b.key as id}{if tenant}, b.{tenant} AS tenant{end tenant}, b.{column}::{ext}.vector AS vector FROM {table} b JOIN ('
            'SELECT {each c.id} FROM {code_table} c WHERE {is_unlisted} FOR NO KEY UPDATE SKIP LOCKED'
            ') c ON {same b.key c.id} WHERE b.{column} IS NOT NULL) raw OFFSET 0) r WHERE ({each r.id}) = ({each c.id})',
            parts
        );
        GET DIAGNOSTICS assigned = ROW_COUNT;
        PERFORM set_config('hnsw.ef_search', ef_search, true);
    END IF;
    RETURN assigned;
END
$$;

CREATE OR REPLACE FUNCTION hashindex.tenants(index_name text) RETURNS TABLE (tenant text, codes bigint, landmarks bigint)
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE ROWS 1000
SET search_path FROM CURRENT
SET jit = off
AS $$
DECLARE
    i hashindex.index := hashindex._require(index_name);
BEGIN
    IF i.tenant_column IS NULL THEN
        RAISE EXCEPTION 'index "%" has no tenants', i.name
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Create an index with tenant set to the column of the tenants.';
    ELSIF i.code_table IS NULL THEN
        -- A tenant is a filter of a set of pgvector.
        RETURN QUERY EXECUTE format(
            'SELECT b.%1$I::text, count(*), 0::bigint FROM %2$s b WHERE b.%3$I IS NOT NULL GROUP BY b.%1$I ORDER BY 2 DESC, b.%1$I', i.tenant_column, hashindex._base_of(i), i.column_name
        );
        RETURN;
    END IF;
    RETURN QUERY EXECUTE format(
        'SELECT n.tenant::text, n.codes, %s FROM (SELECT c.tenant, count(*) AS codes FROM hashindex.%I c GROUP BY 1) n '
        'ORDER BY n.codes DESC, n.tenant',
        CASE WHEN i.landmark_table IS NULL THEN '0::bigint' ELSE format('(SELECT count(*) FROM hashindex.%I l WHERE l.tenant = n.tenant)', i.landmark_table) END,
        i.code_table
    );
END
$$;

COMMENT ON FUNCTION hashindex.tenants(text) IS
    'tenants of an index, with their codes and landmarks, largest first; a small tenant has no landmarks, and all of its codes are ranked';

-- Puts the codes of a tenant into the lists of new landmarks, which come after the former ones in their table; returns the number of codes.
-- The caller holds SHARE ROW EXCLUSIVE on the table, and passes the keys of all rows of the tenant, with their landmarks.
CREATE OR REPLACE FUNCTION hashindex._exchange_lists(name text, tenant text, first_landmark integer, keys text[], landmarks integer[])
RETURNS bigint
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex._locked_index(_exchange_lists.name);
    moved bigint;
BEGIN
    IF i.landmark_table IS NULL OR i.tenant_column IS NULL THEN
        RAISE EXCEPTION 'index "%" has no landmarks of tenants', i.name
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = format('Run: pg-hashindex index encode %s', i.name);
    END IF;
    -- Written again in the order of the lists.
    EXECUTE hashindex._fill(
        $move$
        WITH moved AS (DELETE FROM {code_table} c USING unnest($1, $2) a(id, landmark) WHERE ({each c.id}) = ({key_of_text}) RETURNING c.*, a.landmark AS list)
        -- A tenant that has become small has no landmarks.
        INSERT INTO {code_table} ({each id}, landmark, code{if tenant}, tenant{end tenant})
        SELECT {each id}, nullif(m.list, -1), m.code{if tenant}, m.tenant{end tenant} FROM moved m ORDER BY m.list$move$, hashindex._parts(i)
    ) USING keys, landmarks;
    GET DIAGNOSTICS moved = ROW_COUNT;
    EXECUTE format('DELETE FROM hashindex.%I l WHERE l.tenant = $1::%s AND l.landmark < $2', i.landmark_table, hashindex._tenant_type(i))
    USING tenant, first_landmark;
    -- A transaction that began before does not see the new landmarks, and must not list rows under the former ones.
    i.generation := hashindex._new_generation(i.generation);
    UPDATE hashindex.index x SET generation = i.generation WHERE x.name = i.name;
    PERFORM hashindex._create_functions(i);
    RETURN moved;
END
$$;
