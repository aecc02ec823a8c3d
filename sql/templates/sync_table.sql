-- Updates the codes of written keys. The transition tables only tell which keys were written; the rows are read as they are now,
-- since cascades, several writes to one row in one statement, and the user's triggers may have changed them again.
CREATE OR REPLACE FUNCTION {sync}() RETURNS trigger
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $body$
DECLARE
    hashindex_base oid := to_regclass({table_literal});
    -- Not if the table was renamed, and another has its name.
    hashindex_readable boolean := (hashindex_base = TG_RELID) IS TRUE AND hashindex._require_owner(hashindex_base, {read_columns});
    -- Values of other types, in a table of another owner, could run a cast of that owner.
    hashindex_alike boolean := hashindex_readable OR NOT EXISTS (
        SELECT FROM unnest({read_columns}::text[], {read_types}::regtype[]) k(name, type)
        WHERE NOT EXISTS (SELECT FROM pg_attribute w WHERE w.attrelid = TG_RELID AND (w.attname, w.atttypid) = (k.name, k.type))
    );
    hashindex_strict boolean := current_setting('transaction_isolation') IN ('repeatable read', 'serializable');
    hashindex_touched {key_type}[];
BEGIN
    IF hashindex_strict THEN
        PERFORM hashindex._refuse_altered(hashindex_base);
    END IF;
    IF NOT hashindex_readable THEN
        -- A statement that named the table of another owner would run his code, and so would a conversion of a value. Codes are deleted
        -- instead, and searches are exact until pg-hashindex index encode has made them again.
        UPDATE hashindex.index x SET encoded = false WHERE x.encoded AND x.triggers = {triggers_literal};
        IF TG_OP = 'TRUNCATE' OR NOT hashindex_alike THEN
            DELETE FROM {code_table};{log_truncate}
            RETURN NULL;
        END IF;
    ELSIF TG_OP IN ('INSERT', 'UPDATE') THEN
        IF (SELECT {types_differ} FROM new_rows n LIMIT 1) THEN
            -- A key or the tenant has another type now. What fits into the former one is written all the same.
            BEGIN
                PERFORM {as_kept} FROM new_rows n;
            EXCEPTION WHEN data_exception OR undefined_function THEN
                RAISE EXCEPTION 'columns of % have other types than index "%" keeps: %', TG_RELID::regclass, {index}, SQLERRM
                    USING ERRCODE = 'datatype_mismatch', HINT = format('Run: pg-hashindex index repair %s', {index});
            END;
        END IF;
    END IF;
    IF TG_OP = 'TRUNCATE' THEN
        TRUNCATE {code_table};{log_truncate}
        RETURN NULL;
    ELSIF TG_OP = 'DELETE' THEN
        hashindex_touched := ARRAY(SELECT {row o.key} FROM old_rows o);
    ELSIF TG_OP = 'INSERT' THEN
        hashindex_touched := ARRAY(SELECT {row n.key} FROM new_rows n);
    ELSE
        -- Most updates change neither key, vector nor tenant. Counting finds keys that came or went: a cascade puts the row
        -- into both tables once more, under its new key.
        hashindex_touched := ARRAY(
            -- A full join, which is never a nested loop: the plan is kept, and the next statement may write many rows.
            SELECT {changed_key} FROM old_rows o FULL JOIN new_rows n ON {same n.key o.key} WHERE {is_changed}
            UNION
            SELECT k.id FROM (
                SELECT {row n.key} AS id, 1 AS n FROM new_rows n UNION ALL SELECT {row o.key}, -1 FROM old_rows o
            ) k GROUP BY k.id HAVING sum(k.n) <> 0
        );{log_moved}
    END IF;
    IF cardinality(hashindex_touched) = 0 THEN
        RETURN NULL;
    END IF;{log_touched}
    IF hashindex_strict THEN{refuse_hidden_landmarks}
        -- DELETE does not see a code that was committed after this transaction's snapshot. This INSERT conflicts with it and raises
        -- the serialization failure that callers of these isolation levels expect.
        INSERT INTO {code_table} AS c ({each id}, code) SELECT DISTINCT {each t.id}, 0::bit({n_bits}) FROM unnest(hashindex_touched) t({each id})
        ON CONFLICT ({each id}) DO UPDATE SET code = c.code;
        -- If another transaction deleted a row and this one inserted its key again, the snapshot shows both rows.
        IF NOT hashindex_readable THEN
        ELSIF EXISTS (
            SELECT FROM {if several}(SELECT DISTINCT k.* FROM unnest(hashindex_touched) k) k CROSS JOIN LATERAL (
                SELECT {each b.read} FROM ONLY {table} b WHERE {same b.key k.id} OFFSET 0
            ) b{else several}ONLY {table} b WHERE {among b.key hashindex_touched}{end several} GROUP BY {each b.key} HAVING count(*) > 1
        ) THEN
            RAISE EXCEPTION 'could not serialize access due to concurrent delete'
                USING ERRCODE = 'serialization_failure', HINT = 'Run the transaction again.';
        END IF;
    END IF;
    IF hashindex_readable THEN
        PERFORM {refresh}(hashindex_touched);
    ELSE
        DELETE FROM {code_table} c WHERE {among c.id hashindex_touched};
    END IF;
    RETURN NULL;
END
$body$
