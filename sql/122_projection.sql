-- The layers of one model in the functions of its indexes. Each session keeps them in its plans:
-- searches and triggers would otherwise read 200 to 400 kB of layers each time, and hand them on,
-- which takes ten times as long as evaluating them.
--
-- For that these functions are IMMUTABLE though they read a table: PostgreSQL folds their calls to
-- constants. A saved model never changes, its id is never given again, and no index or generated
-- column calls them, so nothing that is stored depends on it. A model that a transaction does not
-- see yet is an error, which no plan keeps; NULL would stay.

CREATE OR REPLACE FUNCTION hashindex.layers_of(model_id bigint)
RETURNS hashindex.layer[]
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    kept hashindex.layer[];
BEGIN
    SELECT m.layers INTO kept FROM hashindex.model m WHERE m.id = layers_of.model_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'model with id % is not visible to this transaction', model_id
            USING ERRCODE = 'serialization_failure',
                  HINT = 'Run the transaction again. Where a database was restored without its rows, restore those of schema hashindex first, or give its indexes up: pg-hashindex index repair --orphans.';
    END IF;
    RETURN kept;
END
$$;

COMMENT ON FUNCTION hashindex.layers_of(bigint) IS
    'layers of a stored model, by its id; for the plans of searches and triggers alone';

CREATE OR REPLACE FUNCTION hashindex.weights_of(model_id bigint, place integer)
RETURNS vector[]
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN ((hashindex.layers_of(model_id))[place]).weights;
END
$$;

COMMENT ON FUNCTION hashindex.weights_of(bigint, integer) IS
    'weights of one layer of a stored model; for the plans of searches alone';

CREATE OR REPLACE FUNCTION hashindex.bias_of(model_id bigint, place integer)
RETURNS vector
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN ((hashindex.layers_of(model_id))[place]).bias;
END
$$;

COMMENT ON FUNCTION hashindex.bias_of(bigint, integer) IS
    'bias of one layer of a stored model; for the plans of searches alone';

-- Each layer as a statement of its own, which says what hashindex.project_with does with it. An
-- affinity, of which no session evaluates many, is left to that.
CREATE OR REPLACE FUNCTION hashindex.projection_steps(used hashindex.model, query_term text)
RETURNS text
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    x text := 'hashindex_projection';
    steps text := format(
        E'    PERFORM hashindex.check_dimension(vector_dims(%1$s), %2$s);\n    %3$s := %1$s;',
        query_term, used.dimension, x
    );
    layer hashindex.layer;
    place integer := 0;
BEGIN
    FOREACH layer IN ARRAY used.layers LOOP
        place := place + 1;
        IF layer.kind NOT IN ('normalize', 'shift', 'affine', 'rbf', 'relu', 'tanh', 'sin', 'cos') THEN
            RETURN format(
                '    %s := hashindex.project_with(hashindex.layers_of(%s), %s);', x, used.id, query_term
            );
        END IF;
        steps := steps || E'\n    ' || x || ' := ' || CASE layer.kind
            WHEN 'normalize' THEN format('l2_normalize(%s)', x)
            WHEN 'shift' THEN format('%s + hashindex.bias_of(%s, %s)', x, used.id, place)
            WHEN 'affine' THEN format(
                'ARRAY(SELECT inner_product(w, %1$s) FROM unnest(hashindex.weights_of(%2$s, %3$s)) w)::vector '
                '+ hashindex.bias_of(%2$s, %3$s)', x, used.id, place
            )
            WHEN 'rbf' THEN format(
                'ARRAY(SELECT exp(greatest(-%4$L::real * vector_l2_squared_distance(w, %1$s), -700)) '
                'FROM unnest(hashindex.weights_of(%2$s, %3$s)) w)::vector', x, used.id, place, layer.scale
            )
            WHEN 'relu' THEN format('ARRAY(SELECT greatest(e, 0) FROM unnest(%s::real[]) e)::vector', x)
            ELSE format(
                'ARRAY(SELECT %2$s(e::double precision) FROM unnest(%1$s::real[]) e)::vector', x, layer.kind
            )
        END || ';';
    END LOOP;
    RETURN steps;
END
$$;

COMMENT ON FUNCTION hashindex.projection_steps(hashindex.model, text) IS
    'statements that put the projection of a vector by a stored model into hashindex_projection';
