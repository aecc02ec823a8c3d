"""FastH: boosted decision trees (Lin, Shen, Shi, van den Hengel & Suter, CVPR 2014)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from ..models.codes import pack
from ..models.layers import MAX_DIMENSION, Layer
from ..models.network import Network
from .base import Hasher, first_and_last
from .cosdish import descend
from .numerics.rows import RowSource
from .numerics.trees import Bins, boost
from .parameters import integer
from .supervision.discrete import signs, start_codes
from .supervision.label_sets import LabelSets
from .supervision.labels import Supervision, labelled_rows

# Random starts of the search for a bit, besides codewords that are far from each other.
_STARTS = 10
# Up to six float64 matrices of this many label sets squared are held: 430 MB.
_MOST_SETS = 3000


@dataclass(kw_only=True, eq=False, repr=False)
class FastH(Hasher):
    """Bits of the label sets, found one after another, and boosted decision trees that give them.

    Two steps for each bit (G. Lin, C. Shen, Q. Shi, A. van den Hengel, D. Suter, "Fast Supervised
    Hashing with Decision Trees for High-Dimensional Data", CVPR 2014). The first finds bits z of
    the rows, in {-1, 1}, that minimise the loss of all pairs, with d_ij the Hamming distance of the
    bits so far, this one included, of r in the end:

        "hinge"  sum of d_ij^2 over similar pairs + sum of max(r / 2 - d_ij, 0)^2 over the others
        "ksh"    sum of (r s_ij - (bits so far - 2 d_ij))^2, s_ij = 1 for similar pairs, else -1

    A loss of a pair has one value if its bits are equal and another if they differ, so the sum is
    a binary quadratic problem, min z'A z with a_ij = (loss if equal - loss if different) / 2. The
    second step learns z by AdaBoost of decision trees: the bit of a row is the sign of the weighted
    votes of its trees (`boost`).

    Rows are similar if they share a label; similar pairs weigh as much as all others. Rows with the
    same labels and the same earlier bits attract each other (a_ij <= 0) and have the same a_ij with
    all others, so one of the best z has one value for them all. They are blocks, as in the paper,
    and here variables of the problem: bits flip while that lowers the loss, the best flip first,
    from several starts.

    Differences from the paper: earlier bits are those of the first step, not what the trees make of
    them, which differs in .7 % of the bits of the training rows of USPS; so all rows of a label set
    have one learned code, and flips of whole sets take the place of its graph cuts. If a bit would
    be the same for all rows, the set that it costs the least differs. Trees have at most 64 bins a
    feature. By default there are 40 trees a bit and 64 features a level, where the authors' program
    has 200 of both; 20, 40 and 100 trees gave a label MAP of 0.963, 0.978 and 0.987 on USPS with 32
    bits.

    Trees are not affine, and as layers they would cost too much: with a step for each split and a
    unit for each leaf, 32 bits of 40 trees of depth 4 take 19,200 steps, more than a vector of
    PostgreSQL holds, and 393 million weights. So the model ends in a network of kind ``trees``,
    which only Python evaluates.

    Training holds ``max_rows`` rows and a byte for each of their values; time grows with rows x
    n_bits x n_trees x depth x n_features, and is about ten times that of `SDH`. Unlabelled rows
    are left out.

    Parameters
    ----------
    n_bits
        1 to 16,000.
    loss : {"hinge", "ksh"}
    n_trees
        Trees of a bit.
    depth
        Splits from the root of a tree to each leaf.
    n_features
        Features drawn for each level of a tree, d at most.
    max_rows
        Labelled rows to learn from, drawn at random where there are more.

    Attributes
    ----------
    codes_ : uint8 (n, ceil(n_bits / 8))
        The bits of the first step, of the rows that were learned from, in row order.
    losses_ : float64 (n_bits,)
        The loss after each bit, similar pairs and others each divided by their number.
    errors_ : float64 (n_bits,)
        The part of the rows that learned from, to which the trees give another bit.
    """

    method = "fasth"
    learns_from: ClassVar[tuple[str, ...]] = ("labels",)
    program_parameters: ClassVar[Mapping[str, Any]] = {"n_trees": 200, "n_features": 200}

    loss: Literal["hinge", "ksh"] = "hinge"
    n_trees: Annotated[int, integer(1, 1000)] = 40
    depth: Annotated[int, integer(1, 8)] = 4
    n_features: Annotated[int, integer(1, MAX_DIMENSION)] = 64
    max_rows: Annotated[int, integer(2, 1_000_000)] = 10_000

    def _learn(self, rows: RowSource, given: Supervision, rng: np.random.Generator) -> list[Layer]:
        rows, labels = labelled_rows(rows, given.labels)
        drawn = np.sort(rng.permutation(rows.n_rows)[: self.max_rows])
        rows, labels = rows.restricted_to(drawn), labels.take(drawn)
        sets = LabelSets.of_several(labels)
        problem = BitProblem(sets, self.n_bits_, self.loss)
        apart = start_codes(sets, self.n_bits_, "spread", rng)
        codes = np.column_stack([problem.add(start, rng) for start in apart.T])
        B = codes[sets.of_row]
        self.codes_, self.losses_ = pack(B > 0), np.array(problem.losses)
        self._learn_trees(rows.array(), B, rng)
        return []

    def _learn_trees(
        self, X: NDArray[np.float32], B: NDArray[np.int8], rng: np.random.Generator
    ) -> None:
        bins = Bins(X)
        shape = (self.n_bits_, self.n_trees, 2**self.depth - 1)
        features, thresholds = np.empty(shape, np.int32), np.empty(shape, np.float32)
        leaves = np.empty((*shape[:2], 2**self.depth), np.float32)
        self.errors_ = np.empty(self.n_bits_)
        for bit, z in enumerate(B.T):
            boosted = boost(bins, z, self.n_trees, self.depth, self.n_features, rng)
            for number, tree in enumerate(boosted.trees):
                features[bit, number], thresholds[bit, number] = tree.features, tree.thresholds
                leaves[bit, number] = boosted.weights[number] * tree.leaves
            given = signs(boosted.votes)
            if (given == given[0]).all():
                raise InvalidInputError(
                    f"the features of the rows say nothing about bit {bit}, which trees are to "
                    "give; rows may be equal for different labels, or too few, or need more trees "
                    "or features of a level"
                )
            self.errors_[bit] = (given != z).mean()
        self._trees = Network(
            "trees",
            {"dimension": X.shape[1]},
            {"features": features, "thresholds": thresholds, "leaves": leaves},
            self.n_bits_,
        )

    def _network(self) -> Network:
        return self._trees

    def _summary(self) -> dict[str, Any]:
        return {"loss": first_and_last(self.losses_), "error": float(self.errors_.mean())}


class BitProblem:
    """The pairs of label sets, their distances so far, and the search for the next bit."""

    def __init__(self, sets: LabelSets, n_bits: int, loss: Literal["hinge", "ksh"]) -> None:
        if len(sets) > _MOST_SETS:
            raise InvalidInputError(
                f"fasth takes at most {_MOST_SETS:,} different sets of labels, got {len(sets):,}; "
                "use coarser labels, a smaller max_rows, or sdh, which takes any number"
            )
        self.losses: list[float] = []
        self._n_bits, self._loss, self._n_found = n_bits, loss, 0
        self._similar = (sets.members @ sets.members.T).toarray() > 0
        pairs = np.outer(sets.counts, sets.counts)
        similar = pairs[self._similar].sum()
        # If every two rows share a label, there are no others.
        others = max(pairs.sum() - similar, 1.0)
        self._weights = pairs / np.where(self._similar, similar, others)
        self._distances = np.zeros(pairs.shape)

    def add(self, start: NDArray[np.int8], rng: np.random.Generator) -> NDArray[np.int8]:
        """Find the bit of each set, (g,) of 1 and -1, and add it; the loss is at most the start's.

        In the start, sets differ.
        """
        equal, different = (self._pair_losses(self._distances + apart) for apart in (0, 1))
        A = self._weights * (equal - different) / 2
        np.fill_diagonal(A, 0)
        best, least = start, float(start @ A @ start)
        for number in range(1 + _STARTS):
            first = start if not number else signs(rng.random(len(start)) - 0.5)
            found = descend(A, np.zeros(len(A)), first.astype(np.float64))
            if not np.ptp(found):
                # Let the set that it costs the least differ from the others.
                place = int(np.argmax(found * (A @ found)))
                found[place] = -found[place]
            value = float(found @ A @ found)
            if value < least:
                best, least = found.astype(np.int8), value
        self._distances += best[:, None] != best
        self._n_found += 1
        self.losses.append(float((self._weights * self._pair_losses(self._distances, 0)).sum()))
        return best

    def _pair_losses(self, distances: NDArray[np.float64], further: int = 1) -> NDArray[np.float64]:
        """Return the loss of a pair of rows of each two sets, with ``further`` bits to come."""
        if self._loss == "hinge":
            return (
                np.where(self._similar, distances, np.maximum(self._n_bits / 2 - distances, 0)) ** 2
            )
        products = self._n_found + further - 2 * distances
        result: NDArray[np.float64] = (
            np.where(self._similar, 1, -1) * self._n_bits - products
        ) ** 2
        return result
