"""The embedded PostgreSQL with pgvector, and the demo: for trying, tests and benchmarks.

Imports `errors`, and the demo any room. Read `embedded.EmbeddedServer` first.
"""

from .embedded import SUPPORTED_VERSIONS, EmbeddedServer, ServerStatus
from .files import DEFAULT_VERSION, default_data_dir

__all__ = [
    "DEFAULT_VERSION",
    "SUPPORTED_VERSIONS",
    "EmbeddedServer",
    "ServerStatus",
    "default_data_dir",
]
