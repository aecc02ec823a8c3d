-- Creates an index, in the caller's transaction.

-- Refuses a model that only Python evaluates: triggers and searches encode in SQL.
CREATE OR REPLACE FUNCTION hashindex._check_evaluated(used hashindex.model, base regclass, column_name text) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    IF used.network IS NOT NULL THEN
        RAISE EXCEPTION 'model "%:%" is evaluated in Python, and an index needs a model that SQL evaluates', used.name, used.version
            USING ERRCODE = 'invalid_parameter_value', HINT = format(
                'Fill a column with its codes: pg-hashindex model encode %s --table %s --column %s --into code',
                hashindex._shell_word(format('%s:%s', used.name, used.version)), hashindex._shell_word(base::text), hashindex._shell_word(column_name)
            );
    END IF;
END
$$;

-- Creates an index with options, as _options_of has them.
CREATE OR REPLACE FUNCTION hashindex._create_index(name text, table_name regclass, column_name text, model text, options jsonb)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
SET extra_float_digits = 1
SET quote_all_identifiers = off
SET standard_conforming_strings = on
AS $$
DECLARE
    i hashindex.index;
    used hashindex.model;
    missing text := CASE
        WHEN name IS NULL THEN 'name'
        WHEN table_name IS NULL THEN 'table_name'
        WHEN column_name IS NULL THEN 'column_name'
        WHEN model IS NULL THEN 'model'
    END;
BEGIN
    PERFORM hashindex._check_administrator();
    IF missing IS NOT NULL THEN
        RAISE EXCEPTION '% is NULL', missing
            USING ERRCODE = 'null_value_not_allowed', HINT = 'Pass a value.';
    END IF;
    used := hashindex.find_model(model);
    PERFORM hashindex._check_evaluated(used, _create_index.table_name, _create_index.column_name);
    PERFORM hashindex._check_plain(_create_index.table_name, _create_index.column_name);
    PERFORM hashindex._require_read(
        _create_index.table_name, ARRAY[column_name],
        'Have its owner make an index of pgvector over a function of the model, with his own rights: '
            || hashindex._function_instead(_create_index.table_name, _create_index.column_name, used)
    );
    options := hashindex._checked_options(name, used, options);
    -- The access path is yet to be built.
    i := jsonb_populate_record(i, options - '{access,effort}'::text[]);
    i.tenant_column := options ->> 'tenant';
    i.name := _create_index.name;
    i.storage := i.name;
    i.triggers := i.name;
    i.model_id := used.id;
    i.metric := coalesce(i.metric, used.metric);
    -- No command needs to quote such a name, and names made from it (the longest is hashindex_NAME_truncate) are never cut. A swap makes
    -- names with ~.
    IF i.name !~ '^[A-Za-z0-9_][A-Za-z0-9_~-]{0,39}$' THEN
        RAISE EXCEPTION 'index name "%" is not 1 to 40 letters a to z, digits, _ and -', i.name
            USING ERRCODE = 'invalid_name', HINT = 'Choose another name.';
    END IF;
    IF EXISTS (SELECT FROM hashindex.index x WHERE x.name = i.name) THEN
        RAISE EXCEPTION 'index "%" exists already', i.name
            USING ERRCODE = 'duplicate_object', HINT = 'Choose another name, or give it another model by a swap.';
    END IF;
    -- An index that was swapped may own objects with the names that this one would take.
    IF EXISTS (SELECT FROM hashindex.index x WHERE i.name IN (x.storage, x.triggers)) THEN
        RAISE EXCEPTION 'the codes of another index are kept under the name "%"', i.name
            USING ERRCODE = 'duplicate_object', HINT = 'Choose another name.';
    END IF;
    SELECT n.nspname, c.relname INTO STRICT i.schema_name, i.table_name
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = _create_index.table_name;
    i.column_name := _create_index.column_name;
    PERFORM hashindex._check_vector_column(_create_index.table_name, i.column_name, used.dimension);
    SELECT k.key_columns, k.key_types INTO STRICT i.key_columns, i.key_types
    FROM hashindex._find_key(_create_index.table_name, i.key_columns) k;
    PERFORM hashindex._check_keeper(i);
    PERFORM hashindex._make_generation(i, used, _create_index.table_name, jsonb_build_object('access', options -> 'access', 'effort', options -> 'effort'));
END
$$;

