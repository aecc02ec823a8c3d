-- Triggers run with the writer's own rights, searches with the reader's: whoever may write or read
-- the table must be able to do the same to its codes, or creating an index would break the writers.
CREATE OR REPLACE FUNCTION hashindex.grant_like_table(index_name text)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex.find_index(index_name);
    base regclass := format('%I.%I', i.schema_name, i.table_name)::regclass;
    holder record;
    writes text := 'SELECT, INSERT, UPDATE, DELETE';
BEGIN
    FOR holder IN
        SELECT
            CASE WHEN acl.grantee = 0 THEN 'PUBLIC' ELSE acl.grantee::regrole::text END AS role,
            bool_or(acl.privilege_type IN ('INSERT', 'UPDATE', 'DELETE')) AS writer,
            bool_or(acl.privilege_type = 'TRUNCATE') AS truncator
        FROM (
            -- Partitions are written to directly, too. Without a list of rights the owner has all.
            SELECT (aclexplode(coalesce(c.relacl, acldefault('r', c.relowner)))).*
            FROM pg_class c
            WHERE c.oid = base OR c.oid IN (SELECT relid FROM pg_partition_tree(base))
            UNION ALL
            SELECT (aclexplode(a.attacl)).* FROM pg_attribute a WHERE a.attrelid = base
        ) acl
        WHERE acl.privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE')
          AND acl.grantee <> (SELECT oid FROM pg_roles WHERE rolname = current_user)
        GROUP BY acl.grantee
    LOOP
        EXECUTE format('GRANT USAGE ON SCHEMA hashindex TO %s', holder.role);
        EXECUTE format(
            'GRANT SELECT ON hashindex.model, hashindex.model_part, hashindex.index TO %s',
            holder.role
        );
        IF i.layout = 'table' THEN
            EXECUTE format(
                'GRANT %s ON %I.%I TO %s',
                concat_ws(', ',
                    CASE WHEN holder.writer THEN writes ELSE 'SELECT' END,
                    CASE WHEN holder.truncator THEN 'TRUNCATE' END),
                i.code_schema, i.code_table, holder.role
            );
        END IF;
        IF hashindex.has_lists(i) THEN
            EXECUTE format('GRANT SELECT ON hashindex.%I TO %s', i.storage || '_landmarks', holder.role);
            EXECUTE format(
                'GRANT %s ON hashindex.%I TO %s',
                concat_ws(', ', 'SELECT', CASE WHEN holder.writer THEN 'INSERT' END,
                    CASE WHEN holder.truncator THEN 'TRUNCATE' END),
                i.storage || '_lists', holder.role
            );
        END IF;
    END LOOP;
END
$$;

COMMENT ON FUNCTION hashindex.grant_like_table(text) IS
    'grants on an index''s codes what roles hold on its table; run it again after new grants';
