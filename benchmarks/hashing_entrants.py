"""The methods of `hashing.py`: parameters, seeds, bits, and the names of the reference."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from pg_hashindex.hashers import Preset
from pg_hashindex.papers import Method, Split

# CGHash and its rivals are measured with 60 bits.
_BOTH = {"mnist": (32, 64), "usps": (32, 64)}
_WITH_60 = {"mnist": (32, 60, 64), "usps": (32, 60, 64)}
_CGHASH = {"mnist": (32, 60), "usps": (32, 60)}
_SIFT = {"sift10k": (24, 32, 48)}
_PACKAGES = {"packages": (32, 64)}

BITS = (24, 32, 48, 60, 64)


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

    def __post_init__(self) -> None:
        if not self.hasher:
            object.__setattr__(self, "hasher", self.name)

    @property
    def method(self) -> Method:
        """The method for the comparison."""
        return Method(self.hasher, self.parameters, self.name, self.labels, preset=self.preset)

    def split(self, split: Split) -> Split:
        """Return the split with the rows that it learns from."""
        return on_database(split) if self.on_database else split


def on_database(split: Split) -> Split:
    """Return the split with the whole database to learn from."""
    places = np.arange(len(split.database))
    return replace(split, train=split.database, train_labels=split.labels, train_places=places)


_UNIT_ROWS = {"normalize": "l2"}
_CPU = {"device": "cpu"}
DEEP = ("dpsh", "deep-dsh")

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
        Entrant(
            "dgh-i", 3, _BOTH, hasher="dgh", parameters={"start": "eigenvectors"},
        ),
        Entrant(
            "usplh-paper", 1, _BOTH | _SIFT, hasher="usplh", preset="paper"
        ),
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
        Entrant("sdh", 3, _BOTH | _PACKAGES, "SDH", parameters=_anchors(1000, **_UNIT_ROWS)),
        Entrant(
            "sdh-program", 3, _BOTH, "SDH", hasher="sdh", preset="program",
            parameters=_anchors(1000),
        ),
        Entrant("fsdh", 3, _BOTH, parameters=_anchors(1000, **_UNIT_ROWS)),
        # As in their papers, linear; then with the kernel that SDH has.
        Entrant("lfh", 3, _BOTH),
        Entrant(
            "lfh-kernel", 3, _BOTH, hasher="lfh", parameters=_anchors(1000, **_UNIT_ROWS),
        ),
        Entrant("cosdish", 3, _BOTH, "COSDISH"),
        Entrant(
            "cosdish-kernel", 3, _BOTH, hasher="cosdish", parameters=_anchors(1000, **_UNIT_ROWS),
        ),
        Entrant("fasth", 3, _BOTH),
        Entrant("cghash", 3, _CGHASH),
        Entrant(
            "sadih-l1", 3, _BOTH, hasher="sadih",
            parameters=_anchors(1000, loss="l1", **_UNIT_ROWS),
        ),
        Entrant(
            "sadih-l21", 3, _BOTH, hasher="sadih",
            parameters=_anchors(1000, loss="l21", **_UNIT_ROWS),
        ),
        # Shows how much SADIH gains from its start: if classes have equal sizes, no step changes
        # spread codewords, and SDH from the same start has the same codes.
        Entrant(
            "sdh-spread", 3, _BOTH, hasher="sdh",
            parameters=_anchors(1000, start="spread", **_UNIT_ROWS),
        ),
        Entrant(
            "sadih-l1-random", 3, _BOTH, hasher="sadih",
            parameters=_anchors(1000, loss="l1", start="random", **_UNIT_ROWS),
        ),
        Entrant(
            "sadih-l1-paper", 3, _BOTH, hasher="sadih", preset="paper",
            parameters=_anchors(1000, loss="l1", **_UNIT_ROWS),
        ),
        Entrant(
            "sadih-l21-paper", 3, _BOTH, hasher="sadih", preset="paper",
            parameters=_anchors(1000, loss="l21", **_UNIT_ROWS),
        ),
        # Trained on the whole database, with its codes both hashed and as learned.
        Entrant(
            "sadih-l1-all", 3, {"mnist": (32,)}, hasher="sadih", on_database=True,
            parameters=_anchors(1000, loss="l1", **_UNIT_ROWS),
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
            parameters=_anchors(1000, **_UNIT_ROWS),
        ),
    )
}  # fmt: skip
