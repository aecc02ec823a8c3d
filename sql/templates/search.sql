-- Orders the candidates by exact distance. Without index scans rows are read by a bitmap scan, for which PostgreSQL asks the disk for many
-- pages at a time. The functions that it calls allow themselves index scans again. With tenants, a search with a filter besides is like any with a filter, and so is one
-- of a role that sees the rows of its tenant alone.
CREATE OR REPLACE FUNCTION {search}(
    query anycompatible, k integer DEFAULT 10, candidates integer DEFAULT NULL, effort integer DEFAULT NULL,
    filter text DEFAULT NULL, where_equals jsonb DEFAULT NULL,
    caller_path text DEFAULT current_setting('search_path'){if tenant}, tenant {tenant_type} DEFAULT NULL{end tenant}
)
RETURNS TABLE ({answer}, distance double precision)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 10
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
-- There is no bitmap over keys of several columns.
SET enable_indexscan = {if several}on{else several}off{end several}
{if tenant}
-- A plan for any tenant expects one of the usual size, and would read a whole table to find out that it has no row of this one.
SET enable_seqscan = off
{end tenant}
AS $body$
#variable_conflict use_column
DECLARE
    -- The casts copy a vector that a subquery took from a table out of TOAST, once instead of for every row that it is compared with.
    hashindex_query {ext}.vector := {checked_query};
    hashindex_point {vector_type} := hashindex_query;
    hashindex_k integer := CASE WHEN $2 > 0 THEN $2 ELSE hashindex._refuse('k', $2, '1 or more') END;
    hashindex_n integer := CASE WHEN coalesce($3, {n}) > 0 THEN greatest(coalesce($3, hashindex._candidates_for($2, {n})), $2) ELSE hashindex._refuse('candidates', $3, '1 or more') END;
    hashindex_locked boolean;
    hashindex_keys {key_type}[];
    r record;
    hashindex_found integer := 0;
    hashindex_ids {key_type}[];
    hashindex_distances double precision[];
BEGIN
{if tenant}
    -- A role that sees the rows of its tenant alone, or may not read tenants, names none.
    IF $8 IS NULL AND $6 -> {tenant_literal} IS NULL AND NOT row_security_active({table_literal})
        AND has_column_privilege({table_literal}, {tenant_literal}, 'SELECT') THEN
        PERFORM hashindex._refuse_all_tenants({used_index}, {tenant_literal});
    END IF;
{end tenant}
    IF {if tenant}$8 IS NULL OR {end tenant}$5 IS NOT NULL OR $6 <> '{}' THEN
        RETURN QUERY SELECT {key_of_text}, a.distance
        FROM hashindex._filtered_search(hashindex.find_index({index}), hashindex_query, $2, $3, $4, $5, $6, $7{if tenant}, $8::text{end tenant}) a;
        RETURN;
    ELSIF NOT ({codes_are_hidden}) THEN
        -- Locks the table first, then codes, in the order that all other functions use.
        hashindex_locked := EXISTS (SELECT FROM {table} WHERE false);
{if small_tenants}
        -- All rows of a very small tenant are compared: to rank their codes takes longer.
        hashindex_keys := ARRAY(SELECT {row c.id} FROM (
            SELECT {each c.id} FROM {code_table} c
            WHERE c.landmark IS NULL AND c.tenant = $8 AND NOT EXISTS (SELECT FROM {landmarks} l WHERE l.tenant = $8) LIMIT 301
        ) c);
        IF cardinality(hashindex_keys) NOT BETWEEN 1 AND 300 THEN
{end small_tenants}
        hashindex_keys := ARRAY(SELECT {row c.shown} FROM {candidates}(hashindex_query, hashindex_n, $4, true{if tenant}, $8{end tenant}) c);
{if small_tenants}
        END IF;
{end small_tenants}
        FOR r IN
            SELECT {row table.key} AS id, {table}.{column} {operator} hashindex_point AS distance
            FROM {table}
{if tenant}
            -- An index on the tenants alone would lead to all rows of the tenant.
{end tenant}
            WHERE {if tenant}({table}.{tenant} = $8) IS TRUE AND {end tenant}{among table.key hashindex_keys} AND {table}.{column} IS NOT NULL
            ORDER BY distance, id
            LIMIT hashindex_k
        LOOP
            CONTINUE WHEN NOT ({is_comparable});
            hashindex_found := hashindex_found + 1;
            hashindex_ids[hashindex_found] := r.id;
            hashindex_distances[hashindex_found] := r.distance;
        END LOOP;
        IF hashindex_found = hashindex_k THEN
            RETURN QUERY SELECT k.* FROM unnest(hashindex_ids, hashindex_distances) k;
            RETURN;
        END IF;
    END IF;
    -- Also if codes led to fewer than k rows: rows may lack a code, and codes their row.
    RETURN QUERY SELECT {key_of_text}, a.distance FROM hashindex._exact_search(
        {exact}, hashindex_query, hashindex_k{if tenant}, {{{table}.{tenant} = }} || quote_literal($8) || {{::{tenant_type}}}{end tenant}
    ) a;
END
$body$
