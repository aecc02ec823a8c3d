"""Arrays in files of NumPy, MATLAB, TEXMEX and big-ann-benchmarks, by name.

====================== =============================================================
.npz                   arrays by name
.mat                   arrays by name, of MATLAB or Octave, up to version 7
.npy                   one array
.fvecs, .bvecs, .ivecs one array of float32, uint8 or int32; before each row stands
                       its dimension as int32 (corpus-texmex.irisa.fr)
.fbin                  one array of float32, after the numbers of its rows and columns as
                       int32 (big-ann-benchmarks.com)
.hdf5, .h5             arrays by name, such as train, test and neighbors of
                       ann-benchmarks.com; needs h5py
====================== =============================================================

A file of one array has it by the name X.
"""

import math
import os
import zipfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ..errors import UNREADABLE, InvalidInputError
from ..models.vectors import MAX_DIMENSION, SparseRows

_T = TypeVar("_T")

# Their values, and bytes of each.
_TEXMEX = {".fvecs": ("<f4", 4), ".bvecs": ("u1", 1), ".ivecs": ("<i4", 4)}
_HDF5 = (".hdf5", ".h5")
# Arrays of vectors, by their usual names.
_VECTORS = ("X", "train")
# Bytes of an array that any file may hold, and how many times its own size a larger one: vectors
# hardly compress.
_SMALL, _UNPACKED = 1 << 28, 100
# Bytes of a number by its class in MATLAB.
_MATLAB_BYTES = {
    "double": 8, "single": 4, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4,
    "uint32": 4, "int64": 8, "uint64": 8, "logical": 1,
}  # fmt: skip
#: Ends of the names of files, which tell them from names of arrays.
SUFFIXES = (".npy", ".npz", ".mat", ".fbin", *_TEXMEX, *_HDF5)
_MAT_7_3 = (
    "it is of MATLAB's version 7.3 (HDF5); save it in MATLAB with save('file.mat', ..., '-v7')"
)


