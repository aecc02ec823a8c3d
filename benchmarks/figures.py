"""Measure every figure of README and docs, part after part, alone on the machine.

``python benchmarks/figures.py`` runs the parts whose code or script has changed since they were
measured; ``--list`` shows them. A part ends after 40 minutes at the latest; call it again to
continue.
`figures.json` keeps how each part was measured. The tables are then written by `tables.py`.
"""

import hashlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import common
import functions
from common import (
    DATA_FOLDER,
    PAPERS,
    RESULTS,
    ROOT,
    circumstances,
    machine,
    machine_seconds,
    parser,
)
from retrieval_data import draw

from pg_hashindex.papers.figures import FIGURES

MARKS = RESULTS / "figures.json"
#: Code that a part measures, beside its script: sets that are built, written and searched; scores
#: of methods; or commands.
SETS = (
    "alembic",
    "sql",
    # These are of commands alone.
    *(f":(exclude)sql/queries/{name}.sql" for name in ("doctor", "quickstart")),
    *(f"pg_hashindex/{room}" for room in ("db", "hashers", "index", "models", "training")),
)
SCORES = ("pg_hashindex/hashers", "pg_hashindex/metrics", "pg_hashindex/papers")
COMMANDS = ("pg_hashindex", "cli", "sql", "alembic")
MOST_SECONDS = 40 * 60
#: The most that others may take of a core, and the seconds for which they are watched.
BUSY, WATCHED = 0.1, 5.0
#: The most time that a code may take, over that on the machine of the pages' figures.
SLOW = 1.3
MEMORY_SYSTEMS = (
    "hnsw", "exact", "hnsw-halfvec", "hnsw-signs", "hnsw-centred-signs", "hnsw-code", "ivfflat",
    "ours",
)  # fmt: skip


@dataclass(frozen=True)
class Part:
    """A command that measures, and the files that it writes.

    Parameters
    ----------
    command
        A script of this folder and its arguments, or of ``pg-hashindex``. A word in capitals stands
        for the value of an environment variable, such as the address of a Citus cluster.
    file
        Without ``.json``; several parts may write into one.
    first
        An option for the first run with this code, of scripts that keep what they find in the file.
    code
        What it measures, as pathspecs of git; a part is run again once a file of it has changed.
    """

    name: str
    command: str
    file: str
    first: str = ""
    code: Sequence[str] = SETS

    @property
    def missing(self) -> list[str]:
        """The environment variables that it needs and that are not set."""
        return [w for w in shlex.split(self.command) if w.isupper() and w not in os.environ]

    @property
    def script(self) -> str:
        """The hash of its script, as git has it; a part is run again once that has changed."""
        path = ROOT / "benchmarks" / self.command.split()[0]
        if not path.exists():
            return ""
        content = path.read_bytes()
        return hashlib.sha1(b"blob %d\0%b" % (len(content), content)).hexdigest()[:12]

    @property
    def measures(self) -> str:
        """The hash of the code that it measures, as committed."""
        files = subprocess.run(
            ["git", "ls-files", "--stage", "--", *self.code],
            cwd=ROOT, capture_output=True, check=True,
        ).stdout  # fmt: skip
        return hashlib.sha1(files).hexdigest()[:12]

    def is_measured(self, mark: dict[str, Any]) -> bool:
        """Return whether a run with this code and this script has ended."""
        made = mark.get("code"), mark.get("script"), mark.get("ended")
        return made == (self.measures, self.script, True)

    def arguments(self, *, first: bool) -> list[str]:
        words = shlex.split(f"{self.command} {self.first if first else ''}")
        script, *others = (os.environ[word] if word.isupper() else word for word in words)
        if script == "pg-hashindex":
            return [sys.executable, "-m", "pg_hashindex", *others]
        return [sys.executable, str(ROOT / "benchmarks" / script), *others]


def _simple(*names: str, code: Sequence[str] = SETS) -> list[Part]:
    return [Part(name, f"{name}.py", name, code=code) for name in names]


def _retrieval(data: str, options: str = "") -> Part:
    command = f"retrieval.py --data {data} {options}".strip()
    return Part(f"retrieval {data}", command, f"retrieval_{data}")


def _memory(data: str, systems: Sequence[str] = MEMORY_SYSTEMS) -> list[Part]:
    return [
        Part(
            f"memory {data} {system}",
            f"memory.py --data {data} --systems {system}",
            f"memory_{data}",
        )
        for system in systems
    ]


def _scale() -> list[Part]:
    return [
        Part(f"scale {rows}", f"scale.py --rows {rows}", "scale", first="--again")
        for rows in ("1e6", "1e7")
    ]


