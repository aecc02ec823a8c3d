"""One training of `semi_supervised.py`: its seconds, and the score of its codes."""

from pathlib import Path
from typing import Any

import numpy as np
from common import machine, made_with
from semi_supervised_data import DataSet, draw
from semi_supervised_entrants import ENTRANTS, Entrant
from semi_supervised_runs import COSTS, NAMES, SCORE, Key, Run
from threadpoolctl import threadpool_info

from pg_hashindex.hashers import make_hasher
from pg_hashindex.papers import Measures, Truth, compare

try:
    # Import before any training, so that no training is timed with it.
    import torch
except ImportError:
    torch = None

LABEL, TOP = Truth("label"), 5_000
# The training for both devices, and its repetitions; the best counts.
ON_DEVICES: Key = ("mnist", 50, "bgdh-i", 32, 0)
TRAININGS = 2


def train(drawn: DataSet, entrant: Entrant, place: Key, **others: Any) -> Run:
    """Train once, and score the codes of all queries.

    ``place``: Data set, labels a class, method, bits and seed. ``**others``: Parameters that
    replace those of the settings.

    Returns: With ``error`` where it failed.
    """
    data, _, _, bits, seed = place
    method = entrant.method(data, **others)
    run: Run = dict(zip(NAMES, place, strict=True)) | made_with(method)
    top = min(TOP, len(drawn.split.database))
    # The codes of the hash function, or those of a transductive training, come first.
    outcome = next(
        compare(
            entrant.split(drawn, method, bits, seed),
            [method],
            [bits],
            truths=[LABEL],
            measures=Measures(top=(top,)),
            random_state=seed,
            memory=False,
        )
    )
    if outcome.error is not None:
        return run | {"error": outcome.error}
    labelled = drawn.split.labelled
    return run | {
        "rows": len(drawn.split.database),
        "labelled_rows": 0 if labelled is None else len(labelled),
        "train_rows": outcome.train_rows,
        "threads": threads(),
        "scores": {SCORE: round(outcome.scores[LABEL.name].values[f"MAP@{top}"], 5)},
        **{name: round(getattr(outcome, name), 3) for name in COSTS},
    }


def warm_up() -> None:
    """Train once untimed, since torch loads parts of itself late."""
    rows = np.random.default_rng(0).random((200, 8))
    if torch is not None:
        make_hasher("dpsh", n_bits=8, rounds=1, device="cpu").fit(rows, np.arange(200) % 2)


def threads() -> int:
    """Return how many threads a training may use at a time."""
    pools = [pool["num_threads"] for pool in threadpool_info()]
    return max([1, *pools, *([] if torch is None else [torch.get_num_threads()])])


def about() -> dict[str, Any]:
    """Describe the machine that the times were taken on."""
    return machine() | {"torch": None if torch is None else torch.__version__}


def on_devices(folder: Path, most: int | None) -> dict[str, Any]:
    """Train one model on the processor and on a GPU, if there is one.

    ``folder``: Of the data sets. ``most``: Rows of the database to take instead of all.

    Returns: With ``speed_up``, the wall seconds of one divided by those of the other; or
    ``skipped``, which says why there is none.
    """
    if torch is None or not torch.cuda.is_available():
        return {"skipped": "no GPU on the machine of this run"}
    data, labels, method, _, seed = ON_DEVICES
    drawn = draw(folder, data, labels, seed, most)
    found: dict[str, Any] = dict(zip(NAMES, ON_DEVICES, strict=True)) | {
        "gpu": torch.cuda.get_device_name(),
        "threads": threads(),
        "machine": about(),
    }
    for device in ("cuda", "cpu"):
        # The first training starts the GPU and loads its kernels.
        trained = [
            train(drawn, ENTRANTS[method], ON_DEVICES, device=device) for _ in range(TRAININGS)
        ]
        if failed := [run["error"] for run in trained if "error" in run]:
            return {"skipped": f"training on {device} failed: {failed[0]}"}
        best = min(trained, key=lambda run: float(run["train_wall_s"]))
        found[device] = best["scores"] | {name: best[name] for name in COSTS}
    seconds = {device: found[device]["train_wall_s"] for device in ("cpu", "cuda")}
    return found | {"speed_up": round(seconds["cpu"] / seconds["cuda"], 2)}
