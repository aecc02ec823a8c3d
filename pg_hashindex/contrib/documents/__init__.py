"""Tables of documents for vector stores of retrieval libraries: LangChain's and LlamaIndex's.

Imports neither library. Read `store.DocumentStore` first, which both stores inherit.
"""
