"""The quality of an index and its codes: evaluate, tune, doctor, comparisons of methods, plots.

Imports `index`, `training` and what is below them. Read `evaluate.evaluate` first, then
`tuning.tune_table`.
"""
