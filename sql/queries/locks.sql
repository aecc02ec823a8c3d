-- name: other
-- Other work on an index that this work would disturb. $1: the work; $2: the index.
-- Work on codes excludes any other. A swap writes codes beside, of a set that is not in use yet.
SELECT c.work FROM hashindex.claim c WHERE c.name = $2 AND hashindex._holds(c.pid, c.lock) AND (
    c.work = $1 OR c.pid <> pg_backend_pid()
    AND ('swap' NOT IN (c.work, $1) OR 'repair' IN (c.work, $1)))

-- name: claim
-- Claims work on an index for this session. $1: the work; $2: the index; $3: the lock that it holds.
INSERT INTO hashindex.claim AS c (work, name, pid, lock) VALUES ($1, $2, pg_backend_pid(), $3)
ON CONFLICT (work, name) DO UPDATE
SET pid = excluded.pid, lock = excluded.lock, role = excluded.role, phase = NULL, rows_done = 0,
    rows_total = NULL, started_at = excluded.started_at,
    phase_started_at = excluded.phase_started_at
-- Another session may have claimed it since it was looked for: an index that is not there yet has no row to wait for.
WHERE NOT hashindex._holds(c.pid, c.lock)
RETURNING c.lock

-- name: holders
-- Who else has locked a table: processes and prepared transactions. $1: the table.
SELECT nullif(concat_ws('; ',
    'processes ' || string_agg(DISTINCT l.pid::text, ', ') || ' hold locks on it',
    'prepared transactions ' || string_agg(DISTINCT pg_catalog.quote_literal(x.gid), ', ')
        || ' hold locks on it, until COMMIT PREPARED or ROLLBACK PREPARED'), '')
FROM pg_catalog.pg_locks l
-- The lock on its own number tells which one it is.
LEFT JOIN pg_catalog.pg_locks t ON l.pid IS NULL AND t.pid IS NULL
    AND t.locktype = 'transactionid' AND t.virtualtransaction = l.virtualtransaction
LEFT JOIN pg_catalog.pg_prepared_xacts x ON x.transaction = t.transactionid
WHERE l.relation = pg_catalog.to_regclass($1)::oid AND l.granted
  AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d
                    WHERE d.datname = pg_catalog.current_database())
  AND l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid()
