-- name: build
-- The statements that make pgvector's index of a set, and the kilobytes to build it in.
-- $1: the set; $2: its state.
SELECT b.statement, hashindex._build_memory(i, s)
FROM hashindex.index_set s JOIN hashindex.index i ON i.name = s.index_name
CROSS JOIN LATERAL hashindex._build_statements(i, s, true) WITH ORDINALITY b(statement, place)
WHERE s.id = $1 AND s.state = $2 AND s.owns_relation ORDER BY b.place

-- name: owned
-- The indexes of pgvector's that sets in some states have alone, and their kinds; not those that are attached to an index of a parent table.
-- $1: the index; $2: the states.
SELECT pg_catalog.format('%I.%I', n.nspname, c.relname), c.relkind::text
FROM hashindex.index_set s JOIN hashindex.index i ON i.name = s.index_name
CROSS JOIN LATERAL (
    SELECT hashindex._oid_of(i.schema_name, s.relation) AS id, false AS of_part
    UNION ALL
    SELECT hashindex._oid_of(m.nspname, pg_catalog.format('%s_%s', pg_catalog.left(s.relation, 52), t.relid::oid)), true
    FROM pg_catalog.pg_partition_tree(hashindex._base_of(i)) t JOIN pg_catalog.pg_class p ON p.oid = t.relid
    JOIN pg_catalog.pg_namespace m ON m.oid = p.relnamespace
) o
JOIN pg_catalog.pg_class c ON c.oid = o.id JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE i.name = $1 AND s.state = ANY ($2::text[]) AND s.owns_relation AND NOT c.relispartition AND NOT EXISTS (
    SELECT FROM hashindex.index_set other JOIN hashindex.index x ON x.name = other.index_name
    WHERE other.id <> s.id AND (x.schema_name, other.relation) = (i.schema_name, s.relation)
)
ORDER BY o.of_part
