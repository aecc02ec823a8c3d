-- Has the codes of touched keys made again. The transition tables only tell which keys those are: cascades, several writes to
-- one row in one statement, and triggers of the user's may have changed the rows since.
CREATE OR REPLACE FUNCTION {sync}() RETURNS trigger
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $body$
DECLARE
    hashindex_touched {key_type}[];
BEGIN
    -- A partition that was detached keeps its triggers; its rows are no longer the index's.
    IF (TG_TABLE_SCHEMA, TG_TABLE_NAME) <> ({schema_literal}, {table_name_literal}) AND to_regclass({table_literal}) IS NOT NULL
        AND NOT EXISTS (SELECT FROM pg_partition_ancestors(TG_RELID) a WHERE a.relid = to_regclass({table_literal}))
    THEN
        RETURN NULL;
    END IF;
    IF to_regclass({table_literal}) IS NULL AND TG_OP = 'TRUNCATE' THEN
        DELETE FROM {code_table};
        RETURN NULL;
    ELSIF TG_OP = 'TRUNCATE' THEN
        IF (TG_TABLE_SCHEMA, TG_TABLE_NAME) = ({schema_literal}, {table_name_literal}) THEN
            TRUNCATE {code_table};
        ELSE
            DELETE FROM {code_table} c WHERE NOT EXISTS (SELECT FROM {table} b WHERE b.{key} = c.id);
        END IF;{log_truncate}
        RETURN NULL;
    ELSIF TG_OP = 'DELETE' THEN
        hashindex_touched := ARRAY(SELECT o.{key} FROM old_rows o);
    ELSIF TG_OP = 'INSERT' THEN
        hashindex_touched := ARRAY(SELECT n.{key} FROM new_rows n);
    ELSE
        -- Most updates leave key, vector and filter columns alone. Keys that came or went are told by counting: a cascade puts the
        -- row into both tables once more, under its new key.
        hashindex_touched := ARRAY(
            SELECT n.{key} FROM old_rows o JOIN new_rows n ON n.{key} = o.{key} WHERE {is_changed}
            UNION
            SELECT k.id FROM (
                SELECT n.{key} AS id, 1 AS n FROM new_rows n UNION ALL SELECT o.{key}, -1 FROM old_rows o
            ) k GROUP BY k.id HAVING sum(k.n) <> 0
        );{log_moved}
    END IF;
    IF cardinality(hashindex_touched) = 0 THEN
        RETURN NULL;
    END IF;{log_touched}
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN{refuse_hidden_landmarks}
        -- A code that was committed after this transaction's snapshot is hidden from DELETE. Meeting it here raises the
        -- serialization failure that callers of these isolation levels expect.
        INSERT INTO {code_table} AS c (id, code) SELECT DISTINCT t.id, 0::bit({n_bits}) FROM unnest(hashindex_touched) t(id)
        ON CONFLICT (id) DO UPDATE SET code = c.code;
        -- Where somebody has deleted a row since, and its key was inserted here, the snapshot shows both rows.
        IF EXISTS (SELECT FROM {table} b WHERE b.{key} = ANY (hashindex_touched) GROUP BY b.{key} HAVING count(*) > 1) THEN
            RAISE EXCEPTION 'could not serialize access due to concurrent delete'
                USING ERRCODE = 'serialization_failure', HINT = 'Run the transaction again.';
        END IF;
    END IF;
    IF to_regclass({table_literal}) IS NULL THEN
        -- The table was renamed. Writes go on; pg-hashindex index rebind takes the new name, and encodes the rows without a code.
        DELETE FROM {code_table} c WHERE c.id = ANY (hashindex_touched);
    ELSE
        PERFORM {refresh}(hashindex_touched);
    END IF;
    RETURN NULL;
END
$body$
