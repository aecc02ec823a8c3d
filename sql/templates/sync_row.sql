-- Keeps the code of one row of a distributed table, on the node where the row is.
CREATE OR REPLACE FUNCTION {sync}() RETURNS trigger
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $body$
DECLARE
    hashindex_code bit({n_bits});
BEGIN
    IF TG_OP = 'DELETE' THEN
        DELETE FROM {code_table} c WHERE c.id = OLD.{key};
        RETURN NULL;
    ELSIF TG_OP = 'UPDATE' AND NEW.{column} IS NOT DISTINCT FROM OLD.{column} THEN
        -- Citus lets no row change its distribution column, which is the key.
        RETURN NULL;
    END IF;
    IF NEW.{column} IS NULL THEN
        DELETE FROM {code_table} c WHERE c.id = NEW.{key};
    ELSE
        hashindex_code := hashindex.encode_with(hashindex._layers_of({model_id}), NEW.{column}::vector, {levels});
        INSERT INTO {code_table} (id, code) VALUES (NEW.{key}, hashindex_code)
        ON CONFLICT (id) DO UPDATE SET code = excluded.code;
    END IF;
    RETURN NULL;
END
$body$
