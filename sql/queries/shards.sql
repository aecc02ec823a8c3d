-- name: cluster
-- Puts a shard's codes into the order of their lists; run_command_on_shards runs it.
DO $body$
BEGIN
    PERFORM pg_catalog.set_config('lock_timeout', '2s', true);
    EXECUTE (
        SELECT pg_catalog.format('CLUSTER %%s USING %%I', x.indrelid::regclass, c.relname)
        FROM pg_catalog.pg_index x JOIN pg_catalog.pg_class c ON c.oid = x.indexrelid
        WHERE x.indrelid = $shard$%s$shard$::regclass AND NOT x.indisprimary
    );
END
$body$
