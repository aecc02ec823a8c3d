-- Encodes a vector on any node. With or_null, NULL is the code of a vector whose numbers are too large for the model.
CREATE OR REPLACE FUNCTION {encode}(v {ext}.vector, or_null boolean DEFAULT false) RETURNS bit varying
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    RETURN (SELECT {row_code} FROM (SELECT {project}($1, $2) AS projection OFFSET 0) r);
END
$body$
