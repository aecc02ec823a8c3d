-- Builds a set of lists beside searches and writers, as pg_repack builds a table: triggers log the keys that are written while others read the
-- rows and write codes in the order of their landmarks; these catch up with the log, and come into use in a short transaction. The same for a
-- first set, a rebalance and a swap; pg_hashindex/index/landmarks runs the steps.

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

-- Makes the tables of a set that is to be built, and has the trigger log what is written meanwhile; drops what a run that was cut off left of
-- it. The caller holds SHARE ROW EXCLUSIVE on the table.
CREATE OR REPLACE FUNCTION hashindex._begin_lists(set_id bigint) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    built record := hashindex._locked_lists(set_id);
    i hashindex.index := built.i;
    s hashindex.index_set := built.s;
    base regclass := hashindex._base_of(i);
    made text;
BEGIN
    PERFORM hashindex._require(i.name, administers => true);
    IF s.state <> 'building' THEN
        RAISE EXCEPTION 'the set of index "%" is built already', i.name USING ERRCODE = 'object_in_use', HINT = 'See it: pg-hashindex index show.';
    END IF;
    PERFORM hashindex._check_plain(base, s.column_name);
    PERFORM hashindex._drop_lists(s);
    PERFORM hashindex._create_key_type(i);
    PERFORM hashindex._create_codes(i, s, base);
    UPDATE hashindex.index_set x SET (encoded, unverified, trained_rows, generation) = (false, false, NULL, coalesce(x.generation, 0) + 1) WHERE x.id = s.id;
    PERFORM hashindex._bind(s.id, true);
    PERFORM hashindex._create_landmarks(i, s);
    PERFORM hashindex._create_log(i, s);
    made := 'hashindex.' || hashindex._part_of(s, 'staged');
    EXECUTE format(
        'CREATE UNLOGGED TABLE %s AS SELECT %s, landmark, code FROM %s WITH NO DATA', made,
        hashindex._columns_of(NULL, hashindex._code_keys(i)), hashindex._table_of(s, 'codes')
    );
    EXECUTE format('ALTER TABLE %s ALTER COLUMN code SET STORAGE PLAIN', made);
    PERFORM hashindex._adopt(i, made, 'codes that are still to be put in order');
    -- A range of pages is written whole, in one transaction. A crash empties the list with the staged codes.
    made := 'hashindex.' || hashindex._part_of(s, 'ranges');
    EXECUTE format('CREATE UNLOGGED TABLE %s (number integer PRIMARY KEY, file bigint NOT NULL, first_page bigint NOT NULL, end_page bigint NOT NULL, written boolean NOT NULL)', made);
    PERFORM hashindex._adopt(i, made, 'pages that a build reads');
    -- No statement that writes has begun with the former trigger function.
    PERFORM hashindex._create_writer(i);
END
$$;

-- Makes the table of landmarks of a set, empty; its codes are there.
CREATE OR REPLACE FUNCTION hashindex._create_landmarks(i hashindex.index, s hashindex.index_set) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base regclass := hashindex._base_of(i);
    made text := 'hashindex.' || hashindex._part_of(s, 'landmarks');
BEGIN
    -- The graph is built by more than one process, which takes half of the time; by its size alone, the table would get one.
    EXECUTE format(
        'CREATE %s TABLE %s (landmark integer PRIMARY KEY, centre {ext}.halfvec(%s) NOT NULL%s) WITH (toast_tuple_target = 8160, parallel_workers = 2)',
        nullif(hashindex._logging(base), 'LOGGED'), made,
        (SELECT coalesce(hashindex._list_projections(m, i.metric), m.dimension) FROM hashindex.model m WHERE m.id = s.model_id),
        CASE WHEN i.tenant_column IS NOT NULL THEN (
            SELECT format(', tenant %s%s NOT NULL, leader integer NOT NULL', hashindex._base_type(format_type(a.atttypid, NULL)), ' COLLATE ' || nullif(a.attcollation, 0)::regcollation)
            FROM pg_attribute a WHERE a.attrelid = hashindex._table_of(s, 'codes') AND a.attname = 'tenant'
        ) END
    );
    -- Keeps centres of up to 4,000 dimensions in their rows: PostgreSQL computes the distance to each landmark found once more.
    EXECUTE format('ALTER TABLE %s ALTER COLUMN centre SET STORAGE MAIN', made);
    PERFORM hashindex._adopt(i, made, format('landmarks, which rows of %s are listed under', base));
END
$$;

