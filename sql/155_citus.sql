-- Everything about Citus: indexes on tables that are distributed among shards. Codes are co-located with their rows, and
-- landmarks are a reference table, so triggers, encoding and searches find all they need on their node. On a plain server
-- only _is_distributed runs, once for each change of an index.

-- How Citus distributes a table (hash, reference or other) and by which column; NULLs if it does not.
CREATE OR REPLACE FUNCTION hashindex._distribution_of(relation regclass, OUT method text, OUT column_name text)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    IF relation IS NOT NULL AND to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL THEN
        EXECUTE 'SELECT CASE WHEN p.partmethod = ''h'' THEN ''hash'' '
                'WHEN p.partmethod = ''n'' AND p.repmodel = ''t'' THEN ''reference'' ELSE ''other'' END, '
                'CASE WHEN p.partmethod = ''h'' THEN column_to_column_name(p.logicalrelid, p.partkey) END '
                'FROM pg_dist_partition p WHERE p.logicalrelid = $1'
        INTO method, column_name USING relation;
    END IF;
END
$$;

-- Whether Citus distributes the table of an index among shards.
CREATE OR REPLACE FUNCTION hashindex._is_distributed(i hashindex.index) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN coalesce(d.method = 'hash', false)
    FROM hashindex._distribution_of(to_regclass(format('%I.%I', i.schema_name, i.table_name))) d;
END
$$;

-- Whether a table is a shard of one that Citus distributes. The catalog of a node lists its shards, and their triggers, beside the
-- distributed tables.
CREATE OR REPLACE FUNCTION hashindex._is_shard(relation regclass) RETURNS boolean
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    found boolean := false;
BEGIN
    IF to_regproc('pg_catalog.relation_is_a_known_shard') IS NOT NULL THEN
        EXECUTE 'SELECT relation_is_a_known_shard($1)' INTO found USING relation;
    END IF;
    RETURN found;
END
$$;

-- Size of a table without its indexes, shards included.
CREATE OR REPLACE FUNCTION hashindex._relation_bytes(relation regclass) RETURNS bigint
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    bytes bigint;
BEGIN
    IF (hashindex._distribution_of(relation)).method IS NULL THEN
        RETURN pg_relation_size(relation);
    END IF;
    EXECUTE 'SELECT citus_relation_size($1)' INTO bytes USING relation;
    RETURN bytes;
END
$$;

-- Lets Citus accept statements about the triggers and codes of an index until the transaction ends; nothing without Citus. Citus allows
-- triggers on distributed tables only by a setting, since they could make changes outside its distributed transaction. One connection to
-- each node is used, since several would not see each other's changes.
CREATE OR REPLACE FUNCTION hashindex._allow_shard_changes() RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    IF to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL THEN
        PERFORM set_config('citus.enable_unsafe_triggers', 'on', true),
                set_config('citus.multi_shard_modify_mode', 'sequential', true);
    END IF;
END
$$;

-- Refuses an index that a distributed table cannot have; does nothing for other tables. Called before anything is changed.
CREATE OR REPLACE FUNCTION hashindex._check_distributable(i hashindex.index) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base regclass := format('%I.%I', i.schema_name, i.table_name)::regclass;
    found record := hashindex._distribution_of(base);
    unreached text;
    wrong text;
