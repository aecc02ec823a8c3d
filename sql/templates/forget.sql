-- Deletes the codes of some keys. Only Python evaluates the model; it encodes rows without a code later.
CREATE OR REPLACE FUNCTION {refresh}(keys {key_type}[]) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    PERFORM hashindex._refuse_vector(b.{column}::{ext}.vector, {dimension})
    FROM {table} b WHERE {among b.key $1} AND {ext}.vector_dims(b.{column}) <> {dimension};
    DELETE FROM {code_table} c WHERE {among c.id $1};
END
$body$
