-- The typed functions of one index: static statements, so that PostgreSQL keeps their plans. Nothing
-- here executes anything.

-- Of codes that an index was swapped for. A statement may have begun before they were all there, and
-- call the function that reads them all the same.
CREATE OR REPLACE FUNCTION hashindex.codes_are_seen(i hashindex.index)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN format(
        -- A storage of that name may have been pruned, and made anew: the one of now has this trigger.
        '(EXISTS (SELECT FROM hashindex.index x WHERE x.storage = %L AND x.swap_state IS DISTINCT FROM ''next'') '
        'AND EXISTS (SELECT FROM pg_proc p WHERE p.oid = to_regproc(%L)))',
        i.storage, format('hashindex.%I', 'sync_' || i.storage)
    );
END
$$;

COMMENT ON FUNCTION hashindex.codes_are_seen(hashindex.index) IS
    'SQL for whether a statement sees the codes that an index goes by';

-- What a search does, by access path, once the query's code and masks are known.
CREATE OR REPLACE FUNCTION hashindex.search_steps(i hashindex.index, terms jsonb, weighted boolean)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN CASE i.access
        WHEN 'landmarks' THEN hashindex.landmark_steps(i, terms, weighted)
        WHEN 'lookup' THEN hashindex.lookup_steps(i, terms, weighted)
        WHEN 'hnsw' THEN hashindex.hnsw_steps(i, terms, weighted)
        ELSE hashindex.scan_steps(i, terms, weighted)
    END;
END
$$;

COMMENT ON FUNCTION hashindex.search_steps(hashindex.index, jsonb, boolean) IS
    'statements of an index''s search function that find and return the answers';

