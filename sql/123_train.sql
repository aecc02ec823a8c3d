-- Trains models in SQL, and stores them as Python does. pg_hashindex/hashers explains the methods.

-- The options of a training, or an error: its cuts, and the dimension of the vectors.
CREATE OR REPLACE FUNCTION hashindex._check_training(
    name text, table_name regclass, column_name text, method text, INOUT cuts integer, metric text, sample integer, seed bigint,
    OUT dimension integer
)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
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
    ELSIF method IS NULL OR method NOT IN ('thermometer', 'sign') THEN
        RAISE EXCEPTION 'method "%" cannot be trained in SQL', method
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Use thermometer or sign; pg-hashindex model train has the others.';
    ELSIF metric IS NULL OR metric NOT IN ('l2', 'cosine', 'ip') THEN
        RAISE EXCEPTION 'metric "%" is unknown', metric USING ERRCODE = 'invalid_parameter_value', HINT = 'Use l2, cosine or ip.';
    ELSIF cuts NOT IN (1, 3, 5) OR cuts > 1 AND method = 'sign' THEN
        PERFORM hashindex._refuse('cuts', cuts, '1, 3 or 5; sign has 1');
    ELSIF sample IS NULL OR sample < 1 THEN
        PERFORM hashindex._refuse('sample', sample, '1 or more');
    ELSIF seed IS NULL OR seed < 0 THEN
        RAISE EXCEPTION 'seed is %; it must be 0 or more', seed USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM hashindex._require_owner(table_name, ARRAY[column_name], 'Copy its vectors into a table of your own (COPY), and train on that.');
    PERFORM hashindex._check_vector_column(table_name, column_name, NULL);
    EXECUTE format('SELECT {ext}.vector_dims(b.%I) FROM %s b WHERE b.%I IS NOT NULL LIMIT 1', column_name, table_name, column_name) INTO dimension;
    IF dimension IS NULL THEN
        RAISE EXCEPTION '% has no row with a vector in column "%"', table_name, column_name
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Load the rows first.';
    END IF;
    -- As in Python.
    cuts := coalesce(cuts, CASE WHEN method = 'thermometer' AND 3 * dimension <= 16000 THEN 3 ELSE 1 END);
    IF dimension * cuts > 16000 THEN
        PERFORM hashindex._refuse('cuts', cuts, '1: a code has 16000 bits at most');
    END IF;
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
    method text DEFAULT 'thermometer',
    cuts integer DEFAULT NULL,
    metric text DEFAULT 'cosine',
    sample integer DEFAULT 20000,
    seed bigint DEFAULT 0,
    force boolean DEFAULT false
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
    least_rows integer := CASE WHEN force THEN 2 ELSE 1000 END;
    mean {ext}.vector;
    widest double precision;
    layers hashindex.layer[];
    profile jsonb;
    training jsonb;
    version integer;
