-- Makes functions of a model whose bodies hold its layers: they read no table, so indexes, generated columns and subscribers may use them.
--
-- A model without weights is one expression, which PostgreSQL parses when the function is made: no name is looked up when it runs, so
-- writers need no right on pgvector's schema. With weights, parsed expressions take three times as long as PL/pgSQL, whose statements are
-- simple expressions and run without the executor. There names and operators are qualified instead of a path set, which would cost 5 us a
-- call, and literals have types: of a qualified function PostgreSQL would prefer one of somebody else's that takes text.
-- A long argument is read once, since every operator that meets a TOASTed value would detoast it again.

-- Name of a function of a model: version 1 has that of the model, later versions have their number behind it.
CREATE OR REPLACE FUNCTION hashindex._function_name(used hashindex.model, verb text) RETURNS text
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN concat_ws('_', verb, used.name, nullif(used.version, 1));
END
$$;

-- Statements of a body that evaluate the layers of a model, and the expression of the projection after them.
CREATE OR REPLACE FUNCTION hashindex._layer_steps(used hashindex.model, OUT steps text, OUT projection text)
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    layer hashindex.layer;
BEGIN
    steps := '';
    -- The function of the cast refuses other dimensions, and its result lies in memory. A node of Citus would leave a cast to the column's own
    -- length out of a query that it gets as text, and not know the index's expression again.
    projection := format('{ext}.vector(v::{ext}.vector, %s, true)', used.dimension);
    FOREACH layer IN ARRAY used.layers LOOP
        IF layer.kind = 'affine' THEN
            steps := format(E'%s\n    x := %s;', steps, projection);
            projection := format('(ARRAY[%s]::{ext}.vector OPERATOR({ext}.+) %L::{ext}.vector)', (
                SELECT string_agg(format('{ext}.inner_product(x, %L::{ext}.vector)', w.weights), ', ' ORDER BY w.place)
                FROM unnest(layer.weights) WITH ORDINALITY w(weights, place)
            ), layer.bias);
        ELSIF layer.kind = 'rbf' THEN
            steps := format(E'%s\n    x := %s;', steps, projection);
            projection := format('ARRAY[%s]::{ext}.vector', (
                -- exp() raises an underflow error below about -745.
                SELECT string_agg(format(
                    'pg_catalog.exp(greatest((-%L::pg_catalog.float4)::pg_catalog.float8 OPERATOR(pg_catalog.*) '
                    '{ext}.vector_l2_squared_distance(x, %L::{ext}.vector), (-700)::pg_catalog.float8))', layer.scale, w.anchor
                ), ', ' ORDER BY w.place)
                FROM unnest(layer.weights) WITH ORDINALITY w(anchor, place)
            ));
        ELSE
            projection := hashindex._fill(
                CASE layer.kind
                    WHEN 'normalize' THEN '{ext}.l2_normalize({x})'
                    WHEN 'shift' THEN '({x} OPERATOR({ext}.+) {bias}::{ext}.vector)'
                    WHEN 'relu' THEN '(SELECT pg_catalog.array_agg(greatest(e.e, 0) ORDER BY e.n) '
                        'FROM pg_catalog.unnest(({x})::pg_catalog.float4[]) WITH ORDINALITY e(e, n))::{ext}.vector'
                    ELSE '(SELECT pg_catalog.array_agg(pg_catalog.{function}(e.e) ORDER BY e.n) '
                        'FROM pg_catalog.unnest(({x})::pg_catalog.float4[]) WITH ORDINALITY e(e, n))::{ext}.vector'
                END, jsonb_build_object('x', projection, 'bias', quote_literal(layer.bias), 'function', layer.kind)
            );
        END IF;
    END LOOP;
END
$$;

-- Expression of the code of a vector v by a model that is one expression.
CREATE OR REPLACE FUNCTION hashindex._code_expression(used hashindex.model) RETURNS text
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    n integer := cardinality(used.cuts);
    cut {ext}.vector := hashindex._cut_vector(used.n_bits / n, used.cuts);
    last hashindex.layer := used.layers[cardinality(used.layers)];
    bias {ext}.vector := last.bias;
    projection text;
