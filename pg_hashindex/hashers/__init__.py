"""The methods: arrays in, fitted hasher out. Nothing here knows a database."""

from typing import Any

from ..errors import InvalidInputError
from .agh import AGH
from .base import Hasher
from .bgdh import BGDH
from .cghash import CGHash
from .dpsh import DPSH
from .fsdh import FSDH
from .itq import ITQ
from .itq_cca import ITQCCA
from .ksh import KSH
from .lsh import LSH
from .pcah import PCAH
from .rows import BlockSource, RowsLike
from .s3plh import S3PLH
from .sadih import SADIH
from .sdh import SDH
from .sgh import SGH
from .sh import SH
from .sign import Sign
from .sikh import SIKH
from .usplh import USPLH

__all__ = [
    "AGH",
    "BGDH",
    "DPSH",
    "FSDH",
    "HASHERS",
    "ITQ",
    "ITQCCA",
    "KSH",
    "LSH",
    "PCAH",
    "S3PLH",
    "SADIH",
    "SDH",
    "SGH",
    "SH",
    "SIKH",
    "USPLH",
    "BlockSource",
    "CGHash",
    "Hasher",
    "RowsLike",
    "Sign",
    "make_hasher",
]

#: Every method under the name that models, the command line and SQL know it by.
HASHERS: dict[str, type[Hasher]] = {
    hasher.method: hasher
    for hasher in (
        Sign,
        LSH,
        SIKH,
        PCAH,
        SH,
        ITQ,
        ITQCCA,
        USPLH,
        S3PLH,
        SGH,
        AGH,
        KSH,
        SDH,
        FSDH,
        SADIH,
        CGHash,
        DPSH,
        BGDH,
    )
}


def make_hasher(name: str, **params: Any) -> Hasher:
    """Make a hasher by its registered name.

    Parameters
    ----------
    name : str
        A key of `HASHERS`.
    **params
        The parameters of that class.

    Returns
    -------
    Hasher
        Not fitted yet; ``fit`` checks the values of the parameters.

    Raises
    ------
    InvalidInputError
        If there is no such hasher, or it has no such parameter.
    """
    if name not in HASHERS:
        raise InvalidInputError(f"hasher {name!r} is unknown; known are {', '.join(HASHERS)}")
    accepted = HASHERS[name].parameter_names()
    if unknown := sorted(set(params) - set(accepted)):
        raise InvalidInputError(
            f"{name} has no parameter {', '.join(map(repr, unknown))}; "
            f"it accepts {', '.join(accepted)}"
        )
    return HASHERS[name](**params)
