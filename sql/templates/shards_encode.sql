-- Encodes a vector on any node.
CREATE OR REPLACE FUNCTION {encode}(v {ext}.vector) RETURNS bit varying
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    RETURN (SELECT {row_code} FROM (SELECT {project}($1) AS projection OFFSET 0) r);
END
$body$
