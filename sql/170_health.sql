-- Checks an index, and returns a row for each check. Its status is ok, warning (answers are right, but could be better or faster, or
-- will not stay right) or broken. Nothing here writes, and it runs with the caller's rights. The bits of codes are checked in Python,
-- by pg-hashindex index check.

-- Pages over all pages of a table, at most 1.
CREATE OR REPLACE FUNCTION hashindex._sample_share(relation regclass, pages double precision) RETURNS double precision
LANGUAGE sql STABLE STRICT PARALLEL UNSAFE
RETURN least(1, pages / greatest(1, pg_relation_size(relation) / current_setting('block_size')::double precision));

-- Keys of rows drawn at random, and about how many rows there are. A page holds between one row and a hundred, and the caller may see few
-- of them. So more pages are read until there are enough rows, up to a limit.
CREATE OR REPLACE FUNCTION hashindex._sample_ids(
    relation regclass, key_columns text[], condition text, wanted integer, OUT ids text[], OUT total double precision
)
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    pages double precision := wanted;
    share double precision;
BEGIN
    LOOP
        share := hashindex._sample_share(relation, pages);
        EXECUTE format(
            'SELECT array_agg(s.id) FILTER (WHERE s.place <= $1), count(*) / $2 FROM ('
            '    SELECT %s AS id, row_number() OVER (ORDER BY random()) AS place FROM %s b %s WHERE %s'
            ') s',
            hashindex._key_text('b', key_columns), relation, CASE WHEN share < 1 THEN format('TABLESAMPLE SYSTEM (%s)', 100 * share) END, condition
        ) INTO ids, total USING wanted, share;
        EXIT WHEN cardinality(ids) >= wanted / 2 OR share = 1 OR pages > 16.0 * wanted;
        pages := 8 * pages;
    END LOOP;
    ids := coalesce(ids, '{}');
END
$$;

-- Health: the disk space of codes, their tenants, and the lists of landmarks, each of the codes of one, and of tenants. PostgreSQL's
-- statistics tell whether the codes of a list are still stored together.
CREATE OR REPLACE FUNCTION hashindex._health_of_codes(i hashindex.index, s hashindex.index_set, "full" boolean, codes double precision)
RETURNS TABLE (check_name text, status text, value double precision, detail text, advice text)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
SET jit = off
AS $$
DECLARE
    code_table regclass := hashindex._table_of(s, 'codes');
    share double precision := CASE WHEN _health_of_codes.full THEN 1 ELSE hashindex._sample_share(code_table, 100000) END;
    base regclass := format('%I.%I', i.schema_name, i.table_name)::regclass;
    ids text[];
    found record;
    landmarks bigint;
    together double precision;
    wrong text[];
