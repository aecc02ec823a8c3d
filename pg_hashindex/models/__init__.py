"""Models, whatever method fitted them: layers, bit order, networks, the store, files.

Imports `db` and `errors`. Read `model.Model` first; `codes` alone decides the order of bits, and
`store` alone reads and writes models in the database.
"""
