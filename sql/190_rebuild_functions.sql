CREATE OR REPLACE FUNCTION hashindex.rebuild_functions()
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index;
    made text;
    missing text;
    stranger record;
BEGIN
    PERFORM hashindex._check_administrator();
    SELECT s.object, s.owner::regrole AS owner INTO stranger FROM hashindex._strangers() s LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '% belongs to role %, not to the owner of the schema', stranger.object, stranger.owner
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Drop it if you did not make it, or make the owner of schema hashindex its owner.';
    END IF;
    -- FOR UPDATE waits for a session that is putting another set into use.
    FOR i IN SELECT * FROM hashindex.index FOR UPDATE LOOP
        -- A table that was dropped or renamed leaves its index behind, to be dropped by name.
        CONTINUE WHEN hashindex._base_of(i) IS NULL;
        SELECT c.name INTO missing FROM hashindex.index_set s CROSS JOIN LATERAL unnest(hashindex._missing_columns(i, s)) c(name) WHERE s.index_name = i.name AND (s.state <> 'former' OR s.access IN ('lists', 'scan')) LIMIT 1;
        IF FOUND THEN
            RAISE WARNING 'index "%" is left as it is, since its table has no column "%"', i.name, missing USING HINT = format('If it was renamed, run: pg-hashindex index repair %s', i.name);
            CONTINUE;
        END IF;
        PERFORM hashindex._bind(s.id) FROM hashindex.index_set s WHERE s.index_name = i.name;
        PERFORM hashindex._create_functions(i);
        PERFORM hashindex._record(o.kind, e.id, o.index_name) FROM hashindex.object o JOIN hashindex._existing() e USING (kind, name)
        WHERE o.index_name = i.name AND o.server <> current_setting('server_version_num')::integer / 10000;
    END LOOP;
    -- Replacing a function keeps what depends on it.
    FOR made IN SELECT format('%s:%s', m.name, m.version) FROM hashindex.model m WHERE m.id IN (SELECT o.model_id FROM hashindex.object o) LOOP
        -- Whoever made them has revealed what they hold.
        PERFORM hashindex.create_functions(made, true);
    END LOOP;
END
$$;

COMMENT ON FUNCTION hashindex.rebuild_functions() IS
    'makes the functions of all indexes and models again, as each upgrade does, for those that an earlier release made';
