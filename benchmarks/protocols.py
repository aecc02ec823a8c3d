"""Run the protocols of the papers' figures by `pg-hashindex bench hash`, one command a figure.

    OMP_NUM_THREADS=1 python benchmarks/protocols.py [FIGURE ...]

Each figure is written to `benchmarks/results/protocol_FIGURE.json`: its command, and what that
prints as JSON, with every third point of the curves. `docs/make_pictures.py` draws them.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from common import DATA_FOLDER, ROOT, machine

RESULTS = ROOT / "benchmarks/results"
_SGH = (
    "--methods sgh,itq,pcah,lsh,sh,agh-1=agh --param agh-1.n_layers=1 "
    "--truth nearest-fraction -k 100,1000"
)
_ANCHORS = "--param sgh.anchors=split --param agh-1.anchors=split"
# alpha within the bound that the paper gives.
_BOUNDED = (
    "--param s3plh-bounded.step=1 --param s3plh-bounded.step_by=rows "
    "--param s3plh-bounded.balance=false -k 100,500"
)
# The settings of the authors' program too, and all directions at once.
_S3PLH = (
    "--labelled --methods s3plh,s3plh-program=s3plh,s3plh-bounded=s3plh,ssh,sdh,pcah,sh,sikh,lsh "
    "--bits 12,16,24,32,48,64 "
    "--param s3plh-program.eta=0.005005005005005005 --param s3plh-program.step=1 "
    f"--param s3plh-program.step_by=data --param s3plh-program.balance=false {_BOUNDED}"
)
_S3PLH_MNIST = (
    "--labelled --methods s3plh,s3plh-bounded=s3plh,sdh,pcah,sh,sikh,lsh --bits 12,16,24,32,48,64 "
    + _BOUNDED
)
_C = "C=0.003,0.01,0.03"
#: The data set and the other options of each figure.
FIGURES = {
    "sgh_usps": ("usps", f"{_SGH} {_ANCHORS} --bits 32,64,128,256,512 --seeds 3"),
    "sgh_sift10k": ("sift10k", f"{_SGH} --bits 32,64,128,256,512 --seeds 3"),
    "sgh_mnist": ("mnist", f"{_SGH} {_ANCHORS} --bits 32,64,96,128,256"),
    "s3plh_usps": ("usps", _S3PLH),
    "s3plh_mnist": ("mnist", _S3PLH_MNIST),
    "usplh_sift10k": (
        "sift10k",
        "--methods usplh,pcah,sh,sikh,lsh --bits 12,16,24,32,48,64 --truth nearest-fraction "
        "-k 100,500 --seeds 3",
    ),
    "cghash_usps": (
        "usps",
        "--labelled 100 --methods k3=cghash,k10=cghash,k30=cghash,ksh,itq,lsh "
        + " ".join(f"--param k{k}.n_neighbours={k} --validate k{k}.{_C}" for k in (3, 10, 30))
        + " --bits 16,32,60 -k 50",
    ),
}


def measured() -> dict[str, dict[str, Any]]:
    """Read the figures that were run."""
    paths = {figure: RESULTS / f"protocol_{figure}.json" for figure in FIGURES}
    return {name: json.loads(path.read_text()) for name, path in paths.items() if path.exists()}


def run(figure: str, data: Path, scratch: Path) -> dict[str, Any]:
    """Run the command of a figure, and return what its file keeps."""
    name, options = FIGURES[figure]
    files = [data / f"{name}.npz", data / f"{name}_split.npz"]
    if name == "sift10k":
        files = _write_sift(data, scratch)
    command = f"pg-hashindex bench hash --data {name}.npz --split {name}_split.npz {options}"
    words = [*shlex.split(f"bench hash {options}"), "--json", "--data", files[0], "--split"]
    done = subprocess.run(
        [sys.executable, "-m", "pg_hashindex", *map(str, words), str(files[1])],
        stdout=subprocess.PIPE,
        check=True,
    )
    outcomes = [_thinned(outcome) for outcome in json.loads(done.stdout)]
    return {"data": name, "command": command, "machine": machine(), "outcomes": outcomes}


def _write_sift(data: Path, scratch: Path) -> list[Path]:
    """Write sift10k as a data set and its split; its queries are rows of the base."""
    with np.load(data / "sift10k.npz") as archive:
        base, queries = archive["base"], archive["neighbours"][:, 0]
    database = np.setdiff1d(np.arange(len(base)), queries)
    files = [scratch / "sift10k.npz", scratch / "sift10k_split.npz"]
    np.savez(files[0], X=base)
    np.savez(files[1], query=queries, database=database, train=database)
    return files


def _thinned(outcome: dict[str, Any]) -> dict[str, Any]:
    """Keep four digits of scores, and every third point of curves."""
    for scores in outcome.get("scores", {}).values():
        curve = scores.pop("curve")
        kept = sorted({*range(0, len(curve["at"]), 3), len(curve["at"]) - 1})
        scores.update({name: round(value, 4) for name, value in scores.items()})
        scores["curve"] = {
            part: [round(values[place], 4) for place in kept] for part, values in curve.items()
        }
    return outcome


def _text(found: dict[str, Any]) -> str:
    """Write one line for each outcome."""
    head = json.dumps({name: value for name, value in found.items() if name != "outcomes"})
    lines = ",\n".join(json.dumps(outcome) for outcome in found["outcomes"])
    return f'{head[:-1]}, "outcomes": [\n{lines}\n]}}\n'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=", ".join(FIGURES))
    parser.add_argument("--data", type=Path, default=DATA_FOLDER)
    args = parser.parse_args()
    if unknown := set(args.figures) - set(FIGURES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known are {', '.join(FIGURES)}")
    for figure in args.figures or FIGURES:
        with tempfile.TemporaryDirectory(prefix="protocols-") as scratch:
            found = run(figure, args.data, Path(scratch))
        path = RESULTS / f"protocol_{figure}.json"
        path.write_text(_text(found))
        print(f"wrote {path}", flush=True)


if __name__ == "__main__":
    main()
