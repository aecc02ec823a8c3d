-- Weighted code distance, for models that say what each bit counts. With weights rounded to 4 bits
-- it is a sum of four bit counts, each under a mask of the bits that hold that power of two.

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
    RETURN ARRAY(
        SELECT string_agg(
            ((round(15 * u.w / greatest_weight)::integer >> p) & 1)::text, '' ORDER BY u.position
        )::bit varying
        FROM generate_series(0, 3) p, unnest(weights::real[]) WITH ORDINALITY u(w, position)
        GROUP BY p
        ORDER BY p
    );
END
$$;

COMMENT ON FUNCTION hashindex.weight_planes(vector) IS
    'weights of bits, rounded to 0 to 15 of the greatest, as masks of the bits that hold 1, 2, 4 and 8';

CREATE OR REPLACE FUNCTION hashindex.weighted_order(planes bit varying[], code_term text, query_term text)
RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    terms text := string_agg(
        format('(bit_count((%s # %s) & B%L) << %s)', code_term, query_term, u.plane::text, u.position - 1),
        ' + ' ORDER BY u.position
    )
    FROM unnest(planes) WITH ORDINALITY u(plane, position)
    WHERE bit_count(u.plane) > 0;
BEGIN
    IF terms IS NULL THEN
        RAISE EXCEPTION 'no mask has a bit: distances by these weights are all 0'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Make masks with hashindex.weight_planes.';
    END IF;
    RETURN terms;
END
$$;

COMMENT ON FUNCTION hashindex.weighted_order(bit varying[], text, text) IS
    'SQL for the weighted distance of two codes, from SQL for the codes and the masks of weight_planes';