-- Creates an index that is kept by lists, for create_index: incomplete where the table has rows.
CREATE OR REPLACE FUNCTION hashindex._create_lists(name text, base regclass, column_name text, model text, options jsonb)
RETURNS TABLE ("set" text, index text, mb numeric, candidates_used integer, recall double precision)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index;
BEGIN
    PERFORM hashindex._create_index(name, base, column_name, model, options);
    i := hashindex.find_index(name);
    IF NOT i.encoded THEN
        -- A class of its own, for those who encode the rows next.
        RAISE WARNING 'searches of index "%" are exact until its rows are encoded', name USING ERRCODE = '01X01', HINT = format('Run: pg-hashindex index encode %s', name);
    END IF;
    RETURN QUERY SELECT format('codes of %s in lists', model), i.code_table, round((pg_table_size(to_regclass(format('hashindex.%I', i.code_table))) / 1e6)::numeric, 1), i.candidates, NULL::double precision;
END
$$;

-- Makes what a row of the catalog describes, with an access path: those of an index and of the codes beside it differ in who has the triggers.
CREATE OR REPLACE FUNCTION hashindex._make_generation(i hashindex.index, used hashindex.model, base regclass, path jsonb) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    empty boolean;
BEGIN
    IF i.metric <> used.metric THEN
        RAISE WARNING 'index "%" ranks by %, and model "%" was trained for %', i.name, i.metric, used.name, used.metric
            USING HINT = format('Train a model for %s, or leave the metric out.', i.metric);
    END IF;
    PERFORM hashindex._check_expressions(base);
    PERFORM hashindex._check_tenant(i, base);
    PERFORM hashindex._check_names(base);
    i.created_at := now();
    i.access := 'scan';
    i.encoded := false;
    i.unverified := false;
    i.candidates := coalesce(i.candidates, hashindex._usual_candidates(i, used));
    i.generation := hashindex._new_generation(0);
    i.code_table := i.storage || '_codes';
    INSERT INTO hashindex.index SELECT (i).* ON CONFLICT ON CONSTRAINT index_pkey DO NOTHING;
    -- Another session has created it since it was looked for above.
    IF NOT FOUND THEN
        RAISE EXCEPTION 'index "%" exists already', i.name
            USING ERRCODE = 'duplicate_object', HINT = 'Choose another name, or give it another model by a swap.';
    END IF;

    path := path || jsonb_build_object('access', coalesce(path ->> 'access', hashindex._usual_access(i, used)));
    PERFORM hashindex._create_codes(i, base);
    PERFORM hashindex._bind(i.name, true);
    IF i.swap_of IS NOT NULL THEN
        PERFORM hashindex._create_log(i, base);
        PERFORM hashindex._create_functions(x), hashindex._create_triggers(x, base, false) FROM hashindex.index x WHERE x.name = i.swap_of;
    END IF;
    -- It makes the functions.
    PERFORM hashindex._configure_lists(i.name, path);
    IF i.swap_of IS NULL THEN
        PERFORM hashindex._create_triggers(i, base);
        PERFORM hashindex._set_readers(i);
    END IF;
    -- The triggers encode all rows of a table that is still empty. An older snapshot could miss some that are there.
    IF current_setting('transaction_isolation') = 'read committed' THEN
        EXECUTE format('SELECT NOT EXISTS (SELECT FROM %s WHERE %I IS NOT NULL)', base, i.column_name) INTO empty;
        IF empty THEN
            PERFORM hashindex._mark_encoded(i);
        END IF;
    END IF;
END
$$;

-- Makes the code table of an index. A build adds the key of a code table after the rows.
CREATE OR REPLACE FUNCTION hashindex._create_codes(i hashindex.index, base regclass, with_key boolean DEFAULT true)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    used hashindex.model := m FROM hashindex.model m WHERE m.id = i.model_id;
    code_table text := format('hashindex.%I', i.code_table);
BEGIN
    -- CREATE TABLE AS keeps the key's collation. The cast replaces a domain by its base type: its checks must not run in triggers.
    EXECUTE format(
        'CREATE %s TABLE %s AS SELECT %s, NULL::integer AS landmark, NULL::bit(%s) AS code%s FROM %s b WITH NO DATA',
        -- A crash empties an unlogged table, and must empty its codes too.
        nullif(hashindex._logging(base), 'LOGGED'), code_table, (
            SELECT string_agg(format('b.%I::%s AS %I', k.name, k.type, k.kept), ', ' ORDER BY k.n)
            FROM unnest(i.key_columns, hashindex._base_types(i), hashindex._code_keys(i)) WITH ORDINALITY k(name, type, kept, n)
        ), used.n_bits,
        -- Without the length of a varchar, which may grow.
        (
            SELECT format(', b.%I::%s AS tenant', a.attname, format_type(a.atttypid, -1)) FROM pg_attribute a
            WHERE a.attrelid = _create_codes.base AND a.attname = i.tenant_column
        ),
        base
    );
    EXECUTE format(
        -- PLAIN storage keeps long codes in their rows.
        'ALTER TABLE %s %s, ALTER COLUMN code SET NOT NULL, ALTER COLUMN code SET STORAGE PLAIN%s',
        code_table, (SELECT string_agg(format('ALTER COLUMN %I SET NOT NULL', k.name), ', ' ORDER BY k.n) FROM unnest(hashindex._code_keys(i)) WITH ORDINALITY k(name, n)),
        CASE WHEN with_key THEN format(', ADD PRIMARY KEY (%s)', hashindex._columns_of(NULL, hashindex._code_keys(i))) END
    );
    PERFORM hashindex._adopt(i, code_table, format('codes, kept fresh by triggers on %s', base));
