"""The embedded PostgreSQL with pgvector, and the demo: for trying, tests and benchmarks.

Imports `errors`, and the demo any room. Read `embedded.EmbeddedServer` first.
"""

from .embedded import SUPPORTED_VERSIONS, EmbeddedServer
from .files import DEFAULT_VERSION, default_data_dir

__all__ = [
    "DEFAULT_VERSION",
    "SUPPORTED_VERSIONS",
    "EmbeddedServer",
    "default_data_dir",
]
