-- Access by look-up: multi-index hashing (Norouzi, Punjani, Fleet 2012). Codes are cut in chunks,
-- each with a b-tree. Of two codes that differ in r of their bits, one chunk at least differs in
-- r / chunks bits or fewer, so it is enough to look at rows that have a chunk near the query's.

CREATE OR REPLACE FUNCTION hashindex.lookup_chunks(n_bits integer, n_rows bigint)
RETURNS integer
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    -- About as many values as rows. Of small tables more: they may grow, and all of their codes are
    -- read faster than looked up.
    width double precision := least(greatest(log(2.0, greatest(n_rows, 1)), 16), 30);
BEGIN
    -- Each chunk costs a b-tree, which every write pays for.
    RETURN least(greatest(round(n_bits / width), ceil(n_bits / 30.0), 1), 32);
END
$$;

COMMENT ON FUNCTION hashindex.lookup_chunks(integer, bigint) IS
    'number of chunks into which codes of so many bits are cut for the look-up of so many rows';

-- Of long codes some bits are in no chunk: that a chunk is near holds without them all the same.
CREATE OR REPLACE FUNCTION hashindex.code_chunks(n_bits integer, chunks integer)
RETURNS TABLE (chunk integer, first_bit integer, width integer)
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    used integer := least(n_bits, 30 * chunks);
BEGIN
    RETURN QUERY
    SELECT c, (c - 1) * used / chunks + 1, c * used / chunks - (c - 1) * used / chunks
    FROM generate_series(1, chunks) c;
END
$$;

COMMENT ON FUNCTION hashindex.code_chunks(integer, integer) IS
    'where the chunks of codes begin, counted from 1, and how many bits they have';

CREATE OR REPLACE FUNCTION hashindex.chunk_value(code text, first_bit integer, width integer)
RETURNS text
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN format('(substring(%s FROM %s FOR %s))::integer', code, first_bit, width);
END
$$;

COMMENT ON FUNCTION hashindex.chunk_value(text, integer, integer) IS
    'SQL for a chunk of a code as an integer, which is what its b-tree holds';

CREATE OR REPLACE FUNCTION hashindex.ball_sizes(width integer, most bigint)
RETURNS integer[]
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    of_weight bigint := 1;
    size bigint := 1;
    sizes integer[] := '{}';
BEGIN
    FOR weight IN 1 .. width + 1 LOOP
        EXIT WHEN size > most;
        sizes := sizes || size::integer;
        of_weight := of_weight * (width - weight + 1) / weight;
        size := size + of_weight;
    END LOOP;
    RETURN sizes;
END
$$;

COMMENT ON FUNCTION hashindex.ball_sizes(integer, bigint) IS
    'how many values of so many bits are within radius 0, 1, 2, ... of one of them, up to a most';

-- In the order of their weight, so that those of a smaller radius stand at the beginning.
CREATE OR REPLACE FUNCTION hashindex.hamming_masks(width integer, radius integer)
RETURNS integer[]
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    of_weight integer[] := '{0}';
    masks integer[] := '{0}';
BEGIN
    IF width NOT BETWEEN 1 AND 30 THEN
        RAISE EXCEPTION 'width is %; it must be 1 to 30', width
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF radius NOT BETWEEN 0 AND width THEN
        RAISE EXCEPTION 'radius is %; it must be 0 to %, the width', radius, width
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF cardinality(hashindex.ball_sizes(width, 1000000)) <= radius THEN
        RAISE EXCEPTION 'radius is %; around a value of % bits that is a ball of more than 1000000',
            radius, width
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Use a smaller radius.';
    END IF;
    FOR weight IN 1 .. radius LOOP
        -- Each of one bit less, with one more above its highest.
        of_weight := ARRAY(
            SELECT m.mask | (1 << b.bit)
            FROM unnest(of_weight) m(mask) JOIN generate_series(0, width - 1) b(bit)
                ON 1 << b.bit > m.mask
        );
        masks := masks || of_weight;
    END LOOP;
    RETURN masks;
END
$$;

COMMENT ON FUNCTION hashindex.hamming_masks(integer, integer) IS
    'every integer of so many bits of which no more than radius are set, by their number';

