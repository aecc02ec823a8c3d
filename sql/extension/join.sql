-- The script from version unpackaged, which has no object, to this release: hashindex.join_extension() has made the schema's
-- objects members before.
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

DO $$
BEGIN
    IF obj_description(to_regnamespace('hashindex'), 'pg_namespace') IS DISTINCT FROM '{stamp}' THEN
        RAISE EXCEPTION 'schema hashindex is not of the release whose files the server has'
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'First run pg-hashindex schema upgrade of that release.';
    END IF;
END
$$;
