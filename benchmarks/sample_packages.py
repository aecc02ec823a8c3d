"""Write the sample that the demo searches: 5,000 of the 60,000 rows of shared/data/packages.npz."""

from pathlib import Path

import numpy as np

REPOSITORY = Path(__file__).resolve().parent.parent
SOURCE = REPOSITORY.parent / "shared" / "data" / "packages.npz"
TARGET = REPOSITORY / "pg_hashindex" / "server" / "data" / "packages.npz"

source = np.load(SOURCE)
rows = np.sort(np.random.default_rng(0).choice(len(source["X"]), 5_000, replace=False))
np.savez_compressed(TARGET, **{name: source[name][rows] for name in source.files})
print(f"{TARGET.relative_to(REPOSITORY)}: {TARGET.stat().st_size / 1e6:.2f} MB")