-- Bytes that the log of a former set may take, beyond which no key is logged and the set cannot come into use again: as many as its codes.
CREATE OR REPLACE FUNCTION hashindex._log_limit(s hashindex.index_set) RETURNS bigint
LANGUAGE sql STABLE PARALLEL UNSAFE
RETURN greatest(8388608, pg_relation_size(hashindex._table_of(s, 'codes')));

-- Makes the log of the keys that were written while a set is not in use. It survives a crash as the table does.
CREATE OR REPLACE FUNCTION hashindex._create_log(i hashindex.index, s hashindex.index_set) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    log text := 'hashindex.' || hashindex._part_of(s, 'log');
BEGIN
    PERFORM hashindex._drop('table', hashindex._part_of(s, 'log'));
    EXECUTE format(
        'CREATE %s TABLE %s AS SELECT %s, NULL::boolean AS gap FROM %s WITH NO DATA',
        CASE s.state WHEN 'building' THEN 'UNLOGGED' ELSE nullif(hashindex._logging(hashindex._base_of(i)), 'LOGGED') END,
        log, hashindex._columns_of(NULL, hashindex._code_keys(i)), hashindex._table_of(s, 'codes')
    );
    EXECUTE format('CREATE INDEX ON %s (gap) WHERE gap', log);
    -- A publication of all tables refuses to delete from a table without an identity.
    EXECUTE format('ALTER TABLE %s REPLICA IDENTITY FULL', log);
    PERFORM hashindex._adopt(i, log, 'keys that were written while it is built or not in use');
END
$$;

-- Drops the tables and functions of a set of lists.
CREATE OR REPLACE FUNCTION hashindex._drop_lists(s hashindex.index_set) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM hashindex._drop(o.kind, o.name) FROM hashindex.object o
    WHERE o.index_name = s.index_name
      AND (o.kind = 'table' AND starts_with(o.name, hashindex._part_of(s, '')) OR o.kind = 'function' AND o.name ~ format('^(refresh_|search_~)%s[(]', s.id));
END
$$;

-- Deletes the codes of rows that a TRUNCATE removed, if the log tells of one. Codes that are not complete go all: columns of the table
-- may have changed so that a key could not be logged.
CREATE OR REPLACE FUNCTION hashindex._delete_emptied(i hashindex.index, s hashindex.index_set) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    emptied boolean;
BEGIN
    EXECUTE format('WITH marks AS (DELETE FROM %s t WHERE t.%I IS NULL RETURNING 1) SELECT count(*) > 0 FROM marks',
                   hashindex._table_of(s, 'log'), (hashindex._code_keys(i))[1]) INTO emptied;
    IF emptied THEN
        EXECUTE hashindex._fill(
            'DELETE FROM {code_table} c{if encoded} WHERE NOT EXISTS (SELECT FROM {table} b WHERE {same b.key c.id}){end encoded}',
            hashindex._name_parts(i, s), jsonb_build_object('encoded', s.encoded)
        );
    END IF;
END
$$;

-- Builds the graph over landmarks that have just been written. Measured on 10,361 landmarks of 256 numbers: 64 lists hold .953 of the
-- true ten (.960 if all landmarks are compared), and a search reads 1,000 pages, with ef_construction = 150. With m = 24 and ef_construction = 100 they
-- hold .950 in 1,200 pages, with m = 12 .949 in 875. 150 takes 1.35 times the CPU of 100, and finds
-- .982 of the 64 nearest of 13,200 landmarks instead of .979. Called by index/landmarks/building.py.
CREATE OR REPLACE FUNCTION hashindex._index_landmarks(set_id bigint) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    built record := hashindex._lists_of(set_id);
    i hashindex.index := built.i;
    landmarks regclass := hashindex._table_of(built.s, 'landmarks');
    dimension integer := coalesce(hashindex._list_projections(m, i.metric), m.dimension) FROM hashindex.model m WHERE m.id = (built.s).model_id;
    create_graph text := format('CREATE INDEX ON %s USING hnsw (centre {ext}.halfvec_l2_ops) WITH (m = 16, ef_construction = 100)', landmarks);
    memory text := current_setting('maintenance_work_mem');
    workers text := current_setting('max_parallel_maintenance_workers');
    kilobytes bigint;
