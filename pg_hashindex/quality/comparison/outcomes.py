"""What a comparison finds out about one method at one number of bits."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from ...index.catalog import Ranking
from ...models.quantization import Levels
from .scores import Scores

__all__ = ["Outcome", "Protocol"]

#: Codes of the database: from the hash function, or as training left them.
Protocol = Literal["hashed", "learned"]


@dataclass(frozen=True)
class Outcome:
    """How one method did at one number of bits.

    Attributes
    ----------
    method : str
    n_bits : int
        Projections of a row; a code has as many bits, with 4 levels twice as many.
    seed : int
    error : str, optional
        Why there are no scores.
    codes : {"hashed", "learned"}
        Where the codes of the database come from: the hash function, like those of queries, or
        what training left for them, which takes a database that was trained on. Of a transductive
        method those of queries too are "learned".
    distance : {"hamming", "asymmetric", "weighted"}
        "weighted" where the method learned what each bit counts, "asymmetric" for 4 levels; within
        a radius bits count the same all the same.
    ties : {"order", "average"}
    train_rows : int
    train_wall_s, train_cpu_s : float
        Of ``fit`` alone. CPU seconds are those of all threads.
    train_peak_bytes : int
        The most memory that ``fit`` held at a time of what Python and NumPy allocate
        (tracemalloc), without the training rows given to it; files of scratch arrays and the
        working memory of C libraries are not in it. Counting costs ``fit`` a few percent of its
        seconds, more (about a hundredth of a second) only where it takes hundredths.
    encode_wall_s, encode_cpu_s : float
        Of encoding the database.
    scores : dict of str to Scores
        By the name of the truth.
    parameters : dict
        What the model records of the method's parameters, as JSON values.
    levels : {2, 4}
        Levels that codes keep of each projection.
    """

    method: str
    n_bits: int
    seed: int
    error: str | None = None
    codes: Protocol = "hashed"
    distance: Ranking = "hamming"
    ties: str = "order"
    train_rows: int = 0
    train_wall_s: float = 0.0
    train_cpu_s: float = 0.0
    train_peak_bytes: int = 0
    encode_wall_s: float = 0.0
    encode_cpu_s: float = 0.0
    scores: Mapping[str, Scores] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    levels: Levels = 2

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values; of a method that failed, only why."""
        if self.error is not None:
            return {
                "method": self.method,
                "n_bits": self.n_bits,
                "seed": self.seed,
                "error": self.error,
            }
        result = asdict(replace(self, scores={}))
        del result["error"]
        result["scores"] = {truth: scores.as_dict() for truth, scores in self.scores.items()}
        return result