BEGIN
    -- Some free space is normal, since it is used again. A row has a pointer of 4 bytes, a page a header of 24.
    EXECUTE format(
        'SELECT pg_table_size($2)::double precision AS used, '
        '       coalesce($1 * (ceil(avg(pg_column_size(c.*)) / 8) * 8 + 4) * 8192 / 8168, 0) AS needed '
        'FROM %s c TABLESAMPLE SYSTEM (%s)',
        code_table, 100 * hashindex._sample_share(code_table, 100)
    ) INTO found USING codes, code_table;
    RETURN QUERY SELECT 'bloat', CASE WHEN b.bloated THEN 'warning' ELSE 'ok' END,
        greatest(1, found.used / greatest(found.needed, 8 * 1024 ^ 2)),
        CASE WHEN b.bloated THEN format('%s takes %s MB, and would need %s', code_table, round((found.used / 1e6)::numeric, 1),
                                        round((found.needed / 1e6)::numeric, 1))
             ELSE 'the codes take little more disk space than they need' END,
        CASE WHEN b.bloated THEN format(
            'VACUUM %s; if you need the disk space back, VACUUM FULL, which blocks searches while it runs', code_table) END
        FROM (SELECT found.used > 2 * found.needed AND found.used - found.needed > 8 * 1024 ^ 2 AS bloated) b;

    IF i.tenant_column IS NOT NULL THEN
        ids := CASE WHEN NOT _health_of_codes.full THEN (hashindex._sample_ids(base, i.key_columns, 'true', 2000)).ids END;
        EXECUTE hashindex._fill(
            $stale$
            SELECT count(*) AS codes, count(*) FILTER (WHERE record_image_ne(ROW(b.{tenant}), ROW(c.tenant))) AS stale
            FROM {if full}{table} b{else full}unnest($1) k(id) JOIN {table} b ON ({each b.key}) = ({drawn_key}){end full} JOIN {code_table} c ON {same b.key c.id}$stale$,
            hashindex._name_parts(i, s), jsonb_build_object('full', _health_of_codes.full, 'drawn_key', hashindex._key_of_text(i, 'k.id'))
        ) INTO found USING ids;
        RETURN QUERY SELECT 'tenant_column', CASE WHEN found.stale = 0 THEN 'ok' ELSE 'broken' END, found.stale::double precision,
            CASE WHEN found.stale = 0 THEN format('the tenants of %s codes are as in the table', found.codes)
                 ELSE format('the tenants of %s codes, of %s, are not as in the table: searches leave their rows out', found.stale, found.codes) END,
            CASE WHEN found.stale > 0 THEN format('pg-hashindex index repair %s --full', i.name) END;
    END IF;
    IF s.access = 'scan' OR hashindex._table_of(s, 'landmarks') IS NULL THEN
        RETURN;
    ELSIF s.trained_rows IS NULL THEN
        RETURN QUERY SELECT 'landmarks', CASE WHEN codes >= 10000 THEN 'warning' ELSE 'ok' END, NULL::double precision,
            format('there are none, and %s codes: searches rank all', round(codes)), CASE WHEN codes >= 10000 THEN 'pg-hashindex index rebalance ' || i.name END;
        RETURN;
    END IF;

    EXECUTE format('SELECT count(*) FROM %s', hashindex._table_of(s, 'landmarks')) INTO landmarks;
    EXECUTE format(
        'WITH lists AS (SELECT c.landmark, count(*) AS n FROM %s c TABLESAMPLE SYSTEM (%s) GROUP BY c.landmark) '
        'SELECT coalesce(max(l.n) FILTER (WHERE l.landmark IS NOT NULL), 0) AS longest, coalesce(sum(l.n), 0) AS n, '
        '       coalesce(sum(l.n) FILTER (WHERE l.landmark IS NOT NULL AND l.n > greatest(4 * $1, 200)), 0) AS in_long, '
        '       coalesce(sum(l.n) FILTER (WHERE l.landmark IS NULL), 0) AS unlisted, '
        '       coalesce(sum(l.n) FILTER (WHERE l.landmark IS NOT NULL AND k.landmark IS NULL), 0) AS lost '
        'FROM lists l LEFT JOIN %s k USING (landmark)',
        code_table, 100 * share, hashindex._table_of(s, 'landmarks')
    ) INTO found USING codes / greatest(landmarks, 1);
    IF i.tenant_column IS NOT NULL THEN
        -- Codes of a small tenant are in no list, and codes of a large one belong to different landmarks than their neighbours.
        found.unlisted := 0;
    END IF;
    SELECT abs(k.correlation) INTO together FROM pg_stats k
    WHERE (k.schemaname, k.tablename, k.attname) = ('hashindex', hashindex._part_of(s, 'codes'), 'landmark');
    wrong := array_remove(ARRAY[
        CASE WHEN found.lost > 0 THEN format('%s codes are in no existing list, so that searches miss their rows', found.lost) END,
        CASE WHEN found.in_long > 0.05 * found.n THEN
            format('%s %% of codes are in lists much longer than the others', round(100 * found.in_long / found.n)) END,
        CASE WHEN together < 0.7 AND codes > 10000 AND i.tenant_column IS NULL THEN
            'codes of one landmark are no longer stored together: searches read more pages' END
    ], NULL);
    RETURN QUERY SELECT 'lists', CASE WHEN wrong = '{}' THEN 'ok' WHEN found.lost > 0 THEN 'broken' ELSE 'warning' END, found.longest::double precision,
        concat_ws('; ', format('%s landmarks, %s codes each%s', landmarks, round(codes / greatest(landmarks, 1)),
                               CASE WHEN share = 1 THEN format(', %s at most', found.longest) END), nullif(array_to_string(wrong, '; '), '')),
        CASE WHEN found.lost > 0 THEN 'pg-hashindex index repair ' || i.name
             WHEN wrong <> '{}' THEN 'pg-hashindex index rebalance ' || i.name END;
    wrong := array_remove(ARRAY[
        CASE WHEN found.unlisted > 0 THEN format('%s codes are in no list, so that searches miss their rows', found.unlisted) END,
        CASE WHEN codes > 0 AND (codes <= s.trained_rows / 10.0 OR codes >= s.trained_rows * 10.0) THEN
            format('the landmarks were trained on %s rows, and there are %s now: searches are slow', s.trained_rows, round(codes)) END
    ], NULL);
    IF i.tenant_column IS NOT NULL THEN
        wrong := ARRAY(SELECT t.tenant FROM hashindex.tenants(i.name) t
                       WHERE hashindex._tenant_landmarks(t.codes) > 2 * greatest(t.landmarks, 100));
        RETURN QUERY SELECT 'tenants', CASE WHEN wrong = '{}' THEN 'ok' ELSE 'warning' END, cardinality(wrong)::double precision,
            CASE WHEN wrong = '{}' THEN 'the lists of each tenant suit its size'
                 ELSE format('searches of %s tenants are slow, since they have outgrown their lists: %s%s', cardinality(wrong),
                             array_to_string(wrong[:5], ', '), CASE WHEN cardinality(wrong) > 5 THEN ', ...' END) END,
            CASE WHEN cardinality(wrong) BETWEEN 1 AND 5 THEN format('pg-hashindex index rebalance %s --tenant %s', i.name, hashindex._shell_word(wrong[1]))
                 WHEN wrong <> '{}' THEN 'pg-hashindex index rebalance ' || i.name END;
        RETURN;
    END IF;
    RETURN QUERY SELECT 'landmarks', CASE WHEN wrong = '{}' THEN 'ok' ELSE 'warning' END, codes / nullif(s.trained_rows, 0),
        CASE WHEN wrong = '{}' THEN format('trained on %s rows, there are %s now', s.trained_rows, round(codes))
             ELSE array_to_string(wrong, '; ') END,
        CASE WHEN found.unlisted > 0 THEN 'pg-hashindex index encode ' || i.name
             WHEN wrong <> '{}' THEN 'pg-hashindex index rebalance ' || i.name END;