CREATE OR REPLACE FUNCTION hashindex.hamming_ball(value integer, width integer, radius integer)
RETURNS integer[]
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    masks integer[] := hashindex.hamming_masks(width, radius);
BEGIN
    IF value NOT BETWEEN 0 AND (1 << width) - 1 THEN
        RAISE EXCEPTION 'value is %; it must be 0 to %, what % bits can say',
            value, (1 << width) - 1, width
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN ARRAY(SELECT value # m.mask FROM unnest(masks) m(mask));
END
$$;

COMMENT ON FUNCTION hashindex.hamming_ball(integer, integer, integer) IS
    'every integer of so many bits that differs from a value in no more than radius of them';

-- What look-ups declare: masks, whose number by radius decides between them and a scan.
CREATE OR REPLACE FUNCTION hashindex.lookup_variables(i hashindex.index)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    width integer;
    sizes integer[];
BEGIN
    SELECT max(c.width) INTO width
    FROM hashindex.model m, hashindex.code_chunks(m.n_bits, i.chunks) c WHERE m.id = i.model_id;
    sizes := hashindex.ball_sizes(width, 20000);
    RETURN format(
        $variables$
    -- Of constants: computed once in a session.
    hashindex_masks integer[] := hashindex.hamming_masks(%s, %s);
    hashindex_sizes integer[] := %L;
    -- How many values are looked up in chunks up to hashindex_more, and in those after it.
    hashindex_wide integer;
    hashindex_narrow integer := 0;
    hashindex_more integer := %s;
    hashindex_radius integer;
    hashindex_found bigint;
    hashindex_of double precision := reltuples FROM pg_class WHERE oid = %L::regclass;$variables$,
        width, cardinality(sizes) - 1, sizes, i.chunks, format('%I.%I', i.code_schema, i.code_table)
    );
END
$$;

COMMENT ON FUNCTION hashindex.lookup_variables(hashindex.index) IS
    'declarations of the variables that look-ups use';

-- Measured, looking a value up takes as long as the distances of thirty codes.
CREATE OR REPLACE FUNCTION hashindex.lookup_pays(i hashindex.index)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    -- Without a size of the ball it is larger than any that is looked up.
    RETURN format(
        'coalesce(30.0 * (hashindex_more * hashindex_wide '
        '+ (%s - hashindex_more) * hashindex_narrow) <= hashindex_of, false)', i.chunks
    );
END
$$;

COMMENT ON FUNCTION hashindex.lookup_pays(hashindex.index) IS
    'SQL for whether looking that many values up costs less than a scan of all codes';

-- The values stand in subqueries: of parameters the planner would count them at first, and plan anew
-- in each call.
CREATE OR REPLACE FUNCTION hashindex.lookup_condition(i hashindex.index, code text, query_code text)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN '(' || string_agg(
        format(
            '%s = ANY (ARRAY(SELECT %s # hashindex_mask.mask FROM unnest(hashindex_masks'
            '[1 : CASE WHEN hashindex_more >= %s THEN hashindex_wide ELSE hashindex_narrow END]) '
            'hashindex_mask(mask) WHERE hashindex_mask.mask < %s))',
            hashindex.chunk_value(code, c.first_bit, c.width),
            hashindex.chunk_value(query_code, c.first_bit, c.width), c.chunk, 1 << c.width
        ),
        E'\n        OR ' ORDER BY c.chunk
    ) || ')'
    FROM hashindex.model m, hashindex.code_chunks(m.n_bits, i.chunks) c WHERE m.id = i.model_id;
END
$$;

COMMENT ON FUNCTION hashindex.lookup_condition(hashindex.index, text, text) IS
    'SQL for whether a code has a chunk that is near enough to the query''s';

-- With radius a in each of the chunks, every code is found up to the distance (a + 1) chunks - 1.
-- When that many fill the pool of a scan, they are that pool. The radius grows until they do. Where a
-- scan costs less it is made at once, and where the next radius would hardly fill it: one step makes
-- ten times as many of them in embeddings.
CREATE OR REPLACE FUNCTION hashindex.lookup_steps(i hashindex.index, terms jsonb, weighted boolean)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    pool text := hashindex.pool(terms ->> 'kept', 'scan', weighted);
    codes record := hashindex.codes_of(i);
BEGIN
    RETURN format(
        $steps$
        DECLARE%1$s
        BEGIN
            FOREACH hashindex_wide IN ARRAY hashindex_sizes LOOP
                EXIT WHEN NOT %3$s;
                hashindex_radius := coalesce(hashindex_radius, -1) + %2$s;
                WITH hashindex_within AS MATERIALIZED (
                    SELECT %4$s AS id, %5$s AS code, bit_count(%5$s # %6$s) AS far
                    FROM %7$s
                    WHERE %8$s
                      AND %5$s %9$s %6$s <= hashindex_radius
                    ORDER BY far, %4$s
                    LIMIT %10$s
                )
                SELECT array_agg(a.id ORDER BY a.distance, a.id),
                       array_agg(a.distance ORDER BY a.distance, a.id),
                       (SELECT count(*) FROM hashindex_within)
                INTO hashindex_ids, hashindex_distances, hashindex_found
                FROM (%11$s) a;
                EXIT WHEN hashindex_ids IS NOT NULL OR 100 * hashindex_found < %10$s;
            END LOOP;
        END;
        IF hashindex_ids IS NULL THEN
            %12$s
        ELSE
            RETURN QUERY SELECT a.id, a.distance FROM unnest(hashindex_ids, hashindex_distances) a(id, distance);
        END IF;$steps$,
        hashindex.lookup_variables(i), i.chunks, hashindex.lookup_pays(i),
        codes.id, codes.code, terms ->> 'code', codes.source,
        hashindex.lookup_condition(i, codes.code, terms ->> 'code'),
        hashindex.distance_operator('hamming'), pool,
        hashindex.answers(
            i, format(
                'CASE WHEN (SELECT count(*) FROM hashindex_within) >= %s THEN ARRAY(%s) END',
                pool, hashindex.candidate_ids('TABLE hashindex_within', 'scan', terms, weighted)
            ),
            terms
        ),
        hashindex.scan_steps(i, terms, weighted)
    );
END
$$;

COMMENT ON FUNCTION hashindex.lookup_steps(hashindex.index, jsonb, boolean) IS
    'statements of a search by look-up of chunks, which answers as one of all codes does';
