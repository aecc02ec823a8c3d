-- Searches by vector and by words at once: reciprocal rank fusion of an index's answers with PostgreSQL's full text search.

CREATE OR REPLACE FUNCTION hashindex.hybrid(
    index_name text,
    query anycompatible,
    words text,
    text_column text,
    k integer DEFAULT 10,
    filter text DEFAULT NULL,
    vector_weight double precision DEFAULT 0.5,
    depth integer DEFAULT NULL,
    -- Defaults are evaluated in the caller's statement, before this function sets its own path.
    configuration regconfig DEFAULT get_current_ts_config(),
    tenant text DEFAULT NULL,
    all_tenants boolean DEFAULT false,
    caller_path text DEFAULT current_setting('search_path')
)
RETURNS TABLE (id text, score double precision, distance double precision, word_rank integer)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 10
SET search_path FROM CURRENT
SET jit = off
AS $$
DECLARE
    i hashindex.index := hashindex._require(index_name);
    base text := format('%I.%I', i.schema_name, i.table_name);
    own_path text := current_setting('search_path');
    asked tsquery := websearch_to_tsquery(configuration, coalesce(words, ''));
    -- With fewer than this many answers of each kind, a row that both rank well could be missing from one.
    depth integer := coalesce(depth, greatest(4 * least(k, 1000000), 50));
    column_type regtype;
    document text;
    of_tenant text := hashindex._of_tenant(i, tenant);
    kept text[] := hashindex._code_keys(i);
    statement text;
    near record;
    named text[];
BEGIN
    IF k IS NULL OR k < 1 THEN
        PERFORM hashindex._refuse('k', k, '1 or more');
    ELSIF depth < k THEN
        PERFORM hashindex._refuse('depth', depth, format('k or more, and k is %s', k));
    ELSIF vector_weight IS NULL OR NOT vector_weight BETWEEN 0 AND 1 THEN
        RAISE EXCEPTION 'vector_weight is %; it must be 0 to 1', coalesce(vector_weight::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'At 0 only words count, at 1 only vectors.';
    END IF;
    SELECT CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.oid END INTO column_type
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = base::regclass AND a.attname = text_column AND a.attnum > 0 AND NOT a.attisdropped;
    IF column_type IS NULL THEN
        RAISE EXCEPTION '% has no column "%" to search for words', base, coalesce(text_column, 'NULL')
            USING ERRCODE = 'undefined_column', HINT = 'Name a column of text or of type tsvector.';
    ELSIF NOT column_type = ANY ('{text,varchar,bpchar,tsvector}'::regtype[]) THEN
        RAISE EXCEPTION 'column "%" of % is of type %, which cannot be searched for words', text_column, base, column_type
            USING ERRCODE = 'datatype_mismatch', HINT = 'Name a column of text or of type tsvector.';
    END IF;
    SELECT array_agg(s.id ORDER BY s.distance, s.id) AS ids, array_agg(s.distance ORDER BY s.distance, s.id) AS distances INTO near
    FROM hashindex.search(index_name, query, depth, filter => filter, tenant => tenant, all_tenants => all_tenants, caller_path => caller_path) s;
    IF numnode(asked) > 0 THEN
        -- The expression of an index USING gin (to_tsvector('english', column)).
        document := format('%s.%I', base, text_column);
        IF column_type <> 'tsvector'::regtype THEN
            document := format('pg_catalog.to_tsvector(%L::pg_catalog.regconfig, %s)', configuration, document);
        END IF;
        statement := format(
            $statement$
            SELECT pg_catalog.array_agg(%s ORDER BY w.rank DESC, %s) FROM (
                SELECT %s, pg_catalog.ts_rank_cd(%s, $1, 1) AS rank
                FROM %s
                WHERE %s OPERATOR(pg_catalog.@@) $1 AND (%s
                ) AND %s ORDER BY rank DESC, %s LIMIT $2
            ) w$statement$,
            hashindex._key_text('w', kept), hashindex._columns_of('w', kept),
            hashindex._columns_of(base, i.key_columns, kept), document,
            base,
            document, coalesce(filter, 'true'), coalesce(of_tenant, 'true'),
            hashindex._columns_of(base, i.key_columns)
        );
        -- Under the caller's path even format may be somebody else's, so only what is written already runs there.
        PERFORM set_config('search_path', caller_path, true);
        EXECUTE statement INTO named USING asked, depth;
        PERFORM pg_catalog.set_config('search_path', own_path, true);
    END IF;
    -- 60 is the constant of Cormack, Clarke and Buettcher (SIGIR 2009), which lets one first place outweigh no two fair ones.
    RETURN QUERY SELECT f.id, f.score, f.distance, f.word_rank
    FROM (
        SELECT coalesce(v.id, w.id) AS id, v.distance, w.place::integer AS word_rank,
            coalesce(vector_weight / (60 + v.place), 0) + coalesce((1 - vector_weight) / (60 + w.place), 0) AS score
        FROM unnest(near.ids, near.distances) WITH ORDINALITY v(id, distance, place)
        FULL JOIN unnest(named) WITH ORDINALITY w(id, place) ON w.id = v.id
    ) f
    WHERE f.score > 0
    ORDER BY f.score DESC, f.distance, f.id
    LIMIT k;
END
$$;

COMMENT ON FUNCTION hashindex.hybrid(text, anycompatible, text, text, integer, text, double precision, integer, regconfig, text, boolean, text) IS
    'rows near to a vector or holding words, by reciprocal rank fusion: score = weight / (60 + place) summed over both lists';