BEGIN
    IF used.cuts = '{0}' THEN
        RETURN format('{ext}.binary_quantize(%s)', (hashindex._layer_steps(used)).projection);
    END IF;
    IF last.kind = 'shift' THEN
        -- The cuts are shifted instead of each vector.
        FOR place IN 2..n LOOP
            bias := bias OPERATOR({ext}.||) last.bias;
        END LOOP;
        cut := cut OPERATOR({ext}.-) bias;
        used.layers := trim_array(used.layers, 1);
    END IF;
    projection := (hashindex._layer_steps(used)).projection;
    -- From about 500 dimensions on vectors are stored out of line, and a subquery that reads them once costs less than reading them n times.
    RETURN format(
        CASE WHEN used.dimension <= 500 THEN '{ext}.binary_quantize(%1$s OPERATOR({ext}.-) %2$L::{ext}.vector)'
        ELSE '(SELECT {ext}.binary_quantize(%1$s OPERATOR({ext}.-) %2$L::{ext}.vector) FROM (SELECT %3$s AS x OFFSET 0) s)' END,
        array_to_string(array_fill(CASE WHEN used.dimension <= 500 THEN projection ELSE 's.x' END, ARRAY[n]), ' OPERATOR({ext}.||) '), cut, projection
    );
END
$$;

CREATE OR REPLACE FUNCTION hashindex.create_functions(model text, reveal_anchors boolean DEFAULT false) RETURNS text
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    used hashindex.model := hashindex.find_model(model);
    named text := format('%s:%s', used.name, used.version);
    problem text := CASE
        WHEN used.network IS NOT NULL THEN 'it is evaluated in Python, not in SQL'
        WHEN EXISTS (SELECT FROM unnest(used.layers) l WHERE l.kind = 'affinity')
            THEN 'it compares a vector with its nearest anchors alone'
        -- Anchors are rows.
        WHEN NOT reveal_anchors AND EXISTS (SELECT FROM unnest(used.layers) l WHERE l.kind = 'rbf')
            THEN 'its anchors are rows that it was trained on, and every role can read the body of a function'
        WHEN (SELECT sum(cardinality(l.weights)::bigint * {ext}.vector_dims(l.weights[1])) FROM unnest(used.layers) l) > 4000000
            THEN 'it has more than 4000000 weights, too many for the body of a function'
        WHEN octet_length(hashindex._function_name(used, 'project')) > 63
            THEN format('"%s" is longer than the 63 bytes of a name', hashindex._function_name(used, 'project'))
    END;
    code text := format('hashindex.%I', hashindex._function_name(used, 'code'));
    project text := format('hashindex.%I', hashindex._function_name(used, 'project'));
    parts jsonb := jsonb_build_object('ext', '{ext}', 'model_id', used.id);
    steps text;
    projection text;
    parsed boolean;
    made record;
    before record;
