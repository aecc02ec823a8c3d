-- Keeps codes as their rows are: a trigger, for the row that was written; and a function for keys, by which codes catch up with a log. Rows are
-- read as they are now: cascades, other writes of the statement, and the user's triggers may have changed them again, and keys may have
-- changed places. So a code is deleted only where no row has its key and a vector.
-- Plans are generic and look up by key: a plan made for each call would read the model each time. One that was made while tables were small stays in use.
CREATE OR REPLACE FUNCTION {writer}({if trigger}) RETURNS trigger{else trigger}keys {key_type}[]) RETURNS void{end trigger}
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE{if trigger} SECURITY DEFINER{end trigger}
SET search_path = pg_catalog, pg_temp
{if trigger}
SET row_security = off
{end trigger}
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $body$
DECLARE
{if writes}
    hashindex_effort text := coalesce(nullif(current_setting('hnsw.ef_search', true), ''), '40');
    hashindex_set text;
{end writes}
    {key_variables}
{if trigger}
    hashindex_strict boolean := current_setting('transaction_isolation') IN ('repeatable read', 'serializable');
    -- Not if a column was renamed or dropped, and the codes wait for pg-hashindex index repair.
    hashindex_readable boolean := NOT EXISTS (
        SELECT FROM unnest({read_columns}::text[]) k(name) WHERE NOT EXISTS (SELECT FROM pg_attribute w WHERE w.attrelid = TG_RELID AND w.attname = k.name)
    );
    hashindex_former boolean := TG_OP = 'DELETE';
BEGIN
    IF TG_OP = 'UPDATE' AND hashindex_readable THEN
        -- Most updates change none of these. Not one condition: the trigger outlives a column that was dropped.
        IF NOT record_image_ne({is_changed}) THEN{log_moved}
            RETURN NULL;
        END IF;
    END IF;
    hashindex_readable := hashindex_readable AND {is_readable};
    IF NOT hashindex_readable THEN
        -- A statement that named the table of another owner would run his code, and so would a conversion of a value. Codes are deleted
        -- instead, and searches are exact until pg-hashindex index encode has made them again.
        UPDATE hashindex.index_set x SET encoded = false WHERE x.encoded AND x.index_name = {index};
        IF TG_OP = 'TRUNCATE' OR EXISTS (
            SELECT FROM unnest({read_columns}::text[], {read_types}::regtype[]) k(name, type)
            WHERE NOT EXISTS (SELECT FROM pg_attribute w WHERE w.attrelid = TG_RELID AND (w.attname, w.atttypid) = (k.name, k.type))
        ) THEN
{if writes}
            DELETE FROM {code_table};
{end writes}{log_truncate}
            RETURN NULL;
        END IF;
    ELSIF TG_OP = 'TRUNCATE' THEN
{if writes}
        TRUNCATE {code_table};
{end writes}{log_truncate}
        RETURN NULL;
    ELSIF TG_OP <> 'DELETE' THEN
        IF {types_differ} THEN
            -- A key or the tenant has another type now. What fits into the former one is written all the same.
            PERFORM hashindex._require_read(TG_RELID, {read_columns}, format('Run: pg-hashindex index repair %s', {index}));
            BEGIN
                PERFORM {as_kept};
            EXCEPTION WHEN data_exception OR undefined_function THEN
                RAISE EXCEPTION 'columns of % have other types than index "%" keeps: %', TG_RELID::regclass, {index}, SQLERRM
                    USING ERRCODE = 'datatype_mismatch', HINT = format('Run: pg-hashindex index repair %s', {index});
            END;
        END IF;
    END IF;
    LOOP
        IF hashindex_former THEN
            {set variable OLD.key}
        ELSE
            {set variable NEW.key}
        END IF;{log_touched}
{if writes}
        IF hashindex_strict THEN{refuse_hidden_landmarks}
            -- DELETE does not see a code that was committed after this transaction's snapshot. This INSERT conflicts with it and raises
            -- the serialization failure that callers of these isolation levels expect.
            INSERT INTO {code_table} AS c ({each id}, code) VALUES ({each variable}, 0::bit({n_bits}))
            ON CONFLICT ({each id}) DO UPDATE SET code = c.code;
            -- If another transaction deleted a row and this one inserted its key again, the snapshot shows both rows.
            IF hashindex_readable AND (SELECT count(*) FROM ONLY {table} b WHERE {same b.key variable}) > 1 THEN
                RAISE EXCEPTION 'could not serialize access due to concurrent delete'
                    USING ERRCODE = 'serialization_failure', HINT = 'Run the transaction again.';
            END IF;
        END IF;
        IF NOT hashindex_readable THEN
            DELETE FROM {code_table} c WHERE {same c.id variable};
        ELSIF hashindex_former AND NOT EXISTS (SELECT FROM ONLY {table} b WHERE {same b.key variable}) THEN
            DELETE FROM {code_table} c WHERE {same c.id variable};
        ELSE
{end writes}
{else trigger}
BEGIN
    FOR {each variable} IN SELECT DISTINCT {each k.id} FROM unnest($1) k({each id}) LOOP
{end trigger}
{if writes}
        -- With 12, 91 rows in 100 get their nearest landmark, as in a build; 16 takes an eighth longer, and 93 get it.
        hashindex_set := set_config('hnsw.ef_search', '12', true);
        INSERT INTO {code_table} AS c ({each id}, landmark, code{if tenant}, tenant{end tenant})
        SELECT {each r.id}, {row_landmark}, {row_code}{if tenant}, r.tenant{end tenant}
        FROM (
            SELECT raw.*, {row_projection} AS projection
            FROM (
                SELECT {each b.key as id}{if tenant}, b.{tenant}::{tenant_type} AS tenant{end tenant}, CASE WHEN {ext}.vector_dims(b.{column}) = {dimension} THEN b.{column}::{ext}.vector({dimension})
                    ELSE hashindex._refuse_vector(b.{column}::{ext}.vector, {dimension}) END AS vector
                -- A deferred constraint allows two rows of a key, until one of them is written again.
                FROM ONLY {table} b WHERE {same b.key variable} AND b.{column} IS NOT NULL{fits} LIMIT 1
            ) raw OFFSET 0
        ) r
        ON CONFLICT ({each id}) DO UPDATE SET landmark = excluded.landmark, code = excluded.code{if tenant}, tenant = excluded.tenant{end tenant};
        hashindex_set := set_config('hnsw.ef_search', hashindex_effort, true);
        IF NOT FOUND THEN
            DELETE FROM {code_table} c WHERE {same c.id variable} AND NOT EXISTS (
                SELECT FROM ONLY {table} b WHERE {same b.key c.id} AND b.{column} IS NOT NULL{fits} OFFSET 0
            );
        END IF;
{end writes}
{if trigger}
{if writes}
        END IF;
{end writes}
        -- An update that changes the key writes both.
        EXIT WHEN hashindex_former OR TG_OP = 'INSERT' OR {same NEW.key OLD.key};
        hashindex_former := true;
    END LOOP;
    RETURN NULL;
{else trigger}
    END LOOP;
{end trigger}
END
$body$
