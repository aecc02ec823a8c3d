-- Weighted code distance. With weights rounded to 4 bits it is a sum of four bit counts, each under a
-- mask of the bits that hold that power of two. Measured on embeddings and on images, 3 bits order
-- candidates as the weights themselves do but where few bits have nearly all of the weight; 4 do
-- there too.

CREATE OR REPLACE FUNCTION hashindex.weight_planes(weights vector)
RETURNS bit varying[]
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    least_weight double precision;
    greatest_weight double precision;
BEGIN
    SELECT min(w), max(w) INTO least_weight, greatest_weight FROM unnest(weights::real[]) w;
    IF least_weight < 0 OR greatest_weight <= 0 THEN
        RAISE EXCEPTION 'weights of bits are from % to %; they must be 0 or more, and at least one above 0',
            least_weight, greatest_weight
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN (
        SELECT ARRAY[
            binary_quantize(array_agg(r.rounded & 1)::vector)::bit varying,
            binary_quantize(array_agg(r.rounded & 2)::vector)::bit varying,
            binary_quantize(array_agg(r.rounded & 4)::vector)::bit varying,
            binary_quantize(array_agg(r.rounded & 8)::vector)::bit varying
        ]
        FROM (
            SELECT round(15 * w / greatest_weight)::integer AS rounded
            FROM unnest(weights::real[]) w
        ) r
    );
END
$$;

COMMENT ON FUNCTION hashindex.weight_planes(vector) IS
    'weights of bits, rounded to 0 to 15 of the greatest, as masks of the bits that hold 1, 2, 4 and 8';

CREATE OR REPLACE FUNCTION hashindex.query_planes(projection vector)
RETURNS bit varying[]
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    -- A projection of zeros says nothing of any bit: all weigh the same.
    RETURN hashindex.weight_planes(
        ARRAY(
            SELECT CASE WHEN vector_norm(projection) > 0 THEN abs(p) ELSE 1 END
            FROM unnest(projection::real[]) p
        )::vector
    );
END
$$;

COMMENT ON FUNCTION hashindex.query_planes(vector) IS
    'masks of weight_planes for the asymmetric ranking: a bit weighs what the query''s projection is away from 0';