BEGIN
    -- A run that was cut off may have left them.
    IF EXISTS (SELECT FROM pg_index x WHERE x.indrelid = landmarks AND NOT x.indisprimary) THEN
        RETURN;
    ELSIF i.tenant_column IS NOT NULL THEN
        -- The landmarks of a tenant are few enough for a search to compare one by one. A written row is compared with the leaders of its
        -- tenant, and then with the landmarks that the nearest of them lead.
        EXECUTE format('CREATE INDEX ON %s (tenant)', landmarks);
        EXECUTE format('CREATE INDEX ON %s (tenant) WHERE leader = landmark', landmarks);
        EXECUTE format('CREATE INDEX ON %s (leader)', landmarks);
        EXECUTE format('ANALYZE %s', landmarks);
        RETURN;
    END IF;
    -- pgvector's HNSW takes a halfvec of up to 4,000 dimensions; without a graph a search compares all landmarks.
    IF dimension <= 4000 THEN
        -- Memory of the graph (measured: 1.2 kB for each landmark of 256 numbers, and 4 MB). Less would make it many times slower. More
        -- would be allocated all the same: processes that build together share memory of the size of the setting.
        EXECUTE format('SELECT 8192 + count(*) * (2 * %s + 900) / 1024 FROM %s', dimension, landmarks) INTO kilobytes;
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
    EXECUTE format('ANALYZE %s', landmarks);
END
$$;

-- Writes the codes that were read in the order of their landmarks, and indexes them. The codes of one landmark are stored next to each
-- other, so that reading its list takes a page or two.
CREATE OR REPLACE FUNCTION hashindex._order_lists(set_id bigint, trained_rows bigint) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    built record := hashindex._lists_of(set_id);
    i hashindex.index := built.i;
    s hashindex.index_set := built.s;
    codes regclass := hashindex._table_of(s, 'codes');
BEGIN
    PERFORM hashindex._require_read(i);
    -- With landmarks the functions look for lists.
    UPDATE hashindex.index_set x SET trained_rows = _order_lists.trained_rows WHERE x.id = s.id RETURNING x.* INTO s;
    EXECUTE hashindex._fill(
        $order$
        INSERT INTO {code_table} ({each id}, landmark, code{if tenant}, tenant{end tenant})
        SELECT {each s.id}, nullif(s.landmark, -1), s.code{if tenant}, b.{tenant}{end tenant} FROM {staged} s{if tenant} JOIN {table} b ON {same b.key s.id}{end tenant}
        -- A row that moved while the table was read may have been read twice, or not at all. Its key is in the log, as are the keys of deleted rows.
        WHERE NOT EXISTS (SELECT FROM {log} t WHERE {same t.id s.id}){fits}
        -- A small tenant has no landmarks, and its codes are together all the same.
        ORDER BY {if tenant}b.{tenant}, {end tenant}s.landmark$order$, hashindex._name_parts(i, s)
    );
    EXECUTE format('ALTER TABLE %s ADD PRIMARY KEY (%s)', codes, hashindex._columns_of(NULL, hashindex._code_keys(i)));
    PERFORM hashindex._record('table', codes, i.name);
    -- The tenant alone leads to codes without a landmark.
    EXECUTE format('CREATE INDEX ON %s (landmark%s)', codes, CASE WHEN i.tenant_column IS NOT NULL THEN ', tenant' END);
    EXECUTE format('ANALYZE %s', codes);
    -- The staged codes stay until the build ends: if they are gone, a crash has emptied the log of keys too.
    PERFORM hashindex._create_refresh(i, s);
END
$$;

-- Whether a look finds anything in the log of a set; or the mark that it has passed its limit, so that keys are missing in it.
CREATE OR REPLACE FUNCTION hashindex._has_logged(s hashindex.index_set, gap boolean DEFAULT false) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    log regclass := hashindex._table_of(s, 'log');
    found boolean := false;
BEGIN
    IF log IS NOT NULL THEN
        EXECUTE format('SELECT EXISTS (SELECT FROM %s l%s)', log, CASE WHEN gap THEN ' WHERE l.gap' END) INTO found;
    END IF;
    RETURN found;
END
$$;

