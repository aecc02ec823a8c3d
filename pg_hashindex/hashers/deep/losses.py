"""The losses of the papers: sums over pairs, rows, or contexts in the graph.

Projections u are float32 (n, n_bits).
"""

from collections.abc import Callable
from typing import Literal, TypeAlias

import torch
from torch.nn import functional as F  # noqa: N812

#: Takes projections u (n, n_bits) and which rows are similar, bool (n, n). Returns the loss of all
#: pairs of two rows, a float32 scalar with a gradient. If pairs are given one by one, it is also
#: told which pairs are known, bool (n, n), and leaves out the others.
PairwiseLoss: TypeAlias = Callable[..., torch.Tensor]

GraphLoss: TypeAlias = Literal["logistic", "square"]


def dpsh_loss(
    u: torch.Tensor, similar: torch.Tensor, known: torch.Tensor | None = None, scale: float = 1.0
) -> torch.Tensor:
    """Compute the negative log-likelihood of which pairs are similar (equation 4, first term).

    With Theta = u_i'u_j / 2, the sum of log(1 + exp(Theta)) - s Theta over all ordered pairs of two
    rows. log(1 + exp(x)) is computed as softplus, which neither overflows nor cancels.

    ``u`` is float32 (n, n_bits), ``similar`` bool (n, n). Only pairs in ``known``, bool (n, n),
    count, all of them by default. ``scale`` is a factor of Theta; below 1, pairs that are right
    keep counting.
    """
    known = _pairs(similar, known)
    return (_losses(u, similar, scale) * known).sum()


def balanced_loss(
    u: torch.Tensor, similar: torch.Tensor, known: torch.Tensor | None = None, scale: float = 1.0
) -> torch.Tensor:
    """Compute `dpsh_loss` with half of the weight on similar pairs and half on others.

    With c classes of equal size one pair in c is similar, so the other pairs would outweigh them.
    """
    known = _pairs(similar, known)
    losses = _losses(u, similar, scale) * known
    pairs, n_similar = int(known.sum()), int((similar & known).sum())
    if not 0 < n_similar < pairs:
        return losses.sum()
    of_similar = losses[similar].sum()
    result: torch.Tensor = (pairs / 2) * (
        of_similar / n_similar + (losses.sum() - of_similar) / (pairs - n_similar)
    )
    return result


def _losses(u: torch.Tensor, similar: torch.Tensor, scale: float) -> torch.Tensor:
    theta = u @ u.T * (scale / 2)
    return F.softplus(theta) - similar * theta


def _pairs(similar: torch.Tensor, known: torch.Tensor | None) -> torch.Tensor:
    """Return which pairs count, bool (n, n): known ones of two rows."""
    others = ~torch.eye(len(similar), dtype=torch.bool, device=similar.device)
    return others if known is None else others & known


def quantization(u: torch.Tensor) -> torch.Tensor:
    """Compute the sum of ||b - u||^2 with b = sgn(u), held fixed (equations 4 and 9)."""
    codes = torch.where(u.detach() > 0, 1.0, -1.0)
    return (codes - u).square().sum()


def with_quantization(loss: PairwiseLoss, eta: float) -> PairwiseLoss:
    """Return a loss of pairs plus ``eta`` times the distance of u from its signs."""
    return lambda u, *pairs: loss(u, *pairs) + eta * quantization(u)


def graph_loss(scores: torch.Tensor, signs: torch.Tensor, kind: GraphLoss) -> torch.Tensor:
    """Compute the mean loss of predicting contexts (equation 2).

    Scores (t,) are e'w of each triple; gamma (t,) is 1 for a context and -1 for another row. The
    loss is log(1 + exp(-gamma e'w)), or (gamma - e'w)^2.
    """
    if kind == "square":
        return (signs - scores).square().mean()
    return F.softplus(-signs * scores).mean()


def deep_dsh_loss(
    u: torch.Tensor,
    similar: torch.Tensor,
    known: torch.Tensor | None = None,
    *,
    margin: float,
    alpha: float,
) -> torch.Tensor:
    """Compute the contrastive loss of pairs with its regulariser (deep DSH, equation 4).

    The sum over all ordered pairs of two rows of ||u_i - u_j||^2 / 2 if they are similar, of
    max(margin - ||u_i - u_j||^2, 0) / 2 if not, and of alpha (|| |u_i| - 1 ||_1 + || |u_j| - 1
    ||_1). ``similar`` and ``known`` are as in `dpsh_loss`.
    """
    squares = u.square().sum(dim=1)
    distances = squares[:, None] + squares - 2 * u @ u.T
    contrast = torch.where(similar, distances, F.relu(margin - distances)) / 2
    rounding = (u.abs() - 1).abs().sum(dim=1)
    regulariser = alpha * (rounding[:, None] + rounding)
    return ((contrast + regulariser) * _pairs(similar, known)).sum()
