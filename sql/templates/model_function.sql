CREATE OR REPLACE FUNCTION {function}(v {ext}.{vector_type}) RETURNS {returns}
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $body$
DECLARE
    x {ext}.vector;
BEGIN{steps}
    RETURN {result};
END
$body$