BEGIN
    IF found.method IS NULL THEN
        RETURN;
    ELSIF found.method <> 'hash' THEN
        RAISE EXCEPTION 'table % has no distribution column: Citus keeps all of it on one node, or a copy on each', base
            USING ERRCODE = 'feature_not_supported',
                  HINT = format('Make the index on a local table, or on one that is distributed by its key: SELECT create_distributed_table(%L, %L);',
                                base, i.key_columns[1]);
    ELSIF found.column_name <> ALL (i.key_columns) THEN
        RAISE EXCEPTION 'table % is distributed by "%", and codes are found by the key %', base, found.column_name, hashindex._named(i.key_columns)
            USING ERRCODE = 'feature_not_supported', HINT = format('Distribute the table by a column of its key, or use a key with column "%s".', found.column_name);
    ELSIF EXISTS (SELECT FROM pg_class c WHERE c.oid = base AND c.relkind = 'p') THEN
        RAISE EXCEPTION 'table % is distributed and has partitions too', base
            USING ERRCODE = 'feature_not_supported', HINT = 'Use a distributed table without partitions: shards divide it already.';
    ELSIF hashindex._encoded_in_python(i) THEN
        RAISE EXCEPTION 'the model of index "%" is evaluated in Python, and rows of a distributed table are encoded by SQL', i.name
            USING ERRCODE = 'feature_not_supported', HINT = 'Use a model that SQL evaluates.';
    -- The parts of a model without a network are learned codes of its training rows.
    ELSIF EXISTS (SELECT FROM hashindex.readable_model_part p WHERE p.model_id = i.model_id) THEN
        RAISE EXCEPTION 'the model of index "%" has learned codes, and rows of a distributed table are encoded by SQL, which hashes', i.name
            USING ERRCODE = 'feature_not_supported', HINT = 'Train the model with --codes hashed.';
    END IF;
    BEGIN
        EXECUTE 'SELECT string_agg(r.result, ''; '') FILTER (WHERE NOT r.success), '
                'string_agg(format(''%s has %s'', n.nodename || '':'' || n.nodeport, coalesce(nullif(r.result, ''''), ''none'')), ''; '') '
                '    FILTER (WHERE r.success AND r.result <> $2) '
                'FROM run_command_on_all_nodes($1) r JOIN pg_dist_node n ON n.nodeid = r.nodeid'
        INTO unreached, wrong
        USING 'SELECT coalesce(max(extversion), '''') FROM pg_extension WHERE extname = ''vector''',
              (SELECT e.extversion FROM pg_extension e WHERE e.extname = 'vector');
    EXCEPTION WHEN connection_exception OR connection_failure THEN
        unreached := SQLERRM;
    END;
    IF unreached IS NOT NULL THEN
        RAISE EXCEPTION 'a node of the cluster cannot be reached: %', unreached
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Run it again once all nodes are up.';
    ELSIF wrong IS NOT NULL THEN
        RAISE EXCEPTION 'nodes have another pgvector than this one, which has %: %',
            (SELECT e.extversion FROM pg_extension e WHERE e.extname = 'vector'), wrong
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Install the same version on every node.';
    END IF;
END
$$;

-- Writes the catalog row and layers of an index into the table that every node has a copy of. Keeps node_index, a reference table with
-- one row for each index. The catalog and models stay on the coordinator, since Citus cannot distribute a table whose row type is an
-- argument of functions.
CREATE OR REPLACE FUNCTION hashindex._tell_nodes(i hashindex.index) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    IF to_regclass('hashindex.node_index') IS NULL THEN
        CREATE TABLE hashindex.node_index (
            name text PRIMARY KEY, generation bigint NOT NULL, encoded boolean NOT NULL, model_id bigint NOT NULL, layers hashindex.layer[] NOT NULL
        );
        COMMENT ON TABLE hashindex.node_index IS
            'indexes of distributed tables, for triggers and searches on every node of a Citus cluster';
        EXECUTE 'SELECT create_reference_table(''hashindex.node_index'')';
        -- The same rights as on the tables it is made from; hashindex._let_read grants the layers.
        GRANT SELECT (name, generation, encoded, model_id) ON hashindex.node_index TO PUBLIC;
    END IF;
    EXECUTE 'INSERT INTO hashindex.node_index AS n VALUES ($1, $2, $3, $4, $5) ON CONFLICT (name) DO UPDATE '
            'SET generation = excluded.generation, encoded = excluded.encoded, model_id = excluded.model_id, layers = excluded.layers'
    USING i.name, i.generation, i.encoded, i.model_id, (SELECT m.layers FROM hashindex.model m WHERE m.id = i.model_id);
END
$$;

-- Layers of a model from the copy on this node of a Citus cluster; only for the plans of searches, triggers and encoding. Reads this
-- node's copy by its own name, since a query on a shard cannot use another table. IMMUTABLE for the reason given at _layers_of.
CREATE OR REPLACE FUNCTION hashindex._node_layers_of(model_id bigint) RETURNS hashindex.layer[]
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    copy text;
    kept hashindex.layer[];
