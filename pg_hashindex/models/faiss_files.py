"""Files of Faiss: codes that it searches, and transforms of vectors that become models.

Codes keep the order of their bits, most significant first. Faiss's own codes have the least
significant bit first, which changes no Hamming distance as long as both sides have the same order;
``np.packbits(np.unpackbits(codes, axis=1, bitorder="little"), axis=1)`` turns them.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from .layers import Layer
from .model import Metric, Model

# The first bytes of transforms and of indexes.
_TRANSFORMS = (b"LTra", b"rrot", b"Pc", b"Viq", b"VNrm", b"VCnt", b"RmDT")
_INDEXES = (b"Ix", b"Iw", b"Il", b"IB")
_TAKEN = (
    "a model is made of linear transforms (PCA, OPQ, ITQ, random rotations), of centring and "
    "scaling to unit length, and of an IndexLSH after them"
)


def is_faiss(data: bytes) -> bool:
    """Return whether a file begins as those of Faiss do."""
    return data.startswith((*_TRANSFORMS, *_INDEXES))


def codes_to_faiss(codes: NDArray[np.uint8]) -> bytes:
    """Return the file of an IndexBinaryFlat with these codes (n, width), in their order.

    Raises
    ------
    InvalidInputError
        If Faiss is not installed.
    """
    faiss = require_faiss()
    index = faiss.IndexBinaryFlat(8 * codes.shape[1])
    index.add(np.ascontiguousarray(codes))
    written: bytes = faiss.serialize_index_binary(index).tobytes()
    return written


def model_from_faiss(data: bytes, name: str, metric: Metric = "l2") -> Model:
    """Make a model of a transform, of an IndexLSH, or of an IndexPreTransform with one.

    Faiss itself reads the file, so it must come from a trusted source. A bit is 1 where a
    projection is above 0, in Faiss where it is 0 or more.

    Raises
    ------
    InvalidInputError
        If Faiss is not installed or cannot read the file, or there is something in it that is not
        a layer of a model.
    """
    faiss = require_faiss()
    reader = faiss.VectorIOReader()
    faiss.copy_array_to_vector(np.frombuffer(data, np.uint8), reader.data)
    read = faiss.read_VectorTransform if data.startswith(_TRANSFORMS) else faiss.read_index
    try:
        found = read(reader)
    except (RuntimeError, MemoryError) as error:
        # After the name of a function of C++ and a line of its file.
        reason = str(error).rpartition(": ")[2]
        raise InvalidInputError(
            f"Faiss {faiss.__version__} cannot read the file: {reason}"
        ) from error
    layers: list[Layer] = []
    kinds: list[str] = []
    dimension = found.d if isinstance(found, faiss.Index) else found.d_in
    for part in _parts(faiss, found):
        if not part.is_trained:
            raise InvalidInputError(f"the {type(part).__name__} in the file is not trained")
        kinds.append(type(part).__name__)
        layers += _layers(faiss, part)
    training = {"faiss": kinds}
    return Model(name, "faiss", dimension, layers, metric, training=training)


def _parts(faiss: Any, found: Any) -> list[Any]:
    if isinstance(found, faiss.IndexPreTransform):
        chain = [
            faiss.downcast_VectorTransform(found.chain.at(k)) for k in range(found.chain.size())
        ]
        return [*chain, faiss.downcast_index(found.index)]
    return [found]


def _layers(faiss: Any, part: Any) -> list[Layer]:
    if isinstance(part, faiss.LinearTransform):
        weights = faiss.vector_to_array(part.A).reshape(part.d_out, part.d_in)
        bias = faiss.vector_to_array(part.b) if part.have_bias else np.zeros(part.d_out, np.float32)
        return [Layer("affine", weights, bias)]
    if isinstance(part, faiss.ITQTransform):
        # Rows are centred and scaled to unit length before its PCA and rotation.
        centred = Layer("shift", bias=-faiss.vector_to_array(part.mean))
        return [centred, Layer("normalize"), *_layers(faiss, part.pca_then_itq)]
    if isinstance(part, faiss.CenteringTransform):
        return [Layer("shift", bias=-faiss.vector_to_array(part.mean))]
    if isinstance(part, faiss.NormalizationTransform) and part.norm == 2:
        return [Layer("normalize")]
    if isinstance(part, faiss.IndexLSH):
        if part.rotate_data:
            first = _layers(faiss, part.rrot)
        else:
            # It takes the first dimensions as they are.
            weights = np.eye(part.nbits, part.d, dtype=np.float32)
            first = [Layer("affine", weights, np.zeros(part.nbits, np.float32))]
        if part.train_thresholds:
            first.append(Layer("shift", bias=-faiss.vector_to_array(part.thresholds)))
        return first
    raise InvalidInputError(f"the file holds {type(part).__name__}, but {_TAKEN}")


def require_faiss() -> Any:
    """Return the module, or refuse to continue without it."""
    try:
        import faiss
    except ImportError as error:
        raise InvalidInputError(
            "files of Faiss need Faiss: pip install '.[faiss]' in the checkout"
        ) from error
    return faiss
