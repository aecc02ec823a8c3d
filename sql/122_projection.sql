-- The layers of one model, for the functions of its indexes. Each session keeps them in its plans: reading 200 to 400 kB
-- of layers in every search and trigger would take ten times as long as evaluating them.
--
-- So these functions are IMMUTABLE although they read a table: PostgreSQL folds their calls to constants. That is safe,
-- since a saved model never changes, its id is never used again, and no index or generated column calls them. A model that
-- a transaction does not see yet raises an error, because a plan would keep NULL.

-- Layers of a stored model, by its id; only for the plans of searches and triggers.
CREATE OR REPLACE FUNCTION hashindex._layers_of(model_id bigint) RETURNS hashindex.layer[]
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    kept hashindex.layer[];
BEGIN
    SELECT m.layers INTO kept FROM hashindex.readable_model m WHERE m.id = _layers_of.model_id;
    IF NOT FOUND THEN
        IF EXISTS (SELECT FROM hashindex.model m WHERE m.id = _layers_of.model_id) THEN
            RAISE EXCEPTION 'role "%" may not read the model of this index', current_user
                USING ERRCODE = 'insufficient_privilege', HINT = 'Have the administrator run: pg-hashindex index grant INDEX ROLE.';
        END IF;
        RAISE EXCEPTION 'model with id % is not visible to this transaction', model_id
            USING ERRCODE = 'serialization_failure',
                  HINT = 'Run the transaction again. Where a database was restored without its rows, restore those of schema hashindex first, or give its indexes up: pg-hashindex index repair --orphans.';
    END IF;
    RETURN kept;
END
$$;

-- SQL for the projection of a vector by a stored model; the last argument is the SQL that gives its layers. Writes one nested expression
-- that does what hashindex.project_with does, and calls that for an affinity layer, which is evaluated rarely. Triggers run the
-- expression under a path without pgvector, so every name is qualified.
CREATE OR REPLACE FUNCTION hashindex._projection(used hashindex.model, vector_term text, layers text) RETURNS text
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    x text := vector_term;
    layer hashindex.layer;
    place integer := 0;
BEGIN
    FOREACH layer IN ARRAY used.layers LOOP
        place := place + 1;
        IF layer.kind NOT IN ('normalize', 'shift', 'affine', 'rbf', 'relu', 'tanh', 'sin', 'cos') THEN
            RETURN format('hashindex.project_with(%s, %s)', layers, vector_term);
        END IF;
        x := hashindex._fill(
            CASE layer.kind
                WHEN 'normalize' THEN '{ext}.l2_normalize({x})'
                WHEN 'shift' THEN '({x} OPERATOR({ext}.+) ({layer}).bias)'
                -- OFFSET keeps the previous layer from being evaluated once for each weight.
                WHEN 'affine' THEN '(SELECT ARRAY(SELECT {ext}.inner_product(f.w, x.v) '
                    'FROM (SELECT unnest(({layer}).weights) AS w OFFSET 0) f)::{ext}.vector '
                    'OPERATOR({ext}.+) ({layer}).bias FROM (SELECT {x} AS v OFFSET 0) x)'
                WHEN 'rbf' THEN '(SELECT ARRAY(SELECT exp(greatest(-{scale}::real * {ext}.vector_l2_squared_distance(f.w, x.v), -700)) '
                    'FROM (SELECT unnest(({layer}).weights) AS w OFFSET 0) f)::{ext}.vector '
                    'FROM (SELECT {x} AS v OFFSET 0) x)'
                WHEN 'relu' THEN 'ARRAY(SELECT greatest(e, 0) FROM unnest({x}::real[]) e)::{ext}.vector'
                ELSE 'ARRAY(SELECT {function}(e::double precision) FROM unnest({x}::real[]) e)::{ext}.vector'
            END,
            jsonb_build_object(
                'x', x, 'layer', format('(%s)[%s]', layers, place), 'scale', quote_literal(layer.scale), 'function', layer.kind
            )
        );
    END LOOP;
    RETURN x;
END
$$;
