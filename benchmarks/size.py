"""Measure what a client needs for a large table: seconds and peak memory of each command.

    python benchmarks/size.py [--rows 1000000] [--quick]

An embedded server with PostgreSQL's default settings holds synthetic rows of 384 dimensions, made
like those of `retrieval.py`. Each command runs as its own process; its peak memory is that of the
operating system, with libraries and interpreter. Training sees every row. The swap encodes all rows
again, compares both models, and switches; a check and a rollback follow.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common import DATA_FOLDER, RESULTS, machine, scratch, write
from retrieval_data import draw
from retrieval_server import database, running
from retrieval_systems import run_command

OUTPUT = RESULTS / "size.json"
QUICK_ROWS = 5_000
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("train", "model train first --method itq --bits 128 --cuts 1 --table items "
              "--column embedding --metric cosine --all-rows"),
    ("train", "model train second --method sgh --bits 128 --cuts 1 --table items "
              "--column embedding --metric cosine --all-rows"),
    ("create", "index create items_idx --table items --column embedding --model first "
               "--access scan --no-encode"),
    ("encode", "index encode items_idx"),
    ("check", "index check items_idx"),
    ("swap", "index swap items_idx --model second --force"),
    ("rollback", "index rollback items_idx"),
    ("landmarks", "index configure items_idx --access landmarks"),
    ("check", "index check items_idx --full"),
)  # fmt: skip


def run(command: str, uri: str) -> dict[str, Any]:
    """Run a command, and return its seconds and its peak memory."""
    ran = run_command(command, uri, good=range(256))
    return {
        "seconds": round(ran.seconds, 1),
        "peak_mb": round(ran.peak_bytes / 1e6),
        "exit_code": ran.exit_code,
        **({"said": ran.said} if ran.exit_code not in (0, 1) else {}),
    }


def results(rows: int, folder: Path) -> Iterator[dict[str, Any]]:
    drawn = draw(folder, "synthetic-1m", 10, most=rows)
    # No settings: the defaults of PostgreSQL.
    with running({}) as server, database(server, drawn) as opened:
        uri = server.uri(opened.name)
        for kind, command in COMMANDS:
            yield {"kind": kind, "command": command, **run(command, uri)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=DATA_FOLDER, help="folder of packages.npz")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROWS} rows, no file kept")
    args = parser.parse_args()
    if not (args.folder / "packages.npz").exists():
        sys.exit(f"{args.folder} has no packages.npz; name the folder with --folder")
    rows = QUICK_ROWS if args.quick else args.rows
    output = args.output or (scratch("size_quick.json") if args.quick else OUTPUT)
    entries = []
    print(f"{'seconds':>8}{'peak MB':>9}{'exit':>6}  pg-hashindex ...")
    for entry in results(rows, args.folder):
        print(
            f"{entry['seconds']:8.1f}{entry['peak_mb']:9}{entry['exit_code']:6}  "
            f"{entry['command']}",
            flush=True,
        )
        entries.append(entry)
        write(output, {"machine": machine(), "rows": rows, "commands": entries})
    print(output)


if __name__ == "__main__":
    main()
