-- Creates, encodes and swaps indexes in the transaction of a migration, by SQL alone. Writers wait until it ends, so
-- large tables are better encoded and swapped by pg-hashindex, in many transactions.

-- Encodes the rows of an index that have no code, or the one of a key; returns how many.
CREATE OR REPLACE FUNCTION hashindex._encode_waiting(i hashindex.index, id text) RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    written bigint;
    done text;
BEGIN
    EXECUTE hashindex._fill(
        $encode$
        SELECT count(*), {refresh}(array_agg(s.id))::text FROM (
            SELECT {row b.key} AS id FROM {table} b
            WHERE b.{column} IS NOT NULL AND {has_no_code}{if given} AND ({each b.key}) = ({given}){end given}
            -- The snapshot may be older than a row's vector, and would give the wrong code. Locking such a row raises the
            -- serialization failure that callers of these isolation levels expect.
            {if strict}FOR SHARE OF b{end strict}
        ) s$encode$, hashindex._name_parts(i), jsonb_build_object(
            'refresh', format('hashindex.%I', hashindex._refresh_name(i)),
            'given', CASE WHEN id IS NOT NULL THEN hashindex._key_of_text(i, quote_literal(id)) END,
            'strict', current_setting('transaction_isolation') IN ('repeatable read', 'serializable')
        )
    ) INTO written, done;
    RETURN written;
END
$$;

CREATE OR REPLACE FUNCTION hashindex.encode_rows(index_name text) RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex._require(index_name, administers => true);
    base text := format('%I.%I', i.schema_name, i.table_name);
    snapshot_is_old boolean := current_setting('transaction_isolation') IN ('repeatable read', 'serializable');
    key text;
    left_out text[] := '{}';
    written bigint;
BEGIN
    -- No session writes after this lock, and the statements below see everything that was written before. The codes are locked too:
    -- bulk encoding writes to them and not to the table.
    EXECUTE format('LOCK TABLE %s, hashindex.%I IN SHARE ROW EXCLUSIVE MODE', base, i.code_table);
    -- The index may have been dropped and created again meanwhile, with another model.
    i := hashindex._require(i.name);
    WHILE hashindex._is_logged_for(i) AND hashindex._catch_up(i.name) > 0 LOOP
    END LOOP;
    IF hashindex._encoded_in_python(i) THEN
        RAISE WARNING 'the rows of index "%" wait for their codes: its model is evaluated in Python', i.name
            USING HINT = format('Run: pg-hashindex index encode %s', i.name);
        RETURN 0;
    ELSIF row_security_active(base) THEN
        RAISE WARNING 'index "%" lacks the rows that row level security hides from role %', i.name, current_user
            USING HINT = format('As a role that sees every row, run: pg-hashindex index encode %s', i.name);
    END IF;
    BEGIN
        written := hashindex._encode_waiting(i, NULL);
    EXCEPTION WHEN data_exception THEN
        IF SQLSTATE NOT IN ('22000', '22003') THEN
            RAISE;
        END IF;
        -- One by one. As in Python, rows that the model takes beyond what float32 can hold are left out.
        written := 0;
        FOR key IN EXECUTE format(
            'SELECT %s FROM %s b WHERE b.%I IS NOT NULL AND %s ORDER BY %s', hashindex._key_text('b', i.key_columns), base, i.column_name,
            hashindex._name_parts(i) ->> 'has_no_code', hashindex._columns_of('b', i.key_columns)
        ) LOOP
            BEGIN
                written := written + hashindex._encode_waiting(i, key);
            EXCEPTION WHEN data_exception THEN
                IF SQLSTATE NOT IN ('22000', '22003') THEN
                    RAISE;
                END IF;
                left_out := left_out || key;
            END;
        END LOOP;
    END;
    IF cardinality(left_out) > 0 THEN
        RAISE WARNING 'left out % of % whose numbers are too large for the model of index "%": key %',
            CASE cardinality(left_out) WHEN 1 THEN '1 row' ELSE cardinality(left_out) || ' rows' END, base, i.name,
            array_to_string(left_out[:5], ', ') || CASE WHEN cardinality(left_out) > 5 THEN ', ...' ELSE '' END
            USING HINT = 'Correct or remove them.';
    END IF;
    IF i.tenant_column IS NOT NULL THEN
        EXECUTE format(
            'SELECT array_agg(r.key) FROM (SELECT %s AS key FROM %s b WHERE b.%I IS NOT NULL AND NOT hashindex._fits(b.%I::text) LIMIT 5) r',
            hashindex._key_text('b', i.key_columns), base, i.column_name, i.tenant_column
        ) INTO left_out;
        IF cardinality(left_out) > 0 THEN
            RAISE WARNING 'left out rows of % whose tenant is longer than an index holds, 2,000 bytes: key %', base, array_to_string(left_out, ', ')
                USING HINT = 'Searches within such a tenant compare its rows exactly.';
        END IF;
    END IF;
    EXECUTE format('ANALYZE hashindex.%I', i.code_table);
    IF written > 0 AND EXISTS (SELECT FROM hashindex.readable_model_part p WHERE p.model_id = i.model_id) THEN
        RAISE WARNING 'rows of index "%" got hashed codes: only Python looks up the learned codes of its model', i.name
            USING HINT = format('Give rows their learned codes: pg-hashindex index swap %s --model %s', i.name,
                                (SELECT hashindex._shell_word(format('%s:%s', m.name, m.version)) FROM hashindex.model m WHERE m.id = i.model_id));
    END IF;
    -- A table without pages has no rows.
    IF snapshot_is_old AND EXISTS (
        SELECT FROM hashindex._parts_of(base::regclass) p WHERE pg_relation_size(p.part) > 0
    ) THEN
        RAISE WARNING 'index "%" may lack rows that others wrote since this transaction began', i.name
            USING HINT = format('Run: pg-hashindex index encode %s', i.name);
    ELSE
        PERFORM hashindex._mark_encoded(i);
    END IF;
    RETURN written;
