# Each command makes .venv and installs what it needs, the demo less than the tests. BLAS threads are
# left at one for each test process, since two of those run side by side.
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --constraint constraints.txt --editable

.PHONY: demo example test lint docs

demo: .venv/installed-demo
	$(BIN)/pg-hashindex demo

# A service of FastAPI and SQLAlchemy: its migrations, its rows, its model, and answers to requests.
example: .venv/installed-example
	cd examples/package_search && ../../$(BIN)/python -m app $(ARGS)

test: .venv/installed
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --strict examples/package_search/app examples/package_search/migrations

# To build/site. The variable silences an advertisement.
docs: .venv/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict -f docs/site/mkdocs.yml

.venv/installed-demo: pyproject.toml constraints.txt
	python3 -m venv .venv
	$(INSTALL) '.[server]'
	touch $@

.venv/installed-example: pyproject.toml constraints.txt
	python3 -m venv .venv
	$(INSTALL) '.[example,server]'
	touch $@

.venv/installed: pyproject.toml constraints.txt
	python3 -m venv .venv
	$(INSTALL) '.[test]'
	touch $@ $@-demo $@-example
