"""The errors of pg_hashindex: one base class, one class for each thing a caller may handle.

Every message says what was wrong, with the value, and what to do about it.
"""

import struct
import tokenize
import zipfile
import zlib

__all__ = [
    "UNREADABLE",
    "BuildWarning",
    "ConnectionFailedError",
    "DatabaseStateError",
    "DuplicateNameError",
    "EmbeddedServerError",
    "FewerJobsWarning",
    "HashIndexError",
    "InUseError",
    "InvalidInputError",
    "LowerRecallError",
    "MissingExtensionError",
    "MissingRightsError",
    "MissingSchemaError",
    "NotFittedError",
    "OldServerError",
    "OtherModelWarning",
    "RowsLeftOutWarning",
    "SlowWritesWarning",
    "TrainingError",
    "UnknownIndexError",
    "UnknownModelError",
]


#: Exceptions of NumPy, zipfile, zlib and json on a damaged file.
UNREADABLE = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    OSError,
    EOFError,
    MemoryError,
    RuntimeError,
    struct.error,
    tokenize.TokenError,
    zlib.error,
    zipfile.BadZipFile,
)


class RowsLeftOutWarning(UserWarning):
    """Rows of a table whose numbers are too large were left out."""


class FewerJobsWarning(UserWarning):
    """Fewer processes than were wanted have built landmarks."""


class BuildWarning(UserWarning):
    """Codes that were built are in use, after rows were read again, or with something left."""


class OtherModelWarning(UserWarning):
    """Codes are written to a column that an index searches by codes of another model."""


class SlowWritesWarning(UserWarning):
    """Triggers or indexes of a table make each row that is to be written take longer."""


class HashIndexError(Exception):
    """Anything that pg_hashindex refuses or fails at."""


class InvalidInputError(HashIndexError, ValueError):
    """An argument is not usable: wrong shape, type, range or content."""


class TooLargeError(InvalidInputError):
    """A model takes a row beyond what float32 can hold."""


class NotFittedError(HashIndexError, ValueError):
    """A hasher projects or encodes only after ``fit``."""


class TrainingError(HashIndexError):
    """Training cannot continue: its numbers overflowed."""


class UnknownModelError(HashIndexError, LookupError):
    """No model is stored under that name and version."""


class UnknownIndexError(HashIndexError, LookupError):
    """No index has that name."""


class DuplicateNameError(HashIndexError):
    """An object of that name exists already."""


class InUseError(HashIndexError):
    """Something else depends on the object, so it cannot be dropped."""


class LowerRecallError(HashIndexError):
    """Another model would find fewer of the true neighbours than the one in use."""


class ConnectionFailedError(HashIndexError):
    """The database could not be reached."""


class OldServerError(HashIndexError):
    """PostgreSQL or pgvector is older than pg_hashindex supports."""


class MissingExtensionError(HashIndexError):
    """The extension pgvector is not installed in the database."""


class MissingSchemaError(HashIndexError):
    """The schema ``hashindex`` is not installed in the database, or is out of date."""


class MissingRightsError(HashIndexError):
    """The database role lacks a right that the command needs."""


class DatabaseStateError(HashIndexError):
    """The database refused a statement for any other reason."""


class EmbeddedServerError(HashIndexError):
    """The embedded PostgreSQL could not be started, stopped or found."""