BEGIN
    PERFORM hashindex._check_administrator();
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'model "%" cannot be a function: %', named, problem
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = CASE
                WHEN used.network IS NOT NULL THEN format(
                    'Fill a column with its codes: pg-hashindex model encode %s --table TABLE --column COLUMN --into code', hashindex._shell_word(named))
                WHEN octet_length(hashindex._function_name(used, 'project')) > 63 THEN 'Save it under a shorter name.'
                WHEN EXISTS (SELECT FROM unnest(used.layers) l WHERE l.kind = 'rbf') THEN
                    'If all roles may read these rows, pass reveal_anchors; or keep the codes in lists.'
                ELSE 'Use thermometer, itq, pcah or lsh; or keep the codes in lists: access lists.' END;
    END IF;
    -- Another session that makes functions of the model, or drops it, waits.
    PERFORM FROM hashindex.model m WHERE m.id = used.id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'model "%" was dropped just now', named USING ERRCODE = '42X01';
    END IF;
    SELECT s.*, s.steps = '' INTO steps, projection, parsed FROM hashindex._layer_steps(used) s;
    FOR made IN
        SELECT t.type, f.*, format('%s(%s)', f.named, t.type) AS signature FROM unnest('{vector,halfvec}'::text[]) t(type) CROSS JOIN LATERAL (VALUES
            -- The weights stand in one function only.
            (project, hashindex._function_name(used, 'project'), format('projection of a vector by model %s', named), jsonb_build_object(
                'returns', '{ext}.vector', 'result', CASE t.type WHEN 'vector' THEN projection ELSE format('%s(v::{ext}.vector)', project) END
            ) || CASE WHEN parsed THEN '{}' ELSE jsonb_build_object('steps', CASE t.type WHEN 'vector' THEN steps ELSE '' END) END),
            (code, hashindex._function_name(used, 'code'), format('code of a vector by model %s, bit(%s)', named, used.n_bits), jsonb_build_object(
                'returns', 'bit',
                'result', CASE WHEN parsed THEN hashindex._code_expression(used) ELSE format('{ext}.binary_quantize(%s)', CASE WHEN used.cuts = '{0}' THEN 'x' ELSE format(
                    '%s OPERATOR({ext}.-) %L::{ext}.vector',
                    array_to_string(array_fill('x'::text, ARRAY[cardinality(used.cuts)]), ' OPERATOR({ext}.||) '),
                    hashindex._cut_vector(used.n_bits / cardinality(used.cuts), used.cuts)
                ) END) END
            ) || CASE WHEN parsed THEN '{}' ELSE jsonb_build_object('steps', format(E'\n    x := %s(v);', project)) END)
        ) f(name, named, comment, own)
    LOOP
        SELECT e.id, pg_get_functiondef(e.id) AS definition, o.model_id INTO before
        FROM hashindex._existing() e LEFT JOIN hashindex.object o USING (kind, name) WHERE (e.kind, e.name) = ('function', made.signature);
        IF before.model_id IS NULL OR before.model_id = used.id THEN
            PERFORM hashindex._create_function(
                CASE WHEN parsed THEN 'model_expression' ELSE 'model_function' END,
                parts || jsonb_build_object('function', made.name, 'vector_type', made.type) || made.own, made.comment
            );
        END IF;
        -- A restore without rows leaves functions of the model, which are the same text.
        IF before.id IS NOT NULL AND before.model_id IS DISTINCT FROM used.id AND (before.model_id IS NOT NULL OR before.definition <> pg_get_functiondef(before.id)) THEN
            RAISE EXCEPTION 'function hashindex.% exists already, and was not made of model "%"', made.signature, named
                USING ERRCODE = 'duplicate_function', HINT = 'Drop it if it is not needed, or save the model under another name.';
        END IF;
        -- Default privileges may have taken it from writers.
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s({ext}.%s) TO PUBLIC', made.name, made.type);
    END LOOP;
    RETURN code;
END
$$;

COMMENT ON FUNCTION hashindex.create_functions(text, boolean) IS
    'makes functions code_NAME and project_NAME of a model, for expression indexes and generated columns; returns the name of the first';

CREATE OR REPLACE FUNCTION hashindex.drop_functions(model text) RETURNS void
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    used hashindex.model := hashindex.find_model(model);
    detail text;
BEGIN
    PERFORM hashindex._check_administrator();
    detail := string_agg(DISTINCT format(CASE s.state WHEN 'former' THEN 'index "%s" has a former set of it' ELSE 'index "%s" encodes queries by them' END, s.index_name), '; ')
        FROM hashindex.index_set s WHERE s.model_id = used.id AND s.access IN ('hnsw', 'ivfflat');
    IF detail IS NOT NULL THEN
        RAISE EXCEPTION 'functions of model "%:%" are in use: %', used.name, used.version, detail
            USING ERRCODE = 'object_in_use', HINT = 'Drop the index first; or swap it to another model, and prune it.';
    END IF;
    -- Functions of halfvec may call functions of vector, which are last.
    PERFORM hashindex._drop(o.kind, o.name) FROM (SELECT x.* FROM hashindex.object x WHERE x.model_id = used.id ORDER BY x.name) o;
EXCEPTION WHEN dependent_objects_still_exist THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
    RAISE EXCEPTION 'a function of model "%:%" is in use: %', used.name, used.version, replace(detail, E'\n', '; ')
        USING ERRCODE = 'dependent_objects_still_exist', HINT = 'Drop what depends on it first.';
END
$$;

COMMENT ON FUNCTION hashindex.drop_functions(text) IS
    'drops functions code_NAME and project_NAME of a model; refused while an index or a column uses them';

-- Trigger: the functions of a model go with it, unless something depends on them.
CREATE OR REPLACE FUNCTION hashindex._drop_functions() RETURNS trigger
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM hashindex.drop_functions(format('%s:%s', OLD.name, OLD.version));
    RETURN OLD;
END
$$;

CREATE OR REPLACE TRIGGER functions BEFORE DELETE ON hashindex.model
FOR EACH ROW EXECUTE FUNCTION hashindex._drop_functions();
