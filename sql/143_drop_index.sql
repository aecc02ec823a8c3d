-- Drops an index, in the caller's transaction.

-- Functions that were made for an index. A function of pg_hashindex may have the same name as one of an index's (search_..., for
-- example); their arguments differ.
CREATE OR REPLACE FUNCTION hashindex._functions_of(i hashindex.index) RETURNS SETOF regprocedure
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN QUERY
    SELECT p.oid::regprocedure FROM pg_proc p
    WHERE p.pronamespace = 'hashindex'::regnamespace AND (
        p.proname IN ('candidates_' || i.name, 'search_' || i.name, 'within_' || i.name) AND p.proargtypes[0] = 'anycompatible'::regtype
        OR p.proname = hashindex._sync_name(i.triggers) AND p.prorettype = 'trigger'::regtype AND NOT hashindex._is_logged_for(i)
        OR p.proname IN ('encode_' || i.storage, 'project_' || i.storage) AND p.proargnames = '{v,or_null}'
        OR p.proname IN (hashindex._refresh_name(i), 'renew_' || i.storage) AND p.proargnames IN ('{keys}', '{keys,rows}')
        OR p.proname = 'nearest_' || i.storage AND p.proargnames[1] = 'number'
    )
    ORDER BY p.proname;
END
$$;

CREATE OR REPLACE FUNCTION hashindex.drop_index(name text) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
-- PostgreSQL would say which triggers it drops.
SET client_min_messages = warning
AS $$
DECLARE
    i hashindex.index := hashindex._row_of(drop_index.name);
    shares boolean := hashindex._is_logged_for(i);
    dropped text;
BEGIN
    PERFORM hashindex._check_administrator();
    PERFORM hashindex._allow_shard_changes();
    IF shares THEN
        -- Codes first: a session that has searched by them may then want to write, and would wait for a lock on the table. Writers hold the log.
        FOR dropped IN SELECT t.relation::text FROM hashindex._tables_of(i) t WHERE t.relation <> to_regclass(format('hashindex.%I', hashindex._log_name(i.storage))) LOOP
            EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', dropped);
        END LOOP;
        PERFORM hashindex._lock_against_writers(i);
    ELSE
        -- Not by DROP TRIGGER, which only the owner of the table may run.
        EXECUTE format('DROP FUNCTION IF EXISTS hashindex.%I() CASCADE', hashindex._sync_name(i.triggers));
    END IF;
    -- The codes of other models, from swaps, are dropped with it.
    PERFORM hashindex.drop_index(x.name) FROM hashindex.index x WHERE x.swap_of = i.name;
    -- While we waited for writers, a swap or rollback may have given these codes to another index.
    IF (SELECT x.storage FROM hashindex.index x WHERE x.name = i.name FOR UPDATE) IS DISTINCT FROM i.storage THEN
        RAISE EXCEPTION 'index "%" was swapped meanwhile', i.name USING ERRCODE = 'serialization_failure', HINT = 'Run it again.';
    END IF;
    FOR dropped IN SELECT f::text FROM hashindex._functions_of(i) f LOOP
        -- Citus drops a shard that it split or moved only later, and the shard keeps its triggers until then.
        EXECUTE format('DROP FUNCTION %s %s', dropped, CASE WHEN hashindex._is_distributed(i) THEN 'CASCADE' END);
    END LOOP;
    FOR dropped IN SELECT t.relation::text FROM hashindex._tables_of(i) t LOOP
        EXECUTE format('DROP TABLE %s', dropped);
    END LOOP;
    IF cardinality(i.key_columns) > 1 AND NOT shares THEN
        EXECUTE format('DROP TYPE IF EXISTS %s', hashindex._key_type(i));
    END IF;
    IF to_regclass('hashindex.node_index') IS NOT NULL THEN
        EXECUTE 'DELETE FROM hashindex.node_index n WHERE n.name = $1' USING i.name;
    END IF;
    DELETE FROM hashindex.claim c WHERE c.name = i.name AND NOT hashindex._holds(c.pid, c.lock);
    DELETE FROM hashindex.index x WHERE x.name = i.name;
    IF shares AND to_regproc('hashindex.' || quote_ident(hashindex._sync_name(i.triggers))) IS NOT NULL THEN
        PERFORM hashindex._create_functions(x) FROM hashindex.index x WHERE x.name = i.swap_of;
    END IF;
END
$$;

COMMENT ON FUNCTION hashindex.drop_index(text) IS 'drops an index with its codes, triggers and search function; the table itself stays';
