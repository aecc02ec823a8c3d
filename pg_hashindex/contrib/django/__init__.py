"""Indexes in ``Meta.indexes`` of Django's models, and searches; needs the extra ``django``.

A model declares `HashIndex`: Django's own migrations make it, swap its model, and drop it.
`NearestQuerySet.nearest` searches.
"""

from importlib.util import find_spec

if find_spec("django") is None:
    raise ImportError("pg_hashindex.contrib.django needs: pip install '.[django]' in the checkout")

from .indexes import HashIndex
from .operations import InstallHashindex
from .querysets import NearestQuerySet

__all__ = ["HashIndex", "InstallHashindex", "NearestQuerySet"]
