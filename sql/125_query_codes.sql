-- A query becomes a few weighted codes u_k, and rows are ordered by sum a_k hamming(code, u_k): any projection p of the query is nearly
-- sum a_k u_k with sign vectors u_k, and <u_k, signs of a row> = bits - 2 hamming.

-- Weights of bits, scaled so that the greatest is 15 and rounded, as masks of the bits whose weight holds 1, 2, 4 and 8. Measured on
-- embeddings and on images, 3 bits give the order of the unrounded weights, except where few bits carry nearly all of the weight. There 4
-- bits give it too.
CREATE OR REPLACE FUNCTION hashindex._weight_planes(weights {ext}.vector) RETURNS bit varying[]
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    rounded integer[] := ARRAY(SELECT round(15 * w::double precision / max(w) OVER ()) FROM unnest(weights::real[]) w);
BEGIN
    RETURN ARRAY(
        SELECT {ext}.binary_quantize((SELECT array_agg(r & plane) FROM unnest(rounded) r)::{ext}.vector)::bit varying
        FROM unnest('{1,2,4,8}'::integer[]) plane
    );
END
$$;

-- Codes of a query for a model with weights of bits; their own weights are 15, 1, 2, 4 and 8. Under a mask, popcount((c # q) & m) = (hamming(c, q) +
-- hamming(c, q # ~m) - bits outside of m) / 2.
CREATE OR REPLACE FUNCTION hashindex._weighted_codes(code bit varying, planes bit varying[]) RETURNS bit varying[]
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN ARRAY[code, code # ~planes[1], code # ~planes[2], code # ~planes[3], code # ~planes[4]];

-- Bits of the numbers that are beyond a step from 0, on either side; minus_p is -p.
CREATE OR REPLACE FUNCTION hashindex._beyond(p {ext}.vector, minus_p {ext}.vector, step {ext}.vector) RETURNS bit varying
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN {ext}.binary_quantize(p OPERATOR({ext}.-) step) | {ext}.binary_quantize(minus_p OPERATOR({ext}.-) step);

-- Codes of a query for other models; their weights are 4, 2 and 1. Each number, one for each bit of a code, in 8 levels, 4 u1 +
-- 2 u2 + u3 with signs u, as the normal distribution asks for. Zeros give codes that rank by plain Hamming distance.
CREATE OR REPLACE FUNCTION hashindex._asymmetric_codes(numbers {ext}.vector, steps {ext}.vector[]) RETURNS bit varying[]
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    p {ext}.vector := {ext}.l2_normalize(numbers);
    minus_p {ext}.vector := p OPERATOR({ext}.-) p OPERATOR({ext}.-) p;
    u bit varying := {ext}.binary_quantize(p);
    -- Larger than two steps.
    large bit varying := hashindex._beyond(p, minus_p, steps[2]);
BEGIN
    RETURN ARRAY[u, ~(u # large), ~(u # large # hashindex._beyond(p, minus_p, steps[1]) # hashindex._beyond(p, minus_p, steps[3]))];
END
$$;

-- SQL for how far a projection is above each cut of a model: the signs are its code, and codes of a query are made of these numbers.
CREATE OR REPLACE FUNCTION hashindex._above_cuts(used hashindex.model, projection text) RETURNS text
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    t integer := cardinality(used.cuts);
BEGIN
    RETURN CASE WHEN used.cuts = '{0}' THEN projection ELSE format(
        '(%s OPERATOR({ext}.-) hashindex._cut_vector(%s, %L))',
        array_to_string(array_fill(projection, ARRAY[t]), ' OPERATOR({ext}.||) '), used.n_bits / t, used.cuts
    ) END;
END
$$;

-- Numbers of a query, one for each bit of a code, that its codes are made of. In inner products only the linear part of the
-- projection counts, not what layers add to all rows: the sum over all cuts is then that of the query and the row's levels.
CREATE OR REPLACE FUNCTION hashindex._compared(used hashindex.model, metric text, projection text, layers text) RETURNS text
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    IF metric <> 'ip' OR EXISTS (SELECT FROM unnest(used.layers) l WHERE l.kind NOT IN ('shift', 'affine')) THEN
        RETURN hashindex._above_cuts(used, projection);
    END IF;
    RETURN array_to_string(array_fill(format(
        '(%s OPERATOR({ext}.-) hashindex.project_with(%s, array_fill(0, ARRAY[%s])::{ext}.vector))',
        projection, layers, used.dimension
    ), ARRAY[cardinality(used.cuts)]), ' OPERATOR({ext}.||) ');
END
$$;

-- Vectors of n times 1, 2 and 3 steps between the 8 levels of a query's numbers of length 1: in standard deviations, the best uniform
-- quantiser for normal values (Max, 1960). A function of their own, since PostgreSQL computes constants once a session.
CREATE OR REPLACE FUNCTION hashindex._steps(n integer) RETURNS {ext}.vector[]
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN ARRAY(
    SELECT array_fill((k * (0.586 / sqrt(n)))::real, ARRAY[n])::{ext}.vector FROM generate_series(1, 3) k
);