END
$$;

COMMENT ON FUNCTION hashindex.encode_rows(text) IS
    'encodes the rows of an index that have no code, in this transaction; writers wait until it ends; returns how many';

-- Warns if an access path of an index is still to be built, or a former one to be dropped: a migration does neither.
CREATE OR REPLACE FUNCTION hashindex._warn_of_path(index_name text) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex._require(index_name);
BEGIN
    IF i.building IS NOT NULL THEN
        RAISE WARNING 'index "%" is searched by its access path % until % are built', i.name, i.access, i.building
            USING HINT = 'Run: ' || CASE i.building WHEN 'landmarks' THEN format('SELECT hashindex.build_landmarks(%L); or for a large table: ', i.name) ELSE '' END
                || 'pg-hashindex index encode ' || i.name;
    END IF;
    -- Searches under way may read them, so they are dropped in another transaction (see hashindex.drop_unused).
    IF EXISTS (SELECT FROM hashindex._objects_of(i) o WHERE NOT o.in_use) THEN
        RAISE WARNING 'index "%" has tables that it no longer uses', i.name
            USING HINT = format('Drop them: SELECT hashindex.drop_unused(%L);', i.name);
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION hashindex.declare_index(
    name text,
    table_name regclass,
    column_name text,
    model text,
    options jsonb DEFAULT '{}',
    encode boolean DEFAULT true,
    defer boolean DEFAULT false,
    trust_owner boolean DEFAULT false
)
RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    name := hashindex._declared_name(name, table_name);
    IF defer AND EXISTS (
        SELECT FROM hashindex.index x
        WHERE x.name = declare_index.name AND x.column_name = declare_index.column_name
          AND to_regclass(format('%I.%I', x.schema_name, x.table_name)) = declare_index.table_name
    ) THEN
        RETURN false;
    END IF;
    BEGIN
        PERFORM hashindex.find_model(model);
    EXCEPTION WHEN SQLSTATE '42X01' THEN
        IF defer THEN
            RAISE WARNING 'index "%" is not made: %', name, SQLERRM
                USING HINT = 'Make it once the model is there: by HashIndex.create, or by pg-hashindex index create.';
            RETURN false;
        END IF;
        RAISE EXCEPTION '%', SQLERRM
            USING ERRCODE = '42X01',
                  HINT = format('Index "%s" needs it: bring it in with pg-hashindex model import, train it, or declare the index with defer=True.', name);
    END;
    PERFORM hashindex._create_index(name, table_name, column_name, model, options, trust_owner);
    IF encode THEN
        PERFORM hashindex.encode_rows(name);
        PERFORM hashindex._warn_of_path(name);
    END IF;
    RETURN true;