BEGIN
    EXECUTE 'SELECT shard_name(s.logicalrelid, s.shardid) FROM pg_dist_shard s WHERE s.logicalrelid = ''hashindex.node_index''::regclass'
    INTO copy;
    EXECUTE format(
        'SELECT n.layers FROM %s n WHERE n.model_id = $1 LIMIT 1',
        -- A new node may have no copy yet, but then it has no shards either.
        coalesce(to_regclass(copy)::text, 'hashindex.node_index')
    ) INTO kept USING model_id;
    IF kept IS NULL AND to_regclass('hashindex.model') IS NOT NULL THEN
        -- On the coordinator, a transaction that is older than the index may see its model.
        SELECT m.layers INTO kept FROM hashindex.model m WHERE m.id = _node_layers_of.model_id;
    END IF;
    IF kept IS NULL THEN
        RAISE EXCEPTION 'model with id % is not visible to this transaction', model_id
            USING ERRCODE = 'serialization_failure',
                  HINT = 'Run the transaction again. Where tables of schema hashindex were restored, run: pg-hashindex index distribute NAME.';
    END IF;
    RETURN kept;
END
$$;

-- An index as it is and, while its codes for new landmarks are made, as it will be: triggers write to both.
CREATE OR REPLACE FUNCTION hashindex._written_versions(i hashindex.index) RETURNS hashindex.index[]
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    later hashindex.index;
BEGIN
    IF i.next_generation IS NOT NULL THEN
        later := hashindex._next_of(i);
        IF to_regclass(format('hashindex.%I', later.code_table)) IS NOT NULL THEN
            RETURN ARRAY[i, later];
        END IF;
    END IF;
    RETURN ARRAY[i];
END
$$;

-- Empties a table of codes, and distributes it like the table of its index, with which it is co-located.
CREATE OR REPLACE FUNCTION hashindex._distribute_codes(i hashindex.index) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base text := format('%I.%I', i.schema_name, i.table_name);
    codes text := format('hashindex.%I', i.code_table);
BEGIN
    EXECUTE format('TRUNCATE %s', codes);
    EXECUTE 'SELECT create_distributed_table($1::regclass, $3, colocate_with => $2)'
    USING codes, base, (hashindex._code_keys(i))[array_position(i.key_columns, (hashindex._distribution_of(base::regclass)).column_name)];
END
$$;

-- Shards of a table, numbered in the order of the hashes they hold, by their names on a node. Co-located tables number them alike.
CREATE OR REPLACE FUNCTION hashindex._shards_of(relation regclass) RETURNS TABLE (number bigint, shard bigint, name text)
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN QUERY EXECUTE
        'SELECT row_number() OVER (ORDER BY s.shardminvalue::integer), s.shardid, n.name[cardinality(n.name)] '
        'FROM pg_dist_shard s CROSS JOIN LATERAL parse_ident(shard_name(s.logicalrelid, s.shardid)) n(name) WHERE s.logicalrelid = $1'
    USING relation;
END
$$;

-- Rows of a reference table, as PostgreSQL estimates those of the copy on this node: it has no statistics of the table itself.
CREATE OR REPLACE FUNCTION hashindex._rows_of_copy(relation regclass) RETURNS real
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    visibility text := current_setting('citus.override_table_visibility');
    -- Otherwise Citus leaves the copy out of pg_class.
    done text := set_config('citus.override_table_visibility', 'off', true);
    estimate real := c.reltuples FROM hashindex._shards_of(relation) s JOIN pg_class c ON c.relname = s.name AND c.relnamespace = 'hashindex'::regnamespace;
BEGIN
    done := set_config('citus.override_table_visibility', visibility, true);
    RETURN estimate;
END
$$;

