-- name: build
-- The statements that make pgvector's index of a set, and the kilobytes to build it in.
-- $1: the set; $2: its state.
SELECT b.statement, hashindex._build_memory(i, s)
FROM hashindex.index_set s JOIN hashindex.index i ON i.name = s.index_name
CROSS JOIN LATERAL hashindex._build_statements(i, s, true) WITH ORDINALITY b(statement, place)
WHERE s.id = $1 AND s.state = $2 AND s.owns_relation ORDER BY b.place

-- name: owned
-- The indexes of pgvector's that sets in some states have alone, and their kinds.
-- $1: the index; $2: the states.
SELECT pg_catalog.format('%I.%I', i.schema_name, s.relation), c.relkind::text
FROM hashindex.index_set s JOIN hashindex.index i ON i.name = s.index_name
JOIN pg_catalog.pg_class c ON c.oid = hashindex._oid_of(i.schema_name, s.relation)
WHERE i.name = $1 AND s.state = ANY ($2::text[]) AND s.owns_relation AND NOT EXISTS (
    SELECT FROM hashindex.index_set o JOIN hashindex.index x ON x.name = o.index_name
    WHERE o.id <> s.id AND (x.schema_name, o.relation) = (i.schema_name, s.relation)
)
