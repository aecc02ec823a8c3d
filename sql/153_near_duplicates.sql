-- Finds near-duplicates: pairs of rows in near lists, then of near codes, then of near vectors. In an index with tenants both rows are of
-- one tenant. Its codes without a landmark, which are all of a small tenant, are compared with all others of it. They are in lists -1024
-- to -1, by the hash of the tenant.

CREATE OR REPLACE FUNCTION hashindex.near_duplicates(
    index_name text,
    max_distance double precision,
    radius integer,
    lists integer DEFAULT 16,
    first_list integer DEFAULT NULL,
    last_list integer DEFAULT NULL
)
RETURNS TABLE (id text, other_id text, distance double precision)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 1000
SET search_path FROM CURRENT
SET jit = off
SET enable_seqscan = off
AS $$
DECLARE
    i hashindex.index := hashindex._require(index_name);
    before jsonb;
    base text := format('%I.%I', i.schema_name, i.table_name);
    kept text[] := hashindex._code_keys(i);
    s hashindex.index_set := hashindex._used_set(i);
BEGIN
    IF s.trained_rows IS NULL THEN
        RAISE EXCEPTION 'index "%" searches %, and near-duplicates are found by lists with landmarks', i.name, hashindex._set_text(s)
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = CASE s.access
                WHEN 'lists' THEN format('Run: pg-hashindex index rebalance %s', i.name)
                ELSE format('Run: pg-hashindex index swap %s --access lists%s', i.name, CASE WHEN s.model_id IS NULL THEN ' --model MODEL' END) END;
    ELSIF max_distance IS NULL OR max_distance IN ('NaN', 'Infinity', '-Infinity') THEN
        RAISE EXCEPTION 'max_distance is %; it must be a finite number', coalesce(max_distance::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'For cosine it is 1 - similarity.';
    ELSIF radius IS NULL OR radius < 0 THEN
        PERFORM hashindex._refuse('radius', radius, '0 or more');
    ELSIF lists IS NULL OR NOT lists BETWEEN 1 AND 1000 THEN
        PERFORM hashindex._refuse('lists', lists, '1 to 1000');
    END IF;
    PERFORM hashindex._require_codes(i, s);
    -- The table is locked before the codes, as by TRUNCATE and drops.
    EXECUTE format('SELECT FROM %s WHERE false', base);
    before := hashindex._put_settings(jsonb_build_object('hnsw.ef_search', greatest(40, lists)));
    -- Each step is materialized, so that the costly comparison comes last: codes of near lists, then vectors of near codes.
    RETURN QUERY EXECUTE hashindex._fill(
        $statement$WITH near AS MATERIALIZED (
            SELECT l.landmark AS list, o.landmark AS other FROM {landmarks} l CROSS JOIN LATERAL (
                SELECT o.landmark FROM {landmarks} o {if tenant}WHERE o.tenant = l.tenant {end tenant}ORDER BY o.centre OPERATOR({ext}.<->) l.centre LIMIT $3
            ) o WHERE l.landmark BETWEEN coalesce($4, 0) AND coalesce($5, 2147483647)
        ), pairs AS MATERIALIZED (
            SELECT DISTINCT least({row x.id}, {row y.id}) AS id, greatest({row x.id}, {row y.id}) AS other_id
            FROM near n JOIN {code_table} x ON x.landmark = n.list JOIN {code_table} y ON y.landmark = n.other
            WHERE ({each x.id}) <> ({each y.id}) AND (n.list <> n.other OR ({each x.id}) < ({each y.id})) AND x.code OPERATOR({ext}.<~>) y.code <= $2
{if tenant}
            -- Arrays of NULLs are equal: rows without a tenant are together, too.
            UNION SELECT least({row x.id}, {row y.id}), greatest({row x.id}, {row y.id})
            FROM {code_table} x JOIN {code_table} y ON ARRAY[x.tenant] = ARRAY[y.tenant]
            WHERE x.landmark IS NULL AND (y.landmark IS NOT NULL OR ({each x.id}) < ({each y.id})) AND x.code OPERATOR({ext}.<~>) y.code <= $2
                AND -1 - (hashtext(coalesce(x.tenant::text, '')) & 1023) BETWEEN coalesce($4, -1024) AND coalesce($5, -1)
{end tenant}
        )
        SELECT {key_text}, {other_text}, d.distance
        FROM pairs p JOIN {table} b ON ({each b.key}) = ({pair_ids}) JOIN {table} o ON ({each o.key}) = ({other_ids})
            CROSS JOIN LATERAL (SELECT b.{column} {operator} o.{column} AS distance) d
        WHERE d.distance <= $1$statement$,
        hashindex._parts(i, s), jsonb_build_object(
            'other_text', hashindex._key_text('o', i.key_columns),
            'pair_ids', CASE cardinality(kept) WHEN 1 THEN 'p.id' ELSE hashindex._columns_of('(p.id)', kept) END,
            'other_ids', CASE cardinality(kept) WHEN 1 THEN 'p.other_id' ELSE hashindex._columns_of('(p.other_id)', kept) END
        )
    ) USING max_distance, radius, lists, first_list, last_list;
    before := hashindex._put_settings(before);
END
$$;

COMMENT ON FUNCTION hashindex.near_duplicates(text, double precision, integer, integer, integer, integer) IS
    'pairs of rows at most max_distance apart whose codes differ in at most radius bits, from the given lists and those near to them; of one tenant, if the index has tenants';
