-- The trigger functions of indexes. Where SQL evaluates the model they keep codes fresh. Where only
-- Python does they keep a queue: they take away the code of a row whose vector or key changed, and
-- rows without a code are what pg-hashindex index encode looks for. A code that is there is right,
-- in either case.
--
-- Models take a vector: "::vector" makes one of a halfvec, and does nothing to a vector. It is in the
-- text for both, so that functions go on where a column's type is changed from the one to the other.

-- Of a code table: AFTER each statement, with transition tables.
CREATE OR REPLACE FUNCTION hashindex.table_sync_source(i hashindex.index)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN format(
        $source$
CREATE OR REPLACE FUNCTION hashindex.%1$I() RETURNS trigger
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS %2$L$source$,
        'sync_' || i.storage, format(
            $body$
DECLARE
    hashindex_touched %6$s[];
    hashindex_model_layers hashindex.layer[];
    hashindex_search_effort text;
    -- The encoder may have committed a code after this transaction's snapshot was taken. DELETE
    -- would not see it and leave a code without a row; meeting it in INSERT ... ON CONFLICT raises
    -- the serialization failure that callers of these isolation levels expect.
    hashindex_snapshot_is_old boolean :=
        current_setting('transaction_isolation') IN ('repeatable read', 'serializable');
BEGIN
    -- A partition that was detached keeps its triggers, and has no rows of the index's any more.
    IF (TG_TABLE_SCHEMA, TG_TABLE_NAME) <> (%7$L, %8$L) AND to_regclass(%9$L) IS NOT NULL
        AND NOT EXISTS (
            SELECT FROM pg_partition_ancestors(TG_RELID) a WHERE a.relid = to_regclass(%9$L)
        )
    THEN
        RETURN NULL;
    END IF;
    IF TG_OP = 'TRUNCATE' THEN
        IF (TG_TABLE_SCHEMA, TG_TABLE_NAME) = (%7$L, %8$L) THEN
            TRUNCATE %1$s%10$s;
        ELSIF NOT row_security_active(%9$L) THEN
            -- Of one partition. Whoever does not see every row must not take the others for gone.
            DELETE FROM %1$s c WHERE NOT EXISTS (
                SELECT FROM %7$I.%8$I b WHERE b.%2$I = c.id
            );
        END IF;
        RETURN NULL;
    END IF;
    IF pg_trigger_depth() > 1 THEN
        PERFORM set_config('hashindex.nested', 'on', true);
    END IF;

    IF TG_OP = 'DELETE' THEN
        hashindex_touched := ARRAY(SELECT o.%2$I FROM old_rows o);
    ELSIF TG_OP = 'INSERT' THEN
        hashindex_touched := ARRAY(SELECT n.%2$I FROM new_rows n);
    ELSE
        -- Most updates leave vector and key alone: say so before anything is read or encoded.
        hashindex_touched := ARRAY(
            SELECT coalesce(n.%2$I, o.%2$I)
            FROM old_rows o FULL JOIN new_rows n ON n.%2$I = o.%2$I
            WHERE o.%2$I IS NULL OR n.%2$I IS NULL OR n.%3$I IS DISTINCT FROM o.%3$I
        );
    END IF;
    IF hashindex_touched = '{}' THEN
        RETURN NULL;
    END IF;

    IF TG_OP <> 'INSERT' AND hashindex_snapshot_is_old THEN
        -- Each of these codes is deleted or replaced below.
        INSERT INTO %1$s AS c (id, code) SELECT t.id, 0::bit(%4$s) FROM unnest(hashindex_touched) t(id)
        ON CONFLICT (id) DO UPDATE SET code = c.code;
    END IF;
%5$s%11$s
    RETURN NULL;
END
$body$,
            format('%I.%I', i.code_schema, i.code_table), i.id_column, i.column_name,
            (SELECT m.n_bits FROM hashindex.model m WHERE m.id = i.model_id),
            CASE WHEN hashindex.encoded_in_python(i) THEN hashindex.table_queue_steps(i)
                 ELSE hashindex.table_encode_steps(i) END,
            i.id_type, i.schema_name, i.table_name, format('%I.%I', i.schema_name, i.table_name),
            CASE WHEN hashindex.has_lists(i) THEN format(', hashindex.%I', i.storage || '_lists') END,
            CASE WHEN hashindex.has_lists(i) AND NOT hashindex.encoded_in_python(i)
                THEN hashindex.table_list_steps(i) END
        )
    );
