"""The figures and tables of the five papers, each a comparison of methods on one data set.

`figures_of` names the figures of a paper. Two are not comparisons; `papers.pictures` makes those.
"""

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from ..quality.scores import Measures
from ..training.array_files import ArrayFile
from .comparison import Comparison, Tell
from .loading import load_split
from .outcomes import Outcome
from .splits import ROW_NUMBERS, Truth

if TYPE_CHECKING:
    from .pictures import FeatureMap, Retrieved

Paper = Literal["sgh", "cghash", "bgdh", "sadih", "s3plh"]

#: The arrays of each data set, by the name of the file. The row numbers of a split stand in a file
#: of their own.
DATA: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "mnist": {"mnist.npz": ("X", "y"), "mnist_split.npz": tuple(ROW_NUMBERS)},
    "usps": {"usps.npz": ("X", "y"), "usps_split.npz": tuple(ROW_NUMBERS)},
    "sift10k": {"sift10k.npz": ("base", "neighbours")},
    "packages": {"packages.npz": ("X", "section")},
}
# Rows of a quick run, which shows that a figure can be made, not what it says.
_QUICK_QUERIES, _QUICK_ROWS = 100, 2_000


@dataclass(frozen=True)
class Figure:
    """A figure or table of a paper, rerun on one data set.

    Parameters
    ----------
    paper
        The paper, by its method.
    original
        Its number in the paper.
    data
        A key of `DATA`.
    compared
        The comparison; or the function of `papers.pictures` that makes the figure.
    rows
        If given, this number of first training rows is the whole database: the figure then takes
        minutes, and methods that keep the codes of their training rows have those too. With several
        splits, these are drawn from that number of first queries and training rows.
    """

    paper: Paper
    original: str
    data: str
    compared: Comparison | Literal["measure_feature_map", "retrieve"]
    rows: int | None = None

    @property
    def splits(self) -> int:
        """How many random splits it is the mean of; with one, it has the split of its data."""
        return self.compared.splits if isinstance(self.compared, Comparison) else 1

    @property
    def command(self) -> str | None:
        """The command line of ``bench hash`` that makes it, for files in the current folder."""
        if not isinstance(self.compared, Comparison):
            return None
        name = self.data if self.rows is None else f"{self.data}-{self.rows}"
        split = f"--split {name}_split.npz" if self.splits == 1 else f"--splits {self.splits}"
        return f"pg-hashindex bench hash --data {name}.npz {split} {self.compared.options}"

    def run(
        self, folder: Path, *, quick: bool = False, kept: Path | None = None, tell: Tell = print
    ) -> "list[Outcome] | FeatureMap | Retrieved":
        """Make the figure.

        Parameters
        ----------
        folder
            Where the files of `DATA` lie.
        quick
            On 100 queries, and 2,000 rows of database and training, with one seed.
        kept
            As `Comparison.run` takes it.
        """
        with tempfile.TemporaryDirectory(prefix="pg_hashindex-") as scratch:
            files = self.files(folder, Path(scratch), quick=quick)
            if isinstance(self.compared, Comparison):
                compared = _quick(self.compared) if quick else self.compared
                return compared.run(*files, kept=kept, tell=tell)
            # They load hashers, which no other figure needs before its work.
            from . import pictures

            found: FeatureMap | Retrieved = getattr(pictures, self.compared)(load_split(*files))
            return found

    def as_json(self, found: "list[Outcome] | FeatureMap | Retrieved") -> str:
        """Return what `run` returned as JSON, an outcome a line: what pages and pictures need.

        Scores have four digits, and curves every third point.
        """
        if not isinstance(found, list):
            return f"{json.dumps({'data': self.data, **found.values}, indent=1)}\n"
        head = json.dumps({"data": self.data, "command": self.command})
        lines = ",\n".join(json.dumps(_shortened(outcome.as_dict())) for outcome in found)
        return f'{head[:-1]}, "outcomes": [\n{lines}\n]}}\n'

    def files(self, folder: Path, scratch: Path, *, quick: bool = False) -> list[Path]:
        """Write the data set, and its split where it is not drawn, as ``bench hash`` reads them.

        They lie in ``scratch`` where the files of the folder do not serve as they are.

        Raises
        ------
        InvalidInputError
            If a file or one of its arrays is missing.
        """
        self.check(folder)
        rows = _QUICK_ROWS if quick else self.rows
        if self.data in ("mnist", "usps") and rows is None:
            return [folder / name for name in DATA[self.data]][: 2 if self.splits == 1 else 1]
        arrays, numbers = read_data(self.data, folder)
        path = scratch / f"{self.data}.npz"
        if self.splits > 1:
            kept = np.concatenate([numbers["query"], numbers["train"]])[:rows]
            np.savez(path, allow_pickle=False, **{name: a[kept] for name, a in arrays.items()})
            return [path]
        if rows is not None:
            numbers = fewer(numbers, rows)
        if quick:
            numbers["query"] = numbers["query"][:_QUICK_QUERIES]
        split = scratch / f"{self.data}_split.npz"
        np.savez(path, allow_pickle=False, **arrays)
        np.savez(split, allow_pickle=False, **numbers)
        return [path, split]

    def check(self, folder: Path) -> None:
        """Refuse a folder that lacks a file of the data set, or an array in it."""
        for name, needed in DATA[self.data].items():
            try:
                missing = set(needed) - set(ArrayFile(folder / name).shapes)
            except InvalidInputError as error:
                raise InvalidInputError(f"{error}; it needs {', '.join(needed)}") from error
            if missing:
                raise InvalidInputError(
                    f"{folder / name} has no array {', '.join(sorted(missing))}; "
                    f"it needs {', '.join(needed)}"
                )


