-- Health of the codes themselves: whether they are what the model gives, and whether rows still look
-- like those that it was trained on.

CREATE OR REPLACE FUNCTION hashindex._advice_on_drift(i hashindex.index)
RETURNS text
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN 'rows are no longer like those of the training: train a model on them, and swap it: '
        || 'pg-hashindex index swap ' || hashindex._shell_word(i.name) || ' --model MODEL';
END
$$;

COMMENT ON FUNCTION hashindex._advice_on_drift(hashindex.index) IS
    'what to do where rows are no longer like those that a model was trained on';

-- One pass over rows: projections, the codes that they give, and which tenth of the training's each
-- number falls in. Bits that lie as near to 0 as rounding may take them are nobody's fault.
CREATE OR REPLACE FUNCTION hashindex._health_of_codes(i hashindex.index, "full" boolean)
RETURNS TABLE (check_name text, status text, value double precision, detail text, advice text)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
SET jit = off
AS $$
DECLARE
    used hashindex.model := m FROM hashindex.model m WHERE m.id = i.model_id;
    base regclass := format('%I.%I', i.schema_name, i.table_name)::regclass;
    named text := hashindex._shell_word(i.name);
    ids text[];
    source text;
    drawn bit varying[];
    vectors {ext}.vector[];
    rows double precision;
    coded double precision;
    wrong double precision;
    mean double precision;
    worst double precision;
    worst_bit integer;
    -- A psi is as large by chance, on average; of tenths.
    noise double precision;
    drifts boolean;