END
$$;

COMMENT ON FUNCTION hashindex.declare_index IS
    'creates an index with options as jsonb, and encodes it, in this transaction; with defer, does nothing if the model is missing or the index exists';

-- Keeps the former codes, as pg-hashindex index swap does. Dropping them would lock out readers of the table too, and a reader
-- that is waiting to write would make that a deadlock.
CREATE OR REPLACE FUNCTION hashindex.swap_model(index_name text, model text, filter_columns text[] DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex._require(index_name, administers => true);
    used hashindex.model := hashindex.find_model(model);
    previous hashindex.index := x FROM hashindex.index x WHERE x.swap_of = i.name AND x.swap_state = 'previous';
    options jsonb := jsonb_strip_nulls(jsonb_build_object('filter_columns', swap_model.filter_columns));
    filters text[] := (hashindex._with_options(i, options)).filter_columns;
BEGIN
    IF (i.model_id, i.filter_columns) <> (used.id, filters) AND used.network IS NULL
        AND ((previous.model_id, previous.filter_columns) = (used.id, filters)) IS NOT TRUE THEN
        -- The table is locked before the catalog's row, as by builds. Dropping former codes locks out readers too.
        EXECUTE format('LOCK TABLE %I.%I IN %s MODE', i.schema_name, i.table_name,
                       CASE WHEN previous.name IS NULL THEN 'SHARE ROW EXCLUSIVE' ELSE 'ACCESS EXCLUSIVE' END);
    END IF;
    i := hashindex._locked_index(index_name);
    filters := (hashindex._with_options(i, options)).filter_columns;
    IF (i.model_id, i.filter_columns) = (used.id, filters) THEN
        RETURN false;
    ELSIF hashindex._is_at_work('swap', i.name) THEN
        RAISE EXCEPTION 'index "%" is being swapped by another session', i.name
            USING ERRCODE = 'object_in_use', HINT = 'Wait for it.';
    END IF;
    SELECT x.* INTO previous FROM hashindex.index x WHERE x.swap_of = i.name AND x.swap_state = 'previous';
    IF used.network IS NOT NULL THEN
        RAISE EXCEPTION 'model "%:%" is evaluated in Python, and a migration encodes in SQL', used.name, used.version
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = format('Run pg-hashindex index swap %s --model %s:%s%s before it; the migration then changes nothing.', i.name, used.name, used.version,
                                CASE WHEN filters <> i.filter_columns THEN format(' --filter-columns "%s"', array_to_string(filters, ',')) END);
    ELSIF (previous.model_id, previous.filter_columns) = (used.id, filters) THEN
        -- The former codes lack only the keys written since the last swap.
        PERFORM hashindex.exchange(i.name, 'previous');
    ELSE
        IF previous.name IS NOT NULL THEN
            -- First, so that we wait for readers of the table before any writer waits for us.
            PERFORM hashindex.drop_index(previous.name);
        END IF;
        PERFORM hashindex.encode_rows(hashindex.begin_swap(i.name, format('%s:%s', used.name, used.version), options => options));
        PERFORM hashindex.exchange(i.name, 'next');
    END IF;
    PERFORM hashindex._warn_of_path(i.name);
    RETURN true;
END
$$;

COMMENT ON FUNCTION hashindex.swap_model(text, text, text[]) IS
    'gives an index another model, and other filter columns if they are named, in this transaction; writers wait until it ends; returns false if it has them already';
