"""PostgreSQL as every room uses it: connections, transactions, locks, the schema, jobs.

Imports nothing of ours but `errors`. Read `connection.connect` first, then `statements.execute` and `schema.upgrade`.
"""
