"""An index: its handle and row, encoding, access paths, landmarks, search and Citus.

Imports the rooms below it. Read `handle.HashIndex` first; then `search.Search` and
``sql/templates``, which a search runs. Methods of the handle that repair or swap an index call
`operations`, and import it when they are called.
"""
