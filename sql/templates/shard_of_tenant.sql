            -- The one shard of the tenant stands for itself.
            hashindex_at := ARRAY[({values}::{number_type}[])[
                array_position({row_shards}::bigint[], get_shard_id_for_distribution_column({table_literal}::regclass, $9))
            ]];
            hashindex_known := hashindex_at[1] IS NOT NULL;
            hashindex_first := ARRAY(SELECT n.number FROM generate_series(1, {n_shards}) n(number));