END
$$;

-- Health: rows without codes and codes without rows; then what the codes hold.
CREATE OR REPLACE FUNCTION hashindex._health_of_rows(i hashindex.index, s hashindex.index_set, "full" boolean)
RETURNS TABLE (check_name text, status text, value double precision, detail text, advice text)
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
SET jit = off
AS $$
DECLARE
    base regclass := format('%I.%I', i.schema_name, i.table_name)::regclass;
    code_table regclass := hashindex._table_of(s, 'codes');
    kept text[] := hashindex._code_keys(i);
    -- The key that the text k.id stands for.
    drawn_key text := hashindex._key_of_text(i, 'k.id');
    hides boolean := row_security_active(base);
    -- Reads all rows; or all keys, if most pages are all-visible, so that an index-only scan is cheap; or a sample.
    every boolean;
    every_key boolean;
    names jsonb;
    drawn record;
    rows double precision;
    codes double precision;
    missing double precision;
    strays double precision;
    about text := '';
    basis text := '';
BEGIN
    SELECT _health_of_rows.full OR pg_relation_size(base) <= 128 * 1024 ^ 2, c.relallvisible >= 0.8 * nullif(greatest(c.relpages, 0), 0)
    INTO every, every_key FROM pg_class c WHERE c.oid = base;
    names := jsonb_build_object(
        'tenant', quote_ident(i.tenant_column),
        'table', base, 'code_table', code_table, 'column', quote_ident(i.column_name), 'key', i.key_columns, 'id', kept, 'one', quote_ident(kept[1]), 'every', every
    );
    every_key := coalesce(every OR every_key AND hashindex._sample_share(code_table, 40000) = 1, false);

    IF every_key THEN
        EXECUTE hashindex._fill(
            $compare$
            SELECT count(*) FILTER (WHERE b.hashindex_vector), count(c.{one}), count(*) FILTER (WHERE c.{one} IS NULL AND b.hashindex_vector),
                count(*) FILTER (WHERE c.{one} IS NOT NULL AND b.hashindex_vector IS NOT TRUE)
            FROM (SELECT {each k.key}, {if every}k.{column} IS NOT NULL{if tenant} AND hashindex._fits(k.{tenant}::text){end tenant}{else every}true{end every} AS hashindex_vector FROM {table} k) b
            FULL JOIN {code_table} c ON {same b.key c.id}$compare$, names
        ) INTO rows, codes, missing, strays;
        IF missing > 0 AND NOT every THEN
            -- Rows without a vector need no code, and do not count; nor do tenants that an index cannot hold.
            basis := CASE WHEN missing > 2000 THEN '2000' ELSE '' END;
            EXECUTE hashindex._fill(
                $missing$
                SELECT $1 * avg((k.{column} IS NOT NULL{if tenant} AND hashindex._fits(k.{tenant}::text){end tenant})::integer) FROM (
                    SELECT {each b.key} FROM {table} b WHERE NOT EXISTS (SELECT FROM {code_table} c WHERE {same b.key c.id}) ORDER BY random() LIMIT 2000
                ) m JOIN {table} k ON ({each k.key}) = ({each m.key})$missing$, names
            ) INTO missing USING missing;
            rows := codes - strays + missing;
        END IF;
    ELSE
        drawn := hashindex._sample_ids(base, i.key_columns, hashindex._fill('b.{column} IS NOT NULL{if tenant} AND hashindex._fits(b.{tenant}::text){end tenant}', names), 2000);
        EXECUTE format(
            'SELECT $2, cardinality($1), $2 * count(*) / greatest(1, cardinality($1)) FROM unnest($1) k(id) '
            'WHERE NOT EXISTS (SELECT FROM %s c WHERE (%s) = (%s))', code_table, hashindex._columns_of('c', kept), drawn_key
        ) INTO rows, basis, missing USING drawn.ids, drawn.total;
    END IF;
    IF NOT every THEN
        -- Count codes whose rows are gone, unless all keys were compared, or have lost their vector unseen by a trigger.
        drawn := hashindex._sample_ids(code_table, kept, 'true', 2000);
        EXECUTE hashindex._fill(
            $strays$
            SELECT coalesce($3, 0) + $2 * count(*) / greatest(1, cardinality($1)) FROM unnest($1) k(id)
            WHERE {none} EXISTS (SELECT FROM {table} b WHERE ({each b.key}) = ({drawn_key}) AND b.{column} IS {none} NULL)$strays$,
            names, jsonb_build_object('none', CASE WHEN every_key THEN '' ELSE 'NOT' END, 'drawn_key', drawn_key)
        ) INTO strays USING drawn.ids, drawn.total, strays;
        codes := coalesce(codes, drawn.total);
    END IF;
    IF hides THEN
        strays := NULL;
    END IF;
    IF basis <> '' THEN
        about := 'about ';
        basis := format(', by %s that were drawn', basis);
    END IF;
    -- Rounded up, so that few among many do not become 0.
    missing := ceil(missing);
    strays := ceil(strays);
    RETURN QUERY SELECT 'rows_without_code', CASE WHEN missing = 0 THEN 'ok' WHEN s.encoded AND missing > 0.1 * rows THEN 'broken' ELSE 'warning' END,
        missing,
        CASE WHEN missing = 0 THEN format('none of %s%s rows%s', about, round(rows), basis)
             ELSE format('%s%s of %s rows%s: %s', about, missing, round(rows), basis, CASE WHEN s.encoded THEN 'searches do not find them'
                         ELSE 'searches are exact, since the index is not yet encoded' END) END
            || CASE WHEN hides THEN '; row security hides rows from you' ELSE '' END
            || CASE WHEN missing > 0 AND hashindex._is_at_work('encode', i.name) THEN '; they are being encoded' ELSE '' END,
        CASE WHEN missing > 0 THEN 'pg-hashindex index encode ' || i.name END
    UNION ALL
    SELECT 'codes_without_row', CASE WHEN strays > 0 THEN 'warning' ELSE 'ok' END, strays,
        CASE WHEN strays IS NULL THEN 'not checked: row security hides rows from you'
             WHEN strays = 0 THEN format('none of %s%s codes%s', about, round(codes), basis)
             ELSE format('%s%s of %s codes%s, of rows that are gone or have no vector: they take places among the candidates',
                         about, strays, round(codes), basis) END,
        CASE WHEN strays > 0 THEN 'pg-hashindex index repair ' || i.name END;
    RETURN QUERY SELECT h.* FROM hashindex._health_of_codes(i, s, _health_of_rows.full, codes) h;
