-- Health of codes against rows: rows that have none, codes that have no row, and the room they take.
-- Pages are drawn at random, and rows from these; of a small table that is all of them.

CREATE OR REPLACE FUNCTION hashindex._sample_share(relation regclass, pages double precision)
RETURNS double precision
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN least(1, pages / greatest(1, (
        SELECT sum(hashindex._relation_bytes(p.part)) FROM hashindex._parts_of(relation) p
    ) / current_setting('block_size')::double precision));
END
$$;

COMMENT ON FUNCTION hashindex._sample_share(regclass, double precision) IS
    'what part of a table so many of its pages are; 1 where it has no more';

CREATE OR REPLACE FUNCTION hashindex._sample_clause(relation regclass, pages double precision)
RETURNS text
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    share double precision := hashindex._sample_share(relation, pages);
BEGIN
    RETURN CASE WHEN share < 1 THEN format('TABLESAMPLE SYSTEM (%s)', 100 * share) ELSE '' END;
END
$$;

COMMENT ON FUNCTION hashindex._sample_clause(regclass, double precision) IS
    'SQL that draws about so many pages of a table at random; nothing where it has no more';

-- Pages may hold one row or a hundred, or few that the caller sees, so more are read until there are
-- enough rows; but not without end.
CREATE OR REPLACE FUNCTION hashindex._sample_ids(
    relation regclass, id_column text, condition text, wanted integer, OUT ids text[], OUT total double precision
)
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    pages double precision := wanted;
BEGIN
    LOOP
        -- All are counted, some are kept.
        EXECUTE format(
            'SELECT array_agg(s.id) FILTER (WHERE s.place <= $1), count(*) FROM ('
            '    SELECT b.%I::text AS id, row_number() OVER (ORDER BY random()) AS place '
            '    FROM %s b %s WHERE %s'
            ') s',
            id_column, relation, hashindex._sample_clause(relation, pages), condition
        ) INTO ids, total USING wanted;
        total := total / hashindex._sample_share(relation, pages);
        EXIT WHEN cardinality(ids) >= wanted / 2 OR hashindex._sample_share(relation, pages) = 1
            OR pages > 16 * wanted;
        pages := 8 * pages;
    END LOOP;
    ids := coalesce(ids, '{}');
END
$$;

COMMENT ON FUNCTION hashindex._sample_ids(regclass, text, text, integer) IS
    'keys of rows that were drawn at random, and about how many there are';

-- How rows and codes fit each other. Keys are all compared where both key indexes can be read alone,
-- or the table is small; elsewhere those of some rows, and of some codes.
CREATE OR REPLACE FUNCTION hashindex._count_codes(
    i hashindex.index, "full" boolean,
    OUT rows double precision, OUT codes double precision,
    OUT missing double precision, OUT strays double precision, OUT looked_at double precision
)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
SET jit = off
AS $$
DECLARE
    base regclass := format('%I.%I', i.schema_name, i.table_name)::regclass;
    code_table regclass := format('%I.%I', i.code_schema, i.code_table)::regclass;
    hides boolean := row_security_active(base);
    small boolean;
    visible double precision;
    drawn record;
    ids text[];
