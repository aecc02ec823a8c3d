-- The access path of an index, and the defaults of its searches.

CREATE OR REPLACE FUNCTION hashindex.configure_index(
    name text,
    access text DEFAULT NULL,
    ranking text DEFAULT NULL,
    candidates integer DEFAULT NULL,
    probes integer DEFAULT NULL,
    trust_owner boolean DEFAULT false
)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index;
    used hashindex.model;
    -- The path that searches will use. One that is still being built has its probes already.
    meant text;
BEGIN
    IF trust_owner THEN
        PERFORM hashindex._check_administrator();
        UPDATE hashindex.index x
        SET trusted_owners = x.trusted_owners || ARRAY(SELECT DISTINCT u.owner FROM hashindex._untrusted_of(x) u)
        WHERE configure_index.name IN (x.name, x.swap_of);
    END IF;
    PERFORM hashindex._end_left_rebalance(configure_index.name);
    i := hashindex.find_index(configure_index.name);
    IF i.next_generation IS NOT NULL AND configure_index.access <> 'landmarks' THEN
        PERFORM hashindex._lock_against_writers(i);
    END IF;
    i := hashindex._locked_index(i.name);
    SELECT m.* INTO STRICT used FROM hashindex.model m WHERE m.id = i.model_id;
    IF configure_index.access NOT IN ('scan', 'landmarks') THEN
        RAISE EXCEPTION 'access path "%" is unknown', configure_index.access
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Use scan or landmarks.';
    END IF;
    meant := coalesce(configure_index.access, i.building, i.access);
    IF meant = 'landmarks' AND i.layout = 'column' THEN
        RAISE EXCEPTION 'index "%" has its codes in a column, landmarks need them in a table', i.name
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Use access path scan, or make the index with layout table.';
    END IF;
    IF configure_index.ranking <> ALL (hashindex._rankings(used)) THEN
        RAISE EXCEPTION 'ranking "%" cannot be served by model "%" of index "%"',
            configure_index.ranking, used.name, i.name
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = format('Use one of: %s.', array_to_string(hashindex._rankings(used), ', '));
    END IF;
    IF configure_index.candidates < 1 THEN
        PERFORM hashindex._refuse('candidates', configure_index.candidates, '1 or more');
    END IF;
    IF configure_index.probes NOT BETWEEN 1 AND 1000 THEN
        PERFORM hashindex._refuse('probes', configure_index.probes, '1 to 1000');
    ELSIF configure_index.probes IS NOT NULL AND meant <> 'landmarks' THEN
        RAISE EXCEPTION 'probes are for access path landmarks, and index "%" has access path %', i.name, meant
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave probes out.';
    END IF;
    UPDATE hashindex.index x
    SET ranking = coalesce(configure_index.ranking, x.ranking),
        candidates = coalesce(configure_index.candidates, x.candidates),
        -- Measured on 300,000 rows with 200 candidates: 64 lists find .95 of the ten nearest, 24 lists .91.
        probes = CASE WHEN 'landmarks' IN (meant, x.access) THEN coalesce(configure_index.probes, x.probes, 64) ELSE x.probes END,
        building = nullif(meant, x.access),
        next_generation = CASE WHEN meant = 'landmarks' THEN x.next_generation END
    WHERE x.name = i.name RETURNING x.* INTO STRICT i;
    IF i.building = 'scan' THEN
        -- A scan needs nothing to be built. Searches may still read the landmarks, so hashindex.drop_unused drops them later.
        UPDATE hashindex.index x
        SET (access, building, probes, trained_rows, landmark_table) = (x.building, NULL, NULL, NULL, NULL)
        WHERE x.name = i.name RETURNING x.* INTO STRICT i;
        PERFORM hashindex._create_functions(i);
    ELSE
        PERFORM hashindex._create_functions(i);
        -- A swap says it of the index that searches use.
        IF i.building IS NOT NULL AND i.swap_of IS NULL THEN
            RAISE NOTICE 'searches use % until % are built: pg-hashindex index encode %', i.access, i.building, i.name;
        END IF;
    END IF;
END
$$;

COMMENT ON FUNCTION hashindex.configure_index(text, text, text, integer, integer, boolean) IS
    'sets the defaults of an index''s searches, and trusts the owners of its table with trust_owner; another access path takes over once pg-hashindex index encode has built it';
