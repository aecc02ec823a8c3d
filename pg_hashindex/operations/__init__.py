"""Maintenance of indexes: check, repair, rebind, swap, and the report.

Imports `quality`, `index` and what is below them. Read `health.check` first, then `repair.repair`.
"""
