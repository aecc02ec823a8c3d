-- Bringing an index to the shards of its table: codes beside their rows, models on every node.

-- Where it is done already, nothing is to be done again.
CREATE OR REPLACE FUNCTION hashindex.distribution_statements(index_name text)
RETURNS text[]
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex.find_index(index_name);
    base text := format('%I.%I', i.schema_name, i.table_name);
    codes text := format('%I.%I', i.code_schema, i.code_table);
    made text := hashindex._row_trigger_name(i);
    statements text[] := ARRAY[
        'SET LOCAL citus.enable_unsafe_triggers TO on',
        'SET LOCAL citus.multi_shard_modify_mode TO sequential'
    ];
BEGIN
    -- Those of a table that was plain when the index was made.
    statements := statements || ARRAY(
        SELECT format('DROP TRIGGER %I ON %s', t.tgname, hashindex._full_name(t.tgrelid)) FROM pg_trigger t
        WHERE t.tgfoid = to_regproc(format('hashindex.%I', 'sync_' || i.storage))
          AND t.tgparentid = 0 AND t.tgname <> made
        ORDER BY t.tgname
    );
    IF (hashindex._distribution_of('hashindex.model'::regclass)).method IS NULL THEN
        statements := statements || 'SELECT create_reference_table(''hashindex.model'')'::text;
    END IF;
    -- What triggers and encoding call on the nodes, where Citus may have come after our schema.
    statements := statements || ARRAY(
        SELECT format('SELECT create_distributed_function(%L)', p.oid::regprocedure) FROM pg_proc p
        WHERE p.pronamespace = 'hashindex'::regnamespace
          AND p.proname IN (
              '_layer_problem', 'project_with', '_quantize', 'encode_with', '_layers_of', '_weights_of', '_bias_of', '_refuse_vector'
          )
        -- In the order of bytes, whatever the database's.
        ORDER BY p.proname = 'encode_with', p.proname COLLATE "C"
    );
    IF i.layout = 'table' AND (hashindex._distribution_of(codes::regclass)).method IS NULL THEN
        statements := statements || ARRAY[
            -- Nothing has kept them fresh while the table was being distributed.
            format('TRUNCATE %s', codes),
            format('SELECT create_distributed_table(%L, ''id'', colocate_with => %L)', codes, base)
        ];
    END IF;
    IF NOT hashindex._has_trigger(i, base::regclass, made) THEN
        IF i.layout = 'column' THEN
            statements := statements || format(
                'UPDATE %1$s SET %2$I = NULL WHERE %2$I IS NOT NULL', base, i.code_column
            );
        END IF;
        statements := statements || hashindex._row_trigger(i);
    END IF;
    RETURN statements;
END
$$;

COMMENT ON FUNCTION hashindex.distribution_statements(text) IS
    'the statements that bring an index to the shards of its table, as hashindex.distribute runs them';

CREATE OR REPLACE FUNCTION hashindex.distribute(index_name text)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex.find_index(index_name);
    base text := format('%I.%I', i.schema_name, i.table_name);
    found record := hashindex._distribution_of(to_regclass(base));
    statement text;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_extension e WHERE e.extname = 'citus') THEN
        RAISE EXCEPTION 'index "%" cannot be distributed: Citus is not installed in database %', i.name, current_database()
            USING ERRCODE = 'feature_not_supported',
                  HINT = 'Without Citus an index needs no distribution.';
    ELSIF found.method IS NULL THEN
        RAISE EXCEPTION 'index "%" cannot be distributed: its table % is not', i.name, base
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('Distribute the table first: SELECT create_distributed_table(%L, %L);', base, i.id_column);
    ELSIF found.method <> 'hash' THEN
        RAISE EXCEPTION 'index "%" cannot be distributed: its table % has no distribution column', i.name, base
            USING ERRCODE = 'feature_not_supported',
                  HINT = format('Reference tables and tables of distributed schemas have none. Use one that is distributed by %I.', i.id_column);
    ELSIF i.layout = 'table' AND found.column_name <> i.id_column THEN
        RAISE EXCEPTION 'index "%" cannot be distributed: table % is distributed by "%", and codes are found by the key "%"',
            i.name, base, found.column_name, i.id_column
            USING ERRCODE = 'feature_not_supported',
                  HINT = 'Distribute the table by its key, or make the index with layout column.';
    END IF;
    PERFORM hashindex._check_distributable(i);
    -- As they are for a distributed table, before a trigger calls one.
    PERFORM hashindex._create_functions(i);
    FOREACH statement IN ARRAY hashindex.distribution_statements(i.name) LOOP
        EXECUTE statement;
    END LOOP;
    PERFORM hashindex._let_read(i, r) FROM hashindex._readers_of(i) r;
END
$$;

COMMENT ON FUNCTION hashindex.distribute(text) IS
    'brings an index to the shards of its table, which Citus distributes: codes co-located, models on every node, a trigger on each shard; may be run again';

CREATE OR REPLACE FUNCTION hashindex._check_distributable(i hashindex.index)
RETURNS void
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    IF hashindex._encoded_in_python(i) THEN
        RAISE EXCEPTION 'the model of index "%" is evaluated in Python, and rows of a distributed table are encoded by SQL', i.name
            USING ERRCODE = 'feature_not_supported', HINT = 'Use a model that SQL evaluates.';
    ELSIF i.access <> 'scan' OR i.building IS NOT NULL THEN
        RAISE EXCEPTION 'index "%" has the access path %, and distributed tables have scan alone', i.name,
            coalesce(i.building, i.access)
            USING ERRCODE = 'feature_not_supported',
                  HINT = format('Run: SELECT hashindex.configure_index(%L, access => ''scan'');', i.name);
    ELSIF i.filter_columns <> '{}' THEN
        RAISE EXCEPTION 'index "%" keeps filter columns beside its codes, and those of distributed tables have none', i.name
            USING ERRCODE = 'feature_not_supported', HINT = 'Create the index again without filter columns.';
    ELSIF EXISTS (SELECT FROM hashindex.index x WHERE i.name = x.swap_of OR (x.name = i.name AND x.swap_of IS NOT NULL)) THEN
        RAISE EXCEPTION 'index "%" has codes of two models, from a swap', i.name
            USING ERRCODE = 'object_in_use',
                  HINT = 'End the swap: pg-hashindex index prune, or index repair --undo.';
    END IF;
END
$$;

COMMENT ON FUNCTION hashindex._check_distributable(hashindex.index) IS
    'refuses an index that no distributed table can have';
