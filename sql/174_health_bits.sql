-- Health of the bits of codes, by codes that are drawn: what each of them tells, and what together.

-- From strings of bits, one for each bit of the code.
CREATE OR REPLACE FUNCTION hashindex._health_of_ones(i hashindex.index, profile jsonb, bits bit varying[], n integer)
RETURNS TABLE (check_name text, status text, value double precision, detail text, advice text)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    told record;
    -- Of two parts, one is free.
    noise double precision;
    drifts boolean;
BEGIN
    IF profile IS NULL THEN
        RETURN QUERY SELECT 'bit_drift', 'ok', NULL::double precision,
            'shares of ones were not stored at training'::text, NULL::text;
        RETURN;
    END IF;
    noise := 1 / n::double precision + 1 / (profile -> 'rows')::double precision;
    SELECT greatest(0, avg(p.psi) - noise) AS mean, greatest(0, max(p.psi) - noise) AS worst, count(*) AS count,
           (array_agg(p.bit ORDER BY p.psi DESC, p.bit))[1] AS bit,
           (array_agg(p.was ORDER BY p.psi DESC, p.bit))[1] AS was,
           (array_agg(p.now ORDER BY p.psi DESC, p.bit))[1] AS now
    INTO told FROM (
        SELECT s.bit, s.was, s.now, (s.now - s.was) * ln(s.now * (1 - s.was) / (s.was * (1 - s.now))) AS psi FROM (
            SELECT o.bit - 1 AS bit, (w.ones::double precision + 0.5) / ((profile -> 'rows')::double precision + 1) AS was,
                   (bit_count(o.ones) + 0.5) / (n + 1::double precision) AS now
            FROM unnest(bits) WITH ORDINALITY o(ones, bit)
            JOIN jsonb_array_elements_text(profile -> 'ones') WITH ORDINALITY w(ones, bit) ON w.bit = o.bit
        ) s
    ) p;
    IF noise IS NULL OR told.count < cardinality(bits) THEN
        RAISE EXCEPTION 'it has no rows or no ones' USING ERRCODE = 'data_exception';
    END IF;
    drifts := told.mean > 0.1 + 5 * noise OR told.worst > 0.25 + 20 * noise;
    RETURN QUERY SELECT 'bit_drift', CASE WHEN drifts THEN 'warning' ELSE 'ok' END, told.mean,
        format('population stability index of shares of ones, mean of the bits %s, bit %s the most with %s: 1 in %s %% of '
               'codes, at training in %s %%; by %s codes',
               round(told.mean::numeric, 3), told.bit, round(told.worst::numeric, 3),
               round((100 * told.now)::numeric, 1), round((100 * told.was)::numeric, 1), n),
        CASE WHEN drifts THEN hashindex._advice_on_drift(i) END;
EXCEPTION WHEN data_exception THEN
    RETURN QUERY SELECT 'bit_drift', 'warning', NULL::double precision,
        format('the profile of the model is damaged: %s', SQLERRM), 'train the model anew'::text;
END
$$;

COMMENT ON FUNCTION hashindex._health_of_ones(hashindex.index, jsonb, bit varying[], integer) IS
    'health: how far shares of ones in codes have drifted since the training';

CREATE OR REPLACE FUNCTION hashindex._health_of_bits(i hashindex.index, "full" boolean)
RETURNS TABLE (check_name text, status text, value double precision, detail text, advice text)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
SET jit = off
AS $$
DECLARE
    used hashindex.model := m FROM hashindex.model m WHERE m.id = i.model_id;
    code_table regclass := format('%I.%I', i.code_schema, i.code_table)::regclass;
    -- A million bits are taken apart in half a second. A share of 100,000 codes errs by 0.002.
    wanted integer := CASE WHEN _health_of_bits.full THEN least(100000, 50000000 / used.n_bits)
        ELSE least(2000, greatest(200, 1000000 / used.n_bits)) END;
    drawn bit varying[];
    -- Of each bit, what the drawn codes have there.
    bits bit varying[];
    n integer;
    told record;
    -- Of fewer, chance alone makes bits that are the same.
    enough boolean;