END
$$;

-- Health: the set beside the one in use. For lists, the logged keys that they are behind by: NULL for those who may not read the log; and
-- their books, for those who may read all of them.
CREATE OR REPLACE FUNCTION hashindex._health_of_other(i hashindex.index, "full" boolean)
RETURNS TABLE (check_name text, status text, value double precision, detail text, advice text)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    s hashindex.index_set;
    log regclass;
    behind double precision;
    outgrown boolean := false;
    missing bigint;
BEGIN
    SELECT x.* INTO s FROM hashindex.index_set x WHERE x.index_name = i.name AND x.state <> 'used';
    IF NOT FOUND THEN
        RETURN;
    END IF;
    log := hashindex._table_of(s, 'log');
    -- A standby has no rows of an unlogged table.
    IF has_table_privilege(log, 'SELECT') AND NOT (pg_is_in_recovery() AND EXISTS (SELECT FROM pg_class c WHERE c.oid = log AND c.relpersistence = 'u')) THEN
        EXECUTE format('SELECT count(*) FROM %s', log) INTO behind;
        outgrown := hashindex._has_logged(s, gap => true);
    END IF;
    RETURN QUERY
    SELECT 'other_set', CASE WHEN o.is_left OR o.is_long OR outgrown OR s.state = 'ready' THEN 'warning' ELSE 'ok' END, behind,
        format('beside it is a set in state %s: %s', s.state, hashindex._set_text(s))
            || CASE WHEN outgrown THEN ', and more was written than its log holds: a rollback is refused, and a swap drops it'
                    WHEN o.is_long THEN format(', %s written keys behind: a rollback first catches up with these', behind) ELSE '' END
            || CASE WHEN o.is_left THEN ', and no session builds it; triggers log each key that is written' ELSE '' END,
        CASE WHEN outgrown THEN 'pg-hashindex index prune ' || i.name
            WHEN s.state = 'former' THEN CASE WHEN o.is_long THEN format('catch up: pg-hashindex index encode %s; or ', i.name) ELSE '' END
                || format('return to it: pg-hashindex index rollback %s; or drop it: pg-hashindex index prune %s', i.name, i.name)
            WHEN s.state = 'ready' AND (hashindex._set_of(i.name)).id IS NULL THEN
                format('finish it: pg-hashindex index encode %s; or give it up: pg-hashindex index repair %s --undo', i.name, i.name)
            WHEN s.state = 'ready' THEN format('take it: pg-hashindex index swap %s --force; or drop it: pg-hashindex index prune %s', i.name, i.name)
            WHEN o.is_left AND s.encoded IS NOT NULL THEN format('finish it: pg-hashindex index encode %s; or give it up: pg-hashindex index repair %s --undo', i.name, i.name)
            WHEN o.is_left THEN 'pg-hashindex index prune ' || i.name END
    FROM (
        SELECT s.state = 'building' AND NOT (hashindex._is_at_work('swap', i.name) OR hashindex._is_at_work('encode', i.name)) AS is_left,
            -- A tenth of the codes, by the planner's estimate.
            coalesce(s.state = 'former' AND behind > greatest(10000, (SELECT c.reltuples FROM pg_class c WHERE c.oid = hashindex._table_of(s, 'codes')) / 10), false) AS is_long
    ) o;
    IF "full" AND s.encoded AND s.state <> 'building' AND NOT outgrown AND NOT row_security_active(hashindex._base_of(i))
        AND has_table_privilege(log, 'SELECT') AND has_table_privilege(hashindex._table_of(s, 'codes'), 'SELECT') THEN
        missing := (hashindex._books_of(s.id)).missing;
        RETURN QUERY SELECT 'books', CASE WHEN missing = 0 THEN 'ok' ELSE 'warning' END, missing::double precision,
            CASE WHEN missing = 0 THEN 'all rows have a code or a logged key in the set beside' ELSE format('%s rows have neither a code nor a logged key in the set beside', missing) END,
            CASE WHEN missing > 0 THEN 'pg-hashindex index encode ' || i.name END;
    END IF;
