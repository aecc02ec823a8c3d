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
    ELSIF name = 'none' THEN
        RAISE EXCEPTION '"none" cannot name a model' USING ERRCODE = 'invalid_name', HINT = 'It stands for an index without one; use another name.';
    ELSIF method IS NULL OR method NOT IN ('thermometer', 'sign') THEN
        RAISE EXCEPTION 'method "%" cannot be trained in SQL', method
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Use thermometer or sign; pg-hashindex model train has the others.';
    ELSIF metric IS NULL OR metric NOT IN ('l2', 'cosine', 'ip') THEN
        RAISE EXCEPTION 'metric "%" is unknown', metric USING ERRCODE = 'invalid_parameter_value', HINT = 'Use l2, cosine or ip.';
    ELSIF cuts NOT BETWEEN 1 AND 8 OR cuts > 1 AND method = 'sign' THEN
        PERFORM hashindex._refuse('cuts', cuts, '1 to 8; sign has 1');
    ELSIF sample IS NULL OR sample < 1 THEN
        PERFORM hashindex._refuse('sample', sample, '1 or more');
    ELSIF seed IS NULL OR seed < 0 THEN
        RAISE EXCEPTION 'seed is %; it must be 0 or more', seed USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM hashindex._require_read(table_name, ARRAY[column_name], 'Copy its vectors into a table of your own (COPY), and train on that.');
    PERFORM hashindex._check_vector_column(table_name, column_name, NULL);
    EXECUTE format('SELECT {ext}.vector_dims(b.%I) FROM %s b WHERE b.%I IS NOT NULL LIMIT 1', column_name, table_name, column_name) INTO dimension;
    IF dimension IS NULL THEN
        RAISE EXCEPTION '% has no row with a vector in column "%"', table_name, column_name
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Load the rows first.';
    END IF;
    cuts := coalesce(cuts, CASE method WHEN 'sign' THEN 1 END);
    IF dimension * coalesce(cuts, 1) > 16000 THEN
        PERFORM hashindex._refuse('cuts', coalesce(cuts, 1), format('at most %s: a code has 16000 bits at most', 16000 / dimension));
    END IF;
END
$$;

-- Cuts of projections whose deviation is known: evenly around 0, in steps that pg_hashindex/hashers/base.py explains.
CREATE OR REPLACE FUNCTION hashindex._cuts(cuts integer, deviation double precision) RETURNS real[]
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN ARRAY(
    SELECT ((n - (cuts + 1) / 2.0) * ('{0,1,0.8,0.8,0.7,0.6,0.5,0.5}'::double precision[])[cuts] * deviation)::real FROM generate_series(1, least(cuts, 8)) n ORDER BY n
);

-- Codes of many projections, as hashindex._quantize gives each.
CREATE OR REPLACE FUNCTION hashindex._codes_of(projections {ext}.vector[], cut_values real[]) RETURNS bit varying[]
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    codes bit varying[];
BEGIN
    EXECUTE format(
        'SELECT array_agg({ext}.binary_quantize(%s OPERATOR({ext}.-) $2) ORDER BY n) FROM unnest($1) WITH ORDINALITY r(p, n)',
        array_to_string(array_fill('p'::text, ARRAY[cardinality(cut_values)]), ' OPERATOR({ext}.||) ')
    ) INTO codes USING projections, hashindex._cut_vector({ext}.vector_dims(projections[1]), cut_values);
    RETURN codes;
END
$$;

