"""Export of trained networks: as a model keeps them, and as layers that SQL evaluates."""

from dataclasses import asdict

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from ...models.hash_network import Affine, HashNetwork, linear_layers
from ...models.layers import Layer, affine, shift
from ...models.network import Network


def to_network(network: HashNetwork) -> Network:
    """Return a network as a model keeps it."""
    arrays = {name: value.cpu().numpy() for name, value in network.state_dict().items()}
    architecture = network.architecture
    return Network("torch", asdict(architecture), arrays, architecture.n_bits)


def to_layers(network: HashNetwork) -> list[Layer]:
    """Return the layers that are equal to a network of perceptrons.

    The first layer subtracts the mean; the first weights contain the scale. psi follows the last
    layer of xi without a ReLU between, so the two are one affine map. Then both branches are stacks
    of affine maps, each followed by a ReLU. Side by side they are one stack, with block diagonal
    matrices after the first. The identity fills the shorter branch, since a second ReLU changes
    nothing.

    phi is a perceptron, and embeddings, if any, come from xi.
    """
    stacks: list[list[Affine]] = [linear_layers(network.phi)]
    if network.architecture.embedding_size:
        *first, (W, b) = linear_layers(network.xi)
        ((W_psi, b_psi),) = linear_layers(network.psi)
        # float32 would round this product twice.
        W_psi = W_psi.astype(np.float64)
        stacks.append([*first, (W_psi @ W, W_psi @ b + b_psi)])
    depth = max(map(len, stacks))
    for stack in stacks:
        width = len(stack[-1][1])
        stack += [(np.eye(width), np.zeros(width))] * (depth - len(stack))
    layers = [shift(-network.mean.cpu().numpy())]
    for level in range(depth):
        weights = [stack[level][0] for stack in stacks]
        joined: NDArray[np.floating] = (
            scipy.linalg.block_diag(*weights)
            if level
            else np.vstack(weights) / float(network.scale)
        )
        layers += [affine(joined, np.concatenate([s[level][1] for s in stacks])), Layer("relu")]
    ((M, v),) = linear_layers(network.head)
    n_bits = network.architecture.n_bits
    return [*layers, affine(M[:n_bits], v[:n_bits])]
