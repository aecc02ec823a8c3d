"""How good an index and its codes are: evaluate, tune, doctor, comparisons, plots.

Imports `index`, `training` and what is below them. Read `evaluate.evaluate` first, then
`tuning.tune_table`.
"""
