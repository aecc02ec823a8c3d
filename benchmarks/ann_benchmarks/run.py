"""Run pg_hashindex and pgvector's indexes by the runner of a checkout of ann-benchmarks.

    python benchmarks/ann_benchmarks/run.py CHECKOUT [--rows 60000]
    python benchmarks/tables.py

It needs the packages of the checkout's requirements.txt beside those of pg_hashindex, copies this
folder among the algorithms, and writes a data set of embeddings of packages in the runner's format.
Each system is run on a server of its own, with the database alone in memory. The runner measures
one client, and neither memory, writes nor filters: `retrieval.py` and `memory.py` do.
"""

import argparse
import contextlib
import json
import os
import runpy
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DATA = Path(os.environ.get("PG_HASHINDEX_SHARED", ROOT.parent / "shared")) / "data"
OUTPUT = ROOT / "benchmarks" / "results" / "ann_benchmarks.json"
PICTURE = ROOT / "docs" / "pictures" / "ann-benchmarks.png"
SYSTEMS = ("pg_hashindex", "pgvector-hnsw", "pgvector-ivfflat", "pgvector-binary_quantize")
NAME = "packages-384-angular"
QUERIES, K = 500, 10
SETTINGS = {"shared_buffers": "2GB", "maintenance_work_mem": "1GB", "jit": "off"}


def write_data(path: Path, rows: int) -> None:
    """Write rows and queries with their exact neighbours, as the runner reads them."""
    import h5py

    with np.load(DATA / "packages.npz") as archive:
        X = archive["X"][:rows].astype(np.float32)
    order = np.random.default_rng(0).permutation(len(X))
    test, train = X[order[:QUERIES]], X[order[QUERIES:]]
    unit = train / np.linalg.norm(train, axis=1, keepdims=True)
    distances = 1 - (test / np.linalg.norm(test, axis=1, keepdims=True)) @ unit.T
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :100]
    with h5py.File(path, "w") as file:
        file.attrs.update(type="dense", distance="angular", point_type="float")
        file.attrs["dimension"] = X.shape[1]
        file["train"], file["test"], file["neighbors"] = train, test, nearest
        file["distances"] = np.take_along_axis(distances, nearest, axis=1)


def results() -> Iterator[tuple[dict[str, Any], float]]:
    """Yield what the runner kept of each setting, and the recall that its own measure gives."""
    import h5py
    from ann_benchmarks.plotting.metrics import all_metrics
    from ann_benchmarks.results import load_all_results

    with (
        h5py.File(Path("data") / f"{NAME}.hdf5") as data,
        h5py.File("kept", "w", driver="core", backing_store=False) as kept,
    ):
        true = np.array(data["distances"])
        for number, (attributes, file) in enumerate(load_all_results(NAME, K)):
            group = kept.create_group(str(number))
            measured = (true, file["distances"], group, file["times"][:], attributes)
            yield attributes, float(all_metrics["k-nn"]["function"](*measured))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--runs", type=int, default=2)
    args = parser.parse_args()
    os.chdir(args.checkout)
    sys.path[0] = str(args.checkout.resolve())
    target = Path("ann_benchmarks/algorithms/pg_hashindex")
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(HERE, target, ignore=shutil.ignore_patterns("run.py", "__pycache__"))
    (target / "__init__.py").write_text("from .module import *\n")
    Path("data").mkdir(exist_ok=True)
    write_data(Path("data") / f"{NAME}.hdf5", args.rows)

    from ann_benchmarks import main as runner
    from ann_benchmarks.datasets import DATASETS

    from pg_hashindex.server import EmbeddedServer
    from pg_hashindex.server.demo import new_database

    DATASETS[NAME] = lambda path: None
    for system in SYSTEMS:
        with tempfile.TemporaryDirectory(prefix="ann-") as folder, contextlib.ExitStack() as stack:
            Path(folder).chmod(0o755)
            server = EmbeddedServer(Path(folder) / "data")
            server.start(until_exit=True, settings=SETTINGS)
            stack.callback(server.stop)
            os.environ["PG_HASHINDEX_DATABASE_URL"] = new_database(server, "ann")
            sys.argv = [
                "run.py", "--local", "--dataset", NAME, "--algorithm", system, "--force",
                "--runs", str(args.runs), "-k", str(K),
            ]  # fmt: skip
            runner.main()
    found = [
        {
            "system": attributes["algo"],
            "setting": attributes["name"],
            "recall": round(recall, 4),
            "queries_per_second": round(float(1 / attributes["best_search_time"]), 1),
            "build_s": round(float(attributes["build_time"]), 1),
            "index_mb": round(float(attributes["index_size"]) / 1024, 1),
        }
        for attributes, recall in results()
    ]
    found.sort(key=lambda line: (line["system"], line["recall"]))

    report = {"data": NAME, "rows": args.rows - QUERIES, "results": found}
    OUTPUT.write_text(json.dumps(report, indent=1) + "\n")
    for line in found:
        print(line)
    # The runner's own plot.
    sys.argv = ["plot.py", "--dataset", NAME, "--count", str(K), "-o", str(PICTURE), "-Y", "log"]
    runpy.run_path("plot.py", run_name="__main__")


if __name__ == "__main__":
    main()
