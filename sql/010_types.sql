-- The schema and the types that the tables need. Runs before the migrations.

DO $$
BEGIN
    IF to_regtype('hashindex.layer') IS NULL THEN
        EXECUTE format(
            'CREATE TYPE hashindex.layer AS (kind text, weights %I.vector[], bias %I.vector, scale real, nearest integer)', n.nspname, n.nspname
        ) FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector';
    END IF;
END
$$;

-- Objects in schema hashindex that its owner does not own, and triggers that call functions of others.
CREATE OR REPLACE FUNCTION hashindex._strangers() RETURNS TABLE (object text, owner oid)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    {strangers};
END
$$;

COMMENT ON TYPE hashindex.layer IS
    'one step of a model: normalize, shift, affine, rbf, affinity, relu, tanh, sin or cos; network, always the last, stands for what only Python evaluates';
