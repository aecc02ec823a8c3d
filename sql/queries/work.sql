-- name: write
-- Writes how far this session's work is. $1: the work; $2: the index; $3: the phase; $4: rows done;
-- $5: all rows; $6: whether the phase is new.
UPDATE hashindex.claim
SET phase = $3, rows_done = $4, rows_total = $5,
    phase_started_at = CASE WHEN $6 THEN clock_timestamp() ELSE phase_started_at END
WHERE work = $1 AND name = $2 AND pid = pg_backend_pid()

-- name: list
-- Work that runs, or that can be continued.
-- Dead work that left nothing to continue is not listed: the next run of its kind takes it over.
SELECT c.work, i.name, s.is_running, c.phase, c.rows_done, c.rows_total,
       extract(epoch FROM clock_timestamp() - c.phase_started_at)::double precision
           AS phase_seconds,
       c.started_at, c.role, c.pid
FROM hashindex.claim c JOIN hashindex.index i ON i.name = c.name
CROSS JOIN LATERAL (SELECT hashindex._is_running(c.work, c.name, c.pid, c.lock)) s(is_running)
WHERE s.is_running OR pg_catalog.pg_is_in_recovery() OR s.is_running = false AND (c.work <> 'swap' OR EXISTS (
    SELECT FROM hashindex.index_set b WHERE b.index_name = i.name AND b.state = 'building' AND b.encoded IS NOT NULL
))
ORDER BY i.name, c.started_at
