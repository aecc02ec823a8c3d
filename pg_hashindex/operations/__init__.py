"""Keeping indexes in order: health, repair, rebinding, and the report.

Imports `quality`, `index` and what is below them. Read `health.check` first.
"""
