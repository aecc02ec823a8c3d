-- Writes the code into the row itself.
CREATE OR REPLACE FUNCTION {sync}() RETURNS trigger
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
BEGIN
    -- An operator of {ext} would be given a value that a cast of the other type's owner has made.
    IF pg_typeof(NEW.{column}) NOT IN ('{ext}.vector'::regtype, '{ext}.halfvec'::regtype) THEN
        NEW.{code_column} := NULL;
        RETURN NEW;
    END IF;
    -- {vector_type}: a session forgets the column's type of its first write only when this text changes, so the text names the type.
    IF TG_OP = 'INSERT' OR ((NEW.{column} OPERATOR({ext}.=) OLD.{column}) IS NOT TRUE AND (NEW.{column} IS NOT NULL OR OLD.{column} IS NOT NULL)) THEN
        NEW.{code_column} := NULL;
        IF NEW.{column} IS NOT NULL THEN
            IF {ext}.vector_dims(NEW.{column}) <> {dimension} THEN
                PERFORM hashindex._refuse_vector(NEW.{column}::{ext}.vector, {dimension});
            END IF;{set_code}
        END IF;
    END IF;
    RETURN NEW;
END
$body$
