-- Checks whether a table can be indexed.

-- Whether Citus keeps the rows of a table: in shards, as a copy on each node, or on one node.
CREATE OR REPLACE FUNCTION hashindex._is_sharded(relation regclass) RETURNS boolean
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    found boolean := to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL;
BEGIN
    IF found THEN
        EXECUTE 'SELECT EXISTS (SELECT FROM pg_dist_partition p WHERE p.logicalrelid = $1)' INTO found USING relation;
    END IF;
    RETURN found;
END
$$;

-- The commands that make pgvector's index of a column over a function of a model.
CREATE OR REPLACE FUNCTION hashindex._function_instead(base regclass, column_name text, used hashindex.model) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN format(
        'pg-hashindex model functions %s; CREATE INDEX ON %s USING hnsw ((hashindex.%I(%I)::bit(%s)) {ext}.bit_hamming_ops);',
        hashindex._shell_word(format('%s:%s', used.name, used.version)), base, hashindex._function_name(used, 'code'), column_name, used.n_bits
    );
END
$$;

-- Refuses a column whose vectors a model of that dimension cannot take: by its type, and by its rows where that has no dimension. A column
-- that has codes already is refused by its type alone.
CREATE OR REPLACE FUNCTION hashindex._check_vector_column(table_name regclass, column_name text, dimension integer, by_rows boolean DEFAULT true)
RETURNS void
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    kind "char";
    persistence "char";
    column_type regtype;
    column_dimension integer;
BEGIN
    SELECT c.relkind, c.relpersistence INTO kind, persistence FROM pg_class c WHERE c.oid = table_name;
    IF kind NOT IN ('r', 'p') THEN
        RAISE EXCEPTION '% is not a table', table_name
            USING ERRCODE = 'wrong_object_type', HINT = 'Index the table behind it.';
    END IF;
    IF persistence = 't' THEN
        RAISE EXCEPTION '% is a temporary table, which an index would outlive', table_name
            USING ERRCODE = 'wrong_object_type', HINT = 'Use a table that stays.';
    END IF;
    SELECT a.atttypid, a.atttypmod INTO column_type, column_dimension
    FROM pg_attribute a
    WHERE a.attrelid = table_name AND a.attname = column_name
      AND a.attnum > 0 AND NOT a.attisdropped;
    IF column_type IS NULL THEN
        RAISE EXCEPTION 'table % has no column "%"', table_name, coalesce(column_name, 'NULL')
            USING ERRCODE = 'undefined_column';
    END IF;
    IF column_type NOT IN ('{ext}.vector'::regtype, '{ext}.halfvec'::regtype) THEN
        RAISE EXCEPTION 'column "%" of % is of type %, not vector or halfvec', column_name, table_name, column_type
            USING ERRCODE = 'datatype_mismatch', HINT = CASE
                WHEN column_type IN ('bit'::regtype, 'varbit'::regtype) THEN 'Index the column of vectors; one of codes is named by code_column.'
                ELSE format('If it holds vectors, run: ALTER TABLE %s ALTER COLUMN %I TYPE {ext}.vector(N) USING %I%s::{ext}.vector(N);', table_name, column_name, column_name,
                    CASE WHEN column_type IN ('json'::regtype, 'jsonb'::regtype) THEN '::text' END) END;
    END IF;
    IF column_dimension = -1 AND by_rows AND dimension IS NOT NULL THEN
        EXECUTE format(
            'SELECT {ext}.vector_dims(b.%I) FROM %s b WHERE {ext}.vector_dims(b.%I) <> $1 LIMIT 1', column_name, table_name, column_name
        ) INTO column_dimension USING dimension;
    END IF;
    IF column_dimension NOT IN (-1, dimension) THEN
        RAISE EXCEPTION 'column "%" of % holds vectors of % dimensions, the model takes %',
            column_name, table_name, column_dimension, dimension
            USING ERRCODE = 'datatype_mismatch', HINT = CASE WHEN by_rows THEN 'Train a model on this column. If the index '
                'has vectors of another dimension, keep them in a column of their own, and move it with: pg-hashindex index swap --column.'
                ELSE 'It has the codes of the former vectors: drop the index, and create it again.' END;
    END IF;
END
$$;

