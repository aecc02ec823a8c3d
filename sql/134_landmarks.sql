-- Access by landmarks: a few thousand vectors that stand for the rows around them, a small HNSW over
-- them, and a list of codes for each. Lists are packed: a row of NAME_lists is a chunk of many
-- entries (or of a few, which a trigger added), since arrays take half of the room of rows and are
-- read faster. Entries are not taken out when their row changes or goes: they cost a place among the
-- candidates and no more, since answers are by exact distance, of rows that are there.

-- A vector as it is compared with landmarks: by direction where the metric is. A row (point, half).
CREATE OR REPLACE FUNCTION hashindex.landmark_point(i hashindex.index, vector_term text)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN format(
        'SELECT p.point, p.point::%2$I.halfvec(%3$s) AS half FROM (SELECT %1$s AS point) p',
        format(
            CASE i.metric
                -- Beyond 65504 a halfvec would be an error: such vectors are listed by direction.
                WHEN 'l2' THEN 'CASE WHEN %2$I.vector_norm(%1$s) < 65504 THEN %1$s ELSE %2$I.l2_normalize(%1$s) END'
                -- As they are, small ones would be nothing but zeros.
                ELSE '%2$I.l2_normalize(%1$s)'
            END,
            vector_term, e.extension_schema
        ),
        e.extension_schema,
        (SELECT m.dimension FROM hashindex.model m WHERE m.id = i.model_id)
    )
    FROM (
        SELECT n.nspname AS extension_schema
        FROM pg_extension x JOIN pg_namespace n ON n.oid = x.extnamespace WHERE x.extname = 'vector'
    ) e;
END
$$;

COMMENT ON FUNCTION hashindex.landmark_point(hashindex.index, text) IS
    'text of the query for a vector as it is compared with landmarks';

CREATE OR REPLACE FUNCTION hashindex.landmark_distance(i hashindex.index, half text)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN format(
        'hashindex_landmark.centre %s %s',
        hashindex.distance_operator(CASE i.metric WHEN 'l2' THEN 'l2' ELSE 'cosine' END), half
    );
END
$$;

COMMENT ON FUNCTION hashindex.landmark_distance(hashindex.index, text) IS
    'SQL for the distance of a point, as halfvec, to hashindex_landmark';

-- The mean that signs of landmarks are seen from: it stands in the column of signs, which is generated.
-- NULL where there is none, and the HNSW is over the landmarks themselves.
CREATE OR REPLACE FUNCTION hashindex.landmark_mean(i hashindex.index)
RETURNS vector
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN (
        SELECT substring(pg_get_expr(d.adbin, d.adrelid) FROM '\[[^]]*\]')
        FROM pg_attrdef d JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
        WHERE a.attrelid = to_regclass(format('hashindex.%I', i.storage || '_landmarks')) AND a.attname = 'signs'
    );
END
$$;

COMMENT ON FUNCTION hashindex.landmark_mean(hashindex.index) IS
    'mean that signs of landmarks are taken from';

-- Signs take a sixteenth of the room of the landmarks, and comparing them the least time; as many as
-- the vector has dimensions tell near landmarks from far ones.
CREATE OR REPLACE FUNCTION hashindex.landmark_signs(vector_term text, mean vector)
RETURNS text
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    extension_schema text := n.nspname
        FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector';
BEGIN
    RETURN format(
        '%2$I.binary_quantize((%1$s)::%2$I.vector OPERATOR(%2$I.-) %3$L::%2$I.vector)::bit(%4$s)',
        vector_term, extension_schema, mean, vector_dims(mean)
    );
END
$$;

COMMENT ON FUNCTION hashindex.landmark_signs(text, vector) IS
    'SQL for the signs of a vector seen from the mean of the landmarks';

-- What the search for so many landmarks must look at: a landmark that is missed costs more than the
-- time that it takes to find it. Measured on 300,000 text embeddings.
CREATE OR REPLACE FUNCTION hashindex.landmark_effort(n text)
RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN format('greatest(4 * %s, 64)', n);
END
$$;

COMMENT ON FUNCTION hashindex.landmark_effort(text) IS
    'SQL for hnsw.ef_search where so many landmarks are wanted';

-- Rows (landmark, far, centre, point) of the n nearest to a vector, by the HNSW over them; of those near
-- by their signs, as many as the effort, the nearest by distance.
CREATE OR REPLACE FUNCTION hashindex.near_landmarks(i hashindex.index, vector_term text, n text)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    mean vector := hashindex.landmark_mean(i);
BEGIN
    -- OFFSET: made once, and not again for each landmark.
    RETURN format(
        $query$SELECT hashindex_landmark.landmark, %1$s AS far, hashindex_landmark.centre, hashindex_point.point
    FROM (SELECT p.point, p.half, %2$s AS signs FROM (%3$s) p OFFSET 0) hashindex_point CROSS JOIN LATERAL (
        SELECT hashindex_landmark.landmark, hashindex_landmark.centre FROM hashindex.%4$I hashindex_landmark
        ORDER BY %5$s LIMIT %6$s
    ) hashindex_landmark
    ORDER BY far, hashindex_landmark.landmark LIMIT %7$s$query$,
        hashindex.landmark_distance(i, 'hashindex_point.half'), coalesce(hashindex.landmark_signs('p.point', mean), 'NULL'),
        hashindex.landmark_point(i, vector_term), i.storage || '_landmarks',
        CASE WHEN mean IS NULL THEN hashindex.landmark_distance(i, 'hashindex_point.half') ELSE
            format('hashindex_landmark.signs %s hashindex_point.signs', hashindex.distance_operator('hamming'))
        END,
        CASE WHEN mean IS NULL THEN n ELSE hashindex.landmark_effort(n) END, n
    );
