-- Trains models in SQL, for those without Python, and stores them as Python does. pg_hashindex/hashers explains the methods.

-- The options of a training that has those which were given, or an error: projections and cuts, and the dimension of the vectors.
CREATE OR REPLACE FUNCTION hashindex._check_training(
    name text, table_name regclass, column_name text, method text, INOUT bits integer, INOUT cuts integer, metric text, sample integer,
    seed bigint, trust_owner boolean, OUT dimension integer
)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    -- As given; bits are projections further down.
    length integer := bits;
    missing text := CASE
        WHEN name IS NULL THEN 'name' WHEN table_name IS NULL THEN 'table_name' WHEN column_name IS NULL THEN 'column_name'
    END;
BEGIN
    IF missing IS NOT NULL THEN
        RAISE EXCEPTION '% is NULL', missing USING ERRCODE = 'null_value_not_allowed', HINT = 'Pass a value.';
    ELSIF current_setting('transaction_read_only')::boolean THEN
        RAISE EXCEPTION 'the transaction is read-only, and a model is stored' USING ERRCODE = 'read_only_sql_transaction';
    ELSIF name !~ '^[^:\x01-\x1f]{1,63}$' THEN
        RAISE EXCEPTION '"%" cannot name a model', name
            USING ERRCODE = 'invalid_name', HINT = 'Use 1 to 63 characters, none of them a colon or a control character.';
    ELSIF method IS NULL OR method NOT IN ('sign', 'lsh', 'itq', 'thermometer') THEN
        RAISE EXCEPTION 'method "%" cannot be trained in SQL', method
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Use thermometer, itq, lsh or sign; Python has the others.';
    ELSIF metric IS NULL OR metric NOT IN ('l2', 'cosine', 'ip') THEN
        RAISE EXCEPTION 'metric "%" is unknown', metric USING ERRCODE = 'invalid_parameter_value', HINT = 'Use l2, cosine or ip.';
    ELSIF cuts NOT IN (1, 3, 5) OR cuts > 1 AND method = 'sign' THEN
        PERFORM hashindex._refuse('cuts', cuts, '1, 3 or 5; sign has 1');
    ELSIF bits % cuts <> 0 THEN
        PERFORM hashindex._refuse('bits', bits, format('a multiple of %s, the cuts', cuts));
    ELSIF sample IS NULL OR sample < 1 THEN
        PERFORM hashindex._refuse('sample', sample, '1 or more');
    ELSIF seed IS NULL OR seed < 0 THEN
        RAISE EXCEPTION 'seed is %; it must be 0 or more', seed USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF trust_owner IS NOT TRUE THEN
        PERFORM hashindex._check_owners(table_name, '{}');
    END IF;
    PERFORM hashindex._check_vector_column(table_name, column_name, NULL);
    EXECUTE format('SELECT {ext}.vector_dims(b.%I) FROM %s b WHERE b.%I IS NOT NULL LIMIT 1', column_name, table_name, column_name) INTO dimension;
    IF dimension IS NULL THEN
        RAISE EXCEPTION '% has no row with a vector in column "%"', table_name, column_name
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Load the rows first.';
    END IF;
    -- As in Python.
    cuts := coalesce(cuts, CASE method
        WHEN 'sign' THEN 1
        WHEN 'thermometer' THEN coalesce(bits / dimension, CASE WHEN dimension < 768 THEN 3 ELSE 1 END)
        ELSE CASE WHEN bits % 3 <> 0 THEN 1 ELSE 3 END
    END);
    bits := CASE WHEN method = 'thermometer' THEN dimension ELSE bits / cuts END;
    IF method = 'sign' AND coalesce(bits, dimension) <> dimension THEN
        PERFORM hashindex._refuse('bits', bits, dimension || ' or left out: sign gives one bit for each dimension');
    ELSIF method = 'thermometer' AND (cuts NOT IN (1, 3, 5) OR length <> dimension * cuts) THEN
        PERFORM hashindex._refuse('bits', length, format('1, 3 or 5 times %s, or left out: thermometer gives a bit for each dimension and cut', dimension));
    ELSIF method = 'thermometer' AND dimension * cuts > 16000 THEN
        PERFORM hashindex._refuse('cuts', cuts, '1: a code has 16000 bits at most');
    ELSIF method = 'itq' AND dimension > 4000 THEN
        RAISE EXCEPTION 'column "%" of % has % dimensions; itq in SQL takes 4000 at most', column_name, table_name, dimension
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Use lsh, or train in Python.';
    END IF;
    IF bits NOT BETWEEN 1 AND least(16000 / cuts, (CASE method WHEN 'itq' THEN dimension END)) THEN
        PERFORM hashindex._refuse('bits', length, '1 to ' || cuts * least(16000 / cuts, (CASE method WHEN 'itq' THEN dimension END)));
    END IF;
