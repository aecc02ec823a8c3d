-- How an index is, all in one.

CREATE OR REPLACE FUNCTION hashindex.health(index_name text, "full" boolean DEFAULT false)
RETURNS TABLE (check_name text, status text, value double precision, detail text, advice text)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 20
SET search_path FROM CURRENT
SET jit = off
AS $$
DECLARE
    i hashindex.index := hashindex.find_index(index_name);
    everything boolean := coalesce(health.full, false);
    base_is_there boolean;
    counted record;
BEGIN
    RETURN QUERY SELECT h.* FROM hashindex._health_of_table(i) h;
    RETURN QUERY SELECT h.* FROM hashindex._health_of_triggers(i) h;
    RETURN QUERY SELECT h.* FROM hashindex._health_of_functions(i) h;
    RETURN QUERY SELECT h.* FROM hashindex._health_of_rights(i) h;
    RETURN QUERY SELECT h.* FROM hashindex._health_of_swap(i) h;
    SELECT h.status = 'ok' INTO base_is_there FROM hashindex._health_of_table(i) h;
    IF NOT base_is_there THEN
        -- There is nothing to compare, or not by these names.
        RETURN;
    END IF;
    RETURN QUERY SELECT h.* FROM hashindex._health_of_access(i) h;
    SELECT c.* INTO counted FROM hashindex._count_codes(i, everything) c;
    RETURN QUERY SELECT h.* FROM hashindex._health_of_rows(
        i, counted.rows, counted.codes, counted.missing, counted.strays, counted.looked_at
    ) h;
    RETURN QUERY SELECT h.* FROM hashindex._health_of_filters(i, everything) h;
    RETURN QUERY SELECT h.* FROM hashindex._health_of_codes(i, everything) h;
    RETURN QUERY SELECT h.* FROM hashindex._health_of_bits(i, everything) h;
    RETURN QUERY SELECT h.* FROM hashindex._health_of_lists(i, everything, counted.codes) h;
    RETURN QUERY SELECT h.* FROM hashindex._health_of_bloat(i, counted.codes) h;
END
$$;

COMMENT ON FUNCTION hashindex.health(text, boolean) IS
    'how an index is: one row for each check, with its status (ok, warning or broken), a number, and what to do; full looks at all rows, not at a sample';