-- How many columns of codes differ, a column and its opposite counting once, and those of one value not at all: the parities of the same 62
-- random sets of rows are equal for equal columns, and for other ones hardly ever.
CREATE OR REPLACE FUNCTION hashindex._distinct_bits(codes bit varying[]) RETURNS integer
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN count(DISTINCT b.mark)
    FROM (
        SELECT bit, sum(get_bit(s.parities, bit)::bigint << s.drawn) AS mark
        FROM (
            SELECT drawn, bit_xor(c.code # codes[1]) AS parities
            FROM unnest(codes) WITH ORDINALITY c(code, place), generate_series(0, 61) drawn
            WHERE hashint8extended(c.place, 0) >> drawn & 1 = 1 GROUP BY drawn
        ) s, generate_series(0, length(codes[1]) - 1) bit
        GROUP BY bit
    ) b WHERE b.mark <> 0;
END
$$;

-- The profile of a model by projections of its rows, as Profile.of of pg_hashindex/models/profiles.py makes it, and figures of their bits.
CREATE OR REPLACE FUNCTION hashindex._profile_of(projections {ext}.vector[], cut_values real[], OUT profile jsonb, OUT bits jsonb)
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
BEGIN
    WITH lines AS MATERIALIZED (
        SELECT p::real[] AS line FROM unnest(projections) p
    ), shape AS MATERIALIZED (
        SELECT count(*)::integer AS n, {ext}.vector_dims(projections[1]) AS n_places,
            -- The deviation of all numbers.
            sqrt(avg({ext}.vector_norm(p) ^ 2) / {ext}.vector_dims(projections[1])
                - (avg({ext}.inner_product(p, array_fill(1::real, ARRAY[{ext}.vector_dims(projections[1])])::{ext}.vector)) / {ext}.vector_dims(projections[1])) ^ 2
            ) AS spread
        FROM unnest(projections) p
    ), sorted AS MATERIALIZED (
        SELECT place, (SELECT array_agg(line[place] ORDER BY line[place]) FROM lines)::double precision[] AS numbers
        FROM shape, generate_series(1, n_places) place
    ), edges AS MATERIALIZED (
        SELECT place, numbers, (
            SELECT array_agg(edge ORDER BY edge)
            FROM (SELECT (q - 1e-4 * spread - 1e-6 * abs(q))::real FROM generate_series(1, 9) bin, LATERAL (SELECT numbers[ceil(bin * n / 10.0)::integer]) p(q)) e(edge)
        ) AS edges
        FROM sorted, shape
    ), bins AS (
        SELECT place, (
            SELECT jsonb_agg(b.below - b.before ORDER BY b.bin)
            FROM (
                SELECT u.bin, u.below, lag(u.below, 1, 0) OVER (ORDER BY u.bin) AS before
                FROM (
                    -- The numbers below an edge; a little below it there is none that it equals.
                    SELECT x.bin, width_bucket(x.edge - 1e-9 * abs(x.edge), numbers) FROM unnest(edges::double precision[]) WITH ORDINALITY x(edge, bin)
                    UNION ALL SELECT 10, n
                ) u(bin, below)
            ) b
        ) AS counts
        FROM edges, shape
    ), ones AS (
        SELECT c.place AS cut, s.place, n - width_bucket(c.cut::double precision, numbers) AS ones
        FROM sorted s, shape, unnest(cut_values) WITH ORDINALITY c(cut, place)
    )
    SELECT jsonb_build_object(
        'rows', (SELECT n FROM shape),
        'edges', (SELECT jsonb_agg(to_jsonb(edges) ORDER BY place) FROM edges),
        'counts', (SELECT jsonb_agg(counts ORDER BY place) FROM bins),
        'ones', jsonb_agg(ones ORDER BY cut, place)
    ), jsonb_build_object(
        'distinct_bits', hashindex._distinct_bits(hashindex._codes_of(projections, cut_values)),
        'share_of_ones', jsonb_build_object(
            'least', round(min(ones)::numeric / cardinality(projections), 4), 'mean', round(avg(ones) / cardinality(projections), 4),
            'greatest', round(max(ones)::numeric / cardinality(projections), 4)
        )
    ) INTO profile, bits
    FROM ones;
END
$$;

-- The ten nearest rows of each of some rows, and what ties with the tenth: number of the query, and place of the row.
CREATE OR REPLACE FUNCTION hashindex._neighbours(projections {ext}.vector[], metric text, mean {ext}.vector, queries integer[], OUT asking integer[], OUT places integer[])
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
BEGIN
    WITH p AS MATERIALIZED (SELECT p, place::integer FROM unnest(projections) WITH ORDINALITY r(p, place))
    SELECT array_agg(q.n ORDER BY q.n, near.place), array_agg(near.place ORDER BY q.n, near.place) INTO asking, places
    FROM (
        -- Products are with the rows themselves, less a number that is the same for all.
        SELECT o.n, o.place, CASE metric WHEN 'ip' THEN p.p OPERATOR({ext}.+) mean ELSE p.p END AS p FROM unnest(queries) WITH ORDINALITY o(place, n) JOIN p USING (place) OFFSET 0
    ) q, LATERAL (
        SELECT p.place FROM p WHERE p.place <> q.place
        ORDER BY CASE metric WHEN 'ip' THEN p.p OPERATOR({ext}.<#>) q.p ELSE p.p OPERATOR({ext}.<->) q.p END
        FETCH FIRST 10 ROWS WITH TIES
    ) near;
END
$$;

-- The fewest candidates, from 10 to `most`, among which rows find .98 of their ten nearest by the codes of all rows, and the part that they find. `asked` has
-- one code for each query, or three whose weights are 4, 2 and 1; of equal distances any order is as likely.
CREATE OR REPLACE FUNCTION hashindex._enough_candidates(
    codes bit varying[], asked bit varying[], queries integer[], asking integer[], places integer[], most integer, OUT candidates integer, OUT recall double precision
)
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    a integer := cardinality(asked) / cardinality(queries);
    before integer[];
    same integer[];
    least_candidates integer := 10;
BEGIN
    WITH r AS MATERIALIZED (
        SELECT code, place FROM unnest(codes) WITH ORDINALITY r(code, place)
    ), u AS MATERIALIZED (
        SELECT q.n, q.place, k.codes[1] AS u1, k.codes[2] AS u2, k.codes[3] AS u3
        FROM unnest(queries) WITH ORDINALITY q(place, n)
        JOIN (SELECT (i - 1) / a + 1 AS n, array_agg(code ORDER BY i) AS codes FROM unnest(asked) WITH ORDINALITY k(code, i) GROUP BY 1) k USING (n)
    ), lines AS MATERIALIZED (
        SELECT u.n, u.u1, u.u2, u.u3, d.line FROM u, LATERAL (
            SELECT array_agg(distance ORDER BY distance) AS line
            FROM (
                SELECT CASE a WHEN 1 THEN r.code OPERATOR({ext}.<~>) u.u1
                    ELSE 4 * (r.code OPERATOR({ext}.<~>) u.u1) + 2 * (r.code OPERATOR({ext}.<~>) u.u2) + (r.code OPERATOR({ext}.<~>) u.u3) END AS distance
                FROM r WHERE r.place <> u.place OFFSET 0
            ) x
        ) d
    )
    SELECT array_agg(b.before), array_agg(width_bucket(d.distance + 0.5, l.line) - b.before), array_agg(l.n) INTO before, same, asking
    FROM unnest(asking, places) k(n, place) JOIN lines l USING (n) JOIN r USING (place), LATERAL (
        SELECT CASE a WHEN 1 THEN r.code OPERATOR({ext}.<~>) l.u1
            ELSE 4 * (r.code OPERATOR({ext}.<~>) l.u1) + 2 * (r.code OPERATOR({ext}.<~>) l.u2) + (r.code OPERATOR({ext}.<~>) l.u3) END
    ) d(distance), LATERAL (SELECT width_bucket(d.distance - 0.5, l.line)) b(before);
    candidates := most;
    LOOP
        SELECT sum(least(10, h.hits)) / (10 * cardinality(queries)) INTO recall
        FROM (
            SELECT sum(least(1, greatest(0, (candidates - n.before)::double precision / n.same))) AS hits
            FROM unnest(asking, before, same) n(query, before, same) GROUP BY n.query
        ) h;
        -- The last that was tried found enough, or is the most.
        EXIT WHEN least_candidates >= most;
        IF candidates = most AND recall < 0.98 - 1e-9 THEN
            RETURN;
        ELSIF recall >= 0.98 - 1e-9 THEN
            most := candidates;
        ELSE
            least_candidates := candidates + 1;
        END IF;
        candidates := CASE WHEN least_candidates >= most THEN most ELSE (least_candidates + most) / 2 END;
    END LOOP;
END
$$;

-- The number of cuts, of up to `most`, whose candidates are read with the fewest bits: for each that is found by plain Hamming distance, 32 bits a
-- dimension of its vector, and about 16 codes that pgvector's graph compares, with a bit a dimension and cut. More cuts are tried until that has
-- risen twice; one more has to save a tenth, since it takes space. pg_hashindex/hashers/thermometer.py does the same.
CREATE OR REPLACE FUNCTION hashindex._choose_cuts(
    projections {ext}.vector[], deviation double precision, most integer, queries integer[], asking integer[], places integer[]
) RETURNS integer
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    codes bit varying[];
    cost integer;
    before integer;
    cheapest integer;
    chosen integer;
    chosen_cost integer;
    risen integer := 0;
BEGIN
    FOR n IN 1..most LOOP
        EXIT WHEN risen = 2 OR 10 * (2 + n) >= cheapest;
        codes := hashindex._codes_of(projections, hashindex._cuts(n, deviation));
        cost := (2 + n) * (hashindex._enough_candidates(
            codes, (SELECT array_agg(c.code ORDER BY c.place) FROM unnest(codes) WITH ORDINALITY c(code, place) WHERE c.place = ANY (queries)),
            queries, asking, places, cardinality(codes) - 1
        )).candidates;
        risen := CASE WHEN cost > before THEN risen + 1 ELSE 0 END;
        before := cost;
        cheapest := least(cheapest, cost);
        IF chosen IS NULL OR 10 * cost < 9 * chosen_cost THEN
            chosen_cost := cost;
            chosen := n;
        END IF;
    END LOOP;
    RETURN chosen;
END
$$;

-- How many candidates are enough, as hashindex._usual_candidates reads it from a model's figures: by the order that lists rank by. train of
-- pg_hashindex/training/fitting.py measures the same on rows held back; a mean and a deviation do not learn rows by heart.
CREATE OR REPLACE FUNCTION hashindex._recall_in_training(
    projections {ext}.vector[], metric text, mean {ext}.vector, cut_values real[], queries integer[], asking integer[], places integer[]
) RETURNS jsonb
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    steps {ext}.vector[] := hashindex._steps(cardinality(cut_values) * {ext}.vector_dims(mean));
    cut {ext}.vector := hashindex._cut_vector({ext}.vector_dims(mean), cut_values);
    place integer;
    numbers {ext}.vector;
    x {ext}.vector;
    asked bit varying[] := '{}';
    found record;
BEGIN
    FOREACH place IN ARRAY queries LOOP
        -- Products are with the rows themselves.
        x := CASE metric WHEN 'ip' THEN projections[place] OPERATOR({ext}.+) mean ELSE projections[place] END;
        numbers := x;
        FOR n IN 2..cardinality(cut_values) LOOP
            numbers := numbers OPERATOR({ext}.||) x;
        END LOOP;
        asked := asked || hashindex._asymmetric_codes(CASE metric WHEN 'ip' THEN numbers ELSE numbers OPERATOR({ext}.-) cut END, steps);
    END LOOP;
    found := hashindex._enough_candidates(
        hashindex._codes_of(projections, cut_values), asked, queries, asking, places, least(200, cardinality(projections) - 1)
    );
    RETURN jsonb_build_object(
        'k', 10, 'candidates', found.candidates, 'among', cardinality(projections) - 1, 'value', round(found.recall::numeric, 4)
    );
END
$$;

-- A sample of a table's vectors that depends on nothing but the seed and the places of rows. Reading a large table whole would take minutes, so
-- whole pages of it are drawn. By cosine a vector of zeros has no distance, and is left out. Called by train, with its settings.
CREATE OR REPLACE FUNCTION hashindex._draw_rows(table_name regclass, column_name text, metric text, sample integer, seed bigint) RETURNS {ext}.vector[]
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    rows_in_table double precision;
    share double precision;
    rows {ext}.vector[];
BEGIN
    rows_in_table := sum(greatest(c.reltuples, 0)) FROM pg_class c
    WHERE c.relkind <> 'p' AND (c.oid = table_name OR c.oid IN (SELECT t.relid FROM pg_partition_tree(table_name) t));
    IF rows_in_table <= 1000000 THEN
        EXECUTE format('SELECT count(%I) FROM %s', column_name, table_name) INTO rows_in_table;
    END IF;
    share := least(1, 1.2 * sample / rows_in_table);
    LOOP
        -- Many rows may have no vector: then a larger part of the table is read.
        EXECUTE format(
            'SELECT array_agg(r.v) FROM (SELECT %s AS v FROM %s b %s WHERE {ext}.vector_norm(b.%I::{ext}.vector) < 1e15 AND {ext}.vector_norm(b.%I::{ext}.vector) %s 0 AND %s ORDER BY hashtidextended(b.ctid, $3) & 4294967295 LIMIT $1) r',
            format(CASE WHEN metric = 'cosine' THEN '{ext}.l2_normalize(b.%I::{ext}.vector)' ELSE 'b.%I::{ext}.vector' END, column_name),
            table_name,
            CASE WHEN rows_in_table > 1000000 THEN 'TABLESAMPLE SYSTEM (100 * $2) REPEATABLE ($3)' ELSE '' END, column_name, column_name, CASE metric WHEN 'cosine' THEN '>' ELSE '>=' END,
            CASE WHEN rows_in_table > 1000000 THEN 'true' ELSE '(hashtidextended(b.ctid, $3) & 4294967295) <= 4294967296 * $2' END
        ) INTO rows USING sample, share, seed;
        EXIT WHEN share >= 1 OR cardinality(rows) >= sample OR (share > 0) IS NOT TRUE;
        share := least(1, share * greatest(2, 1.2 * sample / greatest(coalesce(cardinality(rows), 0), 1)));
    END LOOP;
    RETURN rows;
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
    cut_values real[];
    projections {ext}.vector[];
    measured {ext}.vector[];
    deviation double precision;
    queries integer[];
    asking integer[];
    places integer[];
    recall jsonb;
    dimension integer;
    rows {ext}.vector[];
    least_rows integer := CASE WHEN force THEN 2 ELSE 1000 END;
    mean {ext}.vector;
    widest double precision;
    layers hashindex.layer[];
    profile jsonb;
    bits jsonb;
    version integer;
BEGIN
    PERFORM hashindex._check_administrator();
    SELECT o.* INTO cuts, dimension FROM hashindex._check_training(name, table_name, column_name, method, cuts, metric, sample, seed) o;

    -- At most 256 MB are held.
    sample := least(sample, 67108864 / dimension);
    rows := hashindex._draw_rows(table_name, column_name, metric, sample, seed);
    IF coalesce(cardinality(rows), 0) < least_rows THEN
        RAISE EXCEPTION '% rows are too few to learn from', coalesce(cardinality(rows), 0)
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('Let the %s have %s rows or more%s%s.', CASE WHEN sample < least_rows THEN 'sample' ELSE 'table' END, least_rows, CASE WHEN metric = 'cosine' THEN ' that are not zeros' END, CASE WHEN NOT force THEN ', or pass force => true' END);
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
    -- Up to 5,000 rows are projected.
    projections := ARRAY(
        SELECT hashindex.project_with(layers, r.v) FROM unnest(rows) WITH ORDINALITY r(v, place)
        WHERE r.place % ceil(cardinality(rows) / 5000.0)::integer = 0 ORDER BY r.place
    );
    -- The deviation of all projections, or for inner products the deviation of the projections of a long row, as in Python.
    deviation := sqrt(CASE metric WHEN 'ip' THEN percentile_disc(.99) WITHIN GROUP (ORDER BY {ext}.vector_norm(p) ^ 2) ELSE avg({ext}.vector_norm(p) ^ 2) END / dimension)
    FROM unnest(projections) p;
    -- Two million numbers, or 1,000 rows; 100 are queries.
    measured := ARRAY(
        SELECT r.p FROM unnest(projections) WITH ORDINALITY r(p, place)
        WHERE r.place % ceil(cardinality(projections) / greatest(1000, 2000000 / dimension)::numeric)::integer = 0 ORDER BY r.place
    );
    IF cardinality(measured) > 11 THEN
        queries := ARRAY(SELECT n * greatest(1, cardinality(measured) / 100) FROM generate_series(1, least(100, cardinality(measured))) n);
        SELECT n.* INTO asking, places FROM hashindex._neighbours(measured, metric, mean, queries) n;
    END IF;
    cuts := coalesce(cuts, hashindex._choose_cuts(measured, deviation, least(8, 16000 / dimension), queries, asking, places), least(3, 16000 / dimension));
    cut_values := hashindex._cuts(cuts, deviation);
    -- The profile is of a million numbers, or of 1,000 rows.
    SELECT f.profile, f.bits INTO profile, bits FROM hashindex._profile_of(projections[1:greatest(1000, 1000000 / dimension)], cut_values) f;
    recall := hashindex._recall_in_training(measured, metric, mean, cut_values, queries, asking, places);

    -- Two sessions that train models of one name must not get the same version.
    LOCK TABLE hashindex.model IN SHARE ROW EXCLUSIVE MODE;
    INSERT INTO hashindex.model (name, version, method, dimension, n_bits, metric, cuts, parameters, training, checksum, profile, layers)
    SELECT name, coalesce(max(m.version), 0) + 1, method, dimension, dimension * cuts, metric, cut_values,
        jsonb_build_object('n_bits', dimension * cuts, 'random_state', seed, 'normalize', CASE WHEN metric = 'cosine' THEN 'l2' END)
        || CASE method WHEN 'sign' THEN '{"center": "mean"}' ELSE '{}' END::jsonb,
        bits || CASE WHEN recall IS NULL THEN '{}' ELSE jsonb_build_object('recall', recall) END || jsonb_build_object('rows', cardinality(rows), 'held_back_rows', 0, 'seconds', round(extract(epoch FROM clock_timestamp() - started), 3)),
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
