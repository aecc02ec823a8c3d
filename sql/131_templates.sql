-- Makes the functions of one index: templates of sql/templates/, filled from the catalog. Their statements are static, so
-- PostgreSQL keeps their plans.

-- A template with its placeholders, {name}, replaced. Replaces in one pass, so a value that looks like a placeholder stays as it is. A
-- template writes {{...}} for text, such as a part of a dynamic statement, which is filled and then quoted as a literal.
CREATE OR REPLACE FUNCTION hashindex._fill(template text, parts jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
SET standard_conforming_strings = on
AS $$
DECLARE
    missing text;
    filled text;
BEGIN
    SELECT string_agg(CASE WHEN t.token[1] IS NOT NULL THEN quote_literal(hashindex._fill(t.token[1], parts))
                           WHEN t.token[2] IS NOT NULL THEN parts ->> t.token[2] ELSE t.token[3] END, '' ORDER BY t.place),
           string_agg(t.token[2], ', ') FILTER (WHERE t.token[2] IS NOT NULL AND parts ->> t.token[2] IS NULL)
    INTO filled, missing
    FROM regexp_matches(template, '\{\{((?:[^{}]|\{[a-z_0-9]+\})*)\}\}|\{([a-z_0-9]+)\}|([^{]+|\{)', 'g') WITH ORDINALITY t(token, place);
    IF missing IS NOT NULL THEN
        RAISE EXCEPTION 'a template of hashindex has no value for: %', missing USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN filled;
END
$$;

-- Creates one function of an index from a template, or replaces it. The body is quoted as a literal, so no name in it can end it.
CREATE OR REPLACE FUNCTION hashindex._create_function(template text, parts jsonb, comment text) RETURNS void
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    pieces text[] := string_to_array(hashindex._template(template), '$body$');
    head text := hashindex._fill(pieces[1], parts);
    -- The signature has the arguments: another function of that name may exist.
    named text[] := regexp_match(head, 'CREATE OR REPLACE FUNCTION (hashindex\.(?:"(?:[^"]|"")*"|\w+))(\(.*\))\s+RETURNS');
    signature text := named[1] || regexp_replace(named[2], ' DEFAULT [^,()]+(\([^()]*\))?', '', 'g');
BEGIN
    EXECUTE head || quote_literal(hashindex._fill(pieces[2], parts));
    EXECUTE format('COMMENT ON FUNCTION %s IS %L', signature, comment);
    EXECUTE format('ALTER FUNCTION %s OWNER TO %s', signature, hashindex._administrator()::regrole);
    -- DROP EXTENSION is then refused for the sake of the triggers, and takes them along by CASCADE. Citus refuses this statement.
    IF EXISTS (SELECT FROM pg_extension WHERE extname = 'pg_hashindex') AND to_regclass('pg_catalog.pg_dist_partition') IS NULL THEN
        EXECUTE format('ALTER FUNCTION %s DEPENDS ON EXTENSION pg_hashindex', signature);
    END IF;
END
$$;

-- Creates an index's own functions, or replaces them by those of this release.
CREATE OR REPLACE FUNCTION hashindex._create_functions(i hashindex.index) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
SET extra_float_digits = 1
SET quote_all_identifiers = off
SET standard_conforming_strings = on
AS $$
DECLARE
    parts jsonb := hashindex._parts(i);
    in_python boolean := hashindex._encoded_in_python(i);
    distributed boolean := hashindex._is_distributed(i);
    base text := format('%I.%I', i.schema_name, i.table_name);
    renamed regprocedure;
    by_index text := format('by index %s%s', i.name, CASE WHEN in_python THEN '; query_code is the query''s code, from Python' END);
BEGIN
    PERFORM hashindex._create_key_type(i);
    -- Columns of the key were renamed, and a function cannot be replaced by one with other columns in its answer.
    FOR renamed IN
        SELECT f FROM hashindex._functions_of(i) f JOIN pg_proc p ON p.oid = f
        WHERE p.proname IN ('candidates_' || i.name, 'search_' || i.name, 'within_' || i.name)
          AND array_remove(p.proargnames[p.pronargs + 1:], 'distance') <> hashindex._answer_keys(i)
    LOOP
        EXECUTE format('DROP FUNCTION %s', renamed);
    END LOOP;
    IF distributed THEN
        PERFORM hashindex._tell_nodes(i);
        PERFORM hashindex._create_function('shards_project', parts, format('projection of a vector by the model of index %s', i.name));
        PERFORM hashindex._create_function('shards_encode', parts, format('code of a vector by the model of index %s', i.name));
        parts := hashindex._create_shard_functions(i, parts);
    ELSE
        PERFORM hashindex._create_function(parts ->> 'refresher', parts, format('makes the codes of keys in index %s what the table says', i.name));
    END IF;
    IF NOT hashindex._is_logged_for(i) THEN
        PERFORM hashindex._create_function(
            CASE WHEN distributed THEN 'shards_sync' ELSE 'sync_table' END, parts,
            format(
                CASE WHEN in_python
                    THEN 'trigger: takes away the codes of rows that change, so that pg-hashindex index '
                         'encode %s finds them; the model is evaluated in Python'
                    ELSE 'trigger: keeps the codes of index %s fresh'
                END,
                i.name
            )
        );
        -- Otherwise anybody could put this trigger function on a table of his own.
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s() FROM PUBLIC', parts ->> 'sync');
    END IF;
    PERFORM hashindex._create_function(
        'candidates', parts || jsonb_build_object('rank', hashindex._fill(hashindex._template(
            CASE WHEN i.access = 'landmarks' AND i.tenant_column IS NOT NULL THEN 'rank_tenants' ELSE 'rank_' || i.access END
        ), parts)),
        format('keys of the n rows of %s whose codes are nearest to the query, %s', base, by_index)
    );
    PERFORM hashindex._create_function(
        CASE WHEN i.tenant_column IS NOT NULL OR distributed OR hashindex._is_partitioned(to_regclass(base))
            THEN 'search_parts' ELSE 'search' END, parts, format('nearest rows of %s %s', base, by_index)
    );
    PERFORM hashindex._create_function('within', parts, format('rows of %s whose codes are within a Hamming radius, by index %s', base, i.name));
    PERFORM hashindex._take_over(i);
END
$$;