BEGIN
    EXECUTE format(
        'SELECT array_agg(s.code) FROM ('
        '    SELECT c.%1$I::bit varying AS code FROM %2$s c %3$s WHERE c.%1$I IS NOT NULL ORDER BY random() LIMIT $1'
        ') s',
        i.code_column, code_table,
        CASE WHEN NOT _health_of_bits.full THEN hashindex._sample_clause(code_table, 2000) END
    ) INTO drawn USING wanted;
    n := coalesce(cardinality(drawn), 0);
    IF n = 0 THEN
        RETURN QUERY SELECT c.name, 'ok', NULL::double precision, 'there are no codes to look at'::text, NULL::text
        FROM unnest(ARRAY['bits', 'correlation', 'bit_drift', 'duplicates']) c(name);
        RETURN;
    END IF;
    bits := ARRAY(
        SELECT (SELECT string_agg(get_bit(d.code, b.bit)::text, '') FROM unnest(drawn) d(code))::bit varying
        FROM generate_series(0, used.n_bits - 1) b(bit) ORDER BY b.bit
    );
    enough := n >= 100;

    SELECT min(e.entropy) AS least, avg(e.entropy) AS mean, min(e.share) AS lowest, max(e.share) AS highest,
           count(*) FILTER (WHERE e.entropy < 0.05) AS silent,
           (array_agg(e.bit ORDER BY e.entropy, e.bit))[1] AS worst,
           (array_agg(e.share ORDER BY e.entropy, e.bit))[1] AS worst_share
    INTO told FROM (
        SELECT s.bit, s.share, CASE WHEN s.share IN (0, 1) THEN 0 ELSE
            -(s.share * ln(s.share) + (1 - s.share) * ln(1 - s.share)) / ln(2.0::double precision) END AS entropy
        FROM (
            SELECT o.bit - 1 AS bit, bit_count(o.ones) / n::double precision AS share
            FROM unnest(bits) WITH ORDINALITY o(ones, bit)
        ) s
    ) e;
    RETURN QUERY SELECT 'bits', CASE WHEN enough AND (told.silent > 0 OR told.mean < 0.5) THEN 'warning' ELSE 'ok' END,
        told.least,
        format('bit %s tells the least: it is 1 in %s %% of codes, an entropy of %s; the mean is %s, shares of ones are '
               '%s to %s %%, by %s codes',
               told.worst, round((100 * told.worst_share)::numeric, 1), round(told.least::numeric, 3),
               round(told.mean::numeric, 3), round((100 * told.lowest)::numeric, 1),
               round((100 * told.highest)::numeric, 1), n)
            || CASE WHEN told.silent > 1 THEN format('; %s bits are nearly the same for all rows', told.silent) ELSE '' END,
        CASE WHEN enough AND (told.silent > 0 OR told.mean < 0.5) THEN
            'train a model on rows as they are now, or one of fewer bits or another method, and swap it' END;

    RETURN QUERY SELECT c.* FROM hashindex._health_of_correlation(
        bits, n, CASE WHEN _health_of_bits.full THEN 2048 ELSE 512 END
    ) c;

    RETURN QUERY SELECT d.* FROM hashindex._health_of_ones(i, used.profile, bits, n) d;
    RETURN QUERY SELECT d.* FROM hashindex._health_of_duplicates(i, drawn[:2000], _health_of_bits.full) d;
END
$$;

COMMENT ON FUNCTION hashindex._health_of_bits(hashindex.index, boolean) IS
    'health: shares of ones, entropy, correlation and drift of the bits of codes, and codes that many rows share';

-- From strings of bits, one for each bit of the code. Of more bits than given, as many are drawn.
CREATE OR REPLACE FUNCTION hashindex._health_of_correlation(bits bit varying[], n integer, most integer)
RETURNS TABLE (check_name text, status text, value double precision, detail text, advice text)
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    told record;
    copies boolean;
