"""A vector store for LlamaIndex; needs the extra ``llama-index``."""

try:
    import llama_index.core  # noqa: F401
except ImportError as error:
    raise ImportError(
        "pg_hashindex.contrib.llama_index needs: pip install '.[llama-index]' in the checkout"
    ) from error

from .vectorstore import HashIndexVectorStore

__all__ = ["HashIndexVectorStore"]
