"""An index: its handle and row, encoding, access paths, landmarks, search, swap and Citus.

Imports `models` and `db`, and `metrics` for what a swap measures. Read `handle.HashIndex` first;
`search` is the way of one query, ``sql/templates`` the SQL of it.
"""
