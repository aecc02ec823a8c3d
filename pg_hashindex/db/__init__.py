"""PostgreSQL as every room uses it: connections, statements, transactions, locks, the schema, work.

Imports `errors` alone. Read `connection.connect` first, then `statements.execute` and
`schema.upgrade`.
"""
