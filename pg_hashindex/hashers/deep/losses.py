"""The losses of the papers: sums over pairs, triplets, rows, or contexts in the graph.

Projections u are float32 (n, n_bits). HashNet, CSQ and ADSH bound them: h = tanh(beta u), or a
sigmoid.
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


def graph_loss(scores: torch.Tensor, signs: torch.Tensor, kind: GraphLoss) -> torch.Tensor:
    """Compute the mean loss of predicting contexts (equation 2).

    Scores (t,) are e'w of each triple; gamma (t,) is 1 for a context and -1 for another row. The
    loss is log(1 + exp(-gamma e'w)), or (gamma - e'w)^2.
    """
    if kind == "square":
        return (signs - scores).square().mean()
    return F.softplus(-signs * scores).mean()


def hashnet_loss(
    u: torch.Tensor,
    similar: torch.Tensor,
    known: torch.Tensor | None = None,
    *,
    alpha: float,
    beta: float,
) -> torch.Tensor:
    """Compute the weighted likelihood of which pairs are similar (HashNet, equation 4).

    With h = tanh(beta u), the sum of w (log(1 + exp(alpha h_i'h_j)) - s alpha h_i'h_j) over all
    ordered pairs of two rows. w is the number of pairs, divided by that of the similar ones, or by
    that of the others (equation 2, with c = 1). ``similar`` and ``known`` are as in `dpsh_loss`.
    """
    # The balanced loss has half of these weights, and Theta = scale h_i'h_j / 2.
    return 2 * balanced_loss(torch.tanh(beta * u), similar, known, scale=2 * alpha)


def csq_loss(u: torch.Tensor, targets: torch.Tensor, weight: float) -> torch.Tensor:
    """Compute the distance of rows from their hash centres (CSQ, L_C + lambda L_Q).

    With h = 1 / (1 + exp(-u)), L_C is the binary cross-entropy of h and the centres (n, n_bits) of
    0 and 1, summed over rows and bits and divided by n_bits; L_Q, weighted by lambda, is the sum of
    log cosh(|2 h - 1| - 1), which draws h to 0 or 1.
    """
    central = F.binary_cross_entropy_with_logits(u, targets, reduction="sum") / u.shape[1]
    # 2 h - 1 = tanh(u / 2)
    rounding = torch.log(torch.cosh(torch.tanh(u / 2).abs() - 1)).sum()
    return central + weight * rounding


def greedyhash_loss(
    u: torch.Tensor, shares: torch.Tensor, weights: torch.Tensor, penalty: float
) -> torch.Tensor:
    """Compute the cross-entropy of classes predicted from codes, and a penalty (GreedyHash).

    Codes b = sgn(u) pass the gradient that they get on to u as it is. Class scores are W b, W (c,
    n_bits), and ``shares`` (n, c) are the parts of each row's labels, which add up to 1. The
    penalty is the sum of |u - sgn(u)|^3, sgn(u) held fixed.
    """
    codes = torch.where(u.detach() > 0, 1.0, -1.0)
    passing = u + (codes - u).detach()
    entropy = F.cross_entropy(passing @ weights.T, shares, reduction="sum")
    return entropy + penalty * (u - codes).abs().pow(3).sum()


def dtsh_loss(u: torch.Tensor, triplets: torch.Tensor, margin: float) -> torch.Tensor:
    """Compute the negative log-likelihood of triplets (DTSH).

    With Theta_ij = u_i'u_j / 2, the sum of log(1 + exp(x)) - x, x = Theta_qp - Theta_qn - margin,
    over triplets (q, p, n), int64 (t, 3), where q is more similar to p than to n.
    """
    theta = u @ u.T / 2
    query, positive, negative = triplets.T
    # log(1 + exp(x)) - x = log(1 + exp(-x))
    return F.softplus(margin - theta[query, positive] + theta[query, negative]).sum()


def adsh_loss(
    u: torch.Tensor,
    own: torch.Tensor,
    sums: torch.Tensor,
    squares: torch.Tensor,
    gram: torch.Tensor,
    gamma: float,
) -> torch.Tensor:
    """Compute the squared errors of products with known codes (ADSH), of the batch.

    With h = tanh(u), codes V (m, n_bits) of -1 and 1, and S_ij that says whether two rows share a
    label, it is

        sum (h_i'v_j - n_bits S_ij)^2 + gamma sum ||v_i - h_i||^2

    where v_i, ``own`` (n, n_bits), are the codes of the batch. The first sum is expanded, so that
    it needs only ``gram`` = V'V, ``sums`` = S V (n, n_bits), and ``squares`` (n,), the sums of
    S_ij^2 over j. If all three and gamma are divided by m, so is the loss.
    """
    h, n_bits = torch.tanh(u), u.shape[1]
    errors = ((h @ gram) * h).sum() - 2 * n_bits * (sums * h).sum() + n_bits**2 * squares.sum()
    return errors + gamma * (own - h).square().sum()


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