END
$$;

-- Directions that rows are projected on: random ones, or for itq the principal directions of the rows, turned at random. These are found in
-- the covariance matrix, of blocks of rows whose columns fit into a vector.
CREATE OR REPLACE FUNCTION hashindex._directions(
    rows {ext}.vector[], mean {ext}.vector, scale double precision, method text, bits integer, seed bigint
)
RETURNS {ext}.vector[]
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
#variable_conflict use_variable
DECLARE
    covariance {ext}.vector[];
    block {ext}.vector[];
    -- Normal numbers from hashes of their places (Box and Muller), which leave the session's random() as it is.
    directions {ext}.vector[] := ARRAY(
        SELECT ARRAY(
            SELECT sqrt(-2 * ln((((h.n >> 32) & 4294967295)::double precision + 0.5) / 4294967296))
                * cos(2 * pi() * (h.n & 4294967295)::double precision / 4294967296)
            FROM generate_series(1, {ext}.vector_dims(mean)) j CROSS JOIN LATERAL hashint8extended(i::bigint * {ext}.vector_dims(mean) + j, seed) h(n)
            ORDER BY j
        )::{ext}.vector
        -- There are no more principal directions, and no code has more bits.
        FROM generate_series(1, least(bits, CASE method WHEN 'lsh' THEN 64000 ELSE {ext}.vector_dims(mean) END)) i ORDER BY i
    );
    turned {ext}.vector[] := directions;
    direction {ext}.vector;
    grain {ext}.vector;
BEGIN
    IF method = 'lsh' THEN
        RETURN directions;
    END IF;
    FOR n IN 1..cardinality(rows) BY 5000 LOOP
        WITH columns AS MATERIALIZED (
            SELECT e.place, array_agg(e.value / scale)::{ext}.vector AS v
            FROM unnest(rows[n:n + 4999]) r(v), unnest((r.v OPERATOR({ext}.-) mean)::real[]) WITH ORDINALITY e(value, place)
            GROUP BY e.place
        ), products AS (
            -- The added part keeps directions without variance as they were; otherwise they would become rounding errors.
            SELECT a.place, array_agg({ext}.inner_product(a.v, b.v) + CASE WHEN a.place = b.place THEN 1e-6 ELSE 0 END ORDER BY b.place) AS v
            FROM columns a, columns b GROUP BY a.place
        )
        SELECT array_agg(p.v::{ext}.vector ORDER BY p.place) INTO block FROM products p;
        covariance := ARRAY(
            SELECT coalesce(s.before OPERATOR({ext}.+) s.v, s.v) FROM unnest(covariance, block) WITH ORDINALITY s(before, v, place)
            ORDER BY s.place
        );
    END LOOP;
    -- Ten rounds of subspace iteration keep .9746 of the variance of text embeddings in 256 of 384 directions; all rounds .9747.
    -- The random directions, projected on what was found, are made orthonormal then: the principal directions, turned at random.
    -- Adding and subtracting leaves no number so small that pgvector would refuse its product with another.
    grain := array_fill(0.001::real, ARRAY[{ext}.vector_dims(mean)]);
    FOR round IN 0..10 LOOP
        block := CASE WHEN round < 10 THEN ARRAY(
            SELECT ARRAY(SELECT {ext}.inner_product(c.v, d.v) FROM unnest(covariance) WITH ORDINALITY c(v, place) ORDER BY c.place)::{ext}.vector
            FROM unnest(turned) WITH ORDINALITY d(v, place) ORDER BY d.place
        ) ELSE ARRAY(
            SELECT (
                SELECT {ext}.sum(t.v OPERATOR({ext}.*) array_fill(({ext}.inner_product(t.v, d.v) + 1 - 1)::real, ARRAY[{ext}.vector_dims(mean)])::{ext}.vector)
                FROM unnest(turned) t(v)
            )
            FROM unnest(directions) WITH ORDINALITY d(v, place) ORDER BY d.place
        ) END;
        turned := '{}';
        FOREACH direction IN ARRAY block LOOP
            -- Twice, since rounding leaves too much after one subtraction.
            FOR time IN 1..2 LOOP
                direction := {ext}.l2_normalize(coalesce(direction OPERATOR({ext}.-) (
                    SELECT {ext}.sum(t.v OPERATOR({ext}.*) array_fill(({ext}.inner_product(t.v, direction) + 1 - 1)::real, ARRAY[{ext}.vector_dims(mean)])::{ext}.vector)
                    FROM unnest(turned) t(v)
                ), direction)) OPERATOR({ext}.+) grain OPERATOR({ext}.-) grain;
            END LOOP;
            turned := turned || direction;
        END LOOP;
    END LOOP;
    RETURN turned;
