"""Other people's libraries: SQLAlchemy, alembic, LangChain, pandas, each loaded only by its user.

Imports any room but `server`; no room imports it. Read the `__init__` of the library that you use.
"""