-- The reason for which triggers of a table miss writes to its rows, or NULL: rows of a table below it are its rows too, and fire none of its
-- triggers.
CREATE OR REPLACE FUNCTION hashindex._not_plain(base regclass) RETURNS text
LANGUAGE sql STABLE STRICT PARALLEL UNSAFE
RETURN (
    SELECT CASE
        WHEN hashindex._is_sharded(base) THEN format('%s is a table that Citus keeps on its nodes', base)
        WHEN c.relkind = 'p' THEN format('%s is a partitioned table', base)
        WHEN c.relispartition THEN format('%s is a partition of %s', base, (SELECT h.inhparent::regclass FROM pg_inherits h WHERE h.inhrelid = base))
        WHEN EXISTS (SELECT FROM pg_inherits h WHERE h.inhrelid = base) THEN format('%s inherits from another table', base)
        WHEN EXISTS (SELECT FROM pg_inherits h WHERE h.inhparent = base) THEN format('%s has tables that inherit from it', base)
    END FROM pg_class c WHERE c.oid = base
);

-- Refuses a table that is sharded, has partitions, is one, inherits or is inherited from.
CREATE OR REPLACE FUNCTION hashindex._check_plain(base regclass, column_name text) RETURNS void
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    reason text := hashindex._not_plain(base);
BEGIN
    IF reason IS NOT NULL THEN
        RAISE EXCEPTION '%, and an index keeps the codes of one plain table', reason
            USING ERRCODE = 'wrong_object_type', HINT = format(
                'Have pgvector keep the index: pg-hashindex quickstart %s %s --access hnsw',
                hashindex._shell_word(base::text), hashindex._shell_word(column_name)
            );
    END IF;
END
$$;

-- Whether a table is LOGGED or UNLOGGED, which a crash empties; its codes and landmarks are alike.
CREATE OR REPLACE FUNCTION hashindex._logging(table_name regclass) RETURNS text
LANGUAGE sql STABLE STRICT PARALLEL UNSAFE
RETURN (SELECT CASE c.relpersistence WHEN 'u' THEN 'UNLOGGED' ELSE 'LOGGED' END FROM pg_class c WHERE c.oid = table_name);

-- Whether a type is neither built in nor an enum of the administrator. Triggers run as the administrator, so no operator, cast or domain
-- check of another role may run in them. An enum has PostgreSQL's operators, unless its owner defines others.
CREATE OR REPLACE FUNCTION hashindex._is_foreign_type(type oid) RETURNS boolean
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN t.typtype NOT IN ('b', 'e') OR t.typnamespace <> 'pg_catalog'::regnamespace
        AND NOT (t.typtype = 'e' AND pg_has_role(t.typowner, hashindex._administrator(), 'USAGE'))
    FROM pg_type t WHERE t.oid = type;
END
$$;

-- Refuses a column that cannot be the tenants.
CREATE OR REPLACE FUNCTION hashindex._check_tenant(i hashindex.index, base regclass) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    wrong text;
BEGIN
    SELECT CASE
        WHEN a.attname IS NULL THEN format('table %s has no column "%s" of tenants', base, i.tenant_column)
        WHEN i.tenant_column = i.column_name OR i.key_columns = ARRAY[i.tenant_column] THEN
            format('tenant column "%s" is the key or the vector of the index', i.tenant_column)
        -- Triggers do not see it change.
        WHEN a.attgenerated = 'v' THEN format('tenant column "%s" of %s is a virtual generated column', i.tenant_column, base)
        WHEN hashindex._is_foreign_type(a.atttypid) THEN
            format('tenant column "%s" of %s is of type %s, which is not built in', i.tenant_column, base, format_type(a.atttypid, a.atttypmod))
        WHEN NOT EXISTS (
            SELECT FROM pg_opclass o JOIN pg_am m ON m.oid = o.opcmethod
            WHERE m.amname = 'btree' AND o.opcdefault
              AND (o.opcintype = a.atttypid OR t.typtype = 'e' AND o.opcintype = 'anyenum'::regtype OR a.atttypid = 'varchar'::regtype AND o.opcintype = 'text'::regtype)
        ) THEN format('tenant column "%s" of %s is of type %s, whose values have no order', i.tenant_column, base, format_type(a.atttypid, a.atttypmod))
    END INTO wrong
    FROM (SELECT) x LEFT JOIN pg_attribute a ON a.attrelid = base AND a.attname = i.tenant_column AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_type t ON t.oid = a.atttypid
    WHERE i.tenant_column IS NOT NULL;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION '%', wrong USING ERRCODE = 'invalid_parameter_value', HINT = 'Name a column of a built-in type, such as integer, uuid or text.';
    END IF;
