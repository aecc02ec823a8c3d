-- What searches may be asked for.

CREATE OR REPLACE FUNCTION hashindex.rankings(used hashindex.model)
RETURNS text[]
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN ARRAY['hamming']
        || CASE WHEN used.network IS NULL THEN ARRAY['asymmetric'] ELSE '{}' END
        || CASE WHEN used.bit_weights IS NULL THEN '{}' ELSE ARRAY['weighted'] END;
END
$$;

COMMENT ON FUNCTION hashindex.rankings(hashindex.model) IS
    'orders of candidates that a model can serve, the plainest first';

CREATE OR REPLACE FUNCTION hashindex.default_ranking(used hashindex.model)
RETURNS text
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    served text[] := hashindex.rankings(used);
BEGIN
    RETURN served[cardinality(served)];
END
$$;

COMMENT ON FUNCTION hashindex.default_ranking(hashindex.model) IS
    'the finest order of candidates that a model can serve, which new indexes have';

CREATE OR REPLACE FUNCTION hashindex.check_search_arguments(
    query vector, k integer, candidates integer, probes integer DEFAULT NULL,
    ranking text DEFAULT 'hamming', rankings text[] DEFAULT '{hamming}'
)
RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    IF query IS NULL THEN
        RAISE EXCEPTION 'the query vector is NULL'
            USING ERRCODE = 'null_value_not_allowed', HINT = 'Pass a vector.';
    END IF;
    IF k IS NULL OR k < 1 THEN
        RAISE EXCEPTION 'k is %; it must be 1 or more', coalesce(k::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF candidates < 1 THEN
        RAISE EXCEPTION 'candidates is %; it must be 1 or more', candidates
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Leave it out for the default of the index.';
    END IF;
    IF probes NOT BETWEEN 1 AND 1000 THEN
        RAISE EXCEPTION 'probes is %; it must be 1 to 1000', probes
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Leave it out for the default of the index.';
    END IF;
    IF ranking <> ALL (rankings) THEN
        RAISE EXCEPTION 'ranking "%" cannot be served by the model of the index', ranking
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = format('Use one of: %s.', array_to_string(rankings, ', '));
    END IF;
END
$$;

COMMENT ON FUNCTION hashindex.check_search_arguments(vector, integer, integer, integer, text, text[]) IS
    'refuses arguments that no search can answer';

CREATE OR REPLACE FUNCTION hashindex.checked_query_code(query_code bit varying, n_bits integer)
RETURNS bit varying
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    IF query_code IS NULL THEN
        RAISE EXCEPTION 'the index is encoded in Python: its search needs the code of the query'
            USING ERRCODE = 'null_value_not_allowed',
                  HINT = 'Pass query_code, as Model.encode in Python gives it, or the stored code of a row; or search with HashIndex.search in Python.';
    END IF;
    IF length(query_code) <> n_bits THEN
        RAISE EXCEPTION 'query_code has % bits, the codes of the index have %',
            length(query_code), n_bits
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Encode the query with the model of the index.';
    END IF;
    RETURN query_code;
END
$$;

COMMENT ON FUNCTION hashindex.checked_query_code(bit varying, integer) IS
    'the code of a query that the caller brings, or an error where it is missing or of another length';