END
$$;

-- The checksum of a model. Model.checksum of pg_hashindex/models/model.py does the same; float4 in the order of little-endian machines.
CREATE OR REPLACE FUNCTION hashindex._checksum_of(layers hashindex.layer[], dimension integer, cut_values real[]) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
#variable_conflict use_variable
DECLARE
    last hashindex.layer := layers[cardinality(layers)];
    bits integer := {ext}.vector_dims(last.bias);
BEGIN
    RETURN encode(sha256(string_agg(p.part, '' ORDER BY p.place)), 'hex')
    FROM (
        SELECT 0 AS place, convert_to(
            dimension || CASE WHEN cardinality(layers) > 1 THEN '|normalize|None' ELSE '' END
            || CASE WHEN last.kind = 'shift' THEN '|shift|None' ELSE format('|affine|None(%s, %s)', bits, dimension) END, 'UTF8'
        ) AS part
        UNION ALL
        SELECT v.place, CASE WHEN v.place > coalesce(cardinality(last.weights), 0) THEN convert_to(format('(%s,)', bits), 'UTF8') ELSE '' END || decode(
            regexp_replace(encode(substr({ext}.vector_send(v.v), 5), 'hex'), '(..)(..)(..)(..)', '\4\3\2\1', 'g'), 'hex'
        )
        FROM unnest(last.weights || last.bias) WITH ORDINALITY v(v, place)
        UNION ALL
        SELECT 32001, convert_to('|cuts', 'UTF8') || decode(
            regexp_replace(encode(substr({ext}.vector_send(cut_values::{ext}.vector), 5), 'hex'), '(..)(..)(..)(..)', '\4\3\2\1', 'g'), 'hex'
        ) WHERE cut_values <> '{0}'
    ) p;
END
$$;

-- The profile of a model, and the figures of its training. Profile.of of pg_hashindex/models/profiles.py does the same, of 5,000 rows, or
-- of fewer if codes are long.
CREATE OR REPLACE FUNCTION hashindex._profile_of(layers hashindex.layer[], rows {ext}.vector[], cut_values real[], OUT profile jsonb, OUT training jsonb)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
#variable_conflict use_variable
DECLARE
    -- Bits of a code.
    length integer := {ext}.vector_dims(layers[cardinality(layers)].bias) * cardinality(cut_values);