END
$$;

-- Type of the tenants of an index, as SQL writes it under any search_path.
CREATE OR REPLACE FUNCTION hashindex._tenant_type(i hashindex.index) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    codes regclass;
BEGIN
    -- With lists the type beside the codes, which a change of the table's column does not reach.
    SELECT hashindex._table_of(x, 'codes') INTO codes FROM hashindex.index_set x
    WHERE x.index_name = i.name AND hashindex._table_of(x, 'codes') IS NOT NULL ORDER BY x.state = 'used' DESC LIMIT 1;
    RETURN hashindex._base_type(format_type(a.atttypid, NULL)) FROM pg_attribute a
    WHERE NOT a.attisdropped AND CASE WHEN codes IS NULL THEN a.attrelid = hashindex._base_of(i) AND a.attname = i.tenant_column
        ELSE a.attrelid = codes AND a.attname = 'tenant' END;
END
$$;

-- The condition of a tenant's rows, also under a caller's search_path; NULL for all rows.
CREATE OR REPLACE FUNCTION hashindex._of_tenant(i hashindex.index, tenant text, base text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    IF tenant IS NOT NULL AND i.tenant_column IS NOT NULL THEN
        RETURN format('%s.%I OPERATOR(pg_catalog.=) %L::%s', coalesce(base, format('%I.%I', i.schema_name, i.table_name)), i.tenant_column, tenant, hashindex._tenant_type(i));
    END IF;
    RETURN NULL;
END
$$;

-- Hint: how to add a key, of the wanted columns if they are named. A view has none.
CREATE OR REPLACE FUNCTION hashindex._key_hint(base regclass, wanted text[]) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    kind "char" := (SELECT c.relkind FROM pg_class c WHERE c.oid = base);
BEGIN
    IF kind = 'm' THEN
        RETURN 'A materialised view has no keys and no triggers: make the index of the table behind it.';
    END IF;
    IF wanted IS NOT NULL THEN
        RETURN format(
            'Run: ALTER TABLE %s %s, ADD UNIQUE (%s);', base,
            (SELECT string_agg(format('ALTER COLUMN %I SET NOT NULL', w.name), ', ' ORDER BY w.n) FROM unnest(wanted) WITH ORDINALITY w(name, n)),
            hashindex._columns_of(NULL, wanted)
        );
    END IF;
    RETURN 'Name the columns of a unique NOT NULL key as key_columns, or add a primary key.';
END
$$;

-- Types of the columns of a key, through domains, as they are now; and that one of them cannot be in a key.
CREATE OR REPLACE FUNCTION hashindex._key_types(table_name regclass, key_columns text[], OUT types text[], OUT wrong text)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    -- With only pg_catalog on the path, format_type qualifies the type's name, which then means the same under any path.
    SELECT array_agg(t.name ORDER BY k.n), min(format('key "%s" of %s is of type %s, %s', k.name, table_name, t.name, t.shape)) FILTER (WHERE t.shape IS NOT NULL)
    INTO types, wrong
    FROM unnest(key_columns) WITH ORDINALITY k(name, n) JOIN pg_attribute a ON a.attrelid = table_name AND a.attname = k.name
    CROSS JOIN LATERAL (
        WITH RECURSIVE below AS (
            SELECT a.atttypid AS type UNION ALL SELECT d.typbasetype FROM below b JOIN pg_type d ON d.oid = b.type WHERE d.typtype = 'd'
        )
        SELECT format_type(y.oid, CASE WHEN y.oid = a.atttypid THEN a.atttypmod END) AS name,
               CASE WHEN y.typcategory = 'A' THEN 'an array' WHEN y.typcategory = 'C' THEN 'composite'
                    -- No operator or cast of another role may run in triggers.
                    WHEN hashindex._is_foreign_type(y.oid) THEN 'which is not built in' END AS shape
        FROM below b JOIN pg_type y ON y.oid = b.type WHERE y.typtype <> 'd'
    ) t;
END
$$;

-- The columns of the key of a table (the primary key unless another is wanted) in the order of its index, and their types.
CREATE OR REPLACE FUNCTION hashindex._find_key(table_name regclass, wanted text[], OUT key_columns text[], OUT key_types text[])
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    wrong text;
    key_index oid;
BEGIN
    IF cardinality(wanted) NOT BETWEEN 1 AND current_setting('max_index_keys')::integer THEN
        RAISE EXCEPTION 'a key of % columns is wanted; PostgreSQL has keys of 1 to %', cardinality(wanted), current_setting('max_index_keys')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave key_columns out for the primary key.';
    END IF;
    SELECT w.name INTO wrong FROM unnest(wanted) w(name) GROUP BY w.name HAVING count(*) > 1 LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'key column "%" is named twice', wrong USING ERRCODE = 'invalid_parameter_value', HINT = 'Name each column of the key once.';
    END IF;
    SELECT coalesce(w.name, 'NULL') INTO wrong FROM unnest(wanted) WITH ORDINALITY w(name, n)
    WHERE NOT EXISTS (
        SELECT FROM pg_attribute a
        WHERE a.attrelid = table_name AND a.attname = w.name AND a.attnum > 0 AND NOT a.attisdropped
    ) ORDER BY w.n LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'table % has no column "%"', table_name, wrong
            USING ERRCODE = 'undefined_column';
    END IF;
    -- A key is NOT NULL and always unique: a deferrable constraint can be violated within a transaction.
    SELECT x.indexrelid, k.names INTO key_index, key_columns
    FROM pg_index x CROSS JOIN LATERAL (
        SELECT array_agg(a.attname::text ORDER BY c.n) AS names, bool_and(a.attnotnull) AS filled
        FROM unnest(x.indkey::smallint[]) WITH ORDINALITY c(number, n) JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = c.number
        WHERE c.n <= x.indnkeyatts
    ) k
    WHERE x.indrelid = table_name AND x.indisunique AND x.indisvalid AND x.indimmediate
      AND x.indpred IS NULL AND x.indexprs IS NULL AND k.filled
      AND CASE WHEN wanted IS NULL THEN x.indisprimary ELSE k.names @> wanted AND k.names <@ wanted END
    -- The names as they were given, if two indexes have them.
    ORDER BY k.names = wanted DESC, x.indisprimary DESC, x.indexrelid LIMIT 1;
    IF key_index IS NULL AND EXISTS (
        SELECT FROM pg_index x CROSS JOIN LATERAL (
            SELECT array_agg(a.attname::text) AS names FROM pg_attribute a WHERE a.attrelid = table_name AND a.attnum = ANY (x.indkey)
        ) k
        WHERE x.indrelid = table_name AND x.indisunique AND NOT x.indimmediate
          AND CASE WHEN wanted IS NULL THEN x.indisprimary ELSE k.names @> wanted AND k.names <@ wanted END
    ) THEN
        RAISE EXCEPTION 'the key of % is DEFERRABLE: within a transaction, two rows may have the same', table_name
            USING ERRCODE = 'invalid_table_definition', HINT = 'Make it NOT DEFERRABLE, or name another key.';
    ELSIF key_index IS NULL THEN
        RAISE EXCEPTION '%', format(
            CASE WHEN wanted IS NULL THEN 'table %s%s has no primary key'
                 WHEN cardinality(wanted) = 1 THEN 'column %s of %s is not a key: it must be NOT NULL with a unique index of its own'
                 ELSE 'columns %s of %s are not a key: they must be NOT NULL with a unique index on all of them and no other column' END,
            hashindex._named(wanted), table_name
        ) USING ERRCODE = 'invalid_table_definition', HINT = hashindex._key_hint(table_name, wanted);
    END IF;
    SELECT t.types, t.wrong INTO key_types, wrong FROM hashindex._key_types(table_name, key_columns) t;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION '%', wrong USING ERRCODE = 'invalid_table_definition', HINT = 'Use a key of scalar types.';
    END IF;
END
$$;

-- Refuses a table if searches use its name, or the name of one of its columns, for something else. The statements of an index use these
-- names for variables and for tables.
CREATE OR REPLACE FUNCTION hashindex._check_names(table_name regclass) RETURNS void
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    taken text;
BEGIN
    SELECT n.shown INTO taken FROM (
        SELECT c.relname::text, format('table %s', table_name) FROM pg_class c WHERE c.oid = table_name
        UNION ALL
        SELECT a.attname, format('column "%s" of %s', a.attname, table_name) FROM pg_attribute a
        WHERE a.attrelid = table_name AND NOT a.attisdropped
    ) n(name, shown)
    WHERE starts_with(n.name, 'hashindex_') LIMIT 1;
    IF taken IS NOT NULL THEN
        RAISE EXCEPTION '% has a name that searches use for something else', taken
            USING ERRCODE = 'invalid_name', HINT = 'Choose another name for it.';
    END IF;
END
$$;

-- Refuses a table whose expressions call SQL functions with names that are found under some search paths only. The planner puts the
-- bodies of SQL functions into the expressions of a table's indexes, constraints and policies, and looks their names up under the path of
-- whoever reads the table. Functions of an index have a path of their own. What is found here would otherwise fail later, in the first
-- session that has not planned the expression before.
CREATE OR REPLACE FUNCTION hashindex._check_expressions(base regclass) RETURNS void
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    found record;
    functions text;
BEGIN
    FOR found IN
        SELECT e.*, format('%I.%I', n.nspname, c.relname) AS named, c.relname
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        CROSS JOIN LATERAL (
            SELECT 'pg_class'::regclass AS kind, x.indexrelid AS object, format('index %s', x.indexrelid::regclass) AS shown,
                concat_ws(', ', pg_get_expr(x.indexprs, x.indrelid), pg_get_expr(x.indpred, x.indrelid)) AS expression
            FROM pg_index x WHERE x.indrelid = base
            UNION ALL
            SELECT 'pg_policy'::regclass, y.oid, format('policy "%s"', y.polname),
                concat_ws(', ', pg_get_expr(y.polqual, y.polrelid), pg_get_expr(y.polwithcheck, y.polrelid))
            FROM pg_policy y WHERE y.polrelid = base AND c.relrowsecurity
              -- Planning a query on another table runs its owner's code.
              AND NOT EXISTS (
                  SELECT FROM pg_depend d WHERE d.classid = 'pg_policy'::regclass AND d.objid = y.oid AND d.refclassid = 'pg_class'::regclass AND d.refobjid <> base
              )
        ) e
        WHERE c.oid = base AND e.expression <> ''
    LOOP
        BEGIN
            -- A row without a table: planning it finds what this expression calls, and nothing is evaluated.
            EXECUTE format('SELECT %s FROM unnest(ARRAY[NULL::%s]) AS %I LIMIT 0', found.expression, found.named, found.relname);
        EXCEPTION
            WHEN undefined_function OR undefined_table OR undefined_object OR invalid_schema_name THEN
                SELECT string_agg(format('ALTER FUNCTION %s SET search_path = %I, pg_temp;', f.oid::regprocedure, n.nspname), ' ' ORDER BY f.oid)
                INTO functions
                FROM pg_depend d JOIN pg_proc f ON f.oid = d.refobjid JOIN pg_namespace n ON n.oid = f.pronamespace
                JOIN pg_language l ON l.oid = f.prolang
                WHERE d.classid = found.kind AND d.objid = found.object AND d.refclassid = 'pg_proc'::regclass
                  AND l.lanname = 'sql' AND f.prosqlbody IS NULL AND NOT EXISTS (
                    SELECT FROM unnest(f.proconfig) s(setting) WHERE starts_with(s.setting, 'search_path=')
                  );
                RAISE EXCEPTION '% of % calls a function with a name that depends on search_path: %', found.shown, base, SQLERRM
                    USING ERRCODE = 'invalid_table_definition', HINT = 'Writes and searches of the index set a path of their own. '
                        'Qualify the names in the function''s body' || coalesce(', or run: ' || functions, '.');
            -- A system column, which only rows of tables have.
            WHEN undefined_column THEN NULL;
        END;
    END LOOP;
END
$$;