BEGIN
    SELECT sum(hashindex._relation_bytes(p.part)) <= 128 * 1024 ^ 2,
           sum(c.relallvisible) / nullif(sum(c.relpages) FILTER (WHERE c.relpages > 0), 0)::double precision
    INTO small, visible
    FROM hashindex._parts_of(base) p JOIN pg_class c ON c.oid = p.part;

    IF i.layout = 'column' THEN
        EXECUTE format(
            'SELECT count(b.%1$I), count(b.%2$I), count(*) FILTER (WHERE b.%1$I IS NOT NULL AND b.%2$I IS NULL), '
            '       count(*) FILTER (WHERE b.%1$I IS NULL AND b.%2$I IS NOT NULL), count(*) FROM %3$s b %4$s',
            i.column_name, i.code_column, base,
            CASE WHEN NOT (_count_codes.full OR small) THEN hashindex._sample_clause(base, 5000) END
        ) INTO rows, codes, missing, strays, looked_at;
        IF _count_codes.full OR small THEN
            looked_at := NULL;
        ELSE
            SELECT _count_codes.rows / s.share, _count_codes.codes / s.share, _count_codes.missing / s.share,
                   _count_codes.strays / s.share
            INTO rows, codes, missing, strays FROM hashindex._sample_share(base, 5000) s(share);
        END IF;
        RETURN;
    END IF;

    IF _count_codes.full OR small
        OR visible >= 0.8 AND hashindex._sample_share(code_table, 40000) = 1 THEN
        EXECUTE format(
            CASE WHEN hides THEN
                'SELECT count(*), (SELECT count(*) FROM %2$s), count(*) FILTER (WHERE c.id IS NULL), NULL '
                'FROM %1$s b LEFT JOIN %2$s c ON c.id = b.%3$I'
            ELSE
                'SELECT count(b.id), count(c.id), count(*) FILTER (WHERE c.id IS NULL), '
                '       count(*) FILTER (WHERE b.id IS NULL) '
                'FROM (SELECT k.%3$I AS id FROM %1$s k) b FULL JOIN %2$s c ON c.id = b.id'
            END,
            base, code_table, i.id_column
        ) INTO rows, codes, missing, strays;
        IF missing > 0 THEN
            -- Those without a vector need no code. Of many, some are looked at.
            EXECUTE format(
                'SELECT array_agg(k.%1$I::text) FROM %2$s k '
                'WHERE NOT EXISTS (SELECT FROM %3$s c WHERE c.id = k.%1$I) AND ($1 >= 1 OR random() < $1)',
                i.id_column, base, code_table
            ) INTO ids USING CASE WHEN _count_codes.full THEN 1 ELSE least(1, 2000 / missing) END;
            EXECUTE format(
                'SELECT $2 * count(b.%1$I) / greatest(1, cardinality($1)) FROM unnest($1) k(id) '
                'JOIN %2$s b ON b.%3$I = k.id::%4$s',
                i.column_name, base, i.id_column, hashindex._key_type(i.id_type)
            ) INTO missing USING ids, missing;
        END IF;
    ELSE
        SELECT s.* INTO drawn
        FROM hashindex._sample_ids(base, i.id_column, format('b.%I IS NOT NULL', i.column_name), 2000) s;
        rows := drawn.total;
        looked_at := cardinality(drawn.ids);
        EXECUTE format(
            'SELECT $2 * count(*) / greatest(1, cardinality($1)) FROM unnest($1) k(id) '
            'WHERE NOT EXISTS (SELECT FROM %s c WHERE c.id = k.id::%s)', code_table, hashindex._key_type(i.id_type)
        ) INTO missing USING drawn.ids, drawn.total;
        SELECT * INTO drawn FROM hashindex._sample_ids(code_table, 'id', 'true', 2000);
        codes := drawn.total;
        IF NOT hides THEN
            EXECUTE format(
                'SELECT $2 * count(*) / greatest(1, cardinality($1)) FROM unnest($1) k(id) '
                'WHERE NOT EXISTS (SELECT FROM %s b WHERE b.%I = k.id::%s)', base, i.id_column, hashindex._key_type(i.id_type)
            ) INTO strays USING drawn.ids, drawn.total;
        END IF;
    END IF;
    IF NOT hides THEN
        -- Rows that lost their vector while no trigger saw it.
        IF _count_codes.full THEN
            EXECUTE format(
                'SELECT $1 + count(*) FROM %1$s b JOIN %2$s c ON c.id = b.%3$I WHERE b.%4$I IS NULL',
                base, code_table, i.id_column, i.column_name
            ) INTO strays USING strays;
        ELSE
            SELECT * INTO drawn FROM hashindex._sample_ids(code_table, 'id', 'true', 1000);
            EXECUTE format(
                'SELECT $3 + $2 * count(*) / greatest(1, cardinality($1)) FROM unnest($1) k(id) '
                'JOIN %1$s b ON b.%2$I = k.id::%3$s WHERE b.%4$I IS NULL',
                base, i.id_column, hashindex._key_type(i.id_type), i.column_name
            ) INTO strays USING drawn.ids, drawn.total, strays;
        END IF;
    END IF;
END
$$;

COMMENT ON FUNCTION hashindex._count_codes(hashindex.index, boolean) IS
    'rows and codes of an index, rows with a vector that have no code, codes whose row is gone or has no vector (NULL: row security hides rows); looked_at is NULL where nothing was estimated';

