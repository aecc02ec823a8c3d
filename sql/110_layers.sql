-- Evaluates the layers of a model, as pg_hashindex/models/layers.py does in Python. Reads no table, so it may be IMMUTABLE.
-- Triggers call it under a path without pgvector, so names of pgvector are qualified; {ext} is its schema.

CREATE OR REPLACE FUNCTION hashindex.project_with(layers hashindex.layer[], v {ext}.vector) RETURNS {ext}.vector
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    layer hashindex.layer;
    x {ext}.vector := v;
    expected integer;
    distances double precision[];
    least_distance double precision;
    near integer[];
    place integer;
    shares double precision[];
    total double precision;
BEGIN
    -- Without layers the loop below would return the vector itself.
    IF cardinality(layers) NOT BETWEEN 1 AND 64 THEN
        RAISE EXCEPTION 'there are % layers to evaluate; a model has 1 to 64',
            coalesce(nullif(cardinality(layers), 0)::text, 'no')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Pass the layers of a stored model.';
    END IF;
    FOREACH layer IN ARRAY layers LOOP
        -- A layer with a missing part would give NULL or wrong numbers.
        IF (CASE
            WHEN layer.kind = 'affine' THEN layer.weights IS NULL OR layer.bias IS NULL
            WHEN layer.kind = 'shift' THEN layer.bias IS NULL
            WHEN layer.kind = 'rbf' THEN NOT coalesce(
                layer.weights IS NOT NULL AND layer.scale > 0 AND layer.scale < 'Infinity', false
            )
            WHEN layer.kind = 'affinity' THEN NOT coalesce(
                layer.scale > 0 AND layer.scale < 'Infinity'
                AND layer.nearest BETWEEN 1 AND cardinality(layer.weights), false
            )
            WHEN layer.kind IN ('normalize', 'relu', 'tanh', 'sin', 'cos', 'network') THEN false
            ELSE true
        END) THEN
            RAISE EXCEPTION 'a layer is malformed: %', hashindex._layer_problem(layer, {ext}.vector_dims(x))
                USING ERRCODE = 'invalid_parameter_value', HINT = 'Pass the layers of a stored model.';
        END IF;
        expected := {ext}.vector_dims(coalesce(layer.weights[1], layer.bias));
        IF expected <> {ext}.vector_dims(x) THEN
            PERFORM hashindex._refuse_vector(x, expected);
        END IF;
        CASE layer.kind
            WHEN 'normalize' THEN
                x := {ext}.l2_normalize(x);
            WHEN 'shift' THEN
                x := x OPERATOR({ext}.+) layer.bias;
            WHEN 'affine' THEN
                x := ARRAY(SELECT {ext}.inner_product(w, x) FROM unnest(layer.weights) w)::{ext}.vector
                    OPERATOR({ext}.+) layer.bias;
            WHEN 'rbf' THEN
                -- exp() raises an underflow error below about -745.
                x := ARRAY(
                    SELECT exp(greatest(-layer.scale * {ext}.vector_l2_squared_distance(w, x), -700))
                    FROM unnest(layer.weights) w
                )::{ext}.vector;
            WHEN 'affinity' THEN
                distances := ARRAY(
                    SELECT {ext}.vector_l2_squared_distance(w, x) FROM unnest(layer.weights) w
                );
                -- These distances are float32 sums. Anchors that rounding could put in the wrong order are
                -- compared again by float64 sums, as in Python.
                near := ARRAY(
                    SELECT a.place
                    FROM unnest(distances) WITH ORDINALITY AS a(distance, place)
                    WHERE a.distance <= 1.00001 * (
                        SELECT d FROM unnest(distances) d ORDER BY d
                        OFFSET layer.nearest - 1 LIMIT 1
                    )
                );
                IF cardinality(near) > layer.nearest THEN
                    near := ARRAY(
                        SELECT n FROM unnest(near) n
                        ORDER BY (
                            SELECT sum((e.w - e.x) ^ 2)
                            FROM unnest(
                                layer.weights[n]::real[]::double precision[],
                                x::real[]::double precision[]
                            ) AS e(w, x)
                        ), n
                        LIMIT layer.nearest
                    );
                END IF;
                -- Relative to the nearest anchor, so that the sum is at least 1.
                least_distance := min(d) FROM unnest(distances) d;
                shares := array_fill(0::double precision, ARRAY[cardinality(distances)]);
                FOREACH place IN ARRAY near LOOP
                    shares[place] := exp(
                        greatest(layer.scale * (least_distance - distances[place]), -700)
                    );
                END LOOP;
                total := sum(s) FROM unnest(shares) s;
                x := ARRAY(SELECT s / total FROM unnest(shares) s)::{ext}.vector;
            WHEN 'relu' THEN
                x := ARRAY(SELECT greatest(e, 0) FROM unnest(x::real[]) e)::{ext}.vector;
            WHEN 'tanh' THEN
                x := ARRAY(SELECT tanh(e::double precision) FROM unnest(x::real[]) e)::{ext}.vector;
            WHEN 'sin' THEN
                x := ARRAY(SELECT sin(e::double precision) FROM unnest(x::real[]) e)::{ext}.vector;
            WHEN 'cos' THEN
                x := ARRAY(SELECT cos(e::double precision) FROM unnest(x::real[]) e)::{ext}.vector;
            WHEN 'network' THEN
                RAISE EXCEPTION 'the model is evaluated in Python, not in SQL'
                    USING ERRCODE = 'feature_not_supported',
                          HINT = 'Encode rows with: pg-hashindex model encode; vectors with Model.encode in Python.';
        END CASE;
    END LOOP;
    RETURN x;
END
$$;

COMMENT ON FUNCTION hashindex.project_with(hashindex.layer[], {ext}.vector) IS
    'projection of a vector by the layers of a model: one number for each bit';

-- Each of the cuts n times, as one vector. A function of its own, since PostgreSQL computes constants once a session.
CREATE OR REPLACE FUNCTION hashindex._cut_vector(n integer, cuts real[]) RETURNS {ext}.vector
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN (SELECT array_agg(c.cut ORDER BY c.place) FROM unnest(cuts) WITH ORDINALITY c(cut, place), generate_series(1, least(n, 16001)))::{ext}.vector;

-- Code of a projection, as pg_hashindex/models/quantization.py explains it: a bit for each cut of each number, all bits of the first cut
-- first. One cut at 0 gives the signs.
CREATE OR REPLACE FUNCTION hashindex._quantize(projection {ext}.vector, cuts real[] DEFAULT '{0}') RETURNS bit varying
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    p {ext}.vector := projection;
BEGIN
    FOR place IN 2..cardinality(cuts) LOOP
        p := p OPERATOR({ext}.||) projection;
    END LOOP;
    RETURN {ext}.binary_quantize(
        CASE WHEN cuts = '{0}' THEN p ELSE p OPERATOR({ext}.-) hashindex._cut_vector({ext}.vector_dims(projection), cuts) END
    );
END
$$;

-- This body is parsed when it is created: its names cannot change their meaning, and calls can be inlined.
CREATE OR REPLACE FUNCTION hashindex.encode_with(layers hashindex.layer[], v {ext}.vector, cuts real[] DEFAULT '{0}') RETURNS bit
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN hashindex._quantize(hashindex.project_with(layers, v), cuts);

COMMENT ON FUNCTION hashindex.encode_with(hashindex.layer[], {ext}.vector, real[]) IS
    'code of a vector by the layers of a model: bit 1 where the projection is above a cut';
