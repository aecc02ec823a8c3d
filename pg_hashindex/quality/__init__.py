"""The quality of an index: evaluate, tune, doctor, recall over time, plots.

Imports `index`, `training` and what is below them. Read `evaluate.evaluate` first, then
`tuning.tune`.
"""
