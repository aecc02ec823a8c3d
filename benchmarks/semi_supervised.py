"""Compare methods that learn from few labels and many unlabelled rows, as Yan, Zhang & Li do.

    OMP_NUM_THREADS=1 python benchmarks/semi_supervised.py --part 1/2 &
    OMP_NUM_THREADS=1 python benchmarks/semi_supervised.py --part 2/2 & wait
    python benchmarks/semi_supervised.py, then python benchmarks/tables.py

1,000 queries; 60,000 rows of MNIST, or 59,000 packages, as database, drawn by the seed, of which
50, 250 or 500 a class, or 20 a section, are labelled. The score is MAP within the first 5,000: rows
of the query's label are relevant, ties are in database order. `bgdh-i`, `s3plh` and `itq` learn
from the database; `dpsh`, `deep-dsh` and `sdh` from its labelled rows; the transductive
`bgdh-t` from the database and the queries, the labels of which it does not see. Packages also have
a graph of the words of their names.

The rivals of the paper's tables, one seed of MNIST, are in a file of their own:
--data mnist --seeds 0 --methods lfh cosdish isohash sph
--output benchmarks/results/semi_supervised_rivals.json

Each training is saved at once, and saved trainings with the same settings are not repeated. A run
without `--part` joins the results of several processes (`--part`).
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common import DATA_FOLDER, RESULTS, made_with, read, scratch, write
from semi_supervised_data import draw
from semi_supervised_entrants import BITS, ENTRANTS, LABELS, SEEDS, SETTINGS
from semi_supervised_runs import Key, Run, key, means, part_path, parts_of, read_runs
from semi_supervised_training import about, on_devices, train, warm_up

from pg_hashindex.hashers import HASHERS

OUTPUT = RESULTS / "semi_supervised.json"
QUICK_ROWS = 2_000


def plan(args: argparse.Namespace) -> list[Key]:
    """List the trainings; each of several processes gets its share of the table's cells.

    A cell has all methods, of which some take a hundred times as long as others. One seed comes
    after the other, so that there is a whole table as soon as can be.
    """
    entrants = [ENTRANTS[name] for name in args.methods if ENTRANTS[name].hasher in HASHERS]
    cells = [
        [
            (data, labels, entrant.name, bits, seed)
            for entrant in entrants
            if bits in entrant.bits(data) and (entrant.graph is not None) == given
        ]
        for given in (False, True)
        for seed in args.seeds
        for data in args.data
        for labels in LABELS[data]
        if args.labels is None or labels in args.labels
        for bits in args.bits
    ]
    number, parts = args.part
    return [place for cell in list(filter(None, cells))[number - 1 :: parts] for place in cell]


def runs(args: argparse.Namespace, known: dict[Key, Run]) -> Iterator[Run]:
    """Do the trainings of the plan that are not known yet, and yield each."""
    for place in plan(args):
        if args.fresh or place not in known or "error" in known[place]:
            data, labels, method, _, seed = place
            yield train(draw(args.folder, data, labels, seed, args.rows), ENTRANTS[method], place)


def report(found: dict[Key, Run], devices: dict[str, Any]) -> dict[str, Any]:
    """Return trainings in the order of the tables, with their means."""
    order = list(ENTRANTS)
    ordered = [found[k] for k in sorted(found, key=lambda k: (*k[:2], order.index(k[2]), *k[3:]))]
    return {"machine": about(), "results": means(ordered), "devices": devices, "runs": ordered}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=DATA_FOLDER, help="folder of the data sets")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--data", nargs="+", choices=LABELS, default=list(LABELS))
    parser.add_argument(
        "--labels", nargs="+", type=int, help="only these numbers of labels a class"
    )
    parser.add_argument("--bits", nargs="+", type=int, choices=BITS, default=BITS)
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--methods", nargs="+", choices=ENTRANTS, default=list(ENTRANTS))
    parser.add_argument(
        "--part", type=_part, default=(1, 1), metavar="1/2", help="part of the work"
    )
    parser.add_argument("--fresh", action="store_true", help="repeat saved trainings")
    parser.add_argument("--only-devices", action="store_true", help="only compare CPU and GPU")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROWS} rows, and another file")
    args = parser.parse_args()
    args.rows = QUICK_ROWS if args.quick else None
    args.output = args.output or (scratch("semi_supervised_quick.json") if args.quick else OUTPUT)
    return args


def _part(text: str) -> tuple[int, int]:
    number, _, parts = text.partition("/")
    if not (number.isdigit() and parts.isdigit() and 1 <= int(number) <= int(parts)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a part such as 1/2 or 2/2")
    return int(number), int(parts)


def main() -> None:
    args = arguments()
    if not (args.folder / "mnist_split.npz").exists():
        sys.exit(f"{args.folder} has no mnist_split.npz; name the folder with --folder")
    if missing := sorted({ENTRANTS[name].hasher for name in args.methods} - set(HASHERS)):
        print(f"left out, not registered: {', '.join(missing)}")
    made = {
        (data, name): made_with(ENTRANTS[name].method(data))
        for data in SETTINGS
        for name in SETTINGS[data]
    }
    devices = read(args.output).get("devices", {})
    others = parts_of(args.output)
    known = read_runs([args.output, *others], made)
    alone = args.part == (1, 1)
    # Other parts write their own results.
    own = args.output if alone else part_path(args.output, *args.part)
    ours = known if alone else read_runs([own], made)
    if not args.only_devices:
        warm_up()
        for run in runs(args, known):
            print(json.dumps(run), flush=True)
            ours[key(run)] = run
            write(own, report(ours, devices))
    if not alone:
        return
    if "speed_up" not in devices or args.fresh:
        new = on_devices(args.folder, args.rows)
        devices = new if "speed_up" in new else devices or new
    whole = report(ours, devices)
    write(args.output, whole)
    for path in others:
        path.unlink(missing_ok=True)
    print(args.output)


if __name__ == "__main__":
    main()