CREATE OR REPLACE FUNCTION hashindex.scan_steps(i hashindex.index, terms jsonb, weighted boolean)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    IF hashindex.is_distributed(i) THEN
        RETURN format('RETURN QUERY %s;', hashindex.distributed_query(i, terms, weighted, NULL));
    ELSIF i.layout = 'column' THEN
        RETURN format('RETURN QUERY %s;', hashindex.scan_query(i, terms, weighted));
    END IF;
    RETURN format(
        $steps$
        hashindex_threshold := NULL;
        hashindex_rows := reltuples FROM pg_class WHERE oid = %1$L::regclass;
        -- Of fewer codes a sort of all costs less than the sample does.
        IF hashindex_rows > 50000 THEN
            -- 10,000 codes of random pages, and three standard deviations more than are wanted.
            hashindex_share := least(1, 10000 / hashindex_rows);
            hashindex_threshold := percentile_disc(least(1, (
                %2$s * hashindex_share + 3 * sqrt(%2$s * hashindex_share) + 3
            ) / 10000)) WITHIN GROUP (ORDER BY bit_count(c.code # %3$s))
            FROM %1$s c TABLESAMPLE SYSTEM (100 * hashindex_share);
        END IF;
        RETURN QUERY %4$s;$steps$,
        format('%I.%I', i.code_schema, i.code_table),
        hashindex.pool(terms ->> 'kept', 'scan', weighted), terms ->> 'code',
        hashindex.scan_query(i, terms || '{"threshold": "hashindex_threshold"}', weighted)
    );
END
$$;

COMMENT ON FUNCTION hashindex.scan_steps(hashindex.index, jsonb, boolean) IS
    'statements of a search of all codes';

CREATE OR REPLACE FUNCTION hashindex.hnsw_steps(i hashindex.index, terms jsonb, weighted boolean)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    pool text := hashindex.pool(terms ->> 'kept', 'hnsw', weighted);
BEGIN
    RETURN format(
        $steps$
        -- 1000 is the most that pgvector takes; the iterative scan goes on from there.
        PERFORM set_config('hnsw.ef_search', least(%1$s, 1000)::text, true);
        SELECT array_agg(a.id ORDER BY a.distance, a.id),
               array_agg(a.distance ORDER BY a.distance, a.id)
        INTO hashindex_ids, hashindex_distances
        FROM (%2$s) a;
        -- The graph does not lead everywhere, and pgvector gives up after hnsw.max_scan_tuples.
        IF coalesce(cardinality(hashindex_ids), 0) < $2 THEN
            %3$s
        ELSE
            RETURN QUERY SELECT a.id, a.distance FROM unnest(hashindex_ids, hashindex_distances) a(id, distance);
        END IF;$steps$,
        pool,
        hashindex.answers(
            i, format('ARRAY(%s)', hashindex.candidate_ids(
                format('%s LIMIT %s', hashindex.near_codes(i, 'hnsw', terms), pool),
                'hnsw', terms, weighted
            )), terms
        ),
        hashindex.scan_steps(i, terms, weighted)
    );
END
$$;

COMMENT ON FUNCTION hashindex.hnsw_steps(hashindex.index, jsonb, boolean) IS
    'statements of a search by pgvector''s HNSW over the codes';

-- Where SQL cannot encode the query, the caller brings its code.
CREATE OR REPLACE FUNCTION hashindex.search_function_source(i hashindex.index)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    used hashindex.model := m FROM hashindex.model m WHERE m.id = i.model_id;
    in_python boolean := used.network IS NOT NULL;
    base text := format('%I.%I', i.schema_name, i.table_name);
    scanned hashindex.index := i;
    terms jsonb := '{
        "query": "$1", "k": "$2", "kept": "hashindex_kept", "code": "hashindex_code",
        "lists": "hashindex_lists", "probes": "hashindex_probes",
        "masks": ["hashindex_mask_1", "hashindex_mask_2", "hashindex_mask_4", "hashindex_mask_8"],
        "masked": ["hashindex_masked_1", "hashindex_masked_2", "hashindex_masked_4", "hashindex_masked_8"]
    }';
BEGIN
    scanned.access := 'scan';
    RETURN format(
        $source$
CREATE OR REPLACE FUNCTION hashindex.%1$I(
    query vector, k integer DEFAULT 10, candidates integer DEFAULT NULL,
    probes integer DEFAULT NULL, ranking text DEFAULT NULL%4$s
)
RETURNS TABLE (id %2$s, distance double precision)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 10
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
AS %3$L$source$,
        'search_' || i.name, i.id_type, format(
            $body$
#variable_conflict use_column
-- Names that no table or column of the user's has.
DECLARE
    hashindex_ranking text := coalesce($5, %1$L);
    hashindex_kept integer := greatest(coalesce($3, %2$s), $2);
    hashindex_probes integer := coalesce($4, %3$s);
    hashindex_projection vector;
    -- A variable: an order must not encode the query once for each row.
    hashindex_code bit(%4$s);
    hashindex_planes bit varying[];
    hashindex_mask_1 bit(%4$s);
    hashindex_mask_2 bit(%4$s);
    hashindex_mask_4 bit(%4$s);
    hashindex_mask_8 bit(%4$s);
    hashindex_masked_1 bit(%4$s);
    hashindex_masked_2 bit(%4$s);
    hashindex_masked_4 bit(%4$s);
    hashindex_masked_8 bit(%4$s);
    hashindex_rows double precision;
    hashindex_share double precision;
    hashindex_threshold integer;
    hashindex_settings text[];
    hashindex_lists integer[];
    hashindex_ids %5$s[];
    hashindex_distances double precision[];
BEGIN
    PERFORM hashindex.check_search_arguments($1, $2, $3, hashindex_probes, hashindex_ranking, %6$L);%14$s
%7$s
    IF hashindex_ranking <> 'hamming' THEN
        hashindex_mask_1 := hashindex_planes[1];
        hashindex_mask_2 := hashindex_planes[2];
        hashindex_mask_4 := hashindex_planes[3];
        hashindex_mask_8 := hashindex_planes[4];
        hashindex_masked_1 := hashindex_code & hashindex_mask_1;
        hashindex_masked_2 := hashindex_code & hashindex_mask_2;
        hashindex_masked_4 := hashindex_code & hashindex_mask_4;
        hashindex_masked_8 := hashindex_code & hashindex_mask_8;
    END IF;
%13$s
%8$s
%11$s
    IF hashindex_ranking = 'hamming' THEN
%9$s
    ELSE
%10$s
    END IF;
%12$s
END
$body$,
            i.ranking, i.candidates, coalesce(i.probes::text, 'NULL'), used.n_bits, i.id_type,
            hashindex.rankings(used),
            CASE WHEN in_python THEN format(
                '    hashindex_code := hashindex.checked_query_code($6, %s);', used.n_bits
            ) ELSE format(
                $encode$
%s
    hashindex_code := binary_quantize(hashindex_projection);
    IF hashindex_ranking = 'asymmetric' THEN
        hashindex_planes := hashindex.query_planes(hashindex_projection);
    END IF;$encode$,
                hashindex.projection_steps(used, '$1')
            ) END || CASE WHEN used.bit_weights IS NULL THEN '' ELSE format(
                $weights$
    IF hashindex_ranking = 'weighted' THEN
        hashindex_planes := %L::bit varying[];
    END IF;$weights$,
                hashindex.weight_planes(used.bit_weights)
            ) END,
            -- Rows that the caller may not see must not take the places of those that he may.
            CASE WHEN i.layout = 'column' THEN '' ELSE format(
                $secured$
    IF row_security_active(%L) THEN
        IF hashindex_ranking = 'hamming' THEN
            RETURN QUERY %s;
        ELSE
            RETURN QUERY %s;
        END IF;
        RETURN;
    END IF;$secured$,
                base, hashindex.filtered_query(i, terms, false, 'true', 0.05),
                hashindex.filtered_query(i, terms, true, 'true', 0.05)
            ) END,
            hashindex.search_steps(i, terms, false), hashindex.search_steps(i, terms, true),
            -- Not by SET, which restoring a dump would need a superuser for: pgvector, which would
            -- say that these settings are anyone's, is not loaded then.
            CASE WHEN i.access IN ('landmarks', 'hnsw') THEN $settings$
    hashindex_settings := ARRAY[
        current_setting('hnsw.ef_search', true), current_setting('hnsw.iterative_scan', true),
        current_setting('enable_seqscan')
    ];
    PERFORM set_config('hnsw.iterative_scan', 'relaxed_order', true);$settings$ END,
            CASE WHEN i.access IN ('landmarks', 'hnsw') THEN $settings$
    PERFORM set_config('hnsw.ef_search', coalesce(hashindex_settings[1], '40'), true),
            set_config('hnsw.iterative_scan', coalesce(hashindex_settings[2], 'off'), true);$settings$ END,
            -- A snapshot from before the lists were filled sees this function, but not all of them: that
            -- of a transaction, or of a statement that goes on for long.
            CASE WHEN i.access = 'landmarks' THEN format(
                $old$
    IF NOT EXISTS (
        SELECT FROM hashindex.index i WHERE i.name = %L AND i.access = 'landmarks'
    ) THEN
        IF hashindex_ranking = 'hamming' THEN
            RETURN QUERY %s;
        ELSE
            RETURN QUERY %s;
        END IF;
        RETURN;
    END IF;$old$,
                i.name, hashindex.filtered_query(scanned, terms, false, 'true', 0.05),
                hashindex.filtered_query(scanned, terms, true, 'true', 0.05)
            ) END,
            -- One from before the codes of another model were all there: it sees every row.
            CASE WHEN i.storage <> i.name THEN format(
                $old$
    IF NOT %1$s THEN
        RETURN QUERY %2$s;
        RETURN;
    END IF;$old$,
                hashindex.codes_are_seen(i), hashindex.filtered_query(i, terms, false, 'true', NULL)
            ) END
        ),
        CASE WHEN in_python THEN ', query_code bit varying DEFAULT NULL' ELSE '' END
    );
END
$$;

COMMENT ON FUNCTION hashindex.search_function_source(hashindex.index) IS
    'text of the CREATE FUNCTION of an index''s own search function';
