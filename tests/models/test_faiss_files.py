"""Codes for Faiss, and models of its transforms, compared with Faiss itself."""

import numpy as np
import pytest

from pg_hashindex.errors import InvalidInputError
from pg_hashindex.models import faiss_files
from pg_hashindex.models.codes import hamming_distances, pack
from pg_hashindex.models.faiss_files import codes_to_faiss, is_faiss, model_from_faiss

faiss = pytest.importorskip("faiss", reason="Faiss is not installed (extra faiss)")

D = 24


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(5)
    mixed = rng.standard_normal((1500, D)) @ rng.standard_normal((D, D)) + 0.7
    return mixed.astype(np.float32)


def written(thing):
    writer = faiss.VectorIOWriter()
    write = faiss.write_index if isinstance(thing, faiss.Index) else faiss.write_VectorTransform
    write(thing, writer)
    return faiss.vector_to_array(writer.data).tobytes()


def assert_same(model, projections, codes, rows):
    """Codes are Faiss's, its bits turned; but those that rounding decides."""
    sure = np.abs(projections) > 1e-4
    assert sure.mean() > 0.999
    ours = np.unpackbits(model.encode(rows), axis=1, count=model.n_bits)
    theirs = np.unpackbits(codes, axis=1, count=model.n_bits, bitorder="little")
    assert np.array_equal(ours[sure], theirs[sure])


@pytest.mark.parametrize(
    "factory",
    ["ITQ16,LSH", "ITQ,LSH", "PCA10,LSH", "PCAR16,LSHt", "RR20,LSH", "LSH", "LSHr", "LSH20rt",
     "LSHt", "L2norm,PCA12,LSH"],
)  # fmt: skip
def test_codes_of_an_index_lsh(rows, factory):
    index = faiss.index_factory(D, factory)
    index.train(rows[:1000])
    data = written(index)
    assert is_faiss(data)
    model = model_from_faiss(data, "m", "cosine")
    assert (model.name, model.method, model.metric, model.dimension) == ("m", "faiss", "cosine", D)
    assert_same(model, model.project(rows), index.sa_encode(rows), rows)


def transforms():
    pca = faiss.PCAMatrix(D, 12, 0, True)
    linear = faiss.LinearTransform(D, 4, True)
    rng = np.random.default_rng(0)
    faiss.copy_array_to_vector(rng.standard_normal(4 * D).astype(np.float32), linear.A)
    faiss.copy_array_to_vector(np.float32([0.5, -1, 2, 0]), linear.b)
    linear.is_trained = True
    opq = faiss.OPQMatrix(D, 4, 8)
    opq.niter, opq.pq = 2, faiss.ProductQuantizer(8, 4, 4)
    return [
        *(faiss.ITQTransform(D, 16, True), faiss.ITQMatrix(D), pca, linear, opq),
        *(faiss.RandomRotationMatrix(D, 16), faiss.CenteringTransform(D)),
    ]


@pytest.mark.parametrize("place", range(7))
def test_transforms(rows, place):
    transform = transforms()[place]
    if not transform.is_trained or isinstance(transform, faiss.RandomRotationMatrix):
        transform.train(rows[:1000])
    model = model_from_faiss(written(transform), "m")
    expected = transform.apply(rows)
    np.testing.assert_allclose(model.project(rows), expected, rtol=1e-4, atol=1e-4)
    assert_same(model, expected, np.packbits(expected >= 0, axis=1, bitorder="little"), rows)


def test_distances_of_an_index_binary_flat():
    bits = np.random.default_rng(1).random((300, 20)) < 0.5
    codes = pack(bits)
    index = faiss.deserialize_index_binary(np.frombuffer(codes_to_faiss(codes), np.uint8))
    assert (index.d, index.ntotal) == (24, 300)
    distances, found = index.search(codes[:9], 300)
    expected = hamming_distances(codes[:9], codes)
    assert np.array_equal(distances, np.take_along_axis(expected, found, axis=1))
    assert np.array_equal(distances, np.sort(expected, axis=1))
    assert np.array_equal(expected, (bits[:9, None] != bits).sum(axis=2))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: faiss.IndexFlatL2(D), "the file holds IndexFlatL2, but a model is made of linear"),
        (lambda: faiss.index_factory(D, "PCA8,Flat"), "the PCAMatrix in the file is not trained"),
        (lambda: faiss.RemapDimensionsTransform(D, 30), "holds RemapDimensionsTransform"),
        (lambda: faiss.NormalizationTransform(D, 1), "holds NormalizationTransform"),
    ],
)
def test_refuses_what_is_no_layer(make, message):
    with pytest.raises(InvalidInputError, match=message):
        model_from_faiss(written(make()), "m")


def test_refuses_damaged_files():
    data = written(faiss.IndexLSH(D, 16))
    assert not is_faiss(b"PK\x03\x04")
    for damaged in (data[:-9], data[:6], b"IxQQ" + data[4:], written(faiss.PCAMatrix(D, 4))[:-3]):
        assert is_faiss(damaged)
        with pytest.raises(InvalidInputError, match="Faiss .* cannot read the file: "):
            model_from_faiss(damaged, "m")


def test_says_how_to_install_faiss(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    for call in (
        lambda: codes_to_faiss(np.zeros((2, 1), np.uint8)),
        lambda: faiss_files.model_from_faiss(b"IxHe", "m"),
    ):
        with pytest.raises(InvalidInputError, match=r"pip install '\.\[faiss\]'"):
            call()
