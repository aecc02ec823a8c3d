-- Access by landmarks: a few thousand vectors that stand for the rows around them, a small HNSW over
-- them, and a list of codes for each. Lists are packed: a row of NAME_lists is a chunk of many
-- entries (or of a few, which a trigger added), since arrays take half of the room of rows and are
-- read faster. Entries are not taken out when their row changes or goes: they cost a place among the
-- candidates and no more, since answers are by exact distance, of rows that are there.

-- The nearest landmarks are by direction where the metric is.
CREATE OR REPLACE FUNCTION hashindex.landmark_order(i hashindex.index, vector_term text)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    extension_schema text := n.nspname
        FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector';
BEGIN
    RETURN format(
        'hashindex_landmark.centre %1$s (%2$s)::%3$I.halfvec(%4$s)',
        hashindex.distance_operator(CASE i.metric WHEN 'l2' THEN 'l2' ELSE 'cosine' END),
        format(
            CASE i.metric
                -- Beyond 65504 a halfvec would be an error: such vectors are listed by direction.
                WHEN 'l2' THEN 'CASE WHEN %2$I.vector_norm(%1$s) < 65504 THEN %1$s ELSE %2$I.l2_normalize(%1$s) END'
                -- As they are, small ones would be nothing but zeros.
                ELSE '%2$I.l2_normalize(%1$s)'
            END,
            vector_term, extension_schema
        ),
        extension_schema, (SELECT m.dimension FROM hashindex.model m WHERE m.id = i.model_id)
    );
END
$$;

COMMENT ON FUNCTION hashindex.landmark_order(hashindex.index, text) IS
    'SQL for the distance of a vector to a landmark, hashindex_landmark';

-- Landmarks to probe, out of all of them: more than an HNSW may be asked for, and without a setting
-- that a statement cannot make for itself.
CREATE OR REPLACE FUNCTION hashindex.exact_probes(
    i hashindex.index, terms jsonb, share double precision
)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    IF i.access <> 'landmarks' THEN
        RETURN NULL;
    END IF;
    RETURN format(
        'ARRAY(SELECT hashindex_landmark.landmark FROM hashindex.%I hashindex_landmark '
        'ORDER BY (%s) + 0, hashindex_landmark.landmark LIMIT ceil(%s / %s::double precision))',
        i.name || '_landmarks', hashindex.landmark_order(i, terms ->> 'query'),
        coalesce(terms ->> 'probes', i.probes::text), greatest(share, 0.001)
    );
END
$$;

COMMENT ON FUNCTION hashindex.exact_probes(hashindex.index, jsonb, double precision) IS
    'SQL for the landmarks to probe where a condition keeps that share of the rows';

-- Of the entries in the probed lists, those within a Hamming distance. It is taken from the nearest
-- two lists, so that about five times as many pass as candidates are wanted: measured on text
-- embeddings, what part of all entries passes is about the square of the part of those in the two.
CREATE OR REPLACE FUNCTION hashindex.list_threshold(i hashindex.index, terms jsonb)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN format(
        $query$SELECT coalesce(s.fars[
        least(s.n, ceil(sqrt(10 * %1$s::double precision * s.n / cardinality(%2$s))))::integer
    ], %4$s)
    FROM (SELECT array_agg(n.far ORDER BY n.far) AS fars, count(*) AS n FROM (%3$s) n) s$query$,
        terms ->> 'kept', terms ->> 'lists',
        hashindex.near_codes(
            i, 'landmarks', terms || jsonb_build_object('lists', format('(%s)[1:2]', terms ->> 'lists'))
        ),
        -- Where these two are empty, all entries of the others.
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
        -- A landmark that is missed costs more than the time that it takes to find it.
        PERFORM set_config('hnsw.ef_search', least(1000, greatest(4 * hashindex_probes, 40))::text, true);
        -- The planner thinks the more of a large effort, and would rather look at every landmark.
        PERFORM set_config('enable_seqscan', 'off', true);
        hashindex_lists := ARRAY(
            SELECT hashindex_landmark.landmark FROM hashindex.%1$I hashindex_landmark
            ORDER BY %2$s LIMIT hashindex_probes
        );
        PERFORM set_config('enable_seqscan', hashindex_settings[3], true);
        %3$s
        IF coalesce(cardinality(hashindex_ids), 0) < $2 THEN
            hashindex_lists := ARRAY(
                SELECT hashindex_landmark.landmark FROM hashindex.%1$I hashindex_landmark
                ORDER BY (%2$s) + 0, hashindex_landmark.landmark LIMIT 8 * hashindex_probes
            );
            %3$s
        END IF;
        IF coalesce(cardinality(hashindex_ids), 0) < $2 THEN
            %4$s
        ELSE
            RETURN QUERY SELECT a.id, a.distance FROM unnest(hashindex_ids, hashindex_distances) a(id, distance);
        END IF;$steps$,
        i.name || '_landmarks', hashindex.landmark_order(i, terms ->> 'query'), collected,
        hashindex.scan_steps(i, terms, weighted)
    );
END
$$;

COMMENT ON FUNCTION hashindex.landmark_steps(hashindex.index, jsonb, boolean) IS
    'statements of a search by landmarks';