_NEAREST = (Truth("nearest-fraction", 0.02),)
_TO_512 = (32, 64, 128, 256, 512)
_FIRST_1000 = Measures((100, 1000))


def _named(text: str) -> dict[str, str]:
    """Return hashers by the names of their lines, from words such as ``itq`` or ``mine=itq``."""
    pairs = (word.partition("=") for word in text.split())
    return {name: hasher or name for name, _, hasher in pairs}


_SGH = Comparison(
    _named("sgh itq pcah lsh sh agh-1=agh"),
    {"agh-1": {"n_layers": 1}},
    bits=_TO_512,
    truths=_NEAREST,
    measures=_FIRST_1000,
    seeds=3,
)
_ANCHORED = replace(
    _SGH, parameters={"sgh": {"anchors": "split"}, "agh-1": {"n_layers": 1, "anchors": "split"}}
)
# The settings of the authors' program, steps within the bound of the paper, and `ssh` beside.
_S3PLH = Comparison(
    _named("s3plh s3plh-program=s3plh s3plh-bounded=s3plh ssh sdh pcah sh sikh lsh"),
    {
        "s3plh-program": {"eta": 0.005005005005005005, "step": 1, "step_by": "data"}
        | {"balance": False},
        "s3plh-bounded": {"step": 1, "step_by": "rows", "balance": False},
    },
    bits=(12, 16, 24, 32, 48, 64),
    measures=Measures((100, 500)),
    rows={"labelled": "labelled"},
)
_USPLH = Comparison(
    _named("usplh pcah sh sikh lsh"),
    bits=(12, 16, 24, 32, 48, 64, 96, 128),
    truths=_NEAREST,
    measures=Measures((100, 500)),
    seeds=3,
)
_NEIGHBOURS = (3, 10, 20, 30)
_CGHASH = Comparison(
    {f"k{k}": "cghash" for k in _NEIGHBOURS} | _named("ksh itq lsh"),
    {f"k{k}": {"n_neighbours": k} for k in _NEIGHBOURS},
    {f"k{k}": {"C": [0.003, 0.01, 0.03]} for k in _NEIGHBOURS},
    bits=(16, 32, 60),
    measures=Measures((50,)),
    rows={"labelled": 100},
)
_RIVALS = Comparison(
    _named("cghash sth sbre agh s3plh sh itq lsh"), bits=(16, 32, 60), measures=Measures((50,))
)
# FastH takes too long for the others.
_WITH_FASTH = replace(
    _RIVALS, methods=_named("cghash fasth sth sbre agh s3plh sh itq lsh"), splits=5
)
_BGDH = Comparison(
    _named("bgdh ssdh dpsh dhn deep-dsh sdh lfh fasth cosdish s3plh itq lsh isohash sph"),
    bits=(12, 32),
    measures=Measures((100,), top=(5000,)),
    splits=3,
)
# And networks as they start.
_START = {"rounds": 1, "learning_rate": 1e-9}
_BGDH_50 = replace(
    _BGDH,
    methods={**_BGDH.methods, "ssdh-start": "ssdh", "dhn-start": "dhn"},
    parameters={"ssdh-start": _START, "dhn-start": _START},
    rows={"labelled": 50},
)
# With 58 classes few pairs share one. Without decay DPSH learns its labelled rows by heart; each
# method has the decay that suits it best, found on other rows.
_MANY_CLASSES = {
    "normalize": "l2",
    "validation": 0.0,
    "batch_rows": 256,
    "rounds": 100,
    "pairwise_loss": "balanced",
    "theta_scale": 0.25,
}
_BGDH_20 = replace(
    _BGDH,
    methods=_named("bgdh dpsh sdh s3plh itq"),
    parameters={
        "bgdh": {
            **_MANY_CLASSES,
            "hidden": [512],
            "embedding_size": 256,
            "walk_length": 2,
            "pretrain": 300,
            "batch_contexts": 2048,
            "weight_decay": 1.0,
        },
        "dpsh": {**_MANY_CLASSES, "weight_decay": 2.0},
    },
    bits=(32,),
    rows={"labelled": 20},
)
_OF_TEXT = {"hash_function": "encoder", "balance": False, "start": "random"}
_SADIH = Comparison(
    _named(
        "l1=sadih l21=sadih l1-paper=sadih l21-paper=sadih itq sgh dsh itq-cca ksh lfh cosdish sdh "
        "fsdh"
    ),
    {"l21": {"loss": "l21"}, "l1-paper": _OF_TEXT, "l21-paper": {"loss": "l21", **_OF_TEXT}},
    bits=(8, 16, 32, 64, 96, 128),
    measures=_FIRST_1000,
)
# FastH and LSH are left out, to save time.
_BGDH_PACKAGES = replace(
    _BGDH_50,
    methods={name: h for name, h in _BGDH_50.methods.items() if h not in ("fasth", "lsh")},
)
#: The figures, by the names of their results.
FIGURES: Mapping[str, Figure] = {
    "sgh_map_usps": Figure("sgh", "Figure 1", "usps", "measure_feature_map"),
    "sgh_map_mnist": Figure("sgh", "Figure 1", "mnist", "measure_feature_map"),
    "sgh_map_sift10k": Figure("sgh", "Figure 1", "sift10k", "measure_feature_map"),
    "sgh_usps": Figure("sgh", "Table 1", "usps", _ANCHORED),
    "sgh_sift10k": Figure("sgh", "Table 1", "sift10k", _SGH),
    "sgh_mnist": Figure(
        "sgh", "Table 1", "mnist", replace(_ANCHORED, bits=(32, 64, 96, 128, 256), seeds=1)
    ),
    "s3plh_usps": Figure("s3plh", "Figure 3", "usps", _S3PLH),
    "s3plh_mnist": Figure("s3plh", "Figure 3", "mnist", _S3PLH),
    "usplh_sift10k": Figure("s3plh", "Figure 6", "sift10k", _USPLH),
    "cghash_usps": Figure("cghash", "Figure 7", "usps", _CGHASH),
    "cghash_rivals_usps": Figure("cghash", "Figure 5", "usps", _WITH_FASTH),
    "cghash_rivals_mnist": Figure(
        "cghash", "Figure 3", "mnist", replace(_RIVALS, splits=3), rows=11_000
    ),
    "cghash_rivals_packages": Figure(
        "cghash", "Figures 1, 2", "packages", replace(_RIVALS, splits=3), rows=11_000
    ),
    "cghash_retrieved_mnist": Figure("cghash", "Figure 8", "mnist", "retrieve"),
    "cghash_retrieved_usps": Figure("cghash", "Figure 8", "usps", "retrieve"),
    "bgdh_500": Figure("bgdh", "Table 2", "usps", replace(_BGDH, rows={"labelled": 500})),
    "bgdh_250": Figure("bgdh", "Table 3", "usps", replace(_BGDH, rows={"labelled": 250})),
    "bgdh_50": Figure("bgdh", "Table 3", "usps", _BGDH_50),
    "bgdh_packages": Figure("bgdh", "Table 3", "packages", _BGDH_PACKAGES, rows=11_000),
    "bgdh_mnist_500": Figure(
        "bgdh", "Table 2", "mnist", replace(_BGDH, rows={"labelled": 500}), rows=11_000
    ),
    "bgdh_mnist_250": Figure(
        "bgdh", "Table 3", "mnist", replace(_BGDH, rows={"labelled": 250}), rows=11_000
    ),
    "bgdh_mnist_50": Figure(
        "bgdh", "Table 3", "mnist", replace(_BGDH, rows={"labelled": 50}), rows=11_000
    ),
    "bgdh_packages_20": Figure("bgdh", "Table 3", "packages", _BGDH_20, rows=11_000),
    "sadih_usps": Figure("sadih", "Table 1", "usps", _SADIH),
    "sadih_packages": Figure("sadih", "Table 1", "packages", _SADIH, rows=10_000),
}


