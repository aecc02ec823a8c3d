-- The access path of an index, and the defaults of its searches.

-- Access path of a new index if none is named. From 10,000 rows on, reading some lists of codes is faster than reading all codes. Codes
-- that rank labels do so among all rows, and lists hold rows with near vectors. For inner products the nearest rows have like directions
-- only if lengths are alike, within 5 %.
CREATE OR REPLACE FUNCTION hashindex._usual_access(i hashindex.index, used hashindex.model) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    suits boolean;
BEGIN
    IF used.training ? 'supervision' THEN
        RETURN 'scan';
    ELSIF i.tenant_column IS NOT NULL THEN
        -- All codes of a small tenant are ranked then too, and found by their index.
        RETURN 'landmarks';
    END IF;
    EXECUTE format(
        'SELECT count(*) = 10000%s FROM (SELECT b.%I::{ext}.vector AS v FROM %I.%I b WHERE b.%I IS NOT NULL LIMIT 10000) r',
        CASE i.metric WHEN 'ip' THEN ' AND max({ext}.vector_norm(r.v)) <= 1.05 * min({ext}.vector_norm(r.v))' END, i.column_name, i.schema_name, i.table_name,
        i.column_name
    ) INTO suits;
    RETURN CASE WHEN suits THEN 'landmarks' ELSE 'scan' END;
END
$$;

-- Candidates of a new index: those among which held-back rows found .98 of their true neighbours when the model was trained, and more if
-- the table has more rows than were ranked then. Measured on text embeddings and MNIST: four times as many rows need up to 1.16 times
-- as many candidates with several cuts, and 1.5 times with one. 200 where nothing was measured, or by another order.
CREATE OR REPLACE FUNCTION hashindex._usual_candidates(i hashindex.index, used hashindex.model) RETURNS integer
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    measured jsonb := used.training -> 'recall';
    base text := format('%I.%I', i.schema_name, i.table_name);
    ranked double precision;
    rows double precision;
BEGIN
    IF used.training ? 'supervision' OR i.metric <> used.metric
        OR (jsonb_typeof(measured -> 'candidates') = 'number' AND jsonb_typeof(measured -> 'among') = 'number') IS NOT TRUE THEN
        RETURN 200;
    END IF;
    ranked := least(greatest((measured ->> 'among')::numeric, 1), 1e9);
    -- The planner's estimate, but no more rows than have space: it takes a table that was never analyzed to have short ones.
    rows := greatest(ranked, least(
        (hashindex._estimate(format('SELECT FROM %s', base))).matching,
        (SELECT sum(pg_table_size(p.part)) FROM hashindex._parts_of(base::regclass) p)::double precision
            / (CASE hashindex._vector_type(base::regclass, i.column_name) WHEN '{ext}.halfvec' THEN 2 ELSE 4 END * used.dimension)
    ));
    RETURN ceil(least(greatest((measured ->> 'candidates')::numeric, 10), 200)::double precision * (rows / ranked) ^ 0.2);
END
$$;

-- Candidates of a search for k rows if none are named: the usual ones are for up to ten, and more rows need more in proportion.
CREATE OR REPLACE FUNCTION hashindex._candidates_for(k integer, usual integer) RETURNS integer
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN least(usual::bigint * greatest(k, 10) / 10, 2147483647)::integer;

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
    i hashindex.index := hashindex._require(configure_index.name, administers => true, reads => trust_owner IS NOT TRUE);
    used hashindex.model;
    owners text[];
    -- The path that searches will use. One that is still being built has its probes already.
    meant text;
BEGIN
    IF trust_owner THEN
        owners := ARRAY(
            SELECT u.mark FROM hashindex._untrusted_owners(hashindex._oid_of(i.schema_name, i.table_name), i.trusted_owners, true, hashindex._read_columns(i)) u
        );
        UPDATE hashindex.index x SET trusted_owners = ARRAY(SELECT DISTINCT o FROM unnest(x.trusted_owners || owners) o ORDER BY 1)
        WHERE configure_index.name IN (x.name, x.swap_of);
        PERFORM hashindex._create_functions(x) FROM hashindex.index x WHERE x.swap_of = configure_index.name;
    END IF;
    PERFORM hashindex._end_left_rebalance(configure_index.name);
    i := hashindex._require(configure_index.name);
    -- A trigger that has begun may still read the landmarks, and would meet none.
    IF coalesce(i.next_generation::text, i.landmark_table) IS NOT NULL AND configure_index.access <> 'landmarks' THEN
        PERFORM hashindex._lock_against_writers(i);
    END IF;
    i := hashindex._locked_index(i.name);
    SELECT m.* INTO STRICT used FROM hashindex.model m WHERE m.id = i.model_id;
    IF configure_index.access NOT IN ('scan', 'landmarks') THEN
        RAISE EXCEPTION 'access path "%" is unknown', configure_index.access
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Use scan or landmarks.';
    END IF;
    meant := coalesce(configure_index.access, i.building, i.access);
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
        -- Measured on 300,000 text embeddings with 40 candidates: 80 lists find .955 of the ten nearest.
        probes = CASE WHEN 'landmarks' IN (meant, x.access) THEN coalesce(configure_index.probes, x.probes, 80) ELSE x.probes END,
        building = nullif(meant, x.access),
        next_generation = CASE WHEN meant = 'landmarks' THEN x.next_generation END
    WHERE x.name = i.name RETURNING x.* INTO STRICT i;
    IF i.building = 'scan' THEN
        -- A scan needs nothing to be built. Searches may still read the landmarks, so hashindex.drop_unused drops them later.
        UPDATE hashindex.index x
        SET (access, building, probes, trained_rows, landmark_table) = (x.building, NULL, NULL, NULL, NULL)
        WHERE x.name = i.name RETURNING x.* INTO STRICT i;
    END IF;
    PERFORM hashindex._create_functions(i);
    -- A swap says it of the index that searches use.
    IF i.building IS NOT NULL AND i.swap_of IS NULL THEN
        RAISE NOTICE 'searches use % until % are built: pg-hashindex index encode %', i.access, i.building, i.name;
    END IF;
END
$$;

COMMENT ON FUNCTION hashindex.configure_index(text, text, text, integer, integer, boolean) IS
    'sets the defaults of an index''s searches, and trusts the owners of its table with trust_owner; another access path takes over once pg-hashindex index encode has built it';
