-- Lists in good order: without entries of rows that changed or went, in one chunk each, none of them
-- much longer than the others. Searches and writers go on meanwhile.

CREATE OR REPLACE FUNCTION hashindex.list_summary(
    name text,
    OUT landmarks bigint, OUT entries bigint, OUT stale bigint, OUT longest bigint, OUT chunks bigint
)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex.find_index(list_summary.name);
BEGIN
    IF NOT hashindex.has_lists(i) THEN
        RETURN;
    END IF;
    EXECUTE format(
        'WITH listed AS ('
        '    SELECT l.landmark, u.id, u.code FROM hashindex.%1$I l, unnest(l.ids, l.codes) u(id, code)'
        '), of_each AS ('
        '    SELECT count(*) AS entries, count(*) FILTER (WHERE c.id IS NULL) AS stale'
        '    FROM listed e LEFT JOIN %3$I.%4$I c ON c.id = e.id AND c.code = e.code'
        '    GROUP BY e.landmark'
        ') '
        'SELECT (SELECT count(*) FROM hashindex.%2$I), coalesce(sum(o.entries), 0), '
        '       coalesce(sum(o.stale), 0), coalesce(max(o.entries), 0), '
        '       (SELECT count(*) FROM hashindex.%1$I) '
        'FROM of_each o',
        i.storage || '_lists', i.storage || '_landmarks', i.code_schema, i.code_table
    ) INTO landmarks, entries, stale, longest, chunks;
END
$$;

COMMENT ON FUNCTION hashindex.list_summary(text) IS
    'how many landmarks an index has, entries in their lists, entries that are stale, entries of the longest list, and chunks; NULLs where there are no lists';

-- Writes lists anew, one chunk each. Chunks that a trigger adds meanwhile stay as they are.
CREATE OR REPLACE FUNCTION hashindex.compact_lists(name text, landmarks integer[])
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex.find_index(compact_lists.name);
BEGIN
    EXECUTE format(
        'WITH taken AS ('
        '    DELETE FROM hashindex.%1$I l WHERE l.landmark = ANY ($1) RETURNING l.landmark, l.ids, l.codes'
        '), listed AS ('
        '    SELECT DISTINCT t.landmark, u.id, u.code FROM taken t, unnest(t.ids, t.codes) u(id, code)'
        ') '
        'INSERT INTO hashindex.%1$I (landmark, ids, codes) '
        'SELECT e.landmark, array_agg(e.id), array_agg(e.code) '
        'FROM listed e JOIN %2$I.%3$I c ON c.id = e.id AND c.code = e.code GROUP BY e.landmark',
        i.storage || '_lists', i.code_schema, i.code_table
    ) USING landmarks;
END
$$;

COMMENT ON FUNCTION hashindex.compact_lists(text, integer[]) IS
    'takes stale entries out of lists, and makes one chunk of each';

-- The first piece stays under the landmark, which moves to its centre: what is listed under it
-- meanwhile can be found.
CREATE OR REPLACE FUNCTION hashindex.split_list(
    name text, landmark integer, centres halfvec[], ids text[], pieces integer[]
)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex.find_index(split_list.name);
    first_new integer;
BEGIN
    EXECUTE format('SELECT max(l.landmark) + 1 FROM hashindex.%I l', i.storage || '_landmarks')
    INTO first_new;
    EXECUTE format(
        'UPDATE hashindex.%I l SET centre = $2 WHERE l.landmark = $1', i.storage || '_landmarks'
    ) USING landmark, centres[1];
    EXECUTE format(
        'INSERT INTO hashindex.%I (landmark, centre) SELECT $1 + u.place::integer - 1, u.centre '
        'FROM unnest($2) WITH ORDINALITY u(centre, place)', i.storage || '_landmarks'
    ) USING first_new, centres[2:];
    EXECUTE format(
        'WITH taken AS ('
        '    DELETE FROM hashindex.%1$I l WHERE l.landmark = $1 RETURNING l.ids, l.codes'
        '), listed AS ('
        '    SELECT DISTINCT u.id, u.code FROM taken t, unnest(t.ids, t.codes) u(id, code)'
        '), placed AS ('
        '    SELECT e.id, e.code, CASE WHEN coalesce(p.piece, 0) = 0 THEN $1 ELSE $2 + p.piece - 1 END AS landmark'
        '    FROM listed e JOIN %2$I.%3$I c ON c.id = e.id AND c.code = e.code'
        '    LEFT JOIN unnest($3, $4) p(id, piece) ON p.id::%4$s = e.id'
        ') '
        'INSERT INTO hashindex.%1$I (landmark, ids, codes) '
        'SELECT p.landmark, array_agg(p.id), array_agg(p.code) FROM placed p GROUP BY p.landmark',
        i.storage || '_lists', i.code_schema, i.code_table, i.id_type
    ) USING landmark, first_new, ids, pieces;
END
$$;

COMMENT ON FUNCTION hashindex.split_list(text, integer, halfvec[], text[], integer[]) IS
    'divides the list of a landmark among several: the first keeps its number, pieces are numbered from 0';
