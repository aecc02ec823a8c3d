"""The methods of `papers.py`: settings, seeds, bits, and the names of the reference."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Literal

from pg_hashindex.hashers import Preset
from pg_hashindex.papers import Method

Parameters = dict[str, Any]
DEEP = ("dpsh", "deep-dsh")
# CGHash and its rivals are measured with 60 bits.
_BOTH = {"mnist": (32, 64), "usps": (32, 64)}
_WITH_60 = {"mnist": (32, 60, 64), "usps": (32, 60, 64)}
_CGHASH = {"mnist": (32, 60), "usps": (32, 60)}
_SIFT = {"sift10k": (24, 32, 48)}
_PACKAGES = {"packages": (32, 64)}


def _anchors(count: int, **others: Any) -> dict[str, Any]:
    """Take the first anchors of the split as kernel bases."""
    return {"anchors": "split", "n_anchors": count, **others}


@dataclass(frozen=True)
class Entrant:
    """A method and its settings here."""

    name: str
    seeds: int
    bits: dict[str, tuple[int, ...]]
    #: Its name in reference_scores.csv.
    reference: str = ""
    hasher: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    #: Whether it learns from the whole database, not from the training rows.
    on_database: bool = False
    labels: Literal["all", "labelled"] = "all"
    preset: Preset = "default"

    @property
    def method(self) -> Method:
        """The method for the comparison."""
        hasher = self.hasher or self.name
        return Method(hasher, self.parameters, self.name, self.labels, preset=self.preset)


_KERNEL = _anchors(1000, normalize="l2")
_CPU = {"device": "cpu"}

ENTRANTS = {
    entrant.name: entrant
    for entrant in (
        Entrant("lsh", 20, _WITH_60 | _SIFT, "LSH"),
        Entrant("pcah", 1, _BOTH | _SIFT, "PCAH"),
        Entrant("itq", 5, _WITH_60 | _PACKAGES, "ITQ"),
        Entrant("isohash", 3, _BOTH),
        Entrant("sph", 3, _BOTH),
        Entrant("dsh", 3, _BOTH),
        Entrant("bre", 3, _BOTH),
        # As in its paper, linear; then with a kernel.
        Entrant("sth", 3, _BOTH),
        Entrant("sth-kernel", 3, _BOTH, hasher="sth", parameters=_anchors(1000)),
        Entrant("sgh", 5, _BOTH, "SGH", parameters=_anchors(300)),
        Entrant("sikh", 5, _BOTH),
        Entrant("sh", 1, _WITH_60 | _SIFT, "SH"),
        Entrant("agh", 3, _WITH_60),
        Entrant("agh-1", 3, _WITH_60, "AGH1", hasher="agh", parameters=_anchors(300, n_layers=1)),
        Entrant("usplh", 1, _BOTH | _SIFT),
        Entrant("dgh", 3, _BOTH),
        Entrant("dgh-i", 3, _BOTH, hasher="dgh", parameters={"start": "eigenvectors"}),
        Entrant("usplh-paper", 1, _BOTH | _SIFT, hasher="usplh", preset="paper"),
        Entrant("usplh-program", 1, _BOTH | _SIFT, "USPLH_c500", hasher="usplh", preset="program"),
        # Only the 1,000 labelled rows of the split have labels here.
        Entrant("s3plh", 1, _WITH_60, "S3PLH", labels="labelled"),
        Entrant("ssh", 1, _BOTH, labels="labelled"),
        Entrant(
            "s3plh-program", 1, _BOTH, "S3PLH", hasher="s3plh", preset="program", labels="labelled"
        ),
        Entrant("itq-cca", 5, _BOTH),
        Entrant("sbre", 3, _BOTH),
        Entrant("ksh", 3, _BOTH, parameters=_anchors(300)),
        Entrant("sdh", 3, _BOTH | _PACKAGES, "SDH", parameters=_KERNEL),
        Entrant(
            "sdh-program", 3, _BOTH, "SDH", hasher="sdh", preset="program",
            parameters=_anchors(1000),
        ),
        Entrant("fsdh", 3, _BOTH, parameters=_KERNEL),
        # As in their papers, linear; then with the kernel that SDH has.
        Entrant("lfh", 3, _BOTH),
        Entrant("lfh-kernel", 3, _BOTH, hasher="lfh", parameters=_KERNEL),
        Entrant("cosdish", 3, _BOTH, "COSDISH"),
        Entrant("cosdish-kernel", 3, _BOTH, hasher="cosdish", parameters=_KERNEL),
        Entrant("fasth", 3, _BOTH),
        Entrant("cghash", 3, _CGHASH),
        Entrant("sadih-l1", 3, _BOTH, hasher="sadih", parameters=_KERNEL | {"loss": "l1"}),
        Entrant("sadih-l21", 3, _BOTH, hasher="sadih", parameters=_KERNEL | {"loss": "l21"}),
        # Shows how much SADIH gains from its start: if classes have equal sizes, no step changes
        # spread codewords, and SDH from the same start has the same codes.
        Entrant("sdh-spread", 3, _BOTH, hasher="sdh", parameters=_KERNEL | {"start": "spread"}),
        Entrant(
            "sadih-l1-random", 3, _BOTH, hasher="sadih",
            parameters=_KERNEL | {"loss": "l1", "start": "random"},
        ),
        Entrant(
            "sadih-l1-paper", 3, _BOTH, hasher="sadih", preset="paper",
            parameters=_KERNEL | {"loss": "l1"},
        ),
        Entrant(
            "sadih-l21-paper", 3, _BOTH, hasher="sadih", preset="paper",
            parameters=_KERNEL | {"loss": "l21"},
        ),
        # Trained on the whole database, with its codes both hashed and as learned.
        Entrant(
            "sadih-l1-all", 3, {"mnist": (32,)}, hasher="sadih", on_database=True,
            parameters=_KERNEL | {"loss": "l1"},
        ),
        # With all labels, and with those of the 1,000 labelled rows of the split; BGDH is for few.
        *(Entrant(name, 3, _BOTH | _PACKAGES, parameters=_CPU) for name in DEEP),
        *(
            Entrant(
                f"{name}-1000", 3, _BOTH | _PACKAGES, hasher=name, labels="labelled",
                parameters=_CPU,
            )
            for name in ("bgdh", *DEEP)
        ),
        Entrant(
            "sdh-1000", 3, _BOTH | _PACKAGES, hasher="sdh", labels="labelled",
            parameters=_KERNEL,
        ),
    )
}  # fmt: skip

# Defaults -----------------------------------------------------------------------------------------


def grid(**values: tuple[Any, ...]) -> list[Parameters]:
    """Return all combinations of values."""
    return [dict(zip(values, given, strict=True)) for given in product(*values.values())]


#: Parameters tried for each method beside its program's settings.
CANDIDATES: dict[str, list[Parameters]] = {
    "usplh": [
        *grid(
            eta=(0.0625, 0.125, 0.2), decay=(0.1, 0.7), n_pseudo=(500, 2500),
            cut=("mean", "median"), inner_pairs=(False, True),
        ),
        *grid(
            eta=(0.03125, 0.045, 0.09), decay=(0.1, 0.4), n_pseudo=(500, 2500),
            cut=("mean",), inner_pairs=(True,),
        ),
        *grid(
            eta=(0.03125, 0.045), decay=(0.1,), n_pseudo=(500,),
            cut=("mean",), inner_pairs=(True,), boundary=("residual",),
        ),
        *grid(
            eta=(0.03125, 0.045), decay=(0.1,), n_pseudo=(None,),
            cut=("mean",), inner_pairs=(False, True),
        ),
    ],
    "s3plh": [
        {**one, **step}
        for one in grid(eta=(0.01, 0.03, 0.1), balance=(True, False))
        for step in (
            *grid(step_by=("bit",), step=(1.0, 2.0, 4.0, 8.0)), {"step_by": "data", "step": 1.0},
        )
    ],
    "sdh": grid(
        width=(0.26, 0.5, 0.7, 1.0), ridge=(1e-4, 5e-4), start=("random", "spread"),
        normalize=("l2",),
    ),
    "itq": grid(tolerance=(5e-4, 6e-4, 1e-3, 2e-3), extrapolation=(1.0,)),
}  # fmt: skip
