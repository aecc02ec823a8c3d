-- Health of what searches go by: the access path, lists of landmarks, and swaps of the model.

CREATE OR REPLACE FUNCTION hashindex.health_of_access(i hashindex.index)
RETURNS TABLE (check_name text, status text, value double precision, detail text, advice text)
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    named text := hashindex.shell_word(i.name);
    again text := format('pg-hashindex index configure %1$s --access scan, and then --access %2$s', named, i.access);
    faults text[] := '{}';
    has_landmarks boolean;
BEGIN
    IF i.access = 'landmarks' THEN
        IF to_regclass(format('hashindex.%I', i.storage || '_landmarks')) IS NULL
            OR NOT hashindex.has_lists(i)
        THEN
            RETURN QUERY SELECT 'access', 'broken', 1::double precision,
                'the landmarks of the index, or their lists, are gone'::text, 'pg-hashindex index repair ' || named;
            RETURN;
        END IF;
        EXECUTE format('SELECT EXISTS (SELECT FROM hashindex.%I)', i.storage || '_landmarks') INTO has_landmarks;
        faults := CASE
            WHEN NOT has_landmarks THEN ARRAY['there are no landmarks: searches read all codes']
            WHEN NOT EXISTS (
                SELECT FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid JOIN pg_am a ON a.oid = c.relam
                WHERE x.indrelid = to_regclass(format('hashindex.%I', i.storage || '_landmarks'))
                  AND a.amname = 'hnsw' AND x.indisvalid
            ) AND (SELECT m.dimension FROM hashindex.model m WHERE m.id = i.model_id) <= 4000
                THEN ARRAY['the HNSW over landmarks is gone: searches look at each of them']
            ELSE '{}' END;
    ELSIF i.access IN ('lookup', 'hnsw') THEN
        faults := ARRAY(
            SELECT x.index_name || CASE WHEN p.indexrelid IS NULL THEN ' is gone' ELSE ' is not valid' END
            FROM hashindex.code_indexes(i, i.access) x
            LEFT JOIN pg_index p ON p.indexrelid = to_regclass(x.index_name)
            WHERE p.indisvalid IS NOT TRUE
        );
    END IF;
    IF faults <> '{}' THEN
        RETURN QUERY SELECT 'access', 'warning', cardinality(faults)::double precision,
            format('of access path %s %s; searches are slow', i.access, array_to_string(faults, '; ')),
            CASE WHEN i.access = 'landmarks' THEN again ELSE 'pg-hashindex index repair ' || named END;
    ELSIF i.building IS NULL THEN
        RETURN QUERY SELECT 'access', 'ok', 0::double precision, format('searches go by %s', i.access), NULL::text;
    ELSIF hashindex.is_at_work('hashindex.access:' || i.name) OR hashindex.is_at_work('hashindex.encode:' || i.name) THEN
        RETURN QUERY SELECT 'access', 'ok', 0::double precision,
            format('access path %s is being built; until then searches go by %s', i.building, i.access), NULL::text;
    ELSE
        RETURN QUERY SELECT 'access', 'warning', 1::double precision,
            format('access path %s is not built, and nobody is at it; searches go by %s', i.building, i.access),
            'pg-hashindex index encode ' || named;
    END IF;
END
$$;

COMMENT ON FUNCTION hashindex.health_of_access(hashindex.index) IS
    'health: whether the access path of an index is there and valid, or one is being built';

-- Lists are all counted where that takes a part of a second, by the room that their codes take, which
-- are all of one size and not compressed: they need not be fetched for that. Which entries are stale
-- is told by some.
CREATE OR REPLACE FUNCTION hashindex.health_of_lists(i hashindex.index, "full" boolean, codes double precision)
RETURNS TABLE (check_name text, status text, value double precision, detail text, advice text)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    lists regclass := to_regclass(format('hashindex.%I', i.storage || '_lists'));
    landmarks bigint;
    entries double precision;
    longest double precision;
    in_long double precision;
    stale_share double precision;
    -- A code in an array: its size, the number of its bits, and these, to whole words.
    code_bytes double precision := (
        SELECT 4 * ceil((8 + ceil(m.n_bits / 8.0)) / 4) FROM hashindex.model m WHERE m.id = i.model_id
    );
    all_read boolean := health_of_lists.full OR pg_table_size(lists) <= 256 * 1024 ^ 2;
    mean double precision;
    wrong text[] := '{}';
    named text := hashindex.shell_word(i.name);
    again text := format('pg-hashindex index configure %1$s --access scan, and then --access landmarks', named);