END
$$;

COMMENT ON FUNCTION hashindex.table_sync_source(hashindex.index) IS
    'text of the CREATE FUNCTION of the trigger that keeps an index''s code table fresh';

CREATE OR REPLACE FUNCTION hashindex.table_encode_steps(i hashindex.index)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN format(
        $steps$
    IF TG_OP = 'DELETE' THEN
        DELETE FROM %1$s c WHERE c.id = ANY (hashindex_touched);
    ELSIF TG_OP = 'UPDATE' THEN
        DELETE FROM %1$s c WHERE c.id = ANY (hashindex_touched) AND NOT EXISTS (
            SELECT FROM new_rows n WHERE n.%2$I = c.id AND n.%3$I IS NOT NULL
        );
    END IF;
    -- Into a variable: unpacked once, not once for each row.
    hashindex_model_layers := hashindex.layers_of(%4$s);
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO %1$s (id, code)
        SELECT n.%2$I, hashindex.encode_with(hashindex_model_layers, n.%3$I::vector)
        -- A join: = ANY (hashindex_touched) would compare each row with each key.
        FROM new_rows n JOIN unnest(hashindex_touched) t(id) ON t.id = n.%2$I
        WHERE n.%3$I IS NOT NULL
        ON CONFLICT (id) DO UPDATE SET code = excluded.code;
    END IF;

    IF current_setting('hashindex.nested', true) = 'on' THEN
        -- A trigger of the user's wrote to this table in this transaction, perhaps to these very
        -- rows: its statement was seen before this one, which holds the older rows. What is in
        -- the table now decides.
        DELETE FROM %1$s c
        WHERE c.id = ANY (hashindex_touched) AND NOT row_security_active(%6$L) AND NOT EXISTS (
            SELECT FROM %5$s b WHERE b.%2$I = c.id AND b.%3$I IS NOT NULL
        );
        INSERT INTO %1$s (id, code)
        SELECT b.%2$I, hashindex.encode_with(hashindex_model_layers, b.%3$I::vector)
        FROM %5$s b
        WHERE b.%2$I = ANY (hashindex_touched) AND b.%3$I IS NOT NULL
        ON CONFLICT (id) DO UPDATE SET code = excluded.code;
    END IF;$steps$,
        format('%I.%I', i.code_schema, i.code_table), i.id_column, i.column_name, i.model_id,
        format('%I.%I', i.schema_name, i.table_name), format('%I.%I', i.schema_name, i.table_name)
    );
END
$$;

COMMENT ON FUNCTION hashindex.table_encode_steps(hashindex.index) IS
    'what the trigger of a code table does with touched rows where SQL evaluates the model';

-- Codes are read from where they have just been written; vectors as the statement left them, but
-- where triggers wrote to the table too, as they are now.
CREATE OR REPLACE FUNCTION hashindex.table_list_steps(i hashindex.index)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    written text := 'SELECT c.id, c.code, n.%1$I::vector AS vector FROM %5$s n '
        'JOIN unnest(hashindex_touched) t(id) ON t.id = n.%2$I '
        'JOIN %3$I.%4$I c ON c.id = t.id WHERE n.%1$I IS NOT NULL';
