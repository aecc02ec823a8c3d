"""What every room needs of PostgreSQL: connections, transactions, locks, the schema, jobs.

Imports nothing of ours but `errors`. Read `connection.connect` first, then `schema.upgrade`.
"""
