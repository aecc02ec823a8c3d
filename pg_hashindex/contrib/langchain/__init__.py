"""A vector store for LangChain; needs the extra ``langchain``."""

from importlib.util import find_spec

if find_spec("langchain_core") is None:
    raise ImportError(
        "pg_hashindex.contrib.langchain needs: pip install '.[langchain]' in the checkout"
    )

from ..documents.filters import Filter
from .vectorstore import HashIndexVectorStore

__all__ = ["Filter", "HashIndexVectorStore"]
