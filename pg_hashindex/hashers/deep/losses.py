"""The losses of the papers: sums over pairs, rows, or contexts in the graph.

Projections u are float32 (n, n_bits).
"""

from collections.abc import Callable
from typing import Literal, TypeAlias

import torch
from torch.nn import functional as F  # noqa: N812

#: Takes projections u (n, n_bits) and which rows are similar, bool (n, n). Returns the loss of all
#: pairs of two rows, a float32 scalar with a gradient. If pairs are given one by one, it is also
#: given which pairs are known, bool (n, n), and leaves out the others.
PairwiseLoss: TypeAlias = Callable[..., torch.Tensor]

#: Takes projections u and scores of classes (n, n_bits + n_classes), and the labels of rows, bool
#: (n, n_classes), of which unlabelled rows have none. Returns the mean loss of the batch.
LabelLoss: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

GraphLoss: TypeAlias = Literal["logistic", "square"]

# The ranks in a batch of SSDH between which rows are far: 114 to 124 of 128 in the program.
_FAR = (114 / 128, 124 / 128)
# Keeps the gradient of a square root finite at 0.
_TINY = 1e-8


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
    """Compute the contrastive loss of pairs with its regulariser (deep DSH, relaxed).

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


def dhn_loss(
    u: torch.Tensor, similar: torch.Tensor, known: torch.Tensor | None = None, *, lam: float
) -> torch.Tensor:
    """Compute the cross-entropy of pairs and their quantization (DHN).

    With z = tanh(u), the sum over all ordered pairs of two rows of log(1 + exp(z_i'z_j)) - s
    z_i'z_j, and of lam times log cosh(|z| - 1), summed over the bits of both rows. ``similar`` and
    ``known`` are as in `dpsh_loss`.
    """
    z = torch.tanh(u)
    rounding = (z.abs() - 1).cosh().log().sum(dim=1)
    pairs = (rounding[:, None] + rounding) * _pairs(similar, known)
    # Its Theta has a factor of 1/2.
    return dpsh_loss(z, similar, known, scale=2.0) + lam * pairs.sum()


def ssdh_loss(
    u: torch.Tensor,
    labels: torch.Tensor,
    *,
    margin: float,
    graph_margin: float,
    alpha: float,
    beta: float,
    n_nearest: int,
) -> torch.Tensor:
    """Compute the loss of a batch of labelled and unlabelled rows (SSDH).

    ``u`` is float32 (n, n_bits + n_classes), projections and scores of classes, ``labels`` bool (n,
    n_classes). With h = 1 / (1 + exp(-u)) and d squared distances of h, it is the sum of

    - the mean of max(0, margin + d(i, p) - d(i, q)) / 2 over labelled rows i, p of a common label,
      and q that shares no label with either;
    - alpha times the mean of what i costs in the graph of the batch, which joins it to its
      ``n_nearest`` rows and keeps it apart from rows among the last tenth;
    - beta times the mean of what an unlabelled i costs, which is joined to rows of the class that
      its scores say, and kept apart from rows of the class with the lowest score;
    - the cross-entropy of scores and labels, a mean over labelled rows.

    A row that is joined to some rows and kept apart from others costs half the mean of d over the
    former, and half of that of max(0, graph_margin - sqrt(d))^2 over the latter.
    """
    n, n_classes = labels.shape
    scores = u[:, u.shape[1] - n_classes :]
    h = torch.sigmoid(u[:, : u.shape[1] - n_classes])
    d = (h[:, None] - h).square().sum(dim=2)
    labelled, same = labels.any(dim=1), labels.float() @ labels.float().T > 0
    others = ~torch.eye(n, dtype=torch.bool, device=u.device)

    def contrast(near: torch.Tensor, far: torch.Tensor) -> torch.Tensor:
        apart = F.relu(graph_margin - (d + _TINY).sqrt()).square()
        return _mean(_means(d, near) + _means(apart, far), near.any(dim=1) & far.any(dim=1)) / 2

    # The row itself is the first.
    rank = d.detach().clone().fill_diagonal_(-1.0).argsort(dim=1).argsort(dim=1)
    near = (rank >= 1) & (rank <= n_nearest)
    graph = contrast(near, (rank >= _FAR[0] * n) & (rank < _FAR[1] * n) & ~near)

    first, last = (
        F.one_hot(found, n_classes) for found in (scores.argmax(dim=1), scores.argmin(dim=1))
    )
    classes = torch.where(labelled[:, None], labels, first > 0).float().T
    is_first, is_last = first.float() @ classes > 0, last.float() @ classes > 0
    unlabelled = ~labelled[:, None] & others
    pseudo = contrast(is_first & ~is_last & unlabelled, is_last & ~is_first & unlabelled)

    x, among = labelled.nonzero()[:, 0], labelled
    d, same = d[x][:, among], same[x][:, among]
    near = same & others[x][:, among]
    triplets = near[:, :, None] & ~same[:, None, :] & ~same[None]
    ranking = F.relu(margin + d[:, :, None] - d[:, None, :]).flatten(1)
    triplets = triplets.flatten(1)
    ranked = _mean(_means(ranking, triplets), triplets.any(dim=1)) / 2

    entropy = _mean(-(F.log_softmax(scores, dim=1) * labels).sum(dim=1), labelled)
    return ranked + alpha * graph + beta * pseudo + entropy


def _means(values: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """Return the mean of the values kept in each line, 0 without any."""
    return (values * kept).sum(dim=1) / kept.sum(dim=1).clamp(min=1)


def _mean(values: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """Return the mean of the values kept, 0 without any."""
    return (values * kept).sum() / kept.sum().clamp(min=1)
