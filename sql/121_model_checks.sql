-- Checks the layers of a model as pg_hashindex/models/layers.py and model.py do. Models may also be written by other
-- programs, so layers that do not fit are refused here.

-- The fault of a layer whose input has this number of dimensions; NULL if it has none.
CREATE OR REPLACE FUNCTION hashindex._layer_problem(layer hashindex.layer, dimension integer) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    rows_of integer := cardinality(layer.weights);
    wanted text[] := CASE
        WHEN layer.kind = 'affine' THEN '{weights,bias}'
        WHEN layer.kind = 'shift' THEN '{bias}'
        WHEN layer.kind = 'rbf' THEN '{weights,scale}'
        WHEN layer.kind = 'affinity' THEN '{weights,scale,nearest}'
        WHEN layer.kind IN ('normalize', 'relu', 'tanh', 'sin', 'cos', 'network') THEN '{}'
    END;
    given text[] := array_remove(ARRAY[
        CASE WHEN layer.weights IS NOT NULL THEN 'weights' END,
        CASE WHEN layer.bias IS NOT NULL THEN 'bias' END,
        CASE WHEN layer.scale IS NOT NULL THEN 'scale' END,
        CASE WHEN layer.nearest IS NOT NULL THEN 'nearest' END
    ], NULL);
    wrong text;
BEGIN
    IF wanted IS NULL THEN
        RETURN format('unknown layer kind %s', coalesce(quote_literal(left(layer.kind, 60)), 'NULL'));
    ELSIF given <> wanted THEN
        RETURN format(
            'one of kind %s carries %s, and it has %s', layer.kind,
            coalesce(nullif(array_to_string(wanted, ', '), ''), 'nothing'),
            coalesce(nullif(array_to_string(given, ', '), ''), 'nothing')
        );
    END IF;
    IF layer.weights IS NOT NULL THEN
        IF array_ndims(layer.weights) IS DISTINCT FROM 1 OR array_lower(layer.weights, 1) <> 1
            OR rows_of > 16000
        THEN
            RETURN format(
                'its weights are an array %s of vectors; it must be one list of 1 to 16000',
                coalesce(array_dims(layer.weights), '{}')
            );
        END IF;
        SELECT format('row %s of its weights has %s dimensions', w.place, coalesce({ext}.vector_dims(w.row_of)::text, 'NULL'))
        INTO wrong
        FROM unnest(layer.weights) WITH ORDINALITY AS w(row_of, place)
        WHERE {ext}.vector_dims(w.row_of) IS DISTINCT FROM dimension LIMIT 1;
        IF wrong IS NOT NULL THEN
            RETURN format('%s, but its input has %s', wrong, dimension);
        END IF;
    END IF;
    IF {ext}.vector_dims(layer.bias) <> coalesce(rows_of, dimension) THEN
        RETURN format(
            'its bias has %s dimensions, and must have %s',
            {ext}.vector_dims(layer.bias), coalesce(rows_of, dimension)
        );
    END IF;
    -- NaN is greater than infinity here.
    IF NOT (layer.scale > 0 AND layer.scale < 'Infinity') THEN
        RETURN format('its scale is %s, and must be finite and above 0', layer.scale);
    END IF;
    IF layer.nearest NOT BETWEEN 1 AND rows_of THEN
        RETURN format('its nearest is %s, and must be 1 to the number of anchors, %s', layer.nearest, rows_of);
    END IF;
    RETURN NULL;
END
$$;

-- Trigger: refuses models whose layers do not fit each other, their dimension or their bits.
CREATE OR REPLACE FUNCTION hashindex._check_model() RETURNS trigger
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    n_layers integer := cardinality(NEW.layers);
    layer hashindex.layer;
    place integer := 0;
    dimension integer := NEW.dimension;
    problem text;
BEGIN
    IF NEW.layers IS NULL OR NEW.dimension IS NULL OR NEW.n_bits IS NULL OR NEW.cuts IS NULL THEN
        -- NOT NULL constraints refuse it.
        RETURN NEW;
    ELSIF array_ndims(NEW.layers) IS DISTINCT FROM 1 OR array_lower(NEW.layers, 1) <> 1 OR n_layers > 64 THEN
        RAISE EXCEPTION 'the layers of model "%" are an array % of layers', NEW.name,
            coalesce(array_dims(NEW.layers), '{}')
            USING ERRCODE = 'check_violation', HINT = 'A model has one list of 1 to 64 layers.';
    END IF;
    FOREACH layer IN ARRAY NEW.layers LOOP
        place := place + 1;
        problem := hashindex._layer_problem(layer, dimension);
        IF problem IS NULL AND layer.kind = 'network' AND place < n_layers THEN
            problem := 'it stands for a network, and is not the last';
        END IF;
        IF problem IS NOT NULL THEN
            RAISE EXCEPTION 'layer % of model "%" is malformed: %', place, NEW.name, problem
                USING ERRCODE = 'check_violation',
                      HINT = 'Save models from Python, or import them from a file of theirs.';
        END IF;
        dimension := coalesce(cardinality(layer.weights), dimension);
    END LOOP;
    -- A constraint refuses a network without its layer, and the layer without a network.
    IF NEW.network ->> 'kind' = 'rows' AND n_layers > 1 THEN
        RAISE EXCEPTION 'the network of model "%" takes rows as they are in the table, and % layers stand before it',
            NEW.name, n_layers - 1
            USING ERRCODE = 'check_violation', HINT = 'It must be the only layer.';
    ELSIF NEW.cuts <> '{0}' AND (NEW.bit_weights IS NOT NULL OR NEW.network IS NOT NULL) THEN
        RAISE EXCEPTION 'model "%" has cuts %, and weights of bits or a network', NEW.name, NEW.cuts
            USING ERRCODE = 'check_violation', HINT = 'Such a model has one cut, at 0.';
    ELSIF NEW.cuts <> ARRAY(SELECT DISTINCT c FROM unnest(NEW.cuts) c WHERE c > '-Infinity' AND c < 'Infinity' ORDER BY c) THEN
        RAISE EXCEPTION 'model "%" has cuts %', NEW.name, NEW.cuts
            USING ERRCODE = 'check_violation', HINT = 'Cuts are finite and rising.';
    END IF;
    IF NEW.network IS NOT NULL THEN
        dimension := (NEW.network ->> 'n_bits')::integer;
    END IF;
    IF dimension * cardinality(NEW.cuts) <> NEW.n_bits THEN
        RAISE EXCEPTION 'model "%" gives % projections with % cuts, and its codes have % bits',
            NEW.name, dimension, cardinality(NEW.cuts), NEW.n_bits
            USING ERRCODE = 'check_violation', HINT = 'A code has one bit for each projection and cut.';
    END IF;
    RETURN NEW;
END
$$;

CREATE OR REPLACE TRIGGER checked BEFORE INSERT ON hashindex.model
FOR EACH ROW EXECUTE FUNCTION hashindex._check_model();
