"""Models of all methods: layers, bit order, networks, the store, files.

Imports `db` and `errors`. Read `model.Model` first. Only `codes` decides the order of bits, and
only `store` reads and writes models in the database.
"""