-- Keeps a table with one row in each shard, by which a statement calls a function once on each node that has some; returns the values in it,
-- of the distribution column, in the order of _shards_of; NULL for a type of which none are known. Only trying tells where Citus puts a value.
CREATE OR REPLACE FUNCTION hashindex._number_shards(i hashindex.index, key_type text) RETURNS text[]
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base text := format('%I.%I', i.schema_name, i.table_name);
    numbers text := format('hashindex.%I', i.storage || '_shards');
    made text := CASE
        WHEN key_type IN ('pg_catalog.date', 'pg_catalog.timestamp', 'pg_catalog.timestamptz') THEN format('(date ''2000-01-01'' + v)::%s', key_type)
        WHEN key_type = 'pg_catalog.uuid' THEN 'md5(v::text)::uuid'
        WHEN t.typcategory IN ('N', 'S') THEN format('v::text::%s', key_type)
    END FROM pg_type t WHERE t.oid = to_regtype(nullif(key_type, ''));
    shards bigint := count(*) FROM hashindex._shards_of(base::regclass);
    wanted text[];
    found text[];
BEGIN
    IF made IS NOT NULL THEN
        EXECUTE format(
            'SELECT array_agg(f.made ORDER BY s.number) FROM hashindex._shards_of($1) s JOIN ('
            'SELECT min(%s::text) AS made, get_shard_id_for_distribution_column($1, %s) AS shard FROM generate_series(1, $2) v GROUP BY 2'
            ') f USING (shard)', made, made
        ) INTO wanted USING base::regclass, least(30 * shards, 30000)::integer;
    END IF;
    IF cardinality(wanted) IS DISTINCT FROM shards THEN
        RETURN NULL;
    ELSIF to_regclass(numbers) IS NULL THEN
        EXECUTE format('CREATE TABLE %s (id %s PRIMARY KEY, number integer NOT NULL)', numbers, key_type);
        PERFORM hashindex._adopt(i, numbers, 'one row in each shard, by which searches reach its node');
        EXECUTE format('GRANT SELECT ON %s TO PUBLIC', numbers);
        EXECUTE 'SELECT create_distributed_table($1::regclass, ''id'', colocate_with => $2)' USING numbers, base;
    END IF;
    EXECUTE format('SELECT array_agg(s.id::text ORDER BY s.number) FROM %s s', numbers) INTO found;
    IF found IS DISTINCT FROM wanted THEN
        EXECUTE format('DELETE FROM %s', numbers);
        EXECUTE format(
            'INSERT INTO %s (id, number) VALUES %s', numbers,
            (SELECT string_agg(format('(%L, %s)', w.id, w.number), ', ') FROM unnest(wanted) WITH ORDINALITY w(id, number))
        );
    END IF;
    RETURN wanted;
END
$$;

-- Branches of a CASE by the shards of an index, each filled from a template for an index or, while it is built, for both. In them a shard
-- is a plain table beside its plain table of codes, under their names on a node.
CREATE OR REPLACE FUNCTION hashindex._shard_branches(versions hashindex.index[], label text, template text, parts jsonb) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base regclass := format('%I.%I', versions[1].schema_name, versions[1].table_name)::regclass;
    rows record;
    version hashindex.index;
    own jsonb;
    branches text := '';
BEGIN
    FOR rows IN SELECT s.number, s.name FROM hashindex._shards_of(base) s ORDER BY s.number LOOP
        FOR n IN 1..cardinality(versions) LOOP
            version := versions[n];
            version.table_name := rows.name;
            version.code_table := (
                SELECT s.name FROM hashindex._shards_of(format('hashindex.%I', version.code_table)::regclass) s WHERE s.number = rows.number
            );
            version.landmark_table := (SELECT s.name FROM hashindex._shards_of(to_regclass('hashindex.' || quote_ident(version.landmark_table))) s);
            own := hashindex._parts(version);
            own := own || jsonb_build_object(
                'number', rows.number,
                'vector_type', parts ->> 'vector_type',
                -- A session plans the statements of many shards, and each of them would keep the model's layers.
                'row_projection', format('%s(raw.vector)', parts ->> 'project'),
                'row_landmark', CASE WHEN version.landmark_table IS NULL THEN 'NULL::integer' ELSE format(
                    '(SELECT l.landmark FROM %s%s ORDER BY l.centre OPERATOR({ext}.<->) %s LIMIT 1)',
                    own ->> 'landmarks', own ->> 'among_landmarks', own ->> 'row_point'
                ) END
            );
            branches := concat(
                branches, CASE WHEN n = 1 THEN format(E'\n        WHEN %s THEN', own ->> label) END, E'\n', hashindex._fill(hashindex._template(template), own)
            );
        END LOOP;
    END LOOP;
    RETURN branches;
