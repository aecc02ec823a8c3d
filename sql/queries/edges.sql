-- name: packed
-- Edges of a graph, packed by row: numbers of their objects, and weights. $1: the keys of the rows.
-- The server numbers rows and objects and packs the edges of a row into one value, so that Python
-- does nothing for each edge. The ORDER BY within a row makes it sort, within work_mem, instead of
-- holding all edges in a hash table. Bad lines become those of a row -1. The caller's query cannot
-- see any of the names here.
SELECT row_number, string_agg(int4send(object::int), ''::bytea ORDER BY object, weight),
       string_agg(float8send(weight), ''::bytea ORDER BY object, weight)
FROM (
    SELECT CASE WHEN line.bad OR {unknown} THEN -1 ELSE drawn.number - 1 END AS row_number,
           dense_rank() OVER (ORDER BY line.object) AS object, line.weight
    FROM {lines}
    LEFT JOIN {table} base ON ({key}) = ({line_key})
    LEFT JOIN pg_catalog.unnest($1::text[]) WITH ORDINALITY drawn(id, number)
        ON ({drawn_key}) = ({line_key})
    WHERE drawn.number IS NOT NULL OR line.bad OR {unknown}
) numbered
GROUP BY row_number ORDER BY row_number

-- name: first_bad
-- The first line of a graph that is not an edge: its number, and what is wrong.
SELECT line.number, line.shown, {key_text}, {unknown}
FROM (SELECT *, row_number() OVER () AS number FROM {lines}) line
LEFT JOIN {table} base ON ({key}) = ({line_key})
WHERE line.bad OR {unknown}
ORDER BY line.number LIMIT 1