END
$$;

-- Names of the triggers that keep the codes of an index fresh.
CREATE OR REPLACE FUNCTION hashindex._trigger_names(i hashindex.index) RETURNS text[]
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN ARRAY(SELECT format('hashindex_%s_%s', i.triggers, event) FROM unnest(ARRAY['insert', 'update', 'delete', 'truncate']) event);
END
$$;

-- Triggers that keep the codes of an index fresh, and their tables. Finds triggers by their function, since the table may have been
-- renamed or dropped.
CREATE OR REPLACE FUNCTION hashindex._triggers_of(i hashindex.index) RETURNS SETOF pg_trigger
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN QUERY
    SELECT t.* FROM pg_trigger t
    WHERE t.tgfoid = to_regproc(format('hashindex.%I', hashindex._sync_name(i.triggers)));
END
$$;

-- Columns of vectors that the codes of an index are of: those in use, and those beside.
CREATE OR REPLACE FUNCTION hashindex._written_vectors(i hashindex.index) RETURNS text[]
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN ARRAY(SELECT DISTINCT x.column_name FROM hashindex.index x WHERE i.name IN (x.name, x.swap_of) ORDER BY 1);
END
$$;

-- Creates the triggers that keep the codes of an index fresh, if they are missing, were changed, or name other vectors. They name the
-- vectors, so that PostgreSQL refuses to drop these columns, and drops the triggers with them by CASCADE. A repair makes them whole; others leave
-- them as they are where one is missing, since writes went unseen.
CREATE OR REPLACE FUNCTION hashindex._create_triggers(i hashindex.index, table_name regclass, anyway boolean DEFAULT true) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    vectors text[] := hashindex._written_vectors(i);
    missing record;
BEGIN
    IF NOT anyway AND EXISTS (SELECT FROM hashindex._object_faults(i, '{trigger}')) THEN
        RETURN;
    END IF;
    FOR missing IN
        SELECT n.name, substring(n.name FROM '[a-z]+$') AS event FROM unnest(hashindex._trigger_names(i)) n(name)
        WHERE n.name IN (SELECT f.name FROM hashindex._object_faults(i, '{trigger}') f WHERE f.fault <> 'is disabled')
           OR n.name !~ 'truncate$' AND ARRAY(
               SELECT a.attname::text FROM pg_trigger t JOIN pg_depend d ON (d.classid, d.objid, d.refclassid, d.refobjid) = ('pg_trigger'::regclass, t.oid, 'pg_class'::regclass, t.tgrelid)
               JOIN pg_attribute a ON a.attrelid = t.tgrelid AND a.attnum = d.refobjsubid WHERE t.tgrelid = table_name AND t.tgname = n.name AND a.attnum > 0 ORDER BY 1
           ) <> vectors
    LOOP
        EXECUTE format(
            'CREATE OR REPLACE TRIGGER %I AFTER %s ON %s %s EXECUTE FUNCTION hashindex.%I()', missing.name, missing.event, table_name,
            CASE missing.event WHEN 'truncate' THEN 'FOR EACH STATEMENT' ELSE (
                SELECT format('FOR EACH ROW WHEN (%s)', string_agg(format('%s.%I IS NOT NULL', r.name, v), ' OR '))
                FROM unnest(vectors) v, unnest(CASE missing.event WHEN 'insert' THEN '{NEW}' WHEN 'delete' THEN '{OLD}' ELSE '{OLD,NEW}' END::text[]) r(name)
            ) END,
            hashindex._sync_name(i.triggers)
        );
        PERFORM hashindex._record('trigger', t.oid, i.name) FROM hashindex._triggers_of(i) t WHERE t.tgname = missing.name AND t.tgrelid = table_name;
    END LOOP;
END
$$;
