"""Bytes of an index for each row, by bits and access path.

Run: python benchmarks/sizing.py (half a minute; needs ../shared/data/packages.npz), then
python benchmarks/tables.py for the page.
"""

from typing import Any

import numpy as np
from common import DATA_FOLDER, RESULTS, write
from packages import ROWS, SETTINGS
from retrieval_server import load, served

from pg_hashindex import store
from pg_hashindex.db.connection import Connection, connect
from pg_hashindex.hashers import make_hasher
from pg_hashindex.index.handle import HashIndex

BITS = (64, 128, 192, 256, 384)


def measure(connection: Connection, X: np.ndarray, n_bits: int) -> dict[str, Any]:
    hasher = make_hasher("itq", n_bits=n_bits, random_state=0).fit(X[:20_000])
    store.save(connection, hasher.to_model("m", metric="cosine"))
    index = HashIndex.create_lists(
        connection, "items_idx", table="items", column="embedding", model="m", access="scan"
    )
    index.encode()
    summary = index.summary()
    assert summary.codes == len(X)
    found: dict[str, Any] = {"bits": n_bits, "scan": summary.code_bytes}
    index.swap(access="lists", force=True)
    index.prune()
    # Codes lie in lists now, with the number of their list.
    now = index.summary()
    found["landmarks"] = now.code_bytes + now.access_bytes - found["scan"]
    index.drop()
    store.drop(connection, "m")
    return found


def main() -> None:
    with np.load(DATA_FOLDER / "packages.npz") as archive:
        X = archive["X"][:ROWS].astype(np.float32)
    with served(SETTINGS) as uri, connect(uri) as connection:
        load(connection, X)
        sizes = [measure(connection, X, n_bits) for n_bits in BITS]
    write(RESULTS / "sizing.json", {"rows": len(X), "key": "bigint", "sizes": sizes})


if __name__ == "__main__":
    main()
