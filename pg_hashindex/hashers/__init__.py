"""The methods: arrays in, fitted hasher out. Nothing here knows a database."""

from collections import UserDict
from collections.abc import MutableMapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, get_args

from ..errors import InvalidInputError
from .base import Hasher, Preset
from .numerics.rows import BlockSource, RowsLike

if TYPE_CHECKING:
    from .agh import AGH as AGH
    from .bre import BRE as BRE
    from .cghash import CGHash as CGHash
    from .cosdish import COSDISH as COSDISH
    from .deep.bgdh import BGDH as BGDH
    from .deep.deep_dsh import DeepDSH as DeepDSH
    from .deep.dhn import DHN as DHN
    from .deep.dpsh import DPSH as DPSH
    from .deep.ssdh import SSDH as SSDH
    from .dgh import DGH as DGH
    from .dsh import DSH as DSH
    from .fasth import FastH as FastH
    from .fsdh import FSDH as FSDH
    from .isohash import IsoHash as IsoHash
    from .itq import ITQ as ITQ
    from .itq_cca import ITQCCA as ITQCCA
    from .ksh import KSH as KSH
    from .lfh import LFH as LFH
    from .lsh import LSH as LSH
    from .pcah import PCAH as PCAH
    from .s3plh import S3PLH as S3PLH
    from .sadih import SADIH as SADIH
    from .sbre import SBRE as SBRE
    from .sdh import SDH as SDH
    from .sgh import SGH as SGH
    from .sh import SH as SH
    from .sign import Sign as Sign
    from .sikh import SIKH as SIKH
    from .sph import SpH as SpH
    from .ssh import SSH as SSH
    from .sth import STH as STH
    from .thermometer import Thermometer as Thermometer
    from .usplh import USPLH as USPLH

# The class of each method. Its module is named after the method, with an underscore for a dash.
# Methods that train a neural network are in `deep`, which alone needs torch.
_DEEP = ("dpsh", "bgdh", "deep-dsh", "dhn", "ssdh")
_CLASSES = {
    "sign": "Sign",
    "lsh": "LSH",
    "thermometer": "Thermometer",
    "sikh": "SIKH",
    "pcah": "PCAH",
    "sh": "SH",
    "itq": "ITQ",
    "isohash": "IsoHash",
    "sph": "SpH",
    "dsh": "DSH",
    "sth": "STH",
    "bre": "BRE",
    "itq-cca": "ITQCCA",
    "usplh": "USPLH",
    "ssh": "SSH",
    "s3plh": "S3PLH",
    "sgh": "SGH",
    "agh": "AGH",
    "dgh": "DGH",
    "sbre": "SBRE",
    "ksh": "KSH",
    "sdh": "SDH",
    "fsdh": "FSDH",
    "sadih": "SADIH",
    "lfh": "LFH",
    "cosdish": "COSDISH",
    "fasth": "FastH",
    "cghash": "CGHash",
    "dpsh": "DPSH",
    "bgdh": "BGDH",
    "deep-dsh": "DeepDSH",
    "dhn": "DHN",
    "ssdh": "SSDH",
}

__all__ = [
    "HASHERS",
    "BlockSource",
    "Hasher",
    "Preset",
    "RowsLike",
    "make_hasher",
    *_CLASSES.values(),
]


class _Methods(UserDict[str, Any]):
    """Classes by method, each imported on first use, since most need a part of scipy."""

    def __getitem__(self, method: str) -> type[Hasher]:
        if self.data[method] is None:
            room = ".deep" if method in _DEEP else ""
            module = import_module(f"{room}.{method.replace('-', '_')}", __name__)
            self.data[method] = getattr(module, _CLASSES[method])
        found: type[Hasher] = self.data[method]
        return found


#: Every method by the name that models, the command line and SQL use.
HASHERS: MutableMapping[str, type[Hasher]] = _Methods(dict.fromkeys(_CLASSES))


def __getattr__(name: str) -> Any:
    for method, known in _CLASSES.items():
        if name == known:
            return HASHERS[method]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_CLASSES.values()})


def make_hasher(name: str, *, preset: Preset = "default", **params: Any) -> Hasher:
    """Make a hasher by its registered name.

    Parameters
    ----------
    name
        A key of `HASHERS`.
    preset
        The settings to begin with; see `Hasher.of_preset`.
    **params
        The parameters of that class; they win over the preset.

    Returns
    -------
    Hasher
        Not fitted yet; ``fit`` checks the values of the parameters.

    Raises
    ------
    InvalidInputError
        If there is no such hasher, or it has no such preset or parameter.
    """
    if name not in HASHERS:
        raise InvalidInputError(f"hasher {name!r} is unknown; known are {', '.join(HASHERS)}")
    if preset not in get_args(Preset):
        raise InvalidInputError(
            f"preset {preset!r} is unknown; known are {', '.join(get_args(Preset))}"
        )
    return HASHERS[name].of_preset(preset, **params)
