-- Makes the functions of one index: templates of sql/templates/, filled from the catalog. Their statements are static, so
-- PostgreSQL keeps their plans.

-- Names of a list, {c.id} of a template: c.id_1 and c.id_2, if the list id of its parts has these two names. Before a dot, table is the
-- indexed table.
CREATE OR REPLACE FUNCTION hashindex._listed(word text, parts jsonb) RETURNS text[]
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN ARRAY(
    SELECT concat(CASE WHEN word LIKE 'table.%' THEN parts ->> 'table' || '.' ELSE substring(word FROM '^.*\.') END, quote_ident(l.name))
    FROM jsonb_array_elements_text(parts -> substring(word FROM '[^.]*$')) WITH ORDINALITY l(name, n) ORDER BY l.n
);

-- The text that a template writes for the columns of a key, so that one column and several are one text:
--   {each c.id}             c.id_1, c.id_2
--   {each c.id as key}      c.id_1 AS tenant_id, c.id_2 AS item
--   {same b.key c.id}       b.tenant_id = c.id_1 AND b.item = c.id_2
--   {set variable c.id}     hashindex_id_1 := c.id_1; hashindex_id_2 := c.id_2;
--   {row c.id}              ROW(c.id_1, c.id_2)::hashindex.key_items; c.id if the key is one column
--   {among c.id $1}         (c.id_1, c.id_2) = ANY (SELECT k.id_1, k.id_2 FROM unnest($1) k); c.id = ANY ($1) if it is one column
CREATE OR REPLACE FUNCTION hashindex._listing(words text[], parts jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    names text[] := hashindex._listed(words[2], parts);
    others text[] := hashindex._listed(words[cardinality(words)], parts);
    single boolean := cardinality(names) = 1;
BEGIN
    RETURN CASE words[1]
        WHEN 'each' THEN (
            SELECT string_agg(concat_ws(' AS ', n.name, CASE WHEN words[3] = 'as' THEN n.other END), ', ' ORDER BY n.n)
            FROM unnest(names, others) WITH ORDINALITY n(name, other, n)
        )
        WHEN 'same' THEN (SELECT string_agg(n.name || ' = ' || n.other, ' AND ' ORDER BY n.n) FROM unnest(names, others) WITH ORDINALITY n(name, other, n))
        WHEN 'set' THEN (SELECT string_agg(n.name || ' := ' || n.other || ';', ' ' ORDER BY n.n) FROM unnest(names, others) WITH ORDINALITY n(name, other, n))
        WHEN 'row' THEN CASE WHEN single THEN names[1] ELSE format('ROW(%s)::%s', array_to_string(names, ', '), parts ->> 'key_type') END
        WHEN 'among' THEN CASE WHEN single THEN format('%s OPERATOR(pg_catalog.=) ANY (%s)', names[1], words[3]) ELSE format(
            '(%s) OPERATOR(pg_catalog.=) ANY (SELECT %s FROM ROWS FROM (pg_catalog.unnest(%s)) k)', array_to_string(names, ', '), array_to_string(hashindex._listed('k.id', parts), ', '), words[3]
        ) END
    END;
END
$$;

-- A template with its placeholders, {name}, replaced: by values of an index, and by those that are meant for this template alone, each of
-- which it must use. Replaces in one pass, so a value that looks like a placeholder stays as it is. A template writes {{...}} for text,
-- such as a part of a dynamic statement, which is filled and then quoted as a literal; {if name}...{else name}...{end name} for text that
-- depends on a value, which is neither null, empty nor false; and the lists of _listing.
CREATE OR REPLACE FUNCTION hashindex._fill(template text, parts jsonb, own jsonb DEFAULT '{}') RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
SET standard_conforming_strings = on
AS $$
DECLARE
    known jsonb := parts || own;
    -- A line that has nothing else goes with its mark.
    chosen text := regexp_replace(template, '^(\{(?:if|else|end) \w+\})\n', '\1', 'gn');
    flag text;
    inside text;
    wrong text := string_agg(o.name, ', ') FROM jsonb_object_keys(own) o(name) WHERE template !~ format('[{ .]%s[} ]', o.name);
    filled text;
BEGIN
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION 'a template of hashindex does not use: %', wrong USING ERRCODE = 'invalid_parameter_value';
    END IF;
    LOOP
        flag := substring(chosen FROM '\{if (\w+)\}');
        EXIT WHEN flag IS NULL;
        IF NOT known ? flag THEN
            RAISE EXCEPTION 'a template of hashindex has no value for: %', flag USING ERRCODE = 'invalid_parameter_value';
        END IF;
        inside := split_part(split_part(chosen, format('{if %s}', flag), 2), format('{end %s}', flag), 1);
        chosen := overlay(
            chosen PLACING split_part(inside, format('{else %s}', flag), CASE WHEN coalesce(known ->> flag, '') IN ('', 'false') THEN 2 ELSE 1 END)
            FROM strpos(chosen, format('{if %s}', flag)) FOR length(inside) + 2 * length(flag) + 11
        );
    END LOOP;
    SELECT coalesce(string_agg(t.value, '' ORDER BY t.place), ''), string_agg(t.written, ', ') FILTER (WHERE t.value IS NULL) INTO filled, wrong
    FROM (
        SELECT m.place, m.token[2] AS written, CASE
            WHEN m.token[1] IS NOT NULL THEN quote_literal(hashindex._fill(m.token[1], known))
            WHEN m.token[2] ~ ' ' THEN hashindex._listing(string_to_array(m.token[2], ' '), known)
            WHEN m.token[2] IS NOT NULL THEN known ->> m.token[2]
            ELSE m.token[3]
        END AS value
        FROM regexp_matches(chosen, '\{\{((?:[^{}]|\{[^{}]+\})*)\}\}|\{([a-z_0-9]+|(?:each|same|set|row|among) [^{}]+)\}|([^{]+|\{)', 'g') WITH ORDINALITY m(token, place)
    ) t;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION 'a template of hashindex has no value for: %', wrong USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN filled;
END
$$;

-- Creates one function from a template, or replaces it, for the index or model whose name or number is among its values. The body is quoted
-- as a literal, so no name in it can end it. A comment is made with the function, and is the user's from then on.
CREATE OR REPLACE FUNCTION hashindex._create_function(template text, parts jsonb, comment text, own jsonb DEFAULT '{}') RETURNS void
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    whole text := hashindex._fill(hashindex._template(template), parts, own);
    head text := hashindex._fill(split_part(hashindex._template(template), '$body$', 1), parts || own);
    before oid[];
    versions tid[];
    made regprocedure;
BEGIN
    SELECT array_agg(p.oid), array_agg(p.ctid) INTO before, versions FROM pg_proc p WHERE p.pronamespace = 'hashindex'::regnamespace;
    -- A template without a body is one that is parsed when it is made.
    EXECUTE CASE WHEN whole = head THEN whole ELSE head || quote_literal(substr(whole, length(head) + 7, length(whole) - length(head) - 12)) END;
    -- Other functions of that name may exist: this is the one whose row in the catalog is new.
    SELECT p.oid INTO STRICT made FROM pg_proc p
    WHERE p.pronamespace = 'hashindex'::regnamespace
      AND position(format('CREATE OR REPLACE FUNCTION hashindex.%I(', p.proname) IN head) > 0 AND p.ctid <> ALL (versions);
    IF made <> ALL (before) THEN
        EXECUTE format('COMMENT ON FUNCTION %s IS %L', made, comment);
    END IF;
    EXECUTE format('ALTER FUNCTION %s OWNER TO %s', made, hashindex._administrator()::regrole);
    -- DROP EXTENSION is then refused for the sake of the triggers, and takes them along by CASCADE. Citus refuses this statement.
    IF EXISTS (SELECT FROM pg_extension WHERE extname = 'pg_hashindex') AND to_regclass('pg_catalog.pg_dist_partition') IS NULL THEN
        EXECUTE format('ALTER FUNCTION %s DEPENDS ON EXTENSION pg_hashindex', made);
    END IF;
    PERFORM hashindex._record('function', made, parts ->> 'index_name', (parts ->> 'model_id')::bigint);
END
$$;

-- Creates the functions that search the lists of an index, or replaces them by this release's.
CREATE OR REPLACE FUNCTION hashindex._create_list_search(i hashindex.index, s hashindex.index_set) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
SET extra_float_digits = 1
SET quote_all_identifiers = off
SET standard_conforming_strings = on
AS $$
BEGIN
    PERFORM hashindex._create_function('search_lists', hashindex._parts(i, s), format('index %s: nearest rows of %I.%I', i.name, i.schema_name, i.table_name));
END
$$;

-- Creates the function that brings the codes of a set of lists up to date for some keys.
CREATE OR REPLACE FUNCTION hashindex._create_refresh(i hashindex.index, s hashindex.index_set) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
SET extra_float_digits = 1
SET quote_all_identifiers = off
SET standard_conforming_strings = on
AS $$
DECLARE
    parts jsonb := hashindex._parts(i, s);
BEGIN
    PERFORM hashindex._create_function(
        'write_lists', parts, format('index %s: makes the codes of keys what the table says', i.name),
        jsonb_build_object('trigger', false, 'writer', parts -> 'refresh', 'writes', true)
    );
END
$$;

-- Creates the trigger function of an index, which writes the codes of the lists in use and logs keys for those beside; or drops it with its
-- triggers where no set is kept by lists. Triggers that are missing stay so, unless a repair makes them whole, since writes went unseen.
CREATE OR REPLACE FUNCTION hashindex._create_writer(i hashindex.index, anyway boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
SET extra_float_digits = 1
SET quote_all_identifiers = off
SET standard_conforming_strings = on
-- PostgreSQL would say which triggers it drops.
SET client_min_messages = warning
AS $$
DECLARE
    s hashindex.index_set;
    parts jsonb;
    sync text := hashindex._sync_name(i.name);
    is_there boolean := to_regproc(format('hashindex.%I', sync)) IS NOT NULL;
BEGIN
    SELECT x.* INTO s FROM hashindex.index_set x
    WHERE x.index_name = i.name AND x.access IN ('lists', 'scan') AND hashindex._table_of(x, 'codes') IS NOT NULL ORDER BY x.state = 'used' DESC LIMIT 1;
    IF NOT FOUND THEN
        -- Not by DROP TRIGGER, which only the owner of the table may run.
        PERFORM hashindex._drop('function', sync || '()', 'CASCADE');
        DELETE FROM hashindex.object o WHERE o.index_name = i.name AND o.kind = 'trigger';
        RETURN;
    END IF;
    i.column_name := s.column_name;
    parts := hashindex._parts(i, s);
    PERFORM hashindex._create_function(
        'write_lists', parts, format('index %s: trigger: keeps the codes fresh', i.name),
        jsonb_build_object('trigger', true, 'writer', format('hashindex.%I', sync), 'writes', s.state = 'used')
    );
    -- Otherwise anybody could put this trigger function on a table of his own. Default privileges may name roles.
    EXECUTE format('REVOKE EXECUTE ON FUNCTION hashindex.%I() FROM %s', sync, concat_ws(', ', 'PUBLIC', (
        SELECT string_agg(DISTINCT x.grantee::regrole::text, ', ') FROM pg_proc p CROSS JOIN aclexplode(p.proacl) x
        WHERE p.oid = to_regproc(format('hashindex.%I', sync)) AND x.grantee NOT IN (0, p.proowner)
    )));
    IF hashindex._base_of(i) IS NOT NULL THEN
        PERFORM hashindex._create_triggers(i, hashindex._base_of(i), anyway OR NOT is_there);
    END IF;
END
$$;
