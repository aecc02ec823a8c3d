-- The options of an index. A new one is a column of hashindex.index with its name, a line of _options_of, and an argument of create_index,
-- and of configure_index if it may change. Everything else passes them on as one jsonb.

-- The options of an index as creation takes them.
CREATE OR REPLACE FUNCTION hashindex._options_of(i hashindex.index) RETURNS jsonb
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN jsonb_build_object(
        'key_columns', i.key_columns,
        'metric', i.metric,
        'access', coalesce(i.building, i.access),
        'candidates', i.candidates,
        'effort', CASE coalesce(i.building, i.access) WHEN 'lists' THEN i.effort END,
        'tenant', i.tenant_column
    );
END
$$;

-- Options without those that are null; refuses unknown ones, and values that are impossible, or that an index of this model cannot have.
CREATE OR REPLACE FUNCTION hashindex._checked_options(index_name text, used hashindex.model, options jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    given hashindex.index;
    known text[] := ARRAY(SELECT o FROM jsonb_object_keys(hashindex._options_of(NULL)) o ORDER BY 1);
    wrong text;
BEGIN
    options := jsonb_strip_nulls(coalesce(options, '{}'));
    SELECT o INTO wrong FROM jsonb_object_keys(options) o WHERE o <> ALL (known) ORDER BY 1 LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'option "%" is unknown', wrong
            USING ERRCODE = 'invalid_parameter_value', HINT = format('Use %s.', array_to_string(known, ', '));
    END IF;
    given := jsonb_populate_record(given, options);
    IF given.metric NOT IN ('l2', 'cosine', 'ip') THEN
        RAISE EXCEPTION 'metric "%" is unknown', given.metric
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Use l2, cosine or ip.';
    ELSIF given.access NOT IN ('scan', 'lists') THEN
        RAISE EXCEPTION 'access path "%" is unknown', given.access
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Use scan or lists.';
    ELSIF given.candidates < 1 THEN
        PERFORM hashindex._refuse('candidates', given.candidates, '1 or more');
    ELSIF given.effort NOT BETWEEN 1 AND 1000 THEN
        PERFORM hashindex._refuse('effort', given.effort, '1 to 1000');
    END IF;
    RETURN options;
END
$$;

-- Changes options of an index that is kept by lists.
CREATE OR REPLACE FUNCTION hashindex._configure_lists(name text, options jsonb) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex._require(_configure_lists.name, administers => true);
    used hashindex.model;
    given hashindex.index;
    -- The path that searches will use. One that is still being built has its effort already.
    meant text;
    -- Whether a build that has begun continues.
    stays boolean;
    plain text;
BEGIN
    -- A trigger that has begun may still log keys or read the landmarks, and would meet no table.
    IF i.next_generation IS NOT NULL AND options ->> 'access' IS NOT NULL OR i.landmark_table IS NOT NULL AND options ->> 'access' <> 'lists' THEN
        PERFORM hashindex._lock_against_writers(i);
    END IF;
    i := hashindex._locked_index(i.name);
    SELECT m.* INTO STRICT used FROM hashindex.model m WHERE m.id = i.model_id;
    options := hashindex._checked_options(i.name, used, options);
    given := jsonb_populate_record(given, options);
    meant := coalesce(given.access, i.building, i.access);
    -- To name the path that is in use gives up a build of another, or one that was cut off.
    stays := given.access IS NULL OR given.access = i.building AND (i.access <> i.building OR hashindex._is_at_work('access', i.name));
    IF given.effort IS NOT NULL AND meant <> 'lists' THEN
        RAISE EXCEPTION 'effort is for access path lists, and index "%" has access path %', i.name, meant
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave effort out.';
    END IF;
    SELECT string_agg(format('%I = ($1).%I', o, o), ', ') INTO plain FROM jsonb_object_keys(options - '{access,effort}'::text[]) o;
    IF plain IS NOT NULL THEN
        EXECUTE format('UPDATE hashindex.index x SET %s WHERE x.name = $2', plain) USING given, i.name;
    END IF;
    IF meant = 'scan' THEN
        -- A scan needs nothing to be built. Searches may still read the landmarks, so hashindex.drop_unused drops them later.
        UPDATE hashindex.index x
        SET (access, building, next_generation, effort, trained_rows, landmark_table) = ('scan', NULL, NULL, NULL, NULL, NULL)
        WHERE x.name = i.name RETURNING x.* INTO STRICT i;
    ELSE
        UPDATE hashindex.index x
        -- Measured on 300,000 text embeddings with 40 candidates: 80 lists find .955 of the ten nearest.
        SET effort = coalesce(given.effort, x.effort, 80),
            building = CASE WHEN stays THEN x.building ELSE nullif(meant, x.access) END, next_generation = CASE WHEN stays THEN x.next_generation END
        WHERE x.name = i.name RETURNING x.* INTO STRICT i;
    END IF;
    PERFORM hashindex._create_functions(i);
    -- A swap says it of the index that searches use.
    IF i.building IS NOT NULL AND i.swap_of IS NULL AND i.encoded THEN
        RAISE NOTICE 'searches use % until % are built: pg-hashindex index encode %', i.access, i.building, i.name;
    END IF;
END
$$;