BEGIN
    IF lists IS NULL OR i.access <> 'landmarks' THEN
        RETURN;
    END IF;
    EXECUTE format(
        'WITH sizes AS ('
        '    SELECT sum(round((pg_column_size(l.codes) - 24) / $1)) AS entries FROM %1$s l %3$s GROUP BY l.landmark'
        ') '
        'SELECT (SELECT count(*) FROM hashindex.%2$I), coalesce(sum(s.entries), 0), coalesce(max(s.entries), 0), '
        '       coalesce(sum(s.entries) FILTER (WHERE s.entries > greatest(4 * m.mean, 200)), 0) '
        'FROM sizes s CROSS JOIN (SELECT avg(z.entries) AS mean FROM sizes z) m',
        lists, i.storage || '_landmarks',
        CASE WHEN NOT all_read THEN hashindex.sample_clause(lists, 1000) END
    ) INTO landmarks, entries, longest, in_long USING code_bytes;
    IF NOT all_read THEN
        entries := entries / hashindex.sample_share(lists, 1000);
        in_long := in_long / hashindex.sample_share(lists, 1000);
        longest := NULL;
    END IF;
    EXECUTE format(
        'SELECT count(*) FILTER (WHERE c.id IS NULL) / nullif(count(*), 0)::double precision '
        'FROM (%1$s) l CROSS JOIN unnest(l.ids, l.codes) e(id, code) '
        'LEFT JOIN %2$I.%3$I c ON c.id = e.id AND c.code = e.code',
        CASE WHEN health_of_lists.full THEN format('SELECT * FROM %s', lists) ELSE format(
            'SELECT s.ids, s.codes FROM %s s %s ORDER BY random() LIMIT 100', lists, hashindex.sample_clause(lists, 200)
        ) END,
        i.code_schema, i.code_table
    ) INTO stale_share;
    stale_share := coalesce(stale_share, 0);
    mean := entries / greatest(landmarks, 1);
    -- One of many may be long.
    IF in_long > 0.05 * entries THEN
        wrong := wrong || format('%s %% of entries are in lists much longer than the others',
                                 round(100 * in_long / entries));
    END IF;
    IF stale_share > 0.2 THEN
        wrong := wrong || format('%s %% of entries are of rows that have changed or gone', round(100 * stale_share));
    END IF;
    RETURN QUERY SELECT 'lists', CASE WHEN wrong = '{}' THEN 'ok' ELSE 'warning' END, stale_share,
        format('%s landmarks, %s entries each, %s %% stale', landmarks, round(mean), round(100 * stale_share))
            || CASE WHEN longest IS NULL THEN ' (of a sample)' ELSE format(', %s at most', longest) END
            || CASE WHEN wrong <> '{}' THEN '; ' || array_to_string(wrong, '; ') ELSE '' END,
        CASE WHEN wrong <> '{}' THEN 'pg-hashindex index rebalance ' || named END;
    -- Each row is under two landmarks, where there are two.
    wrong := '{}';
    IF entries * (1 - stale_share) < 0.9 * least(2, landmarks) * codes THEN
        wrong := wrong || format('about %s codes are in no list, so that searches miss their rows',
            greatest(1, round(codes - entries * (1 - stale_share) / greatest(1, least(2, landmarks)))));
    END IF;
    IF codes > 0 AND (codes <= i.trained_rows / 10.0 OR codes >= i.trained_rows * 10.0) THEN
        wrong := wrong || format('the landmarks were trained on %s rows, and there are %s now: searches are slow',
                                 i.trained_rows, round(codes));
    END IF;
    RETURN QUERY SELECT 'landmarks', CASE WHEN wrong = '{}' THEN 'ok' ELSE 'warning' END,
        codes / nullif(i.trained_rows, 0),
        CASE WHEN wrong = '{}' THEN format('trained on %s rows, there are %s now', i.trained_rows, round(codes))
             ELSE array_to_string(wrong, '; ') END,
        CASE WHEN wrong <> '{}' THEN CASE WHEN wrong[1] ~ 'in no list' THEN 'pg-hashindex index repair ' || named || '; or '
            ELSE '' END || 'train them anew: ' || again END;
END
$$;

COMMENT ON FUNCTION hashindex.health_of_lists(hashindex.index, boolean, double precision) IS
    'health: how long and how stale the lists of landmarks are, and whether the landmarks still fit the table';

CREATE OR REPLACE FUNCTION hashindex.health_of_swap(i hashindex.index)
RETURNS TABLE (check_name text, status text, value double precision, detail text, advice text)
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    beside record;
    named text := hashindex.shell_word(i.name);
    running boolean := hashindex.is_at_work('hashindex.swap:' || i.name);
BEGIN
    FOR beside IN
        SELECT x.swap_state, format('%s:%s', m.name, m.version) AS model,
               hashindex.shell_word(format('%s:%s', m.name, m.version)) AS word
        FROM hashindex.index x JOIN hashindex.model m ON m.id = x.model_id
        WHERE x.swap_of = i.name ORDER BY x.swap_state
    LOOP
        RETURN QUERY SELECT 'swap',
            CASE WHEN beside.swap_state = 'previous' OR running THEN 'ok' ELSE 'warning' END, NULL::double precision,
            CASE WHEN beside.swap_state = 'previous'
                THEN format('the codes of model %s, which the index had before, are kept fresh beside', beside.model)
                WHEN running THEN format('the index is being swapped to model %s', beside.model)
                ELSE format('a swap to model %s was left %s', beside.model, CASE beside.swap_state
                    WHEN 'ready' THEN 'when all was encoded' ELSE 'half done' END) END,
            CASE WHEN beside.swap_state = 'previous'
                THEN format('return to them by pg-hashindex index rollback %1$s, or drop them: '
                            'pg-hashindex index prune %1$s', named)
                WHEN NOT running THEN format(
                    'go on: pg-hashindex index swap %1$s --model %2$s; or give it up: pg-hashindex index repair %1$s --undo',
                    named, beside.word
                ) END;
    END LOOP;
END
$$;

COMMENT ON FUNCTION hashindex.health_of_swap(hashindex.index) IS
    'health: swaps of an index''s model that were left half done, and codes of before that were not pruned';