BEGIN
    PERFORM hashindex._check_administrator();
    SELECT o.* INTO cuts, dimension FROM hashindex._check_training(name, table_name, column_name, method, cuts, metric, sample, seed) o;

    -- A sample that depends on nothing but the seed and the places of rows. Reading a large table whole would take minutes, so whole
    -- pages of it are drawn. At most 256 MB are held.
    sample := least(sample, 67108864 / dimension);
    rows_in_table := sum(greatest(c.reltuples, 0)) FROM pg_class c
    WHERE c.oid = table_name OR c.oid IN (SELECT t.relid FROM pg_partition_tree(table_name) t);
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
    IF coalesce(cardinality(rows), 0) < least_rows THEN
        RAISE EXCEPTION '% rows are too few to learn from', coalesce(cardinality(rows), 0)
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('Let the %s have %s rows or more%s.', CASE WHEN sample < least_rows THEN 'sample' ELSE 'table' END, least_rows,
                                CASE WHEN NOT force THEN ', or pass force => true' END);
    ELSIF EXISTS (SELECT FROM unnest(rows) r(v) WHERE {ext}.vector_dims(r.v) <> dimension) THEN
        RAISE EXCEPTION 'column "%" of % holds vectors of several dimensions', column_name, table_name
            USING ERRCODE = 'datatype_mismatch', HINT = 'A model takes one.';
    END IF;
    mean := {ext}.avg(r.v) FROM unnest(rows) r(v);
    widest := max({ext}.l2_distance(r.v, mean)) FROM unnest(rows) r(v);
    IF widest <= (CASE metric WHEN 'cosine' THEN 1e-6 ELSE 0 END) THEN
        RAISE EXCEPTION 'the vectors in column "%" of % are all equal', column_name, table_name
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'A model learns from rows that differ.';
    END IF;

    layers := CASE WHEN metric = 'cosine' THEN ARRAY[ROW('normalize', NULL, NULL, NULL, NULL)::hashindex.layer] ELSE '{}' END
        || ROW('shift', NULL, array_fill(0::real, ARRAY[dimension])::{ext}.vector OPERATOR({ext}.-) mean, NULL, NULL)::hashindex.layer;
    IF cuts > 1 THEN
        -- Multiples of the deviation of all projections, or for inner products of those of a long row, as in Python; of 5,000 rows.
        cut_values := ARRAY(
            SELECT ((n - (cuts + 1) / 2) * (CASE cuts WHEN 3 THEN 0.8 ELSE 0.7 END) * d.deviation)::real FROM generate_series(1, cuts) n, (
                SELECT sqrt(CASE metric WHEN 'ip' THEN percentile_disc(.99) WITHIN GROUP (ORDER BY p.square) ELSE avg(p.square) END / dimension) AS deviation
                FROM unnest(rows) WITH ORDINALITY r(v, place), LATERAL (SELECT {ext}.vector_norm(hashindex.project_with(layers, r.v)) ^ 2) p(square)
                WHERE r.place % greatest(1, cardinality(rows) / 5000) = 0
            ) d ORDER BY n
        );
    END IF;
    SELECT f.profile, f.training INTO profile, training FROM hashindex._profile_of(layers, rows, cut_values) f;

    -- Two sessions that train models of one name must not get the same version.
    LOCK TABLE hashindex.model IN SHARE ROW EXCLUSIVE MODE;
    INSERT INTO hashindex.model (name, version, method, dimension, n_bits, metric, cuts, parameters, training, checksum, profile, layers)
    SELECT name, coalesce(max(m.version), 0) + 1, method, dimension, dimension * cuts, metric, cut_values,
        jsonb_build_object('n_bits', dimension, 'random_state', seed, 'normalize', CASE WHEN metric = 'cosine' THEN 'l2' END)
        || CASE method WHEN 'sign' THEN '{"center": "mean"}' ELSE '{}' END::jsonb,
        training || jsonb_build_object('seconds', round(extract(epoch FROM clock_timestamp() - started), 3)),
        -- As Model.checksum of pg_hashindex/models/model.py; float4 in the order of little-endian machines.
        (SELECT encode(sha256(string_agg(convert_to(p.word, 'UTF8') || decode(
             regexp_replace(encode(substr({ext}.vector_send(p.numbers), 5), 'hex'), '(..)(..)(..)(..)', '\4\3\2\1', 'g'), 'hex'
         ), '' ORDER BY p.place)), 'hex')
         FROM (VALUES
             (1, format('%s%s|shift|None(%s,)', dimension, CASE metric WHEN 'cosine' THEN '|normalize|None' END, dimension), layers[cardinality(layers)].bias),
             (2, '|cuts', nullif(cut_values, '{0}')::{ext}.vector)
         ) p(place, word, numbers) WHERE p.numbers IS NOT NULL), profile, layers
    FROM hashindex.model m WHERE m.name = name
    RETURNING model.version INTO version;
    RETURN format('%s:%s', name, version);
END
$$;

COMMENT ON FUNCTION hashindex.train IS
    'trains a model on rows of a table by thermometer or sign, and stores it; returns its name and version';
