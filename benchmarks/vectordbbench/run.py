"""Run pg_hashindex and pgvector's indexes by VectorDBBench on embeddings of packages.

    python benchmarks/vectordbbench/run.py [--rows 60000] [--seconds 10]
    python benchmarks/tables.py

It needs the package ``vectordb-bench`` beside pg_hashindex. Each system has a server of its own,
and one setting. The harness measures the load, queries one after the other, and queries of several
clients at a time; it leaves out memory, writes beside searches, and filters here.
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from client import HashindexCaseConfig, HashindexConfig, register  # noqa: E402

# Here, since the processes that the harness starts import this module first.
register()
ROOT = HERE.parent.parent
DATA = Path(os.environ.get("PG_HASHINDEX_SHARED", ROOT.parent / "shared")) / "data"
OUTPUT = ROOT / "benchmarks" / "results" / "vectordbbench.json"
QUERIES, K = 1_000, 10
SETTINGS = {"shared_buffers": "2GB", "maintenance_work_mem": "1GB", "jit": "off"}
GRAPH = {"m": 16, "ef_construction": 64}


def write_data(folder: Path, rows: int) -> int:
    """Write rows, queries and their exact neighbours as the harness reads them."""
    import polars as pl

    with np.load(DATA / "packages.npz") as archive:
        X = archive["X"][:rows].astype(np.float32)
    order = np.random.default_rng(0).permutation(len(X))
    test, train = X[order[:QUERIES]], X[order[QUERIES:]]
    nearest = np.argsort(-(test @ train.T), axis=1, kind="stable")[:, :100]
    for name, ids, column, values in (
        ("train", np.arange(len(train)), "emb", train),
        ("test", np.arange(QUERIES), "emb", test),
        ("neighbors", np.arange(QUERIES), "neighbors_id", nearest),
    ):
        frame = pl.DataFrame({"id": ids, column: values.tolist()})
        frame.write_parquet(folder / f"{name}.parquet")
    return len(train)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--seconds", type=int, default=10, help="of each number of clients")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vdb-") as scratch:
        folder = Path(scratch)
        folder.chmod(0o755)
        os.environ["RESULTS_LOCAL_DIR"] = str(folder / "results")
        n = write_data(folder, args.rows)
        found = [
            {"system": name, **measured} for name, measured in run_all(folder, n, args.seconds)
        ]
    report = {"data": "packages", "rows": n, "k": K, "seconds": args.seconds, "results": found}
    OUTPUT.write_text(json.dumps(report, indent=1) + "\n")
    for line in found:
        print(line)


def run_all(folder, n, seconds):
    """Yield each system, and what the harness measured."""
    from pydantic import SecretStr
    from vectordb_bench.backend.clients import DB
    from vectordb_bench.backend.clients.pgvector import config as pgvector
    from vectordb_bench.cli.cli import run
    from vectordb_bench.models import TestResult

    from pg_hashindex.server import EmbeddedServer
    from pg_hashindex.server.demo import new_database

    systems = {
        "pg_hashindex": (register(), HashindexCaseConfig()),
        "pgvector-hnsw": (DB.PgVector, pgvector.PgVectorHNSWConfig(**GRAPH, ef_search=80)),
        "pgvector-ivfflat": (DB.PgVector, pgvector.PgVectorIVFFlatConfig(lists=250, probes=40)),
        "pgvector-binary_quantize": (
            DB.PgVector,
            pgvector.PgVectorHNSWConfig(
                **GRAPH, ef_search=160, quantization_type="bit", reranking=True,
                reranking_metric="COSINE", quantized_fetch_limit=160,
            ),
        ),
    }  # fmt: skip
    for name, (db, case) in systems.items():
        with contextlib.ExitStack() as stack:
            server = EmbeddedServer(folder / name)
            server.start(until_exit=True, settings=SETTINGS)
            stack.callback(server.stop)
            url = new_database(server, "vdb")
            asked = parse_qs(urlsplit(url).query)
            config = HashindexConfig(url=SecretStr(url), db_label=name)
            if db is DB.PgVector:
                config = pgvector.PgVectorConfig(
                    db_label=name, user_name=SecretStr("postgres"), password=SecretStr("none"),
                    host=asked["host"][0], port=int(asked["port"][0]), db_name="vdb",
                )  # fmt: skip
            as_command(folder, n, seconds, lambda given: run(db, config, case, **given))  # noqa: B023
        files = sorted((folder / "results").rglob("*.json"), key=lambda path: path.stat().st_mtime)
        result = TestResult.read_file(files[-1]).results[-1]
        metrics = result.metrics
        yield (
            name,
            {
                "recall": round(metrics.recall, 4),
                "p99_ms": round(1000 * metrics.serial_latency_p99, 2),
                "queries_per_second": round(metrics.qps, 1),
                "load_s": round(metrics.load_duration, 1),
            },
        )


def as_command(folder, n, seconds, act):
    """Call a function with what the harness's own options are for a data set of a folder."""
    import click
    from vectordb_bench.cli.cli import CommonTypedDict, click_parameter_decorators_from_typed_dict

    @click.command()
    @click_parameter_decorators_from_typed_dict(CommonTypedDict)
    def command(**given):
        act(given)

    words = [
        "--case-type", "PerformanceCustomDataset", "--custom-case-name", "packages",
        "--custom-dataset-name", "packages", "--custom-dataset-dir", str(folder),
        "--custom-dataset-size", str(n), "--custom-dataset-dim", "384",
        "--custom-dataset-file-count", "1", "--custom-dataset-metric-type", "COSINE",
        "--k", str(K), "--concurrency-duration", str(seconds), "--num-concurrency", "1,2,4",
        "--task-label", "pg_hashindex", "--db-label", "pg_hashindex",
    ]  # fmt: skip
    command.main(words, standalone_mode=False)


if __name__ == "__main__":
    main()
