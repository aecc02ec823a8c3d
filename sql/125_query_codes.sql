-- A query becomes a few weighted codes u_k, and every ranking orders rows by sum a_k hamming(code, u_k): any projection p of the
-- query is nearly sum a_k u_k with sign vectors u_k, and <u_k, signs of a row> = bits - 2 hamming.

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

-- Codes of a query for the ranking weighted; their weights are 15, 1, 2, 4 and 8. Under a mask, popcount((c # q) & m) = (hamming(c, q) +
-- hamming(c, q # ~m) - bits outside of m) / 2.
CREATE OR REPLACE FUNCTION hashindex._weighted_codes(code bit varying, planes bit varying[]) RETURNS bit varying[]
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN ARRAY[code, code # ~planes[1], code # ~planes[2], code # ~planes[3], code # ~planes[4]];

-- Codes of a query for the ranking asymmetric; their weights are 4, 2 and 1 with 2 levels, and 8, 4, 2 and 1 with 4. The projection in 8
-- levels, 4 u1 + 2 u2 + u3 with signs u, as the normal distribution asks for. With two bits a projection a row has the levels 2 s1 + s2,
-- and s2 counts half as much as s1: the projection has the 16 levels 8 u1 + 4 u2 + 2 u3 + u4 for s1, and for s2 the 8 levels 4 u1 + 2 u2
-- + u3 = 8 u1 + 4 (-u1) + 2 u2 + u3. A projection of zeros gives codes that rank by plain Hamming distance.
CREATE OR REPLACE FUNCTION hashindex._asymmetric_codes(projection {ext}.vector, steps {ext}.vector[]) RETURNS bit varying[]
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    p {ext}.vector := {ext}.l2_normalize(projection);
    minus_p {ext}.vector := p OPERATOR({ext}.-) p OPERATOR({ext}.-) p;
    -- The k-th tells which projections are larger than k steps.
    b bit varying[] := ARRAY(SELECT hashindex._beyond(p, minus_p, step) FROM unnest(steps) step);
    u1 bit varying := {ext}.binary_quantize(p);
    u2 bit varying := ~(u1 # b[cardinality(b) / 2 + 1]);
    u3 bit varying;
    u4 bit varying;
BEGIN
    IF cardinality(b) = 3 THEN
        RETURN ARRAY[u1, u2, ~(u1 # b[1] # b[2] # b[3])];
    END IF;
    u3 := ~(u1 # b[2] # b[4] # b[6]);
    u4 := ~(u1 # b[1] # b[2] # b[3] # b[4] # b[5] # b[6] # b[7]);
    RETURN ARRAY[u1 || u1, u2 || ~u1, u3 || u2, u4 || u3];
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

-- Vectors of n times 1, 2, ... steps between the levels of a query's projection of length 1: in standard deviations, the best uniform
-- quantisers of 8 and 16 levels for normal values (Max, 1960). A function of their own, since PostgreSQL computes constants once a session.
CREATE OR REPLACE FUNCTION hashindex._steps(n integer, levels integer) RETURNS {ext}.vector[]
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN ARRAY(
    SELECT array_fill((k * (CASE levels WHEN 2 THEN 0.586 ELSE 0.335 END / sqrt(n)))::real, ARRAY[n])::{ext}.vector
    FROM generate_series(1, 2 * levels - 1) k
);

-- Whether each code of an index has two numbers beside it. Codes of 4 levels rank by distance, and alone they only tell the direction of a
-- projection. Codes of 2 levels rank labels too, which the numbers make worse: MAP .957 becomes .934 for SDH on USPS. The numbers estimate
-- distances of projections, so the length of a vector must count for the model as it does for the metric. STABLE, since Citus copies
-- IMMUTABLE functions to its nodes, which have no type hashindex.model.
CREATE OR REPLACE FUNCTION hashindex._keeps_numbers(used hashindex.model, metric text) RETURNS boolean
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN used.levels = 4 AND ((used.layers[1]).kind = 'normalize') = (metric = 'cosine')
        -- An inner product is one of linear projections.
        AND (metric <> 'ip' OR NOT EXISTS (SELECT FROM unnest(used.layers) l WHERE l.kind NOT IN ('shift', 'affine')));
END
$$;

-- SQL for the distance of a code to the codes of a query; roughly: to the first of them alone, or two, which already excludes most rows. With
-- numbers, of the code c, what a row's own distance grows with: the squared distance of the projections p of a row and q of the query is
-- |p|^2 - 2 <p, q> + |q|^2. With D the distance of the codes and n the projections, <q, levels> is nearly (2 step |q| / sqrt(n)) (15 n - D), so
--     |p|^2 - 2 <p, q> = length * (length + fit * scale * (D - 15 n)),  scale = 4 step |q| / sqrt(n).
-- For inner products q is the projection without what the model adds, and -<p, q> is what counts.
CREATE OR REPLACE FUNCTION hashindex._code_order(
    ranking text, levels integer, n integer, metric text, numbers boolean, code text, terms text[], scale text, roughly boolean
)
RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    weights integer[] := CASE
        WHEN ranking = 'hamming' OR (roughly AND (ranking = 'weighted' OR levels = 2)) THEN '{1}'
        WHEN roughly THEN '{2,1}'
        WHEN ranking = 'weighted' THEN '{15,1,2,4,8}'
        WHEN levels = 2 THEN '{4,2,1}'
        ELSE '{8,4,2,1}'
    END;
    distance text;
BEGIN
    -- "0 +" keeps the planner from an HNSW index on the codes, whose answers are approximate. This takes half the time of
    -- bit_count(code # u).
    distance := CASE WHEN cardinality(weights) = 1 THEN '0 + ' ELSE '' END || string_agg(
        format('%s(%s OPERATOR({ext}.<~>) %s)', CASE WHEN w.weight > 1 THEN w.weight || ' * ' ELSE '' END, code, terms[w.place]),
        ' + ' ORDER BY w.place
    )
    FROM unnest(weights) WITH ORDINALITY w(weight, place);
    IF NOT numbers THEN
        RETURN distance;
    END IF;
    -- The two codes of a rough order are the first two of four, of weights 8 and 4.
    distance := CASE WHEN roughly THEN format('4 * (%s) - %s', distance, 12 * n) ELSE format('%s - %s', distance, 15 * n) END;
    RETURN format(
        CASE metric WHEN 'ip' THEN 'c.length * (c.fit * (%1$s))' ELSE 'c.length * (c.length + c.fit * (%2$s * (%1$s)))' END, distance, scale
    );
END
$$;
