-- name: left
-- Drops the indexes, among these names, whose table Django has dropped without a word: the triggers or pgvector's index went with it.
SELECT hashindex.drop_index(i.name) FROM hashindex.index i
WHERE i.name = ANY ({}) AND CASE
    WHEN hashindex._has_lists(i) THEN NOT EXISTS (SELECT FROM hashindex._triggers_of(i))
    ELSE hashindex._base_of(i) IS NULL OR EXISTS (
        SELECT FROM hashindex._set_of(i.name) s WHERE s.relation IS NOT NULL AND hashindex._oid_of(i.schema_name, s.relation) IS NULL
    )
END
