-- Long runs, and which of them are still running: each holds an advisory lock of its session on its
-- number while it does. A process or a server that is killed loses the lock, whatever its row says.

CREATE OR REPLACE FUNCTION hashindex._job_state(job_id integer)
RETURNS text
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    state text;
BEGIN
    -- As of now: a volatile function has a snapshot of its own for each statement.
    SELECT j.state INTO state FROM hashindex.job j WHERE j.id = job_id;
    RETURN CASE WHEN state = 'running' THEN 'dead' ELSE state END;
END
$$;

COMMENT ON FUNCTION hashindex._job_state(integer) IS
    'state of a job whose lock was found to be free: it may have come to its end in that moment';

CREATE OR REPLACE VIEW hashindex.jobs WITH (security_invoker = true) AS
SELECT j.id, j.kind, j.subject, j.phase,
       CASE
           WHEN j.state <> 'running' OR l.pid IS NOT NULL THEN j.state
           -- Locks are of the primary, and not seen here.
           WHEN pg_is_in_recovery() THEN j.state
           ELSE hashindex._job_state(j.id)
       END AS state,
       j.rows_done, j.rows_total, r.rows_per_second,
       CASE WHEN l.pid IS NOT NULL AND r.rows_per_second > 0 AND j.rows_total IS NOT NULL THEN
           make_interval(secs => round(greatest(j.rows_total - j.rows_done, 0) / r.rows_per_second))
       END AS time_left,
       j.started_at, j.heartbeat_at, j.ended_at, j.role, l.pid, j.message
FROM hashindex.job j
LEFT JOIN pg_locks l
    -- The first key is Job's own, in pg_hashindex/jobs.py; 2 says that there are two keys.
    ON l.locktype = 'advisory' AND l.classid = 1751805794 AND l.objsubid = 2
    AND l.objid = j.id::oid AND l.granted
    AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
CROSS JOIN LATERAL (
    SELECT j.rows_done
        / nullif(extract(epoch FROM j.heartbeat_at - j.phase_started_at), 0)::double precision
        AS rows_per_second
) r;

COMMENT ON VIEW hashindex.jobs IS
    'long runs of pg-hashindex: how far they are, and whether they run, are dead, done or failed';

-- Of the kinds and the subject; NULL stands for all.
CREATE OR REPLACE FUNCTION hashindex._end_dead_jobs(kinds text[], subject text, message text)
RETURNS integer
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    ended integer;
BEGIN
    UPDATE hashindex.job j
    SET state = 'failed', message = _end_dead_jobs.message, ended_at = clock_timestamp()
    -- Of one that comes to its end in this moment the state is looked at again.
    WHERE j.state = 'running'
      AND (kinds IS NULL OR j.kind = ANY (kinds))
      AND (_end_dead_jobs.subject IS NULL OR j.subject = _end_dead_jobs.subject)
      AND NOT EXISTS (
          SELECT FROM pg_locks l
          WHERE l.locktype = 'advisory' AND l.classid = 1751805794 AND l.objsubid = 2
            AND l.objid = j.id::oid AND l.granted
            AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
      );
    GET DIAGNOSTICS ended = ROW_COUNT;
    RETURN ended;
END
$$;

COMMENT ON FUNCTION hashindex._end_dead_jobs(text[], text, text) IS
    'marks dead jobs as failed, once another run has gone on with them; returns how many';
