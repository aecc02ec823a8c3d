"""How good an index and its codes are: evaluate, tune, comparisons of methods, plots.

Imports `index`, `training` and what is below them. Read `evaluate.evaluate` first, then
`tuning.tune_table`.
"""