-- Brings a set that is not in use up to date for some logged keys; returns how many entries of the log it took, or -1 if the table was
-- emptied and a build has to begin again. One session reads a log at a time: it holds the row of the index. A second reader would wait
-- for the keys that the first deletes, find none of them left, and take the log for empty.
CREATE OR REPLACE FUNCTION hashindex._catch_up(set_id bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
-- row_security = off makes a policy that hides rows an error; otherwise hidden rows would pass for deleted ones.
SET row_security = off
AS $$
DECLARE
    built record := hashindex._locked_lists(set_id);
    i hashindex.index := built.i;
    s hashindex.index_set := built.s;
    names jsonb;
    emptied boolean;
    applied bigint;
BEGIN
    PERFORM hashindex._require_read(i);
    IF hashindex._table_of(s, 'log') IS NULL THEN
        RETURN 0;
    ELSIF hashindex._has_logged(s, gap => true) THEN
        RAISE EXCEPTION 'more was written than the log of the former set of index "%" holds, so its codes are out of date', i.name
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = format('Drop it: pg-hashindex index prune %s', i.name);
    END IF;
    names := hashindex._name_parts(i, s) || jsonb_build_object('first', quote_ident((hashindex._code_keys(i))[1]));
    EXECUTE hashindex._fill(
        'SELECT bool_or(t.{first} IS NULL) FROM (SELECT t.{first} FROM {log} t WHERE t.{first} IS NULL UNION ALL (SELECT t.{first} FROM {log} t LIMIT 1)) t', names
    ) INTO emptied;
    IF emptied AND s.state = 'building' THEN
        RETURN -1;
    ELSIF emptied THEN
        PERFORM hashindex._delete_emptied(i, s);
    ELSIF emptied IS NULL OR s.state = 'building' AND to_regproc(names ->> 'refresh') IS NULL THEN
        -- There are no keys; or a build will leave them out of what it has read, and apply them then.
        RETURN 0;
    END IF;
    -- Keys are read before the table, since a key that is written in between is logged again. The mark of a TRUNCATE that came meanwhile
    -- stays for the next call.
    EXECUTE hashindex._fill(
        $apply$
        WITH t AS (
            DELETE FROM {log} k WHERE k.ctid = ANY (ARRAY(SELECT l.ctid FROM {log} l WHERE l.{first} IS NOT NULL LIMIT 10000)) RETURNING {row k.id} AS id
        ), k AS MATERIALIZED (SELECT count(*) AS n, array_agg(DISTINCT t.id) AS keys FROM t)
        SELECT k.n, {refresh}(k.keys)::text FROM k$apply$, names
    ) INTO applied;
    RETURN applied;
END
$$;

-- Applies the last keys to a set that was built; from then on it is ready. Returns false if the table was emptied. The caller holds SHARE ROW
-- EXCLUSIVE on the table. Called by index/landmarks/building.py.
CREATE OR REPLACE FUNCTION hashindex._finish_lists(set_id bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    built record := hashindex._lists_of(set_id);
    i hashindex.index := built.i;
    s hashindex.index_set := built.s;
    applied bigint;
BEGIN
    PERFORM hashindex._require(i.name, administers => true);
    WHILE hashindex._has_logged(s) LOOP
        applied := hashindex._catch_up(s.id);
        IF applied < 0 THEN
            RETURN false;
        ELSIF applied = 0 THEN
            RAISE EXCEPTION 'the keys that were written while index "%" was built cannot be applied: function hashindex.refresh_% is missing', i.name, s.id
                USING ERRCODE = 'object_not_in_prerequisite_state', HINT = format('Run: pg-hashindex index repair %s --undo', i.name);
        END IF;
    END LOOP;
    PERFORM hashindex._drop('table', hashindex._part_of(s, part)) FROM unnest('{staged,ranges}'::text[]) part;
    UPDATE hashindex.index_set x SET (state, encoded) = ('ready', true) WHERE x.id = s.id RETURNING x.* INTO s;
    -- It lasts now, and so does its log. A first set comes into use by the same transaction.
    PERFORM hashindex._create_log(i, s);
    PERFORM hashindex._set_readers(i, s, CASE WHEN u.access IN ('lists', 'scan') THEN u END) FROM (SELECT) n LEFT JOIN hashindex._set_of(i.name) u ON true;
    PERFORM hashindex._create_list_search(i, s);
    PERFORM hashindex._create_writer(i);
    RETURN true;
END
$$;

-- The books of a set of lists: rows with a vector, rows that have a code, rows that have none yet and whose key is in the log, and
-- the others, which no search would find. Called before codes come into use, without a lock: what is written afterwards is logged.
-- Called by index/encoding.py, repairs and health.
CREATE OR REPLACE FUNCTION hashindex._books_of(set_id bigint, OUT rows bigint, OUT codes bigint, OUT logged bigint, OUT missing bigint)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
SET row_security = off
SET enable_nestloop = off
SET jit = off
AS $$
DECLARE
    built record := hashindex._lists_of(set_id);
    i hashindex.index := built.i;
    s hashindex.index_set := built.s;
    one text := quote_ident((hashindex._code_keys(i))[1]);
    log boolean := s.state <> 'used' AND hashindex._table_of(s, 'log') IS NOT NULL;
BEGIN
    PERFORM hashindex._require(i.name);
    EXECUTE hashindex._fill(
        $books$
        SELECT count(*), count(c.{one}), count(*) FILTER (WHERE c.{one} IS NULL AND {is_logged}), count(*) FILTER (WHERE c.{one} IS NULL AND NOT {is_logged})
        FROM {table} b LEFT JOIN {code_table} c ON {same b.key c.id}
        {if logs}LEFT JOIN (SELECT DISTINCT {each k.id} FROM {log} k) t ON {same b.key t.id}{end logs}
        WHERE b.{column} IS NOT NULL{fits}$books$,
        hashindex._name_parts(i, s), jsonb_build_object('one', one, 'logs', log, 'is_logged', CASE WHEN log THEN format('t.%s IS NOT NULL', one) ELSE 'false' END)
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

-- Assigns a landmark to codes of a set that have none; returns how many. Needed because pg-hashindex index encode writes codes without
-- firing triggers of the table. Called by index/encoding.py.
CREATE OR REPLACE FUNCTION hashindex._assign_missing(set_id bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    built record := hashindex._lists_of(set_id);
    parts jsonb;
    ef_search text := coalesce(nullif(current_setting('hnsw.ef_search', true), ''), '40');
    assigned bigint := 0;
BEGIN
    PERFORM hashindex._require_read(built.i);
    IF (built.s).trained_rows IS NOT NULL THEN
        PERFORM set_config('hnsw.ef_search', '40', true);
        parts := hashindex._name_parts(built.i, built.s);
        parts := parts || hashindex._code_parts(built.i, built.s, parts) || hashindex._list_parts(built.i, built.s, parts);
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
    s hashindex.index_set := hashindex._used_set(i);
BEGIN
    IF i.tenant_column IS NULL THEN
        RAISE EXCEPTION 'index "%" has no tenants', i.name
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Create an index with tenant set to the column of the tenants.';
    ELSIF s.encoded IS NULL THEN
        -- A tenant is a filter of a set of pgvector.
        RETURN QUERY EXECUTE format(
            'SELECT b.%1$I::text, count(*), 0::bigint FROM %2$s b WHERE b.%3$I IS NOT NULL GROUP BY b.%1$I ORDER BY 2 DESC, b.%1$I', i.tenant_column, hashindex._base_of(i), i.column_name
        );
        RETURN;
    END IF;
    RETURN QUERY EXECUTE format(
        'SELECT n.tenant::text, n.codes, (SELECT count(*) FROM %s l WHERE l.tenant = n.tenant) FROM (SELECT c.tenant, count(*) AS codes FROM %s c GROUP BY 1) n '
        'ORDER BY n.codes DESC, n.tenant', hashindex._table_of(s, 'landmarks'), hashindex._table_of(s, 'codes')
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
    i hashindex.index := hashindex._require(_exchange_lists.name, administers => true);
    s hashindex.index_set;
    moved bigint;
BEGIN
    PERFORM FROM hashindex.index x WHERE x.name = i.name FOR UPDATE;
    i := hashindex._require(_exchange_lists.name, administers => true);
    s := hashindex._used_lists(i);
    IF s.trained_rows IS NULL OR i.tenant_column IS NULL THEN
        RAISE EXCEPTION 'index "%" has no landmarks of tenants', i.name
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = format('Run: pg-hashindex index rebalance %s', i.name);
    END IF;
    -- Written again in the order of the lists.
    EXECUTE hashindex._fill(
        $move$
        WITH moved AS (DELETE FROM {code_table} c USING unnest($1, $2) a(id, landmark) WHERE ({each c.id}) = ({key_of_text}) RETURNING c.*, a.landmark AS list)
        -- A tenant that has become small has no landmarks.
        INSERT INTO {code_table} ({each id}, landmark, code{if tenant}, tenant{end tenant})
        SELECT {each id}, nullif(m.list, -1), m.code{if tenant}, m.tenant{end tenant} FROM moved m ORDER BY m.list$move$, hashindex._parts(i, s)
    ) USING keys, landmarks;
    GET DIAGNOSTICS moved = ROW_COUNT;
    EXECUTE format('DELETE FROM %s l WHERE l.tenant = $1::%s AND l.landmark < $2', hashindex._table_of(s, 'landmarks'), hashindex._tenant_type(i))
    USING tenant, first_landmark;
    -- A transaction that began before does not see the new landmarks, and must not list rows under the former ones.
    UPDATE hashindex.index_set x SET generation = x.generation + 1 WHERE x.id = s.id RETURNING x.* INTO s;
    PERFORM hashindex._create_writer(i), hashindex._create_refresh(i, s);
    RETURN moved;
END
$$;
