-- Measures the recall of an index on its own table, for whoever has SQL alone: by the same queries as quality/evaluate.py, which also times.

CREATE OR REPLACE FUNCTION hashindex.exact_search(
    index_name text, query anycompatible, k integer DEFAULT 10, tenant text DEFAULT NULL, all_tenants boolean DEFAULT false
)
RETURNS TABLE (id text, distance double precision)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 10
SET search_path FROM CURRENT
SET jit = off
AS $$
DECLARE
    i hashindex.index := hashindex._require(index_name);
    dimension integer := s.dimension FROM hashindex.index_set s WHERE s.index_name = i.name ORDER BY s.state = 'used' DESC LIMIT 1;
    base text := format('%I.%I', i.schema_name, i.table_name);
    asked {ext}.vector := hashindex._checked_vector(query::{ext}.vector, dimension);
    wanted integer := CASE WHEN k > 0 THEN k ELSE hashindex._refuse('k', k, '1 or more') END;
BEGIN
    PERFORM hashindex._require_tenant(i.name, base, i.tenant_column, tenant, all_tenants);
    RETURN QUERY SELECT e.* FROM hashindex._exact_search(
        base::regclass, i.key_columns, i.column_name, i.metric, asked, wanted, hashindex._of_tenant(i, tenant)
    ) e;
END
$$;

COMMENT ON FUNCTION hashindex.exact_search(text, anycompatible, integer, text, boolean) IS
    'nearest rows by exact distance, compared with every row of an index''s table';

CREATE OR REPLACE FUNCTION hashindex.recall(
    index_name text, k integer DEFAULT 10, sample integer DEFAULT 100, candidates integer DEFAULT NULL, tenant text DEFAULT NULL
)
RETURNS double precision
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
#variable_conflict use_variable
DECLARE
    i hashindex.index := hashindex._require(index_name);
    s hashindex.index_set := hashindex._set_of(index_name);
    n integer;
    drawn record;
    truth record;
    counted integer;
    found integer[];
    recall double precision;
BEGIN
    IF k IS NULL OR k NOT BETWEEN 1 AND 1000000 THEN
        PERFORM hashindex._refuse('k', k, '1 to 1000000');
    ELSIF sample IS NULL OR sample < 1 THEN
        PERFORM hashindex._refuse('sample', sample, '1 or more');
    ELSIF candidates < 1 THEN
        PERFORM hashindex._refuse('candidates', candidates, '1 or more');
    ELSIF tenant IS NOT NULL AND i.tenant_column IS NULL THEN
        RAISE EXCEPTION 'index "%" has no tenants', i.name USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave tenant out.';
    END IF;
    n := coalesce(candidates, hashindex._candidates_for(k, coalesce(s.candidates, k)));
    drawn := hashindex._draw_queries(i, i.column_name, hashindex._moved_by(s), sample, 0, tenant);
    truth := hashindex._true_neighbours(i, i.column_name, k, drawn.ids, drawn.queries, drawn.tenants);
    FOR place IN 1..coalesce(cardinality(drawn.ids), 0) LOOP
        -- The row of the query is left out, so one more is searched for. Any row as near as the k-th is as good an answer.
        SELECT count(*) INTO counted FROM hashindex.search(
            index_name, drawn.queries[place], k + 1, n + 1, tenant => drawn.tenants[place],
            all_tenants => i.tenant_column IS NOT NULL AND drawn.tenants[place] IS NULL
        ) x WHERE x.id <> drawn.ids[place] AND x.distance <= truth.worst[place];
        found[place] := counted;
    END LOOP;
    SELECT r.recall INTO recall FROM hashindex._recall_of(found, truth.wanted) r;
    IF recall IS NULL THEN
        RAISE EXCEPTION '% has fewer than two rows to compare', CASE WHEN tenant IS NULL THEN format('index "%s"', index_name) ELSE format('tenant "%s"', tenant) END
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    RETURN recall;
END
$$;

COMMENT ON FUNCTION hashindex.recall(text, integer, integer, integer, text) IS
    'recall@k of an index: queries are rows of its table, each left out of its own answers, and within its tenant; in a graph they are moved a little, as held-out queries are found; ties count as correct';
