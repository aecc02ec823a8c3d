-- Candidates that a new index has where its options do not say.

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
