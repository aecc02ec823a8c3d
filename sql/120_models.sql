-- Stored models by name: finding them, encoding with them, and triggers that refuse changes to them.

CREATE OR REPLACE FUNCTION hashindex.find_model(reference text) RETURNS hashindex.model
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    found hashindex.model;
    wanted bigint;
    -- 'name' or 'name:version'; names hold no colon.
    wanted_version text := substring(reference FROM ':(.*)$');
BEGIN
    IF wanted_version IS NOT NULL AND wanted_version !~ '^[1-9][0-9]{0,8}$' THEN
        RAISE EXCEPTION 'version "%" of model reference "%" is not a number', wanted_version, reference
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Write it as name or name:version.';
    END IF;
    SELECT m.id INTO wanted
    FROM hashindex.model m
    WHERE m.name = split_part(reference, ':', 1)
      AND (wanted_version IS NULL OR m.version = wanted_version::integer)
    ORDER BY m.version DESC
    LIMIT 1;
    IF wanted IS NULL THEN
        RAISE EXCEPTION 'model "%" does not exist', coalesce(reference, 'NULL')
            USING ERRCODE = '42X01', HINT = concat(
                CASE WHEN EXISTS (SELECT FROM hashindex.index i WHERE i.name = reference) THEN 'There is an index of that name. ' END,
                'List them: pg-hashindex model show.'
            );
    END IF;
    SELECT m.* INTO found FROM hashindex.readable_model m WHERE m.id = wanted;
    IF found.id IS NULL THEN
        RAISE EXCEPTION 'role "%" may not read model "%"', current_user, reference
            USING ERRCODE = 'insufficient_privilege',
                  HINT = 'The administrator gives it to readers of an index that has it: pg-hashindex index grant INDEX ROLE.';
    END IF;
    RETURN found;
END
$$;

COMMENT ON FUNCTION hashindex.find_model(text) IS 'stored model of a reference: name (its latest version) or name:version';

CREATE OR REPLACE FUNCTION hashindex.project(model text, v {ext}.vector) RETURNS {ext}.vector
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN hashindex.project_with((hashindex.find_model(model)).layers, v);
END
$$;

COMMENT ON FUNCTION hashindex.project(text, {ext}.vector) IS 'projection of a vector by a stored model, named as name or name:version';

CREATE OR REPLACE FUNCTION hashindex.encode(model text, v {ext}.vector) RETURNS bit
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    used hashindex.model := hashindex.find_model(model);
BEGIN
    RETURN hashindex.encode_with(used.layers, v, used.cuts);
END
$$;

COMMENT ON FUNCTION hashindex.encode(text, {ext}.vector) IS 'code of a vector by a stored model, named as name or name:version';

-- Trigger: saved models and their networks are immutable, since codes were made with them.
CREATE OR REPLACE FUNCTION hashindex._refuse_update() RETURNS trigger
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    changed record;
BEGIN
    SELECT m.name, m.version INTO changed FROM hashindex.model m
    WHERE m.id = coalesce(to_jsonb(OLD) ->> 'model_id', to_jsonb(OLD) ->> 'id')::bigint;
    RAISE EXCEPTION 'model "%" version % cannot be changed', changed.name, changed.version
        USING ERRCODE = 'object_not_in_prerequisite_state',
              HINT = 'Save the changed model under the same name: it becomes the next version.';
END
$$;

CREATE OR REPLACE TRIGGER immutable BEFORE UPDATE ON hashindex.model
FOR EACH ROW EXECUTE FUNCTION hashindex._refuse_update();

CREATE OR REPLACE TRIGGER immutable BEFORE UPDATE ON hashindex.model_part
FOR EACH ROW EXECUTE FUNCTION hashindex._refuse_update();
