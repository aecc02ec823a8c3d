            -- The first shard of each node stands for the others there.
            SELECT array_agg(p.first ORDER BY p.number), array_agg(({values}::{number_type}[])[p.number]) FILTER (WHERE p.number = p.first)
            INTO hashindex_first, hashindex_at
            FROM (
                SELECT s.number, min(s.number) OVER (PARTITION BY p.groupid)::integer AS first
                FROM unnest({shards}::bigint[]) WITH ORDINALITY s(id, number) JOIN pg_dist_placement p ON p.shardid = s.id
            ) p;
            hashindex_known := cardinality(hashindex_first) = {n_shards};
