-- A claim is a row that names its session; only the administrator writes it. The session is alive if it holds an advisory lock on the
-- claim's number. The number is random, so no session can have locked it before, and the process is checked, so no other can pose as it.
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
CREATE OR REPLACE FUNCTION hashindex._is_at_work(work text, name text, elsewhere boolean DEFAULT false) RETURNS boolean
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM hashindex.claim c
        WHERE c.work = _is_at_work.work AND c.name = _is_at_work.name AND hashindex._holds(c.pid, c.lock) AND NOT (elsewhere AND c.pid = pg_backend_pid())
    );
END
$$;

-- Whether the session of a claim is still at it; NULL if the claim has ended meanwhile, and on a standby, which does not see the locks of
-- its primary.
CREATE OR REPLACE FUNCTION hashindex._is_running(work text, name text, pid integer, lock bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    IF pg_is_in_recovery() THEN
        RETURN NULL;
    ELSIF hashindex._holds(pid, lock) THEN
        RETURN true;
    END IF;
    -- VOLATILE, since the caller's snapshot may have a row that its session has deleted before it gave the lock back.
    RETURN (
        SELECT false FROM hashindex.claim c
        WHERE c.work = _is_running.work AND c.name = _is_running.name AND c.lock = _is_running.lock
    );
END
$$;