-- What is missing or left over, in words: as count_codes has counted it.
CREATE OR REPLACE FUNCTION hashindex._health_of_rows(
    i hashindex.index, rows double precision, codes double precision,
    missing double precision, strays double precision, looked_at double precision
)
RETURNS TABLE (check_name text, status text, value double precision, detail text, advice text)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    named text := hashindex._shell_word(i.name);
    base text := format('%I.%I', i.schema_name, i.table_name);
    hides boolean := row_security_active(base);
    kind text := m.network ->> 'kind' FROM hashindex.model m WHERE m.id = i.model_id;
    -- A part of one is one: few of many must not be rounded off.
    without_code double precision := ceil(missing);
    without_row double precision := ceil(strays);
    about text := CASE WHEN looked_at IS NULL THEN '' ELSE 'about ' END;
    basis text := CASE WHEN looked_at IS NULL THEN '' ELSE format(', by %s that were drawn', looked_at) END;
BEGIN
    RETURN QUERY SELECT 'rows_without_code',
        CASE WHEN without_code = 0 THEN 'ok' WHEN without_code > 0.1 * rows THEN 'broken' ELSE 'warning' END,
        without_code,
        CASE WHEN without_code = 0 THEN format('none of %s%s rows%s', about, round(rows), basis)
             ELSE format('%s%s of %s rows%s: searches do not find them', about, without_code, round(rows), basis) END
            || CASE WHEN hides THEN '; row security hides rows from you' ELSE '' END
            || CASE WHEN without_code > 0 AND hashindex._is_at_work('encode', i.name)
                THEN '; they are being encoded' ELSE '' END,
        CASE WHEN without_code > 0 THEN 'pg-hashindex index encode ' || named || CASE kind WHEN 'rows'
            THEN '; rows that the model was not trained on get no code: train it anew with them, and swap it'
            ELSE '' END END;
    RETURN QUERY SELECT 'codes_without_row', CASE WHEN without_row > 0 THEN 'warning' ELSE 'ok' END, without_row,
        CASE WHEN without_row IS NULL THEN 'row security hides rows from you, so that it cannot be told'
             WHEN without_row = 0 THEN format('none of %s%s codes%s', about, round(codes), basis)
             ELSE format('%s%s of %s codes%s, of rows that are gone or have no vector: they take places among '
                         'the candidates', about, without_row, round(codes), basis) END,
        CASE WHEN without_row > 0 THEN 'pg-hashindex index repair ' || named END;
END
$$;

COMMENT ON FUNCTION hashindex._health_of_rows(
    hashindex.index, double precision, double precision, double precision, double precision, double precision
) IS 'health: rows without codes, and codes without rows';

-- Room that was freed is used again, so some is normal. Of a code column it is the table's own affair.
CREATE OR REPLACE FUNCTION hashindex._health_of_bloat(i hashindex.index, codes double precision)
RETURNS TABLE (check_name text, status text, value double precision, detail text, advice text)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    worst double precision := 1;
    wrong text[] := '{}';
    used_bytes double precision;
    needed_bytes double precision;
    part regclass;
BEGIN
    IF i.layout = 'column' THEN
        RETURN;
    END IF;
    part := to_regclass(format('%I.%I', i.code_schema, i.code_table));
    used_bytes := pg_table_size(part);
    -- 4 bytes of a pointer to each row, 24 of a page's own.
    EXECUTE format(
        'SELECT $1 * (ceil(avg(pg_column_size(c.*)) / 8) * 8 + 4) * 8192 / 8168 FROM %s c %s',
        part, hashindex._sample_clause(part, 100)
    ) INTO needed_bytes USING codes;
    needed_bytes := coalesce(needed_bytes, 0);
    worst := greatest(worst, used_bytes / greatest(needed_bytes, 8 * 1024 ^ 2));
    IF used_bytes > 2 * needed_bytes AND used_bytes - needed_bytes > 8 * 1024 ^ 2 THEN
        wrong := wrong || format('%s takes %s MB, and would need %s', part,
                                 round((used_bytes / 1e6)::numeric, 1), round((needed_bytes / 1e6)::numeric, 1));
    END IF;
    RETURN QUERY SELECT 'bloat', CASE WHEN wrong = '{}' THEN 'ok' ELSE 'warning' END, worst,
        CASE WHEN wrong = '{}' THEN 'no table of the index takes much more room than it needs'
             ELSE array_to_string(wrong, '; ') END,
        CASE WHEN wrong <> '{}' THEN format(
            'VACUUM %s; where the room stays and is needed, VACUUM FULL, which keeps searches out while it runs',
            part
        ) END;
END
$$;

COMMENT ON FUNCTION hashindex._health_of_bloat(hashindex.index, double precision) IS
    'health: room that the tables of an index take beyond what they need';
