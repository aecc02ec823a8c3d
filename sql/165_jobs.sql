-- A job is a row that names its session; only the administrator writes it. The session is alive if it holds an advisory lock on the
-- job's number. The number is random, so nobody can have locked it before, and the process is checked, so nobody can pose as it.
GRANT SELECT ON hashindex.claim TO PUBLIC;

-- Whether the session of a process still holds its lock.
CREATE OR REPLACE FUNCTION hashindex._holds(pid integer, lock bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM pg_locks l
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.pid = _holds.pid
          AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
          AND (l.classid::bigint << 32 | l.objid::bigint) = _holds.lock
    );
END
$$;

-- Whether a session is encoding, building, repairing or swapping an index.
CREATE OR REPLACE FUNCTION hashindex._is_at_work(work text, name text) RETURNS boolean
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM hashindex.claim c
        WHERE c.work = _is_at_work.work AND c.name = _is_at_work.name AND hashindex._holds(c.pid, c.lock)
    );
END
$$;

-- State of a job as it is now: dead where its session is gone.
CREATE OR REPLACE FUNCTION hashindex._job_state(job_id integer) RETURNS text
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    state text;
    alive boolean;
BEGIN
    -- VOLATILE, since the state must be that of now and not of the statement's snapshot.
    SELECT j.state, hashindex._holds(j.pid, j.lock) INTO state, alive FROM hashindex.job j WHERE j.id = job_id;
    RETURN CASE WHEN state = 'running' AND NOT coalesce(alive, false) THEN 'dead' ELSE state END;
END
$$;

CREATE OR REPLACE VIEW hashindex.jobs WITH (security_invoker = true) AS
SELECT j.id, j.kind, j.subject, j.phase, s.state, j.rows_done, j.rows_total, r.rows_per_second,
       CASE WHEN s.state = 'running' AND r.rows_per_second > 0 AND j.rows_total IS NOT NULL THEN
           make_interval(secs => round(greatest(j.rows_total - j.rows_done, 0) / r.rows_per_second))
       END AS time_left,
       j.started_at, j.heartbeat_at, j.ended_at, j.role, CASE WHEN s.state = 'running' THEN j.pid END AS pid, j.message
FROM hashindex.job j
CROSS JOIN LATERAL (
    SELECT CASE
        -- A replica does not see the locks of its primary.
        WHEN j.state <> 'running' OR pg_is_in_recovery() THEN j.state ELSE hashindex._job_state(j.id)
    END AS state
) s
CROSS JOIN LATERAL (
    SELECT j.rows_done
        / nullif(extract(epoch FROM j.heartbeat_at - j.phase_started_at), 0)::double precision
        AS rows_per_second
) r;

COMMENT ON VIEW hashindex.jobs IS 'long runs of pg-hashindex: their progress, and whether they run, are dead, done or failed';