@dataclass(frozen=True)
class ArrayFile:
    """A file of arrays, which are read one at a time: others may be of types that are refused.

    Raises
    ------
    InvalidInputError
        By every method, if the file does not exist, is damaged or needs pickle; is a MATLAB file
        of version 7.3; or holds no such array.
    """

    path: Path

    def __post_init__(self) -> None:
        # Callers may give text.
        object.__setattr__(self, "path", Path(self.path))

    def __str__(self) -> str:
        if self.is_single:
            return f"{self.path} (a file of one array)"
        return f"{self.path} (it holds {', '.join(self.shapes) or 'none'})"

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...] | None]:
        """The arrays by name, with their shapes where these are known without reading them."""
        return self._tried(self._find_shapes)

    @property
    def is_single(self) -> bool:
        """Whether it is of a kind that holds one array."""
        return self._suffix in (".fbin", *_TEXMEX) or self._tried(self._is_npy)

    @property
    def _suffix(self) -> str:
        return self.path.suffix.lower()

    def read(self, name: str) -> Any:
        """Return an array; of MATLAB perhaps a sparse one.

        MATLAB has no whole numbers unless one asks for them, so arrays of such are read as int64.
        """
        if name not in self.shapes:
            raise InvalidInputError(f"there is no array {name!r} in {self}")
        return self._tried(lambda: self._read(name))

    def read_flat(self, name: str) -> Any:
        """Return an array of one dimension, which MATLAB has as a row or a column; or any other."""
        array = self.read(name)
        # Not of one value: that may be a row as well as a number.
        if self._suffix == ".mat" and array.ndim == 2 and 1 in array.shape:
            return (array.toarray() if scipy.sparse.issparse(array) else array).ravel()
        return array

    def read_vectors(
        self,
        name: str | None = None,
        others: Collection[str] = (),
        usual: Collection[str] = _VECTORS,
    ) -> Any:
        """Return the array of a name; by default a usual one, or the only of rows and columns."""
        if name is None:
            known = (one for one in usual if one in self.shapes)
            name = next(known, None) or self._name_of_vectors(others)
        return self.read(name)

    def _name_of_vectors(self, others: Collection[str]) -> str:
        names, refused = [], None
        for name, known in self.shapes.items():
            try:
                shape = self.read(name).shape if known is None else known
            except InvalidInputError as error:
                # It may be of another kind than vectors.
                refused = error
                continue
            # MATLAB has lists as rows or columns.
            flat = len(shape) != 2 or (self._suffix == ".mat" and 1 in shape)
            if name not in others and not flat:
                names.append(name)
        if refused is not None and not names:
            raise refused
        if len(names) != 1:
            raise InvalidInputError(
                f"there is no array X in {self}: the vectors must be called X, be named, or be the "
                "only array of two dimensions"
            )
        return names[0]

    def _find_shapes(self) -> dict[str, tuple[int, ...] | None]:
        if self._suffix == ".mat":
            from scipy.io import whosmat

            return {name: shape for name, shape, _ in whosmat(str(self.path), appendmat=False)}
        if self.is_single:
            return {"X": None}
        if self._suffix in _HDF5:
            with self._hdf5() as arrays:
                return {
                    # A link may open another file.
                    name: getattr(arrays[name], "shape", None)
                    if _is_hard_link(arrays, name)
                    else ()
                    for name in arrays
                }
        with self.path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return dict.fromkeys(archive.files)

    def _hdf5(self) -> Any:
        try:
            import h5py
        except ImportError as error:
            raise InvalidInputError(f"{self.path} needs h5py: pip install h5py") from error
        return h5py.File(self.path, "r")

    def _is_npy(self) -> bool:
        with self.path.open("rb") as file:
            if self._suffix in (".mat", *_HDF5):
                return False
            loaded = file.read(6)
            if loaded.startswith(b"PK"):
                return False
            if loaded != np.lib.format.MAGIC_PREFIX:
                raise InvalidInputError(
                    f"cannot read arrays from {self.path}: it is none of {', '.join(SUFFIXES)}; "
                    "with NumPy, save others by np.save('file.npy', rows)"
                )
            return True

    def _read(self, name: str) -> Any:
        if self._suffix == ".fbin":
            return self._read_fbin()
        if self._suffix in _TEXMEX:
            return self._read_texmex(*_TEXMEX[self._suffix])
        if self._suffix == ".mat":
            from scipy.io import loadmat, whosmat

            self._check_size(name, self._bytes_of_matlab(name))
            array = loadmat(str(self.path), variable_names=[name], appendmat=False)[name]
            # It reads logical arrays as bytes.
            kinds = {name: kind for name, _, kind in whosmat(str(self.path), appendmat=False)}
            return self._of_matlab(name, array != 0 if kinds[name] == "logical" else array)
        if self._suffix in _HDF5:
            with self._hdf5() as arrays:
                if not _is_hard_link(arrays, name):
                    raise InvalidInputError(
                        f"{name} of {self.path} is a link; copy its array into the file"
                    )
                if not hasattr(arrays[name], "nbytes"):
                    raise InvalidInputError(f"{name} of {self.path} is not an array")
                if arrays[name].external or arrays[name].is_virtual:
                    raise InvalidInputError(
                        f"{name} of {self.path} keeps its numbers in other files (external storage "
                        "or a virtual data set); copy them into one file"
                    )
                self._check_size(name, arrays[name].nbytes)
                return np.asarray(arrays[name])
        if zipfile.is_zipfile(self.path):
            with zipfile.ZipFile(self.path) as members:
                sizes = {one.filename: one.file_size for one in members.infolist()}
            self._check_size(name, sizes.get(f"{name}.npy", 0))
        # Open here, since NumPy leaves a damaged archive open.
        with self.path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            array = loaded if isinstance(loaded, np.ndarray) else loaded[name]
        if not isinstance(array, np.ndarray):
            raise InvalidInputError(f"{name} of {self.path} is not an array")
        return array

    def _bytes_of_matlab(self, name: str) -> int:
        from scipy.io import whosmat

        found = {one: rest for one, *rest in whosmat(str(self.path), appendmat=False)}
        shape, kind = found[name]
        return int(math.prod(shape) * _MATLAB_BYTES.get(kind, 0))

    def _check_size(self, name: str, wanted: int) -> None:
        """Refuse an array that would fill the memory, as a small file can unpack to one."""
        length = os.path.getsize(self.path)
        if wanted > max(_SMALL, _UNPACKED * length):
            raise InvalidInputError(
                f"{name} of {self.path} would take {wanted / 1e6:,.0f} MB of memory, and the file "
                f"has {length / 1e6:,.1f} MB; save it without compression if it is meant"
            )

    def _read_fbin(self) -> NDArray[Any]:
        header = np.fromfile(self.path, "<i4", 2)
        rows, columns = header.tolist() if len(header) == 2 else (0, 0)
        wanted, length = 8 + 4 * rows * columns, os.path.getsize(self.path)
        if rows < 1 or not 1 <= columns <= MAX_DIMENSION or length != wanted:
            raise InvalidInputError(
                f"{self.path} is cut off, or is not a file of fbin: by its first numbers it has "
                f"{rows} rows of {columns} dimensions, {wanted} bytes, and it has {length}"
            )
        return np.fromfile(self.path, "<f4", offset=8).reshape(rows, columns)

    def _read_texmex(self, kind: str, size: int) -> NDArray[Any]:
        length = os.path.getsize(self.path)
        with self.path.open("rb") as file:
            first = file.read(4)
        dimension = int(np.frombuffer(first, "<i4")[0]) if len(first) == 4 else 0
        if not 1 <= dimension <= MAX_DIMENSION:
            what = f"a first row of {dimension} dimensions" if len(first) == 4 else "no whole row"
            raise InvalidInputError(
                f"{self.path} is not a file of {self._suffix[1:]}: it has {what}; rows have 1 to "
                f"{MAX_DIMENSION} dimensions"
            )
        row_bytes = 4 + size * dimension
        if length % row_bytes:
            raise InvalidInputError(
                f"{self.path} is cut off, or is not a file of {self._suffix[1:]}: a row of "
                f"{dimension} dimensions has {row_bytes} bytes, and {length} bytes are "
                f"{length // row_bytes} rows and {length % row_bytes} bytes"
            )
        rows = np.fromfile(self.path, dtype=[("n", "<i4"), ("row", kind, (dimension,))])
        if (other := rows["n"] != dimension).any():
            place = int(np.argmax(other))
            raise InvalidInputError(
                f"{self.path}: row {place} has {rows['n'][place]} dimensions, the first one has "
                f"{dimension}"
            )
        return np.ascontiguousarray(rows["row"])

    def _of_matlab(self, name: str, array: Any) -> Any:
        if scipy.sparse.issparse(array):
            matrix: SparseRows = scipy.sparse.csr_array(array)
            matrix.data = _whole(matrix.data)
            return matrix
        if array.dtype == object and array.size:
            # A cell array of text, each an array of its own.
            words = [np.atleast_1d(cell) for cell in array.ravel()]
            if all(word.dtype.kind == "U" and word.size <= 1 for word in words):
                array = np.array([word[0] if word.size else "" for word in words])
        if array.dtype.kind not in "biufcU":
            raise InvalidInputError(
                f"{name} of {self.path} is neither of numbers nor of text; save it as an array of "
                "numbers"
            )
        # Rows of letters are padded to the same length.
        return np.char.rstrip(array) if array.dtype.kind == "U" else _whole(array)

    def _tried(self, read: Callable[[], _T]) -> _T:
        # A pipe would be waited for.
        if self.path.exists() and not self.path.is_file():
            raise InvalidInputError(
                f"cannot read arrays from {self.path}: it is not a regular file"
            )
        try:
            return read()
        except InvalidInputError:
            raise
        except NotImplementedError as error:
            why = _MAT_7_3 if self._suffix == ".mat" else error
            raise InvalidInputError(f"cannot read arrays from {self.path}: {why}") from error
        except Exception as error:
            # Readers of MATLAB have errors without a common class.
            if self._suffix != ".mat" and not isinstance(error, UNREADABLE):
                raise
            raise InvalidInputError(f"cannot read arrays from {self.path}: {error}") from error