BEGIN
    WITH projections AS MATERIALIZED (
        SELECT hashindex.project_with(layers, r.v) AS p
        FROM unnest(rows) WITH ORDINALITY r(v, place)
        WHERE r.place % greatest(1, cardinality(rows) / 5000, cardinality(rows)::bigint * length / 2500000) = 0
    ), numbers AS MATERIALIZED (
        SELECT e.value, e.place FROM projections, unnest(projections.p::real[]) WITH ORDINALITY e(value, place)
    ), edges AS MATERIALIZED (
        SELECT q.place, ARRAY(
            SELECT (e - 1e-4 * (SELECT coalesce(stddev_pop(value), 0) FROM numbers) - 1e-6 * abs(e))::real FROM unnest(q.edges) e ORDER BY 1
        ) AS edges
        FROM (
            SELECT n.place, percentile_disc(ARRAY[.1, .2, .3, .4, .5, .6, .7, .8, .9]) WITHIN GROUP (ORDER BY n.value) AS edges
            FROM numbers n GROUP BY n.place
        ) q
    ), bins AS (
        SELECT c.place, jsonb_agg(c.n ORDER BY c.bin) AS counts
        FROM (
            SELECT e.place, b.bin, count(n.place) AS n
            FROM edges e CROSS JOIN generate_series(0, 9) b(bin)
            LEFT JOIN (
                SELECT x.place, width_bucket(x.value, y.edges) AS bin FROM numbers x JOIN edges y ON y.place = x.place
            ) n ON n.place = e.place AND n.bin = b.bin
            GROUP BY e.place, b.bin
        ) c GROUP BY c.place
    ), codes AS MATERIALIZED (
        SELECT hashindex._quantize(projections.p, cut_values) AS code FROM projections
    ), bits_of AS (
        -- Relative to the first code, so that a bit and its opposite are the same text.
        SELECT b.bit, o.ones, o.shape
        FROM (SELECT code AS first_code FROM codes LIMIT 1) f
        CROSS JOIN generate_series(0, length - 1) b(bit)
        CROSS JOIN LATERAL (
            SELECT sum(get_bit(c.code, b.bit)) AS ones, string_agg((get_bit(c.code, b.bit) # get_bit(f.first_code, b.bit))::text, '') AS shape
            FROM codes c
        ) o
    )
    SELECT jsonb_build_object(
        'rows', (SELECT count(*) FROM codes),
        'edges', (SELECT jsonb_agg(to_jsonb(e.edges) ORDER BY e.place) FROM edges e),
        'counts', (SELECT jsonb_agg(b.counts ORDER BY b.place) FROM bins b),
        'ones', jsonb_agg(b.ones ORDER BY b.bit)
    ), jsonb_build_object(
        'rows', cardinality(rows),
        'held_back_rows', 0,
        'distinct_bits', count(DISTINCT b.shape) FILTER (WHERE b.shape LIKE '%1%'),
        'share_of_ones', (
            SELECT jsonb_build_object(
                'least', round(min(b.ones)::numeric / count(*), 4), 'mean', round(avg(b.ones) / count(*), 4), 'greatest', round(max(b.ones)::numeric / count(*), 4)
            ) FROM codes
        )
    )
    INTO profile, training FROM bits_of b;
END
$$;

CREATE OR REPLACE FUNCTION hashindex.train(
    name text,
    table_name regclass,
    column_name text,
    method text DEFAULT 'itq',
    bits integer DEFAULT NULL,
    cuts integer DEFAULT NULL,
    metric text DEFAULT 'cosine',
    sample integer DEFAULT 20000,
    seed bigint DEFAULT 0,
    force boolean DEFAULT false,
    trust_owner boolean DEFAULT false
)
RETURNS text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
SET standard_conforming_strings = on
SET jit = off
-- A parallel plan would change the order of rows, and so the model.
SET max_parallel_workers_per_gather = 0
SET work_mem = '128MB'
AS $$
#variable_conflict use_variable
DECLARE
    started timestamptz := clock_timestamp();
    cut_values real[] := '{0}';
    rows_in_table double precision;
    dimension integer;
    rows {ext}.vector[];
    least_rows integer;
    mean {ext}.vector;
    widest double precision;
    scale double precision;
    directions {ext}.vector[];
    layers hashindex.layer[];
    profile jsonb;
    training jsonb;
    version integer;
BEGIN
    PERFORM hashindex._check_administrator();
    SELECT o.* INTO bits, cuts, dimension
    FROM hashindex._check_training(name, table_name, column_name, method, bits, cuts, metric, sample, seed, trust_owner) o;

    -- A sample that depends on nothing but the seed and the places of rows. Reading a large table whole would take minutes, so whole
    -- pages of it are drawn. At most 256 MB are held.
    sample := least(sample, 67108864 / dimension);
    rows_in_table := sum(greatest(c.reltuples, 0)) FROM hashindex._parts_of(table_name) p JOIN pg_class c ON c.oid = p.part;
    IF rows_in_table <= 1000000 THEN
        EXECUTE format('SELECT count(%I) FROM %s', column_name, table_name) INTO rows_in_table;
    END IF;
    EXECUTE format(
        'SELECT array_agg(r.v) FROM (SELECT %s AS v FROM %s b %s WHERE {ext}.vector_norm(b.%I::{ext}.vector) < 1e15 AND %s ORDER BY hashtidextended(b.ctid, $3) & 4294967295 LIMIT $1) r',
        format(CASE WHEN metric = 'cosine' THEN '{ext}.l2_normalize(b.%I::{ext}.vector)' ELSE 'b.%I::{ext}.vector' END, column_name),
        table_name,
        CASE WHEN rows_in_table > 1000000 THEN 'TABLESAMPLE SYSTEM (100 * $2) REPEATABLE ($3)' ELSE '' END, column_name,
        CASE WHEN rows_in_table > 1000000 THEN 'true' ELSE '(hashtidextended(b.ctid, $3) & 4294967295) <= 4294967296 * $2' END
    ) INTO rows USING sample, least(1, 1.2 * sample / rows_in_table), seed;
    -- As in Python: one projection for ten rows at the most.
    bits := coalesce(bits, CASE method
        WHEN 'sign' THEN dimension WHEN 'thermometer' THEN dimension
        ELSE greatest(1, least(256, cardinality(rows) / 10, (CASE method WHEN 'itq' THEN dimension END)))
    END);
    -- Means are learned each from all rows: more bits need no more rows.
    least_rows := CASE WHEN force THEN 2 ELSE greatest(1000, CASE WHEN method IN ('lsh', 'itq') THEN 10 * bits END) END;
    IF coalesce(cardinality(rows), 0) < least_rows THEN
        RAISE EXCEPTION '% rows are too few to learn % projections from', coalesce(cardinality(rows), 0), bits
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = CASE WHEN sample < least_rows THEN 'Let the sample' ELSE 'Let the table' END || format(' have %s rows or more', least_rows)
                      || CASE WHEN least_rows > 1000 THEN ', learn fewer bits' ELSE '' END
                      || CASE WHEN force THEN '.' ELSE ', or pass force => true.' END;
    ELSIF EXISTS (SELECT FROM unnest(rows) r(v) WHERE {ext}.vector_dims(r.v) <> dimension) THEN
        RAISE EXCEPTION 'column "%" of % holds vectors of several dimensions', column_name, table_name
            USING ERRCODE = 'datatype_mismatch', HINT = 'A model takes one.';
    END IF;
    mean := {ext}.avg(r.v) FROM unnest(rows) r(v);
    SELECT max(d.distance), sqrt(sum(d.distance ^ 2)) INTO widest, scale
    FROM (SELECT {ext}.l2_distance(r.v, mean) FROM unnest(rows) r(v)) d(distance);
    IF widest <= (CASE metric WHEN 'cosine' THEN 1e-6 ELSE 0 END) OR scale = 'Infinity' THEN
        RAISE EXCEPTION 'the vectors in column "%" of % are all equal, or too large', column_name, table_name
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'A model learns from rows that differ.';
    END IF;

    IF method IN ('lsh', 'itq') THEN
        directions := hashindex._directions(rows, mean, scale, method, bits, seed);
    END IF;
    layers := CASE WHEN metric = 'cosine' THEN ARRAY[ROW('normalize', NULL, NULL, NULL, NULL)::hashindex.layer] ELSE '{}' END
        || CASE WHEN method IN ('sign', 'thermometer')
            THEN ROW('shift', NULL, array_fill(0::real, ARRAY[dimension])::{ext}.vector OPERATOR({ext}.-) mean, NULL, NULL)::hashindex.layer
            ELSE ROW('affine', directions, ARRAY(
                SELECT -{ext}.inner_product(d.v, mean) FROM unnest(directions) WITH ORDINALITY d(v, place) ORDER BY d.place
            )::{ext}.vector, NULL, NULL)::hashindex.layer
        END;
    IF cuts > 1 THEN
        -- Multiples of the deviation of all projections, or for inner products of those of a long row, as in Python; of 5,000 rows.
        cut_values := ARRAY(
            SELECT ((n - (cuts + 1) / 2) * (CASE cuts WHEN 3 THEN 0.8 ELSE 0.7 END) * d.deviation)::real FROM generate_series(1, cuts) n, (
                SELECT sqrt(CASE metric WHEN 'ip' THEN percentile_disc(.99) WITHIN GROUP (ORDER BY p.square) ELSE avg(p.square) END / bits) AS deviation
                FROM unnest(rows) WITH ORDINALITY r(v, place), LATERAL (SELECT {ext}.vector_norm(hashindex.project_with(layers, r.v)) ^ 2) p(square)
                WHERE r.place % greatest(1, cardinality(rows) / 5000) = 0
            ) d ORDER BY n
        );
    END IF;
    SELECT f.profile, f.training INTO profile, training FROM hashindex._profile_of(layers, rows, cut_values) f;

    -- Two sessions that train models of one name must not get the same version.
    LOCK TABLE hashindex.model IN SHARE ROW EXCLUSIVE MODE;
    INSERT INTO hashindex.model (name, version, method, dimension, n_bits, metric, cuts, parameters, training, checksum, profile, layers)
    SELECT name, coalesce(max(m.version), 0) + 1, method, dimension, bits * cuts, metric, cut_values,
        jsonb_build_object('n_bits', bits, 'random_state', seed, 'normalize', CASE WHEN metric = 'cosine' THEN 'l2' END)
        || CASE method WHEN 'sign' THEN '{"center": "mean"}' WHEN 'itq' THEN '{"n_iter": 0}' ELSE '{}' END::jsonb,
        training || jsonb_build_object('seconds', round(extract(epoch FROM clock_timestamp() - started), 3)),
        hashindex._checksum_of(layers, dimension, cut_values), profile, layers
    FROM hashindex.model m WHERE m.name = name
    RETURNING model.version INTO version;
    RETURN format('%s:%s', name, version);
END
$$;

COMMENT ON FUNCTION hashindex.train(text, regclass, text, text, integer, integer, text, integer, bigint, boolean, boolean) IS
    'trains a model on rows of a table by thermometer, itq, lsh or sign, and stores it; returns its name and version';
