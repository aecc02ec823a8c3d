"""PostgreSQL as every room uses it: connections, statements, transactions, locks, the schema, jobs.

Imports `errors` alone. Read `connection.connect` first, then `statements.execute` and
`schema.upgrade`.
"""
