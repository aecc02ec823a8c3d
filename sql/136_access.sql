-- A new index has these where its options do not say: access path and candidates.

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
        RETURN 'lists';
    END IF;
    EXECUTE format(
        'SELECT count(*) = 10000%s FROM (SELECT b.%I::{ext}.vector AS v FROM %I.%I b WHERE b.%I IS NOT NULL LIMIT 10000) r',
        CASE i.metric WHEN 'ip' THEN ' AND max({ext}.vector_norm(r.v)) <= 1.05 * min({ext}.vector_norm(r.v))' END, i.column_name, i.schema_name, i.table_name,
        i.column_name
    ) INTO suits;
    RETURN CASE WHEN suits THEN 'lists' ELSE 'scan' END;
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
        pg_table_size(base::regclass)::double precision
            / (CASE hashindex._vector_type(base::regclass, i.column_name) WHEN '{ext}.halfvec' THEN 2 ELSE 4 END * used.dimension)
    ));
    RETURN ceil(least(greatest((measured ->> 'candidates')::numeric, 10), 200)::double precision * (rows / ranked) ^ 0.2);
END
$$;

-- Candidates of a search for k rows if none are named: the usual ones are for up to ten, and more rows need more in proportion.
CREATE OR REPLACE FUNCTION hashindex._candidates_for(k integer, usual integer) RETURNS integer
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN least(usual::bigint * greatest(k, 10) / 10, 2147483647)::integer;
