-- Projects a vector on any node. Each session keeps the model's layers in the plan. With or_null, NULL is the projection of a vector
-- whose numbers are too large for the model: one statement encodes many rows, and must not end at this one.
CREATE OR REPLACE FUNCTION {project}(v {ext}.vector, or_null boolean DEFAULT false) RETURNS {ext}.vector
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    IF {ext}.vector_dims($1) <> {dimension} THEN
        PERFORM hashindex._refuse_vector($1, {dimension});
    END IF;
    IF $2 THEN
        BEGIN
            RETURN {project}($1);
        EXCEPTION WHEN data_exception THEN
            IF SQLSTATE NOT IN ('22000', '22003') THEN
                RAISE;
            END IF;
            RETURN NULL;
        END;
    END IF;
    RETURN (SELECT {row_projection} FROM (SELECT $1 AS vector OFFSET 0) raw);
END
$body$