def _shortened(outcome: dict[str, Any]) -> dict[str, Any]:
    for deviation in outcome.get("standard_deviation", {}).get("scores", {}).values():
        deviation.update({name: round(value, 4) for name, value in deviation.items()})
    for scores in outcome.get("scores", {}).values():
        curve = scores.pop("curve")
        kept = sorted({*range(0, len(curve["at"]), 3), len(curve["at"]) - 1})
        scores.update({name: round(value, 4) for name, value in scores.items()})
        scores["curve"] = {
            part: [round(values[place], 4) for place in kept] for part, values in curve.items()
        }
    return outcome


def _quick(compared: Comparison) -> Comparison:
    """Return a comparison with one seed, and measures of no more rows than there are."""
    # A tenth are the queries, where the split is drawn.
    rows = _QUICK_ROWS if compared.splits == 1 else _QUICK_ROWS * 9 // 10
    top = tuple(min(n, rows) for n in compared.measures.top)
    return replace(compared, seeds=1, splits=1, measures=replace(compared.measures, top=top))


def figures_of(paper: Paper, names: tuple[str, ...] = ()) -> dict[str, Figure]:
    """Return the figures of a paper, or some of them by name.

    Raises
    ------
    InvalidInputError
        If a name is unknown, or of another paper.
    """
    known = {name: figure for name, figure in FIGURES.items() if figure.paper == paper}
    if unknown := [name for name in names if name not in known]:
        raise InvalidInputError(
            f"{unknown[0]!r} is not a figure of {paper}; these are {', '.join(known)}"
        )
    return {name: known[name] for name in names} if names else known


