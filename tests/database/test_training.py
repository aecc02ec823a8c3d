"""Training: what is refused, what is measured on rows held back."""

import numpy as np
import pytest
from numpy.typing import NDArray

from pg_hashindex.data import load_packages
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.training import train


@pytest.fixture(scope="module")
def embeddings() -> NDArray[np.float32]:
    return load_packages().embedding[:2000]


def test_what_training_measures(embeddings: NDArray[np.float32]) -> None:
    model = train(embeddings, "texts", "itq", n_bits=64, metric="cosine", random_state=5)
    summary = model.training
    assert summary["rows"] == 1800
    assert summary["held_back_rows"] == 200
    assert summary["recall"]["among"] == 1800
    assert 0.8 < summary["recall"]["value"] <= 1
    shares = summary["share_of_ones"]
    assert 0 < shares["least"] < shares["mean"] < shares["greatest"] < 1
    assert model.metric == "cosine"
    assert model.parameters["normalize"] == "l2"
    assert model.layers[0].kind == "normalize"
    again = train(embeddings, "texts", "itq", n_bits=64, metric="cosine", random_state=5)
    assert again.checksum == model.checksum


def test_sign_needs_no_bits(embeddings: NDArray[np.float32]) -> None:
    assert train(embeddings, "s", "sign", force=True).n_bits == 384
    with pytest.raises(InvalidInputError, match="'itq' needs a number of bits"):
        train(embeddings, "s", "itq")


@pytest.mark.parametrize(("rows", "bits", "least"), [(999, 8, 1000), (1999, 200, 2000)])
def test_too_few_rows(embeddings: NDArray[np.float32], rows: int, bits: int, least: int) -> None:
    with pytest.raises(InvalidInputError, match=f"{rows} rows are too few .* {least}"):
        train(embeddings[:rows], "few", "lsh", n_bits=bits)
    assert train(embeddings[:rows], "few", "lsh", n_bits=bits, force=True).n_bits == bits


def test_bits_and_seed_are_no_parameters_of_the_method(embeddings: NDArray[np.float32]) -> None:
    for name in ("n_bits", "random_state"):
        with pytest.raises(InvalidInputError, match=f"{name} cannot be a parameter"):
            train(embeddings, "m", "lsh", n_bits=8, parameters={name: 16})
    with pytest.raises(InvalidInputError, match="n_bits must be an integer from 1 to 16000"):
        train(embeddings, "m", "lsh", n_bits=999_999)
    with pytest.raises(InvalidInputError, match="cannot name a model"):
        train(embeddings, "a:b", "lsh", n_bits=8)
