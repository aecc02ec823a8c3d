# Both commands make .venv and install what they need. BLAS threads are left at one for each test
# process, since two of those run side by side.
BIN := .venv/bin

.PHONY: demo test lint

demo: .venv/installed
	$(BIN)/pg-hashindex demo

test: .venv/installed
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.venv/installed: pyproject.toml constraints.txt
	python3 -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[server,test]'
	touch $@
