-- The script from version unpackaged, which has no object, to this release: hashindex.join_extension() has made the schema's
-- objects members before.
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

DO $$
BEGIN
    IF obj_description(to_regnamespace('hashindex'), 'pg_namespace') IS DISTINCT FROM '{stamp}' THEN
        RAISE EXCEPTION 'schema hashindex is not of the release whose files the server has'
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'First run pg-hashindex schema upgrade of that release.';
    ELSIF NOT EXISTS (
        SELECT FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
        WHERE d.classid = 'pg_class'::regclass AND d.objid = to_regclass('hashindex.alembic_version')
          AND d.refclassid = 'pg_extension'::regclass AND e.extname = 'pg_hashindex'
    ) THEN
        RAISE EXCEPTION 'no object of schema hashindex belongs to the extension'
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Run: DROP EXTENSION pg_hashindex; SELECT hashindex.join_extension();';
    END IF;
END
$$;
