"""Landmarks: thousands of centres among a table's rows, each row belonging to the nearest.

Read `building.ListBuild` first. `memory` and `workers` load no SciPy, the others do.
"""
