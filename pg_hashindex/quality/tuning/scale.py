"""From the scratch table to the full table: how recall, times and bytes grow with rows.

- Recall by a scan of all codes is not extrapolated: true neighbours and the places that they take
  by code are counted among all rows of the full table, which is read once (see `code_ranks`). Of
  tables above a million rows a part is read, and for a part s of the rows s k neighbours and s c
  candidates are counted instead of k and c; at least one neighbour, and as many candidates for
  each of them as c is of k.
- An access path loses some of that. On the sample its recall is measured beside that of the scan;
  their ratio falls with the logarithm of the rows, by `FALL` for each factor e, and by less where
  it misses less than `KNEE`: by the cube root of that part. So does the recall of pgvector's HNSW.
- A scan of codes takes the time of a search of the sample, and for each further row that of
  counting the bits of one code, which is measured. The exact scan grows in a straight line, other
  searches by `GROWTH` for each factor e, which is an assumption. Where PostgreSQL lets more workers
  take part in a scan of the full table it is faster than predicted.
- Bytes and the time to encode grow with the rows, an HNSW's time to build with n log n.

`FALL` and `KNEE` are of pgvector's HNSW over 59,000 package descriptions (384 dimensions): from
samples of 10,000 rows, recalls of 0.98 to 1 fell by 0.004 to 0.011, and are predicted within 0.005.
Lists of landmarks lose about as much, measured as the part of the ten nearest rows of 500 queries
that are in the lists read. From 20,000 package descriptions to 59,500, with 8 to 200 probes, the
prediction is off by -0.011 to 0.009; from 10,000, with up to a quarter of the lists, by -0.022 to
0.010. From 10,000 and 20,000 images of MNIST to 69,500 it is off by at most 0.012 with 16 probes or
more, but 0.05 and 0.04 too high with 8. Recalls are predicted as well: see docs/operations.md.
"""

import math
from dataclasses import dataclass

__all__ = ["FALL", "GROWTH", "KNEE", "Scale"]

#: What a path's part of the scan's recall loses with each factor e of rows.
FALL = 0.009
#: Of a smaller miss less is lost.
KNEE = 0.03
#: What a search by a path takes longer with each factor e of rows, a part of its time.
GROWTH = 0.1
# Of a table with its key index: maps of free space and visibility, and pages that are never full.
_FIXED_BYTES = 50_000


@dataclass(frozen=True)
class Scale:
    """Rows of the scratch table and of the full table.

    Attributes
    ----------
    sample, full : int
    whole : bool
        Whether the sample is all there is; then what was measured is the answer.
    """

    sample: int
    full: int
    whole: bool

    @property
    def folds(self) -> float:
        """How many factors e the full table is larger."""
        return 0.0 if self.whole else math.log(self.full / self.sample)

    def recall(self, measured: float) -> float:
        """Continue a recall, or its ratio to that of the scan."""
        missed = max(1 - measured, 0.0)
        fall = FALL * min(1.0, math.cbrt(missed / KNEE))
        return max(1 - missed - fall * self.folds, 0.0)

    def search_time(self, measured: float) -> float:
        """Continue a time that grows with the logarithm of the rows."""
        return measured * (1 + GROWTH * self.folds)

    def scan_time(self, measured: float, each: float) -> float:
        """Continue a time that grows by so much with each row."""
        return measured if self.whole else measured + each * (self.full - self.sample)

    def amount(self, measured: float) -> float:
        """Continue what grows with the rows, bytes or seconds of encoding."""
        return measured * self.full / self.sample

    def size(self, measured: int, tables: int) -> int:
        """Continue the bytes of some tables, each with a part that does not grow."""
        fixed = min(_FIXED_BYTES * tables, measured // 2)
        return int(fixed + self.amount(measured - fixed))

    def graph_seconds(self, measured: float) -> float:
        """Continue the time to build an HNSW."""
        return self.amount(measured) * (1 + self.folds / math.log(max(self.sample, 3)))