END
$$;

-- Health of an index whose set is kept by lists, or is to be: the one in use, or the first that is being built.
CREATE OR REPLACE FUNCTION hashindex._health_of_lists(i hashindex.index, s hashindex.index_set, "full" boolean)
RETURNS TABLE (check_name text, status text, value double precision, detail text, advice text)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 20
SET search_path FROM CURRENT
SET extra_float_digits = 1
SET quote_all_identifiers = off
SET standard_conforming_strings = on
SET jit = off
AS $$
DECLARE
    repair text := 'pg-hashindex index repair ' || i.name;
    base regclass := hashindex._oid_of(i.schema_name, i.table_name);
    administrator regrole := hashindex._administrator();
    strange text[] := ARRAY(SELECT o.refusal FROM hashindex._other_owners(base, hashindex._read_columns(i)) o);
    whole boolean := strange = '{}' AND s.state = 'used' AND NOT EXISTS (SELECT FROM hashindex._table_faults(i, s));
BEGIN
    IF hashindex._is_sharded(base) OR EXISTS (SELECT FROM pg_extension e WHERE e.extname = 'vector' AND e.extnamespace::regnamespace::text <> '{ext}') THEN
        -- Other checks fail.
        RETURN QUERY SELECT 'table', 'broken', 1::double precision, f.fault, f.advice FROM hashindex._table_faults(i, s) f;
        RETURN;
    ELSIF strange <> '{}' THEN
        -- Other checks read the table.
        RETURN QUERY SELECT 'rights', 'broken', cardinality(strange)::double precision,
            array_to_string(strange[:5], '; ') || ': searches, encoding and most checks are refused', hashindex._owner_remedy(i);
        RETURN;
    END IF;
    RETURN QUERY
    WITH checks (place, name, well) AS (
        VALUES (1, 'table', 'table, column, key and codes are there'),
               (2, 'triggers', CASE WHEN base IS NOT NULL THEN 'all there and enabled' END),
               (3, 'functions', 'all there'),
               (4, 'rights', format('all belongs to role %s, and the owner of the table has its rights', administrator)),
               (5, 'access', CASE WHEN whole THEN 'searches use ' || hashindex._set_text(s) END)
    ),
    faults (name, status, fault, consequence, advice) AS (
        SELECT 'table', 'broken', f.fault, NULL, f.advice FROM hashindex._table_faults(i, s) f WHERE s.state = 'used' OR NOT f.repairable
        UNION ALL
        -- Triggers read what a set beside needs too.
        SELECT 'table', 'broken', f.fault, 'writes fail, or are not seen', f.advice
        FROM hashindex.index_set x CROSS JOIN LATERAL hashindex._lists_of(x.id) l CROSS JOIN LATERAL hashindex._table_faults(l.i, l.s) f
        WHERE whole AND x.index_name = i.name AND x.id <> s.id AND x.encoded IS NOT NULL AND NOT f.repairable
        UNION ALL
        SELECT 'table', 'warning', format('%s is %s, and %s is not', base, hashindex._logging(base), t), 'a crash empties one alone', repair
        FROM hashindex.index_set x, hashindex._logged_otherwise(i, x) t WHERE x.index_name = i.name AND x.encoded IS NOT NULL
        UNION ALL
        SELECT 'triggers', 'broken',
               format('row security of %s applies to role %s, which triggers run as', base, administrator), 'writes fail',
               format('ALTER TABLE %s NO FORCE ROW LEVEL SECURITY; or ALTER ROLE %s BYPASSRLS', base, administrator)
        WHERE hashindex._is_hidden(base)
        UNION ALL
        SELECT 'triggers', 'broken', format('%s on %s %s', f.name, base, f.fault), 'writes are not seen', repair || ', which also fixes the codes of rows written meanwhile'
        FROM hashindex._object_faults(i, '{trigger}') f WHERE base IS NOT NULL
        UNION ALL
        SELECT 'functions', 'broken', format('%s hashindex.%s %s', f.kind, f.name, f.fault), NULL, repair FROM hashindex._object_faults(i, '{function,type}') f
        UNION ALL
        SELECT 'triggers', 'warning', 'codes have not been compared with their rows since triggers were away', NULL, repair WHERE s.unverified
        UNION ALL
        SELECT 'rights', w.* FROM hashindex._rights_faults(i, s) w
        UNION ALL
        SELECT 'access', CASE WHEN hashindex._table_of(s, 'landmarks') IS NULL THEN 'broken' ELSE 'warning' END, f, NULL, repair
        FROM hashindex._landmark_faults(i, s) f WHERE whole
    ),
    found AS (
        SELECT f.name, min(f.status) AS status, count(*) AS n, array_agg(f.fault ORDER BY f.status, f.fault) AS all_of_them,
               (array_agg(f.consequence ORDER BY f.status))[1] AS consequence, (array_agg(f.advice ORDER BY f.status))[1] AS advice
        FROM faults f GROUP BY f.name
    )
    SELECT c.name, coalesce(f.status, 'ok'), coalesce(f.n, 0)::double precision,
           CASE WHEN f.n IS NULL THEN c.well
                ELSE concat_ws(': ', array_to_string(f.all_of_them[:5], '; ') || CASE WHEN f.n > 5 THEN format('; and %s more', f.n - 5) ELSE '' END, f.consequence) END,
           f.advice
    FROM checks c LEFT JOIN found f USING (name) WHERE c.well IS NOT NULL ORDER BY c.place;

    RETURN QUERY SELECT h.* FROM hashindex._health_of_other(i, whole AND "full") h;
    IF whole THEN
        RETURN QUERY SELECT h.* FROM hashindex._health_of_rows(i, s, "full") h;
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION hashindex.health(index_name text, "full" boolean DEFAULT false)
RETURNS TABLE (check_name text, status text, value double precision, detail text, advice text)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 20
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex._require(index_name, reads => false);
    s hashindex.index_set := x FROM hashindex.index_set x WHERE x.index_name = i.name ORDER BY x.state = 'used' DESC, x.id LIMIT 1;
BEGIN
    IF s.access IN ('lists', 'scan') THEN
        RETURN QUERY SELECT h.* FROM hashindex._health_of_lists(i, s, coalesce(health.full, false)) h;
    ELSE
        RETURN QUERY SELECT h.* FROM hashindex._health_of_set(i, coalesce(health.full, false)) h;
    END IF;
    RETURN QUERY SELECT 'codes', 'broken', count(*)::double precision, string_agg(f.fault, '; '), string_agg(DISTINCT f.remedy, '; ')
    FROM hashindex._code_faults(hashindex._oid_of(i.schema_name, i.table_name)) f HAVING count(*) > 0;
END
$$;

COMMENT ON FUNCTION hashindex.health(text, boolean) IS
    'checks an index: one row for each check, with its status (ok, warning or broken), a number, and what to do; full reads all rows, not a sample';
