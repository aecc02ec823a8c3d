-- name: model
-- A model, but for its layers. $1: its name, or name:version.
SELECT id, name, method, dimension, metric, parameters, training, version, checksum,
       bit_weights, network, profile, n_bits, cuts
FROM hashindex.find_model($1)

-- name: insert
-- Saves a model under the next version of its name. $1 to $12: its columns; {layers}: more parameters.
INSERT INTO hashindex.model (
    name, version, method, dimension, n_bits, metric, parameters, training, checksum,
    bit_weights, network, profile, cuts, layers
)
SELECT $1, coalesce(pg_catalog.max(version), 0) + 1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11,
       $12, ARRAY[{layers}]
FROM hashindex.model WHERE name = $1
RETURNING id, version

-- name: layers
-- The layers of a model, in order. $1: its id.
SELECT l.kind, l.weights, l.bias, l.scale, l.nearest
FROM hashindex.readable_model m, pg_catalog.unnest(m.layers)
     WITH ORDINALITY AS l(kind, weights, bias, scale, nearest, position)
WHERE m.id = $1 ORDER BY l.position

-- name: script
-- A statement that saves a model again, in any database. $1: its name, or name:version.
SELECT pg_catalog.format(
    'INSERT INTO hashindex.model (name, version, method, dimension, n_bits, metric, '
    'parameters, training, checksum, bit_weights, profile, cuts, layers) '
    'SELECT %L, coalesce(pg_catalog.max(version), 0) + 1, %L, %L, %L, %L, %L, %L, %L, %L, %L, '
    '%L, %L FROM hashindex.model WHERE name = %1$L;',
    name, method, dimension, n_bits, metric, parameters, training, checksum, bit_weights,
    profile, cuts, layers
)
FROM hashindex.find_model($1) m
WHERE NOT EXISTS (SELECT FROM hashindex.readable_model_part p WHERE p.model_id = m.id)

-- name: described
-- Models as they are listed; {which} is a clause WHERE.
SELECT m.name, m.version, m.method, m.dimension, m.n_bits, m.metric, m.parameters,
       m.training, m.checksum, m.created_at,
       pg_catalog.pg_column_size(m.layers) + coalesce((
           SELECT sum(octet_length(p.data)) FROM hashindex.readable_model_part p
           WHERE p.model_id = m.id
       ), 0)::bigint AS size_bytes,
       ARRAY(
           SELECT l.kind FROM pg_catalog.unnest(m.layers) WITH ORDINALITY
               AS l(kind, weights, bias, scale, nearest, position)
           WHERE l.kind IS DISTINCT FROM 'network' ORDER BY l.position
       ) AS layer_kinds,
       ARRAY(
           SELECT DISTINCT s.index_name FROM hashindex.index_set s WHERE s.model_id = m.id ORDER BY 1
       ) AS indexes,
       m.bit_weights IS NOT NULL AS weighted,
       m.network ->> 'kind'::text AS network,
       CASE WHEN m.network IS NULL THEN 'sql' ELSE 'python' END AS evaluated_in,
       CASE WHEN jsonb_typeof(m.profile -> 'rows'::text) = 'number' THEN
           (m.profile -> 'rows'::text)::integer
       END AS profile_rows,
       m.cuts
FROM hashindex.readable_model m {which}
