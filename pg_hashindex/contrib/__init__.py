"""SQLAlchemy, alembic, Django, LangChain, LlamaIndex: each is loaded only if it is used.

Imports any room but `server`; no room imports it. Read the `__init__` of the library that you use.
"""
