"""Support for SQLAlchemy, alembic, LangChain and pandas; each library is loaded only if it is used.

Imports any room but `server`; no room imports it. Read the `__init__` of the library that you use.
"""