def find_named(
    files: Sequence[ArrayFile], name: str, *, flat: bool = False
) -> tuple[Any, ArrayFile | None]:
    """Find the array that an option names: in the first file that has it, or a file by itself.

    Parameters
    ----------
    files
        Where names are looked for.
    name
        A name, or a path that ends as `SUFFIXES`.
    flat
        It has one dimension, as labels and row numbers have.

    Returns
    -------
    array
    ArrayFile, optional
        The one of ``files`` that has it.

    Raises
    ------
    InvalidInputError
        If there is no such array, or the file that is named holds several or cannot be read.
    """
    for file in files:
        if name in file.shapes:
            return file.read_flat(name) if flat else file.read(name), file
    if not name.lower().endswith(SUFFIXES):
        raise InvalidInputError(
            f"there is no array {name!r} in {' or '.join(map(str, files))}; name one of these, or "
            f"a file of one array ({', '.join(SUFFIXES)})"
        )
    file = ArrayFile(Path(name))
    if len(file.shapes) != 1:
        raise InvalidInputError(f"{file} is to be a file of one array")
    (only,) = file.shapes
    return file.read_flat(only) if flat else file.read(only), None


def _is_hard_link(arrays: Any, name: str) -> bool:
    """Whether a name of an HDF5 file is of an array in it."""
    import h5py

    return isinstance(arrays.get(name, getlink=True), h5py.HardLink)


def _whole(array: NDArray[Any]) -> NDArray[Any]:
    """Return numbers as int64, if all are whole and within its range."""
    if array.dtype.kind != "f":
        return array
    # A large array that has others shows it at its beginning.
    for part in (array[:8], array):
        if not ((np.abs(part) < 2**53) & (part == np.floor(part))).all():
            return array
    return array.astype(np.int64)