BEGIN
    WITH drawn AS (
        SELECT o.bit - 1 AS bit, o.ones, bit_count(o.ones)::double precision AS count
        FROM unnest(bits) WITH ORDINALITY o(ones, bit)
        ORDER BY CASE WHEN cardinality(bits) > most THEN random() ELSE 0 END, o.bit LIMIT most
    ), pairs AS (
        SELECT a.bit AS first, b.bit AS second, (bit_count(a.ones & b.ones) * n - a.count * b.count)
            / sqrt(a.count * (n - a.count) * b.count * (n - b.count)) AS correlation
        FROM drawn a JOIN drawn b ON b.bit > a.bit
        -- Of a bit that never changes there is none.
        WHERE a.count NOT IN (0, n) AND b.count NOT IN (0, n)
    ), best AS (
        SELECT p.first, p.second, p.correlation FROM pairs p ORDER BY abs(p.correlation) DESC, p.first, p.second LIMIT 3
    )
    SELECT max(abs(b.correlation)) AS greatest, string_agg(
        format('%s and %s (%s)', b.first, b.second, round(b.correlation::numeric, 3)), ', '
        ORDER BY abs(b.correlation) DESC, b.first, b.second
    ) AS shown, (SELECT avg(abs(p.correlation)) FROM pairs p) AS mean
    INTO told FROM best b;
    -- Of few codes, chance alone makes bits that are alike.
    copies := coalesce(n >= 100 AND told.greatest > 0.95, false);
    RETURN QUERY SELECT 'correlation', CASE WHEN copies THEN 'warning' ELSE 'ok' END, told.greatest,
        CASE WHEN told.greatest IS NULL THEN format('there are no two bits that differ among %s codes', n)
             ELSE format('the most correlated bits are %s; the mean of all pairs is %s, by %s codes', told.shown,
                         round(told.mean::numeric, 3), n)
                || CASE WHEN cardinality(bits) > most THEN format(' and %s of %s bits', most, cardinality(bits))
                        ELSE '' END END,
        CASE WHEN copies THEN 'bits that are nearly copies tell nothing more: train a model of fewer bits, or by '
            'another method, and swap it' END;
END
$$;

COMMENT ON FUNCTION hashindex._health_of_correlation(bit varying[], integer, integer) IS
    'health: the pairs of bits that are most alike, or most opposite, in codes';

-- How many rows have the code of a drawn one, among all, or three million of more.
CREATE OR REPLACE FUNCTION hashindex._health_of_duplicates(i hashindex.index, drawn bit varying[], "full" boolean)
RETURNS TABLE (check_name text, status text, value double precision, detail text, advice text)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
SET jit = off
AS $$
DECLARE
    code_table regclass := format('%I.%I', i.code_schema, i.code_table)::regclass;
    sampled text := CASE WHEN _health_of_duplicates.full THEN '' ELSE hashindex._sample_clause(code_table, 40000) END;
    shared double precision;
    crowded double precision;
    most bigint;
    told boolean;
BEGIN
    -- bit has no hash, so that the first 64 are compared as a number before.
    EXECUTE format(
        'WITH drawn AS ('
        '    SELECT d.code, d.code::bit(64)::bigint AS head, count(*)::double precision AS times'
        '    FROM unnest($1) d(code) GROUP BY d.code'
        '), alike AS ('
        '    SELECT d.times, count(*) AS rows FROM (SELECT d.*, row_number() OVER () AS number FROM drawn d) d'
        '    JOIN (SELECT c.%1$I AS code, c.%1$I::bit(64)::bigint AS head FROM %2$s c %3$s) c'
        '        ON c.head = d.head AND c.code = d.code'
        '    GROUP BY d.number, d.times'
        ') '
        'SELECT coalesce(sum(a.times) FILTER (WHERE a.rows > 1), 0) / cardinality($1),'
        '       coalesce(sum(a.times) FILTER (WHERE a.rows > $2), 0) / cardinality($1), coalesce(max(a.rows), 1) '
        'FROM alike a',
        i.code_column, code_table, sampled
    ) INTO shared, crowded, most USING drawn, i.candidates;
    told := cardinality(drawn) >= 100 AND crowded > 0.1;
    RETURN QUERY SELECT 'duplicates', CASE WHEN told THEN 'warning' ELSE 'ok' END, shared,
        format('%s%s %% of rows share their code with another, %s rows the most common of %s codes%s',
               CASE WHEN sampled <> '' THEN 'at least ' ELSE '' END, round((100 * shared)::numeric, 1), most,
               cardinality(drawn), CASE WHEN crowded > 0 THEN format(
                   '; %s %% with more than the %s candidates of a search',
                   round((100 * crowded)::numeric, 1), i.candidates
               ) ELSE '' END),
        CASE WHEN told THEN 'codes do not tell these rows apart: unless the rows are copies themselves, train a '
            'model of more bits on rows as they are now, and swap it' END;
END
$$;

COMMENT ON FUNCTION hashindex._health_of_duplicates(hashindex.index, bit varying[], boolean) IS
    'health: how many rows share their code with others';
