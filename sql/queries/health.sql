-- name: alike
-- How many rows have each drawn code. $1: the codes. Type bit cannot be hashed, so the first 64 bits are
-- compared as a number first.
SELECT d.number, pg_catalog.count(*)
FROM (SELECT k.code::pg_catalog."bit" AS code, k.code::bit(64)::bigint AS head, k.number
      FROM pg_catalog.unnest($1::bit varying[]) WITH ORDINALITY k(code, number)) d
JOIN (SELECT c.code::pg_catalog."bit" AS code, c.code::bit(64)::bigint AS head
      FROM {codes} c {part}) c ON c.head = d.head AND c.code = d.code
GROUP BY d.number
