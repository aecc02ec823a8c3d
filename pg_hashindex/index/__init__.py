"""An index: its handle and row, encoding, access paths, landmarks and search.

Imports the rooms below it. Read `handle.HashIndex` first; then `search.Search` and
``sql/templates``, which a search runs.
"""
