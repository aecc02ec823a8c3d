"""Labels: codes that put rows of one section near each other, and a swap that labels decide."""

import os

from pg_hashindex import HashIndex, connect, hashers, operations, sampling, store
from pg_hashindex.quality.code_scores import score_codes

with connect(os.environ["PG_HASHINDEX_DATABASE_URL"]) as connection:
    sample = sampling.sample_table(connection, "packages", "embedding", labels="section")
    plain = hashers.ITQ(n_bits=32, random_state=0).fit(sample.X)
    learned = hashers.SDH(n_bits=32, n_anchors=300, random_state=0).fit(sample.X, sample.y)
    made = []
    for name, hasher in (("by_distance", plain), ("by_section", learned)):
        model = store.save(connection, hasher.to_model(name, metric="cosine"))
        made.append(f"{model.name}:{model.version}")

    index = HashIndex.create(
        connection, "sections_idx", table="packages", column="embedding", model=made[0]
    )
    index.encode()
    before = score_codes(index, labels="section")["label"].values["MAP"]

    # Codes of labels find fewer of the nearest rows, so recall would refuse them.
    done = operations.swap(index, made[1], labels="section")
    print(f"MAP of sections: {before:.3f} by distance, {done.map_after:.3f} by labels")

    index = HashIndex.open(connection, "sections_idx")
    operations.prune(index)
    index.drop()
    for model_name in made:
        store.drop(connection, model_name)