PARTS: list[Part] = [
    *_memory("synthetic-300k"),
    Part("functions", "functions.py", "functions_synthetic-300k", first="--again"),
    _retrieval("synthetic-300k"),
    Part("names", "names.py", "names", first="--again"),
    *(
        Part(f"wide {data}", f"wide.py --data {data}", "wide")
        for data in ("pypi768", "pypi768-halfvec", "pypi1536", "pypi3072")
    ),
    *_memory("pypi768", ("hnsw", "hnsw-halfvec", "hnsw-code", "ours")),
    *_memory("pypi768-halfvec", ("hnsw", "hnsw-code")),
    *(
        _retrieval(data, "--builds 1")
        for data in ("packages", "dims-512", "dims-1536", "synthetic-1m")
    ),
    *_simple("tenants", "writes", "dimensions", "cuts", "faiss_codes", "hybrid"),
    *_simple("near_duplicates", "start", "reliability", "labels", code=COMMANDS),
    Part("decisions", "decisions.py --queries 100", "decisions", first="--again", code=COMMANDS),
    *_scale(),
    Part("citus", "citus.py CITUS_URL --shards 0 8", "citus", first="--again"),
    Part("ann-benchmarks", "ann_benchmarks/run.py ANN_BENCHMARKS", "ann_benchmarks"),
    Part("vectordbbench", "vectordbbench/run.py", "vectordbbench"),
    *(
        Part(name, f"papers.py {name}", name, code=SCORES)
        for name in ("hashing", "presets", "defaults")
    ),
    *(
        Part(
            f"papers {name}",
            f"pg-hashindex bench paper {figure.paper} --figure {name} "
            f"--data {shlex.quote(str(DATA_FOLDER))} --output {PAPERS.relative_to(ROOT)}",
            f"papers/{name}",
            code=SCORES,
        )
        for name, figure in FIGURES.items()
    ),
]  # fmt: skip


def require_committed() -> None:
    """Refuse to measure what is not committed: such a figure belongs to no commit."""
    changed = subprocess.run(
        ["git", "status", "--porcelain", "--", *COMMANDS],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    if changed:
        sys.exit(f"commit these changes first, or a figure belongs to no commit:\n{changed}")


def busy_cores(seconds: float = WATCHED) -> float:
    """Return the cores that all processes of the machine take while this one sleeps."""
    before, began = machine_seconds(), time.monotonic()
    time.sleep(seconds)
    return (machine_seconds() - before) / (time.monotonic() - began)


def slowness() -> float:
    """Return the time that a code takes here over that on the machine of the pages' figures.

    A virtual machine shares caches and memory with others, whose work its own load does not show;
    ratios of searches, builds and writes move by half then.
    """
    known = common.read(RESULTS / "functions_synthetic-300k.json").get("price")
    if known is None:
        return 1.0
    now = functions.price(draw(DATA_FOLDER, "packages", 10, most=21_000))
    code = "thermometer, 3 cuts"
    return round(float(now["384"][code] / known["384"][code]), 2)


def run(part: Part, marks: dict[str, Any], *, anyway: bool, slow: float) -> bool:
    """Run a part and keep how; return whether it ended."""
    others = busy_cores()
    if others > BUSY and not anyway:
        sys.exit(
            f"other processes take {others:.2f} of a core, and would be in the figures: "
            "wait for them, or measure with --anyway, which marks the part"
        )
    now = part.measures
    mark: dict[str, Any] = {
        "command": part.command,
        "file": part.file,
        "code": now,
        "script": part.script,
    }
    mark["ended"] = False
    mark |= circumstances() | {"machine": machine(), "others": round(others, 2)}
    mark["slowness"] = slow
    began = time.monotonic()
    print(f"{time.strftime('%H:%M:%S')} {part.name}", flush=True)
    before = marks.get(part.name, {})
    first = (before.get("code"), before.get("script")) != (now, part.script)
    # Ctrl-C would reach it twice otherwise, and cut off how it ends.
    running = subprocess.Popen(part.arguments(first=first), cwd=ROOT, start_new_session=True)
    try:
        mark["ended"] = running.wait(MOST_SECONDS) == 0
    except (subprocess.TimeoutExpired, KeyboardInterrupt) as error:
        # It stops its server then.
        running.send_signal(signal.SIGINT)
        running.wait()
        if isinstance(error, KeyboardInterrupt):
            raise
        print(f"{part.name}: cut off after {MOST_SECONDS // 60} minutes; call again to continue")
    mark["minutes"] = round((time.monotonic() - began) / 60, 1)
    marks[part.name] = mark
    common.write(MARKS, marks)
    return bool(mark["ended"])


def main() -> None:
    asked = parser(__doc__ or "")
    asked.add_argument("parts", nargs="*", help="beginnings of names; all by default")
    asked.add_argument("--list", action="store_true", help="show the parts, and run none")
    asked.add_argument("--anyway", action="store_true", help="on a busy or slow machine too")
    args = asked.parse_args()
    chosen = [p for p in PARTS if not args.parts or p.name.startswith(tuple(args.parts))]
    if not chosen:
        sys.exit(f"no part begins with {', '.join(args.parts)}: --list shows them")
    require_committed()
    marks = common.read(MARKS)
    left = [part for part in chosen if not part.is_measured(marks.get(part.name, {}))]
    if args.list:
        for part in chosen:
            print(f"{'to do' if part in left else 'done ':5}  {part.name:40}  {part.command}")
        return
    # A shell that starts this in the background has it ignore the signal that ends a part.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    slow = 1.0 if all(part.missing for part in left) else slowness()
    if slow > SLOW and not args.anyway:
        sys.exit(
            f"a code takes {slow:g} times as long as where the figures of the pages were measured: "
            "take another machine or hour, or measure with --anyway, which marks the parts"
        )
    failed = []
    for part in left:
        if part.missing:
            print(f"{part.name}: left out, since {', '.join(part.missing)} is not set")
        elif not run(part, marks, anyway=args.anyway, slow=slow):
            failed.append(part.name)
    if failed:
        sys.exit(f"did not end: {', '.join(failed)}")


if __name__ == "__main__":
    main()
