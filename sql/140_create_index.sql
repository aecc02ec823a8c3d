-- A set that is kept by lists, beside its row: tables of codes, landmarks and keys, and triggers on the table.

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

-- The gate of a table that lists are to be kept of, before a statement reads it: one plain table, whose owners have the administrator's rights.
CREATE OR REPLACE FUNCTION hashindex._admit_lists(base regclass, column_name text, columns text[], used hashindex.model) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM hashindex._check_plain(base, column_name);
    PERFORM hashindex._require_read(
        base, columns, CASE WHEN used.id IS NOT NULL THEN
            'Have its owner make an index of pgvector over a function of the model, with his own rights: ' || hashindex._function_instead(base, column_name, used) END
    );
END
$$;

-- Refuses what a set of lists cannot be.
CREATE OR REPLACE FUNCTION hashindex._check_lists(i hashindex.index, s hashindex.index_set) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base regclass := hashindex._base_of(i);
    used hashindex.model := m FROM hashindex.model m WHERE m.id = s.model_id;
BEGIN
    IF used.id IS NULL THEN
        RAISE EXCEPTION 'lists keep codes, and no model is named that makes them' USING ERRCODE = 'invalid_parameter_value', HINT = 'Name the model.';
    ELSIF s.stores OR s.code_column IS NOT NULL THEN
        RAISE EXCEPTION 'lists keep codes in a table of their own, and none in a column'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave store and code_column out, or name access hnsw.';
    ELSIF s.effort NOT BETWEEN 1 AND 1000 THEN
        PERFORM hashindex._refuse('effort', s.effort, '1 to 1000');
    ELSIF s.effort IS NOT NULL AND s.access = 'scan' THEN
        RAISE EXCEPTION 'effort is for lists with landmarks' USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave effort out.';
    END IF;
    PERFORM hashindex._admit_lists(base, s.column_name, hashindex._read_columns(i), used);
    PERFORM hashindex._check_expressions(base);
    PERFORM hashindex._check_keeper(i);
    IF i.metric <> used.metric THEN
        RAISE WARNING 'index "%" ranks by %, and model "%" was trained for %', i.name, i.metric, used.name, used.metric
            USING HINT = format('Train a model for %s, or leave the metric out.', i.metric);
    END IF;
END
$$;

-- Makes the table of codes of a set. A build adds its key after the rows.
CREATE OR REPLACE FUNCTION hashindex._create_codes(i hashindex.index, s hashindex.index_set, base regclass) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    used hashindex.model := m FROM hashindex.model m WHERE m.id = s.model_id;
    code_table text := 'hashindex.' || hashindex._part_of(s, 'codes');
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
        'ALTER TABLE %s %s, ALTER COLUMN code SET NOT NULL, ALTER COLUMN code SET STORAGE PLAIN',
        code_table, (SELECT string_agg(format('ALTER COLUMN %I SET NOT NULL', k.name), ', ' ORDER BY k.n) FROM unnest(hashindex._code_keys(i)) WITH ORDINALITY k(name, n))
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
    RETURN ARRAY(SELECT format('hashindex_%s_%s', i.name, event) FROM unnest(ARRAY['insert', 'update', 'delete', 'truncate']) event);
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
    WHERE t.tgfoid = to_regproc(format('hashindex.%I', hashindex._sync_name(i.name)));
END
$$;

-- Columns of vectors that the lists of an index have codes of.
CREATE OR REPLACE FUNCTION hashindex._written_vectors(i hashindex.index) RETURNS text[]
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN ARRAY(SELECT DISTINCT x.column_name FROM hashindex.index_set x WHERE x.index_name = i.name AND hashindex._table_of(x, 'codes') IS NOT NULL ORDER BY 1);
END
$$;

-- Has a trigger fire on a subscriber too, as it did before it was made again.
CREATE OR REPLACE FUNCTION hashindex._fire_always(base regclass, trigger text) RETURNS void
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    IF EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = base AND t.tgname = trigger) THEN
        EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I', base, trigger);
    END IF;
EXCEPTION WHEN insufficient_privilege THEN
    RAISE WARNING 'trigger "%" of % fires no longer for rows that a subscription writes', trigger, base
        USING HINT = format('Have the owner of the table run: ALTER TABLE %s ENABLE ALWAYS TRIGGER %I;', base, trigger);
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
        SELECT n.name, substring(n.name FROM '[a-z]+$') AS event,
            EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = table_name AND t.tgname = n.name AND t.tgenabled = 'A') AS always FROM unnest(hashindex._trigger_names(i)) n(name)
        WHERE n.name IN (SELECT f.name FROM hashindex._object_faults(i, '{trigger}') f WHERE f.fault <> 'is disabled')
           OR NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = table_name AND t.tgname = n.name)
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
            hashindex._sync_name(i.name)
        );
        IF missing.always THEN
            PERFORM hashindex._fire_always(table_name, missing.name);
        END IF;
        PERFORM hashindex._record('trigger', t.oid, i.name) FROM hashindex._triggers_of(i) t WHERE t.tgname = missing.name AND t.tgrelid = table_name;
    END LOOP;
END
$$;