def read_data(data: str, folder: Path) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    """Return rows and labels by the names of ``bench hash``, and the row numbers of the split."""
    found: dict[str, NDArray[Any]] = {}
    for name, needed in DATA[data].items():
        found |= {array: ArrayFile(folder / name).read(array) for array in needed}
    if data == "sift10k":
        # The queries are rows of the base: each is its own first neighbour.
        query = found["neighbours"][:, 0]
        database = np.setdiff1d(np.arange(len(found["base"])), query)
        return {"X": found["base"]}, {"query": query, "database": database, "train": database}
    if data == "packages":
        order = np.random.default_rng(0).permutation(len(found["X"]))
        query, database = np.sort(order[:1_000]), np.sort(order[1_000:])
        numbers = {"query": query, "database": database, "train": np.sort(order[1_000:11_000])}
        return {"X": found["X"], "y": found["section"]}, numbers
    return {name: found[name] for name in ("X", "y")}, {name: found[name] for name in ROW_NUMBERS}


def fewer(numbers: Mapping[str, NDArray[Any]], rows: int) -> dict[str, NDArray[Any]]:
    """Make the first training rows the database; places among them keep their meaning."""
    train = numbers["train"][:rows]
    kept = {"query": numbers["query"], "database": np.sort(train), "train": train}
    places = {name: numbers[name] for name in ("anchors", "labelled") if name in numbers}
    return kept | {name: array[array < rows] for name, array in places.items()}
