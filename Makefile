# Each command makes .venv and installs what it needs, the demo less than the tests. BLAS threads are
# left at one for each test process, since two of those run side by side.
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --constraint constraints.txt --editable

.PHONY: demo test lint

demo: .venv/installed-demo
	$(BIN)/pg-hashindex demo

test: .venv/installed
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.venv/installed-demo: pyproject.toml constraints.txt
	python3 -m venv .venv
	$(INSTALL) '.[server]'
	touch $@

.venv/installed: pyproject.toml constraints.txt
	python3 -m venv .venv
	$(INSTALL) '.[test]'
	touch $@ $@-demo
