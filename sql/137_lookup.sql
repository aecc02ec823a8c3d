-- Access path lookup: multi-index hashing (Norouzi, Punjani, Fleet 2012). Codes are cut into chunks, each with a b-tree.
-- If two codes differ in r bits, at least one of their chunks differs in r / chunks bits or fewer. So a search reads only
-- rows that have a chunk near the query's.

CREATE OR REPLACE FUNCTION hashindex._lookup_chunks(n_bits integer, n_rows bigint) RETURNS integer
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
-- A chunk has about as many values as the table has rows. Small tables get wider chunks: they may grow, and a scan of them is faster
-- anyway. Few chunks, since every write updates the b-tree of each.
RETURN least(greatest(
    round(n_bits / least(greatest(log(2.0, greatest(n_rows, 1)), 16), 30)), ceil(n_bits / 30.0), 1
), 32)::integer;

COMMENT ON FUNCTION hashindex._lookup_chunks IS 'number of chunks into which the codes of n_bits bits of n_rows rows are cut';

-- Some bits of long codes are in no chunk. The bound above holds for the other bits, so it still holds.
CREATE OR REPLACE FUNCTION hashindex._code_chunks(n_bits integer, chunks integer)
RETURNS TABLE (chunk integer, first_bit integer, width integer, value text)
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    used integer := least(n_bits, 30 * chunks);
BEGIN
    RETURN QUERY
    SELECT c, p.place + 1, p.next - p.place, concat('(substring(%s FROM ', p.place + 1, ' FOR ', p.next - p.place, '))::integer')
    FROM generate_series(1, chunks) c, LATERAL (SELECT (c - 1) * used / chunks AS place, c * used / chunks AS next) p;
END
$$;

COMMENT ON FUNCTION hashindex._code_chunks IS
    'the chunks of a code: where each begins, counted from 1, its bits, and SQL for its value, which the b-tree holds, with %s for the code';

CREATE OR REPLACE FUNCTION hashindex._hamming_masks(width integer, radius integer) RETURNS integer[]
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    of_weight integer[] := '{0}';
    masks integer[] := '{0}';
BEGIN
    -- Anyone may call it: more masks than a search looks up would take all memory.
    IF width NOT BETWEEN 1 AND 30 THEN
        PERFORM hashindex._refuse('width', width, '1 to 30');
    ELSIF radius NOT BETWEEN 0 AND width OR radius > 7 AND width > 14 THEN
        PERFORM hashindex._refuse('radius', radius, '0 to the width, and to 7 where that is above 14');
    END IF;
    FOR weight IN 1 .. radius LOOP
        -- Adds one bit above the highest bit of each mask that has one bit fewer.
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

COMMENT ON FUNCTION hashindex._hamming_masks IS 'every integer of width bits with at most radius bits set, ordered by their number';

-- A code within radius a chunks + b of the query's has one of its first b + 1 chunks within a, or another within a - 1. Looking a
-- value up takes as long as computing thirty distances (measured).
CREATE OR REPLACE FUNCTION hashindex._lookup_parts(i hashindex.index) RETURNS jsonb
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    n_bits integer := m.n_bits FROM hashindex.model m WHERE m.id = i.model_id;
    width integer;
    sizes integer[];
    near text;
BEGIN
    IF i.access <> 'lookup' THEN
        RETURN '{}';
    END IF;
    SELECT max(c.width), '(' || string_agg(
        format(
            '%s = ANY (ARRAY(SELECT %s # m.mask FROM unnest(hashindex_masks'
            '[:CASE WHEN hashindex_more >= %s THEN hashindex_wide ELSE hashindex_narrow END]) m(mask) WHERE m.mask < %s))',
            format(c.value, 'c.code'), format(c.value, 'hashindex_code'), c.chunk, 1 << c.width
        ),
        E'\n        OR ' ORDER BY c.chunk
    ) || ')'
    INTO width, near FROM hashindex._code_chunks(n_bits, i.chunks) c;
    -- How many values of a chunk are within radius 0, 1, 2, ... of any one, up to 20,000 of them.
    sizes := ARRAY(
        SELECT b.size::integer
        FROM (
            SELECT r.radius, sum(factorial(width) / (factorial(r.radius) * factorial(width - r.radius))) OVER (ORDER BY r.radius) AS size
            FROM generate_series(0, width) r(radius)
        ) b
        WHERE b.size <= 20000 ORDER BY b.radius
    );
    RETURN jsonb_build_object(
        'lookup', near, 'chunks', i.chunks, 'chunk_width', width, 'chunk_radius', cardinality(sizes) - 1,
        'ball_sizes', quote_literal(sizes),
        -- A radius that has no size in the list is too large to be looked up.
        'lookup_pays', format(
            'coalesce(30.0 * (hashindex_more * hashindex_wide + (%s - hashindex_more) * hashindex_narrow) <= hashindex_rows, false)',
            i.chunks
        )
    );
END
$$;

COMMENT ON FUNCTION hashindex._lookup_parts IS 'values of the placeholders in the templates of access path lookup';
