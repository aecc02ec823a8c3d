"""ADSH: asymmetric deep supervised hashing (Jiang & Li, AAAI 2018)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...models.codes import pack
from ..parameters import NotNegative, integer
from ..supervision.discrete import random_codes
from ..supervision.labels import Labels
from .deep_hasher import MOST_STEPS, DeepHasher

if TYPE_CHECKING:
    from .learning import Trainer
    from .objectives import Objective


@dataclass(kw_only=True, eq=False, repr=False)
class ADSH(DeepHasher):
    """Codes of labelled rows, learned bit by bit, and a network for queries whose products fit.

    Minimises, over codes V in {-1, 1} of the labelled rows and the network,

        sum_ij (h_i'v_j - n_bits S_ij)^2 + gamma sum_i ||v_i - h_i||^2,   h = tanh(u)

    where i are the rows of a batch, j all labelled rows, and S_ij = 1 if two rows share a label, -1
    (or less, see ``balance``) if not. Each round first updates V with the network held: with U =
    tanh(u) of ``query_rows`` rows drawn, the Omega of the paper, bit k of V becomes

        V_k = sgn(n_bits S'U_k + gamma U_k - sum_l V_l U_l'U_k)

    over the other bits l; the term with gamma is that of the rows drawn. Then the network learns
    from batches of all labelled rows, where the paper's are of the rows drawn. No bit of V becomes
    the same for all rows.

    New rows and queries get codes from the network. The codes V of the labelled rows are learned
    codes, which a model may keep.

    Parameters
    ----------
    n_bits
        By default 64.
    gamma
        Weight of the distance between the network and the codes of the same row. The first sum
        grows with the number of labelled rows, so a gamma of 200 is small beside it.
    balance
        Replace the -1 in S by a number so small that S adds up to 0, as in the authors' program.
        Otherwise the many pairs without a common label outweigh the others, and the codes of
        several classes become equal.
    query_rows
        Rows drawn for each update of V.
    features, hidden, image_shape, input_size, dropout, weights
        As in `DPSH`.
    rounds, batch_rows, optimizer, learning_rate, weight_decay
        As in `DPSH`.
    validation, patience, device, checkpoint, progress, random_state
        As in `DPSH`.

    Attributes
    ----------
    codes_ : uint8 (n_labelled, ceil(n_bits / 8))
        V: the learned codes of the labelled rows, in row order. Rows that are held back to decide
        when to stop have the codes of the network.
    """

    method = "adsh"
    learns_codes = True
    paper_parameters: ClassVar[Mapping[str, Any]] = {"balance": False}

    gamma: NotNegative = 200.0
    balance: bool = True
    query_rows: Annotated[int, integer(2, MOST_STEPS)] = 2000

    codes_: NDArray[np.uint8] = field(init=False)

    def _objective(
        self, labels: Labels, kept: NDArray[np.intp], rng: np.random.Generator
    ) -> "Objective":
        from .objectives import AsymmetricObjective

        first = random_codes(len(kept), self.n_bits_, rng)
        return AsymmetricObjective(
            labels, kept, first, float(self.gamma), int(self.query_rows), balance=bool(self.balance)
        )

    def _keep_learned(self, trainer: "Trainer") -> None:
        every = trainer.labels.labelled
        bits = trainer.projections(every) > 0
        bits[np.isin(every, trainer.labelled)] = trainer.objective.state_dict()["V"].cpu() > 0
        self.codes_ = pack(bits)
