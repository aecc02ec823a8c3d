# Each command makes .venv and installs what it needs, the demo less than the tests. BLAS threads are
# left at one for each test process, since two of those run side by side.
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --constraint constraints.txt --editable

.PHONY: demo browser example test test-faults test-documents test-nightly test-extension test-older test-kernels lint words docs extension tle release

demo: .venv/installed-demo
	$(BIN)/pg-hashindex demo

# PostgreSQL in a page: PGlite from npm, and what the package has. PORT=8001 make browser takes another port.
browser: .venv/installed-demo examples/browser/node_modules
	$(BIN)/python examples/browser/prepare.py
	$(BIN)/python -m http.server --directory examples/browser --bind 127.0.0.1 $(or $(PORT),8000)

examples/browser/node_modules: examples/browser/package-lock.json
	cd examples/browser && npm ci && touch node_modules

# A service of FastAPI and SQLAlchemy: its migrations, its rows, its model, and answers to requests.
example: .venv/installed-example
	cd examples/package_search && ../../$(BIN)/python -m app $(ARGS)

# Workers and the programs that tests start share compiled code, also where the environment keeps
# Python from writing any.
test test-faults test-documents: export PYTHONDONTWRITEBYTECODE :=
test test-faults test-documents: export OMP_NUM_THREADS := 1
test test-faults test-documents: export OPENBLAS_NUM_THREADS := 1
test: .venv/installed
	@echo "The tests take about 8 minutes on two cores; one room of them: $(BIN)/pytest tests/index"
	$(BIN)/pytest -n 2 --dist worksteal -m "not faults and not documents"

# Kills, cuts, locks and moves; the embedded server; Citus.
test-faults: .venv/installed
	$(BIN)/pytest -n 2 --dist worksteal -m faults

# The documents' pages but the first two, their figures, notebooks, examples, benchmarks, the wheel.
test-documents: .venv/installed
	$(BIN)/pytest -n 2 --dist worksteal -m documents

# The tests of databases that have the extension instead of what `schema upgrade` makes.
DATABASE_TESTS := attacks cli contrib db faults index models moving operations papers quality sets training
TESTS ?= $(DATABASE_TESTS:%=tests/%)
test-extension: .venv/installed
	PG_HASHINDEX_TEST_INSTALL=extension OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 \
		$(BIN)/pytest -n 2 --dist worksteal $(TESTS)

# Random runs of the fault tests, for each night: they print the seed that repeats them.
test-nightly: export PG_HASHINDEX_SEED ?= random
test-nightly: .venv/installed
	PG_HASHINDEX_EXAMPLES=40 OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -rP tests/faults/test_stateful.py

# Tests that depend on the version, in the rooms whose SQL does: on PostgreSQL 16, and, without the slow ones, on the
# oldest that is supported. Those skip, and say why, where Debian's PostgreSQL 15 or ../shared/servers is missing.
OLDER_TESTS := attacks cli contrib db faults index models moving operations papers quality sets training
OLDER := -n 2 --dist worksteal $(OLDER_TESTS:%=tests/%)
test-older: export OMP_NUM_THREADS := 1
test-older: export OPENBLAS_NUM_THREADS := 1
test-older: .venv/installed
	$(BIN)/pytest $(OLDER) --postgres 16 -m "not newest"
	$(BIN)/pytest $(OLDER) --postgres 15 -m "not newest and not slow"

# The arithmetic of other CPUs: OpenBLAS and numpy add in another order without AVX-512 or AVX2, so
# the last bit differs. The warning is of features this CPU lacks too.
KERNELS := -W ignore::ImportWarning -n 2 --dist worksteal tests/hashers -m "not slow"
test-kernels: export OMP_NUM_THREADS := 1
test-kernels: export OPENBLAS_NUM_THREADS := 1
test-kernels: .venv/installed
	OPENBLAS_CORETYPE=Haswell NPY_DISABLE_CPU_FEATURES="X86_V4 AVX512_ICL AVX512_SPR" \
		$(BIN)/pytest $(KERNELS)
	OPENBLAS_CORETYPE=Prescott NPY_DISABLE_CPU_FEATURES="X86_V3 X86_V4 AVX512_ICL AVX512_SPR" \
		$(BIN)/pytest $(KERNELS)

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	python3 .ci/words
	$(BIN)/mypy --strict examples/package_search/app examples/package_search/migrations

# Phrases that have better ones; FIX=1 make words writes these where one stands for the other.
words:
	python3 .ci/words $(if $(FIX),--fix)

# To build/site. The variable silences an advertisement.
docs: .venv/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict -f docs/site/mkdocs.yml

# The files of CREATE EXTENSION, to build/extension.
extension: .venv/installed-demo
	$(BIN)/pg-hashindex extension build/extension

# The script that registers the extension with pg_tle.
tle: .venv/installed-demo
	mkdir -p build
	$(BIN)/pg-hashindex extension --tle build/pg_hashindex-tle.sql

# The wheel, the sdist, the extension's archive and the plain script of HEAD, to build/release; each is
# tried from a clean environment.
release:
	.ci/release

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