END
$$;

COMMENT ON FUNCTION hashindex.near_landmarks(hashindex.index, text, text) IS
    'text of the query for the landmarks nearest to a vector, nearly';

-- Landmarks to probe, out of all of them: more than an HNSW may be asked for, and without a setting
-- that a statement cannot make for itself.
CREATE OR REPLACE FUNCTION hashindex.exact_probes(i hashindex.index, vector_term text, n text)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN format(
        $query$ARRAY(SELECT hashindex_landmark.landmark FROM hashindex.%1$I hashindex_landmark
    ORDER BY (%2$s) + 0, hashindex_landmark.landmark LIMIT %3$s)$query$,
        i.storage || '_landmarks',
        hashindex.landmark_distance(i, format('(SELECT p.half FROM (%s) p)', hashindex.landmark_point(i, vector_term))),
        n
    );
END
$$;

COMMENT ON FUNCTION hashindex.exact_probes(hashindex.index, text, text) IS
    'SQL for the numbers of the landmarks nearest to a vector';

-- Of the entries in the probed lists, those within a Hamming distance that about five times as many
-- keep as candidates are wanted: by those of eight lists, from the nearest to the farthest. Where these
-- have fewer entries, all are kept.
CREATE OR REPLACE FUNCTION hashindex.list_threshold(i hashindex.index, terms jsonb)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    -- Of 24 lists every third.
    spread text := format(
        'ARRAY(SELECT (%1$s)[1 + n * cardinality(%1$s) / 8] FROM generate_series(0, 7) n)', terms ->> 'lists'
    );
BEGIN
    RETURN format(
        $query$SELECT coalesce(s.fars[least(
        ceil(5 * %1$s::double precision * least(1, 8.0 / nullif(cardinality(%2$s), 0))), 2147483647
    )::integer], %4$s)
    FROM (SELECT array_agg(n.far ORDER BY n.far) AS fars FROM (%3$s) n) s$query$,
        terms ->> 'kept', terms ->> 'lists',
        hashindex.near_codes(i, 'landmarks', terms || jsonb_build_object('lists', spread, 'order', 'none')),
        (SELECT m.n_bits FROM hashindex.model m WHERE m.id = i.model_id)
    );
END
$$;

COMMENT ON FUNCTION hashindex.list_threshold(hashindex.index, jsonb) IS
    'text of the query for the Hamming distance within which entries of probed lists are candidates';

-- Probes until there are k answers: the landmarks asked for, eight times as many, and then all codes.
CREATE OR REPLACE FUNCTION hashindex.landmark_steps(i hashindex.index, terms jsonb, weighted boolean)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    collected text := format(
        $collected$hashindex_threshold := (%s);
        SELECT array_agg(a.id ORDER BY a.distance, a.id), array_agg(a.distance ORDER BY a.distance, a.id)
        INTO hashindex_ids, hashindex_distances FROM (%s) a;$collected$,
        hashindex.list_threshold(i, terms),
        hashindex.answers(
            i, format('ARRAY(%s)', hashindex.candidate_ids(
                hashindex.near_codes(
                    i, 'landmarks', terms || '{"threshold": "hashindex_threshold", "order": "none"}'
                ),
                'landmarks', terms, weighted
            )),
            terms
        )
    );
BEGIN
    RETURN format(
        $steps$
        -- 1000 is the most that pgvector takes; the iterative scan goes on from there.
        PERFORM set_config('hnsw.ef_search', least(1000, %1$s)::text, true);
        -- The planner thinks the more of a large effort, and would rather look at every landmark.
        PERFORM set_config('enable_seqscan', 'off', true);
        hashindex_lists := ARRAY(SELECT n.landmark FROM (%2$s) n);
        PERFORM set_config('enable_seqscan', hashindex_settings[3], true);
        %3$s
        IF coalesce(cardinality(hashindex_ids), 0) < $2 THEN
            hashindex_lists := %4$s;
            %3$s
        END IF;
        IF coalesce(cardinality(hashindex_ids), 0) < $2 THEN
            %5$s
        ELSE
            RETURN QUERY SELECT a.id, a.distance FROM unnest(hashindex_ids, hashindex_distances) a(id, distance);
        END IF;$steps$,
        hashindex.landmark_effort(terms ->> 'probes'),
        hashindex.near_landmarks(i, terms ->> 'query', terms ->> 'probes'), collected,
        hashindex.exact_probes(i, terms ->> 'query', '8 * ' || (terms ->> 'probes')),
        hashindex.scan_steps(i, terms, weighted)
    );
END
$$;

COMMENT ON FUNCTION hashindex.landmark_steps(hashindex.index, jsonb, boolean) IS
    'statements of a search by landmarks';