BEGIN
    RETURN format(
        $steps$
    IF hashindex_snapshot_is_old AND NOT EXISTS (SELECT FROM hashindex.%1$I) THEN
        RAISE EXCEPTION 'index "%%" got landmarks since this transaction began', %2$L
            USING ERRCODE = 'serialization_failure', HINT = 'Run the transaction again.';
    END IF;
    -- The writer's own effort is for searches of his.
    hashindex_search_effort := coalesce(current_setting('hnsw.ef_search', true), '40');
    PERFORM set_config('hnsw.ef_search', '64', true);
    IF current_setting('hashindex.nested', true) = 'on' THEN
        %3$s;
    ELSIF TG_OP <> 'DELETE' THEN
        %4$s;
    END IF;
    PERFORM set_config('hnsw.ef_search', hashindex_search_effort, true);$steps$,
        i.storage || '_landmarks', i.name,
        hashindex.list_statement(i, format(
            written, i.column_name, i.id_column, i.code_schema, i.code_table,
            format('%I.%I', i.schema_name, i.table_name)
        )),
        hashindex.list_statement(i, format(
            written, i.column_name, i.id_column, i.code_schema, i.code_table, 'new_rows'
        ))
    );
END
$$;

COMMENT ON FUNCTION hashindex.table_list_steps(hashindex.index) IS
    'what the trigger of a code table does for the lists of landmarks';

-- Whatever else the transaction wrote, and in whatever order, a touched row has no code in the end:
-- of statements inside of triggers nothing has to be known.
CREATE OR REPLACE FUNCTION hashindex.table_queue_steps(i hashindex.index)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN format(
        $steps$
    IF TG_OP <> 'DELETE' THEN
        PERFORM hashindex.check_dimension(vector_dims(n.%2$I), %3$s)
        FROM new_rows n WHERE vector_dims(n.%2$I) <> %3$s;
    END IF;
    DELETE FROM %1$s c WHERE c.id = ANY (hashindex_touched);$steps$,
        format('%I.%I', i.code_schema, i.code_table), i.column_name,
        (SELECT m.dimension FROM hashindex.model m WHERE m.id = i.model_id)
    );
END
$$;

COMMENT ON FUNCTION hashindex.table_queue_steps(hashindex.index) IS
    'what the trigger of a code table does with touched rows where only Python evaluates the model';

CREATE OR REPLACE FUNCTION hashindex.check_dimension(given integer, wanted integer)
RETURNS void
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    IF given <> wanted THEN
        RAISE EXCEPTION 'the vector has % dimensions, the model takes %', given, wanted
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Use a vector from the same source as the rows that the model was trained on.';
    END IF;
END
$$;

COMMENT ON FUNCTION hashindex.check_dimension(integer, integer) IS
    'refuses a vector that a model cannot take, where the model itself is not evaluated';

-- Of a code column: BEFORE each row, since the code is part of it.
CREATE OR REPLACE FUNCTION hashindex.column_sync_source(i hashindex.index)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN format(
        $source$
CREATE OR REPLACE FUNCTION hashindex.%1$I() RETURNS trigger
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS %2$L$source$,
        'sync_' || i.storage, format(
            $body$
BEGIN
    -- A session goes by the type that the vector had when it first wrote, until this text changes: a
    -- %4$s.
    IF TG_OP = 'INSERT' OR NEW.%1$I IS DISTINCT FROM OLD.%1$I THEN
%3$s
    END IF;
    RETURN NEW;
END
$body$,
            i.column_name, i.code_column, format(
                CASE WHEN hashindex.encoded_in_python(i) THEN $steps$
        PERFORM hashindex.check_dimension(vector_dims(NEW.%1$I), %4$s);
        NEW.%2$I := NULL;$steps$
                ELSE $steps$
        NEW.%2$I := hashindex.encode_with(hashindex.layers_of(%3$s), NEW.%1$I::vector);$steps$ END,
                i.column_name, i.code_column, i.model_id,
                (SELECT m.dimension FROM hashindex.model m WHERE m.id = i.model_id)
            ), (
                SELECT CASE WHEN count(*) = 0 THEN 'vector' ELSE 'halfvec' END FROM pg_attribute a
                WHERE a.attrelid = to_regclass(format('%I.%I', i.schema_name, i.table_name))
                  AND a.attname = i.column_name AND NOT a.attisdropped AND a.atttypid = 'halfvec'::regtype
            )
        )
    );
END
$$;

COMMENT ON FUNCTION hashindex.column_sync_source(hashindex.index) IS
    'text of the CREATE FUNCTION of the trigger that keeps an index''s code column fresh';
