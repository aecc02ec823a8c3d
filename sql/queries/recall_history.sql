-- name: obstacle
-- Why this session cannot save a measurement, or NULL.
SELECT CASE
    WHEN pg_is_in_recovery() THEN 'this server is a standby'
    WHEN current_setting('transaction_read_only')::boolean THEN 'the session is read-only'
    WHEN NOT (has_schema_privilege('hashindex', 'USAGE')
              AND has_table_privilege('hashindex.recall_history', 'INSERT'))
        THEN pg_catalog.format(
            'role %s may not INSERT into hashindex.recall_history', current_user)
END

-- name: save
-- Saves a measurement, if the index still has the model that was measured.
INSERT INTO hashindex.recall_history (
    index_name, seed, model, access, candidates, effort, k, queries, recall,
    p50_ms, p95_ms
)
SELECT i.name, %(seed)s, %(model)s, %(access)s, %(candidates)s, %(effort)s,
       %(k)s, %(queries)s, %(recall)s, %(p50_ms)s, %(p95_ms)s
FROM hashindex.index i
LEFT JOIN hashindex.index_set s ON s.index_name = i.name AND s.state = 'used'
WHERE i.name = %(index)s AND coalesce(s.model_id, 0) = %(model_id)s

-- name: history
-- The latest measurements of an index. $1: the index; $2: how many.
SELECT h.measured_at, h.seed, h.model, h.access, h.candidates, h.effort, h.k,
       h.queries, h.recall, h.p50_ms, h.p95_ms
FROM hashindex.recall_history h
WHERE h.index_name = $1 ORDER BY h.id DESC LIMIT $2