END
$$;

-- Makes the functions that run in the shards of an index; returns the placeholders for its search.
CREATE OR REPLACE FUNCTION hashindex._create_shard_functions(i hashindex.index, parts jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base regclass := format('%I.%I', i.schema_name, i.table_name)::regclass;
    column_type text := (hashindex._base_types(i))[array_position(i.key_columns, (hashindex._distribution_of(base)).column_name)];
    found text[];
    nearest jsonb;
BEGIN
    -- The one of a table that is distributed later.
    EXECUTE format('DROP FUNCTION IF EXISTS hashindex.%I(%s[])', hashindex._refresh_name(i), hashindex._key_type(i));
    PERFORM hashindex._create_function(
        'shards_refresh', parts, format('index %s: makes the codes of keys what a shard says', i.name),
        jsonb_build_object('refresh_shards', hashindex._shard_branches(hashindex._written_versions(i), 'table_literal', 'refresh_codes', parts))
    );
    found := hashindex._number_shards(i, column_type);
    IF found IS NULL OR i.access <> 'landmarks' THEN
        RETURN '{"shards": false}';
    END IF;
    nearest := jsonb_build_object('nearest', format('hashindex.%I', 'nearest_' || i.storage));
    PERFORM hashindex._create_function(
        'shards_nearest', parts || nearest, format('index %s: rows of %s nearest to a query in shards of one node', i.name, base),
        jsonb_build_object('nearest_in_shards', hashindex._shard_branches(ARRAY[i], 'number', 'nearest_in_shard', parts))
    );
    RETURN nearest || jsonb_build_object(
        'shards', quote_literal(ARRAY(
            SELECT s.shard FROM hashindex._shards_of(format('hashindex.%I', i.code_table)::regclass) s ORDER BY s.number
        )::text),
        'row_shards', quote_literal(ARRAY(SELECT s.shard FROM hashindex._shards_of(base) s ORDER BY s.number)::text),
        -- A table with a row in each shard, and the values in it.
        'numbers_table', format('hashindex.%I', i.storage || '_shards'), 'number_type', column_type,
        'values', quote_literal(found::text), 'n_shards', cardinality(found),
        -- The n nearest codes are spread at random among shards, so that two standard deviations above the mean hold nearly all of them; but
        -- rows that are distributed by a part of their key may lie together.
        'in_shard', hashindex._fill(
            CASE WHEN cardinality(i.key_columns) > 1 THEN 'hashindex_n'
                ELSE 'least(hashindex_n, ceil(hashindex_n / {shards}.0 + 2 * sqrt(hashindex_n / {shards}.0)))' END,
            jsonb_build_object('shards', cardinality(found))
        ),
        -- By this node's copy of the landmarks, by its own name: after a reading of the reference table within a savepoint, Citus would begin
        -- a transaction on each node.
        'nearest_landmarks', hashindex._fill(hashindex._template('nearest_landmarks'), parts || jsonb_build_object(
            'landmarks', (SELECT format('hashindex.%I', s.name) FROM hashindex._shards_of(format('hashindex.%I', i.landmark_table)::regclass) s),
            'tenant_argument', '$9'
        ))
    );
END
$$;

CREATE OR REPLACE FUNCTION hashindex.distribute(index_name text) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex._locked_index(index_name);
    base regclass := to_regclass(format('%I.%I', i.schema_name, i.table_name));
    needed regprocedure;
    known boolean;
    sync text;
    is_new boolean;
    trusted text;
BEGIN
    -- Codes beside those in use have triggers of their own on shards, and lack the keys that were logged for them.
    UPDATE hashindex.index x SET (triggers, encoded) = (x.name, false) WHERE i.name IN (x.name, x.swap_of) AND hashindex._is_logged_for(x);
    i := hashindex._require(i.name, reads => false);
    sync := format('hashindex.%I()', hashindex._sync_name(i.triggers));
    -- A table's owner was trusted when the index was made.
    is_new := to_regprocedure(sync) IS NULL;
    trusted := c.relowner::regrole FROM pg_class c
        WHERE c.oid = base AND (is_new OR has_function_privilege(c.relowner, to_regprocedure(sync), 'EXECUTE'));
    IF NOT EXISTS (SELECT FROM pg_extension e WHERE e.extname = 'citus') THEN
        RAISE EXCEPTION 'index "%" cannot be distributed: Citus is not installed in database %', i.name, current_database()
            USING ERRCODE = 'feature_not_supported', HINT = 'Without Citus an index needs no distribution.';
    ELSIF (hashindex._distribution_of(base)).method IS NULL THEN
        RAISE EXCEPTION 'index "%" cannot be distributed: its table %.% is not', i.name, i.schema_name, i.table_name
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('Distribute the table first: SELECT create_distributed_table(%L, %L);', base, i.key_columns[1]);
    END IF;
    PERFORM hashindex._check_distributable(i);
    PERFORM hashindex._allow_shard_changes();
    -- Citus sends new functions to every node by itself, but not those that were made before Citus was installed.
    FOR needed IN EXECUTE
        'SELECT p.oid::regprocedure FROM pg_proc p WHERE p.pronamespace = ''hashindex''::regnamespace '
        'AND (p.provolatile = ''i'' OR p.proname IN (''_require_trust'', ''_is_trusted'', ''_check_owners'', ''_untrusted_owners'', ''_oid_of'')) '
        'AND NOT EXISTS (SELECT FROM pg_catalog.pg_dist_object d WHERE d.classid = ''pg_proc''::regclass AND d.objid = p.oid) '
        -- A function that is parsed when it is created comes after those that it calls.
        'ORDER BY p.prosqlbody IS NOT NULL, p.proname COLLATE "C"'
    LOOP
        EXECUTE 'SELECT create_distributed_function($1)' USING needed;
    END LOOP;
    -- The same for a type, which is made again: only the index's functions name it.
    IF cardinality(i.key_columns) > 1 THEN
        EXECUTE 'SELECT count(*) > 0 FROM pg_catalog.pg_dist_object d WHERE d.classid = ''pg_type''::regclass AND d.objid = to_regtype($1)'
        INTO known USING hashindex._key_type(i);
        IF NOT known THEN
            EXECUTE format('DROP TYPE IF EXISTS %s CASCADE', hashindex._key_type(i));
        END IF;
    END IF;
    IF (hashindex._distribution_of(format('hashindex.%I', i.code_table)::regclass)).method IS NULL THEN
        -- Nothing kept codes fresh while the table was being distributed, so codes and landmarks are made again.
        i.generation := hashindex._new_generation(i.generation);
        UPDATE hashindex.index x
        SET (generation, access, building, landmark_table, next_generation, encoded)
            = (i.generation, 'scan', CASE WHEN 'landmarks' IN (x.access, x.building) THEN 'landmarks' END, NULL, NULL, false)
        WHERE x.name = i.name RETURNING x.* INTO STRICT i;
        PERFORM hashindex._distribute_codes(i);
    END IF;
    PERFORM hashindex._create_functions(i);
    IF trusted IS NOT NULL THEN
        -- A shard that moves gets its triggers from the owner of the table.
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', sync, trusted);
    END IF;
    PERFORM hashindex._create_triggers(i, base);
    IF is_new THEN
        PERFORM hashindex._set_readers(i);
    ELSE
        PERFORM hashindex._set_readers(i, i);
    END IF;
END
$$;

COMMENT ON FUNCTION hashindex.distribute(text) IS
    'brings an index to the shards of its distributed table: co-located codes, layers and landmarks on every node, triggers on shards; may be run again';

-- Creates a second table of codes for the new landmarks of a distributed table; triggers write to both from then on. The caller holds SHARE
-- ROW EXCLUSIVE on the table.
CREATE OR REPLACE FUNCTION hashindex._begin_shard_codes(name text) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex._locked_index(_begin_shard_codes.name);
    later hashindex.index := hashindex._next_of(i);
BEGIN
    PERFORM hashindex._allow_shard_changes();
    PERFORM hashindex._create_codes(later, format('%I.%I', i.schema_name, i.table_name)::regclass);
    PERFORM hashindex._index_lists(later);
    PERFORM hashindex._distribute_codes(later);
    PERFORM hashindex._create_functions(i);
END
$$;

-- Encodes the rows without a code in a range of pages of every shard, on their own nodes; returns how many. NULL means the first or the last
-- page. Rows whose numbers are too large for the model get no code; _left_out_of_shards names them.
CREATE OR REPLACE FUNCTION hashindex._encode_shards(i hashindex.index, first_page bigint DEFAULT NULL, last_page bigint DEFAULT NULL)
RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    parts jsonb := hashindex._parts(i);
    written bigint;
BEGIN
    EXECUTE hashindex._fill(
        $encode$
        INSERT INTO {code_table} ({each id}, landmark, code{filter_targets})
        SELECT {each b.key}, {if landmarks}l.landmark{else landmarks}NULL::integer{end landmarks}, {row_code}{filter_reads}
        FROM {table} b CROSS JOIN LATERAL {project}(b.{column}::{ext}.vector, true) r(projection)
{if landmarks}
        -- A small tenant has no landmark.
        LEFT JOIN LATERAL (
            SELECT l.landmark FROM {landmarks} l{if tenant} WHERE l.tenant = b.{tenant}{end tenant} ORDER BY l.centre OPERATOR({ext}.<->) {point_of_row} LIMIT 1
        ) l ON true
{end landmarks}
        WHERE b.{column} IS NOT NULL AND r.projection IS NOT NULL AND {has_no_code}{pages}
        -- A trigger may write the code of a newer vector meanwhile.
        ON CONFLICT ({each id}) DO NOTHING$encode$, parts, jsonb_build_object(
            'point_of_row', replace(parts ->> 'row_point', 'r.vector', format('b.%I::{ext}.vector', i.column_name)),
            'pages', concat(' AND b.ctid >= ''(' || first_page || ',0)''::tid', ' AND b.ctid < ''(' || last_page || ',0)''::tid')
        )
    );
    GET DIAGNOSTICS written = ROW_COUNT;
    RETURN written;
END
$$;

-- Keys of the rows of a distributed table that have no code because their numbers are too large for the model.
CREATE OR REPLACE FUNCTION hashindex._left_out_of_shards(i hashindex.index) RETURNS SETOF text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN QUERY EXECUTE hashindex._fill(
        $left_out$
        SELECT {key_text} FROM {table} b CROSS JOIN LATERAL {project}(b.{column}::{ext}.vector, true) r(projection)
        WHERE b.{column} IS NOT NULL AND r.projection IS NULL AND {has_no_code} ORDER BY {each b.key}$left_out$,
        hashindex._parts(i)
    );
END
$$;

-- Deletes codes of rows that were deleted, or lost their vector, while _encode_shards encoded them; returns how many. Their writers did not
-- see these codes. The caller has waited for all writers of that time; later writers see the codes.
CREATE OR REPLACE FUNCTION hashindex._prune_shards(i hashindex.index) RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    pruned bigint := 0;
BEGIN
    -- A role that does not see every row would delete the codes of the others.
    IF NOT row_security_active(format('%I.%I', i.schema_name, i.table_name)) THEN
        EXECUTE hashindex._fill(
            'DELETE FROM {code_table} c WHERE NOT EXISTS (SELECT FROM {table} b WHERE {same b.key c.id} AND b.{column} IS NOT NULL)',
            hashindex._name_parts(i)
        );
        GET DIAGNOSTICS pruned = ROW_COUNT;
    END IF;
    RETURN pruned;
END
$$;
