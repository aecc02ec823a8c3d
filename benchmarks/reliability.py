"""Try to break an index, and count losses: the figures of docs/results.md.

    python benchmarks/reliability.py --minutes 10 [--moments 12] [--examples 50]

Runs the fault tests (tests/faults) at many moments each, on embedded servers of their own, and adds
up what they count: operations, faults, rows checked, rows lost. Then a soak: an embedded server
with its default settings, 20,000 vectors of 384 dimensions, four clients of pgbench that search,
insert, update and delete, Python readers, and an operator who swaps the model of the index to and
fro, returns and prunes. Searches with all codes as candidates must equal the exact search of the
same snapshot, also in old snapshots. Writes benchmarks/results/reliability.json and the tables of
docs/results.md. `--only soak` or `--only faults` keeps the figures of the other part.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import RESULTS, ROOT, machine, read, write
from reliability_report import write_page

OUTPUT = RESULTS / "reliability.json"


def faults(moments: int, examples: int) -> list[dict[str, Any]]:
    """Run the fault tests, and add up their counts."""
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "figures"
        counts = {
            "PG_HASHINDEX_FIGURES": str(figures),
            "PG_HASHINDEX_MOMENTS": str(moments),
            "PG_HASHINDEX_EXAMPLES": str(examples),
        }
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "tests/faults"]
        began = time.monotonic()
        done = subprocess.run(
            [*command, "-k", "not soak"], cwd=ROOT, env=os.environ | counts, check=False
        )
        if done.returncode:
            sys.exit("the fault tests failed")
        print(f"{time.monotonic() - began:.0f} s")
        lines = [json.loads(line) for line in figures.read_text().splitlines()]
    added: dict[str, dict[str, Any]] = {}
    for line in lines:
        sums = added.setdefault(line["test"], dict.fromkeys(line, 0) | {"runs": 0})
        sums |= {name: sums[name] + value for name, value in line.items() if name != "test"}
        sums |= {"test": line["test"], "runs": sums["runs"] + 1}
    return list(added.values())


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="minutes of the soak")
    parser.add_argument("--rows", type=int, default=20_000, help="rows of the soak")
    parser.add_argument(
        "--moments", type=int, default=12, help="moments at which each command is cut off"
    )
    parser.add_argument("--examples", type=int, default=50, help="runs of each state machine")
    parser.add_argument("--only", choices=["soak", "faults"])
    parser.add_argument("--output", type=Path, default=OUTPUT)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    # The soak checks codes with the functions of the tests.
    sys.path.insert(0, str(ROOT / "tests"))
    report = read(args.output) | {"machine": machine()}
    if args.only != "soak":
        report["faults"] = faults(args.moments, args.examples)
        write(args.output, report)
    if args.only != "faults":
        from reliability_soak import soak

        report["soak"] = vars(soak(60 * args.minutes, args.rows))
        write(args.output, report)
    write_page(report)
    print(args.output)


if __name__ == "__main__":
    main()
