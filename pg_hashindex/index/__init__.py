"""An index: its handle and row, encoding, access paths, landmarks, search and Citus.

Imports `models` and what is below it, and `training` for samples. Read `handle.HashIndex` first;
`search.Search` is the way of one query, ``sql/templates`` the SQL of it. The methods of the handle
that change an index call `operations`, which they import when they are called.
"""