BEGIN
    IF used.network IS NOT NULL THEN
        RETURN QUERY SELECT c.name, 'ok', NULL::double precision,
            'the model is evaluated in Python: pg-hashindex index check looks at it'::text, NULL::text
        FROM unnest(ARRAY['wrong_codes', 'projection_drift']) c(name);
        RETURN;
    END IF;
    IF NOT _health_of_codes.full THEN
        ids := s.ids FROM hashindex._sample_ids(base, i.id_column, format('b.%I IS NOT NULL', i.column_name), 1000) s;
    END IF;
    source := format(
        CASE WHEN i.layout = 'table' THEN
            'SELECT c.code, b.%1$I::{ext}.vector FROM %2$s LEFT JOIN %4$I.%5$I c ON c.id = b.%3$I WHERE b.%1$I IS NOT NULL'
            ELSE 'SELECT b.%6$I, b.%1$I::{ext}.vector FROM %2$s WHERE b.%1$I IS NOT NULL' END,
        i.column_name,
        CASE WHEN _health_of_codes.full THEN format('%s b', base)
             ELSE format('unnest($1) k(id) JOIN %s b ON b.%I = k.id::%s', base, i.id_column, hashindex._key_type(i.id_type)) END,
        i.id_column, i.code_schema, i.code_table, i.code_column
    );
    IF hashindex._is_distributed(i) THEN
        -- Citus does not plan what follows: it is given rows that were read before, of a full check so many.
        EXECUTE format('SELECT array_agg(r.code::bit varying), array_agg(r.vector) FROM (%s LIMIT 20000) r(code, vector)', source)
        INTO drawn, vectors USING ids;
        source := 'SELECT * FROM unnest($7, $8)';
    END IF;
    BEGIN EXECUTE format(
        $query$
        WITH edges AS (
            SELECT e.bit,
                   ARRAY(SELECT x::real FROM jsonb_array_elements_text(e.edges) WITH ORDINALITY o(x, n) ORDER BY n)
                       AS edges,
                   ARRAY(SELECT x::double precision FROM jsonb_array_elements_text(c.counts)
                         WITH ORDINALITY o(x, n) ORDER BY n) AS counts
            FROM jsonb_array_elements($3 -> 'edges') WITH ORDINALITY e(edges, bit)
            JOIN jsonb_array_elements($3 -> 'counts') WITH ORDINALITY c(counts, bit) USING (bit)
        ), projected AS (
            SELECT r.code, CASE WHEN {ext}.vector_dims(r.vector) = $4 THEN hashindex.project_with($2, r.vector) END AS p
            FROM (%1$s) r(code, vector) OFFSET 0
        ), judged AS (
            SELECT p.p, p.code, CASE
                WHEN p.code IS NULL THEN false
                WHEN p.p IS NULL THEN true
                WHEN p.code = p.fresh THEN false
                ELSE EXISTS (
                    -- In units of the standard deviation of the row's projections.
                    SELECT FROM (
                        SELECT e.n - 1 AS n, abs(e.x) * sqrt({ext}.vector_dims(p.p)) / nullif({ext}.vector_norm(p.p), 0) AS size
                        FROM unnest(p.p::real[]) WITH ORDINALITY e(x, n)
                    ) u CROSS JOIN generate_series(0, $5 / {ext}.vector_dims(p.p) - 1) half
                    WHERE get_bit(p.code # p.fresh, u.n::integer + half * {ext}.vector_dims(p.p)) = 1
                      AND coalesce(u.size > 0.001 AND (half = 0 OR abs(u.size - 1) > 0.001), false)
                )
            END AS wrong
            FROM (SELECT p.*, hashindex._quantize(p.p, $6) AS fresh FROM projected p OFFSET 0) p OFFSET 0
        ), counted AS (
            SELECT u.bit, width_bucket(u.x, e.edges) AS tenth, count(j.p) AS n,
                   count(*) FILTER (WHERE u.bit = 1 AND j.code IS NOT NULL) AS coded,
                   count(*) FILTER (WHERE u.bit = 1 AND j.wrong) AS wrong
            FROM judged j
            CROSS JOIN LATERAL unnest(coalesce(j.p::real[], '{NULL}')) WITH ORDINALITY u(x, bit)
            LEFT JOIN edges e ON e.bit = u.bit
            WHERE u.bit = 1 OR $3 IS NOT NULL
            GROUP BY u.bit, width_bucket(u.x, e.edges)
        ), seen AS (
            SELECT coalesce(sum(c.n) FILTER (WHERE c.bit = 1), 0)::double precision AS n,
                   coalesce(sum(c.coded), 0)::double precision AS coded,
                   coalesce(sum(c.wrong), 0)::double precision AS wrong
            FROM counted c
        ), psi AS (
            -- Half a row more in each tenth, so that none is empty.
            SELECT t.bit, sum((t.now - t.was) * ln(t.now / t.was)) AS psi FROM (
                SELECT e.bit, (e.counts[t.tenth + 1] + 0.5) / (($3 -> 'rows')::double precision + 5) AS was,
                       (coalesce(c.n, 0) + 0.5) / (s.n + 5) AS now
                FROM seen s CROSS JOIN edges e CROSS JOIN generate_series(0, 9) t(tenth)
                LEFT JOIN counted c ON c.bit = e.bit AND c.tenth = t.tenth
            ) t GROUP BY t.bit
        )
        SELECT s.n, s.coded, s.wrong, (SELECT avg(p.psi) FROM psi p), w.psi, w.bit - 1
        FROM seen s LEFT JOIN (SELECT p.psi, p.bit FROM psi p ORDER BY p.psi DESC, p.bit LIMIT 1) w ON true
        $query$,
        source
    ) INTO rows, coded, wrong, mean, worst, worst_bit USING
        ids, used.layers, used.profile, used.dimension, used.n_bits, used.levels, drawn, vectors;
        IF used.profile IS NOT NULL AND rows > 0
            AND 1 / (used.profile -> 'rows')::double precision + mean IS NULL THEN
            RAISE EXCEPTION 'it has no rows or no edges' USING ERRCODE = 'data_exception';
        END IF;
    EXCEPTION WHEN data_exception THEN
        -- A vector that a layer takes beyond float32, or a profile that is none.
        RETURN QUERY SELECT c.name, 'warning', NULL::double precision,
            format('a row cannot be evaluated, or the profile of the model is damaged: %s', SQLERRM),
            'mend or remove the row, or train the model anew'::text
        FROM unnest(ARRAY['wrong_codes', 'projection_drift']) c(name);
        RETURN;
    END;

    RETURN QUERY SELECT 'wrong_codes', CASE WHEN wrong > 0 THEN 'broken' ELSE 'ok' END, wrong / nullif(coded, 0),
        CASE WHEN coded = 0 THEN 'there are no codes to look at'
             WHEN wrong = 0 THEN format('%s codes are what the model gives their rows', coded)
             ELSE format('%s of %s codes are not what the model gives their rows', wrong, coded) END,
        CASE WHEN wrong > 0 THEN format(
            'find out what wrote past the triggers; pg-hashindex index repair %s --full makes wrong codes anew', named
        ) END;

    noise := 1 / nullif(rows, 0) + 1 / (used.profile -> 'rows')::double precision;
    mean := greatest(0, mean - 9 * noise);
    worst := greatest(0, worst - 9 * noise);
    drifts := mean > 0.1 + 13 * noise OR worst > 0.25 + 34 * noise;
    RETURN QUERY SELECT 'projection_drift', CASE WHEN drifts THEN 'warning' ELSE 'ok' END,
        CASE WHEN noise IS NOT NULL THEN mean END,
        CASE WHEN used.profile IS NULL THEN 'how projections were spread was not stored at training'
             WHEN rows = 0 THEN 'there are no rows to look at'
             ELSE format('population stability index of projections, mean of the bits %s, bit %s the most with %s, '
                         'by %s rows', round(mean::numeric, 3), worst_bit, round(worst::numeric, 3), rows) END,
        CASE WHEN drifts THEN hashindex._advice_on_drift(i) END;
END
$$;

COMMENT ON FUNCTION hashindex._health_of_codes(hashindex.index, boolean) IS
    'health: codes that differ from a fresh encoding, and how far projections have drifted since the training';
