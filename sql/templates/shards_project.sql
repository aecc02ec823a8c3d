-- Projects a vector on any node. Each session keeps the model's layers in the plan.
CREATE OR REPLACE FUNCTION {project}(v {ext}.vector) RETURNS {ext}.vector
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    IF {ext}.vector_dims($1) <> {dimension} THEN
        PERFORM hashindex._refuse_vector($1, {dimension});
    END IF;
    RETURN (SELECT {row_projection} FROM (SELECT $1 AS vector OFFSET 0) raw);
END
$body$
