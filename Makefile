# Two commands do everything on a fresh machine: `make demo` and `make test`.

PYTHON ?= python3
VENV ?= .venv
TRANSFORMERS5 ?= .venv-transformers5
SINCE ?= HEAD
UPSTREAM ?= $(shell git merge-base HEAD @{upstream} 2>/dev/null)
WHEELS ?= dist
WHEEL_TOOLS ?= build/wheel-tools
BIN := $(VENV)/bin
PARALLEL := -n auto --dist worksteal

.PHONY: help demo test affected check checked release static oracles families published clients long format hooks embedded kernels wheels clean

help:
	@echo "make demo      install into $(VENV), export models/stories to int8, generate from it"
	@echo "make test      install the test tools and run the tests, except the slow ones and those that need torch or transformers"
	@echo "make affected  the tests that the changes since a commit can concern: make affected SINCE=main"
	@echo "make check     make static beside every test but those of a release that no change since UPSTREAM can concern"
	@echo "make release   make static beside make oracles, as .ci/run does"
	@echo "make static    format, lint, types, import contracts"
	@echo "make oracles   every test, with torch, transformers 4 and 5, and optimum"
	@echo "make families  every case of every family against each oracle that knows it, in four bits too; make oracles has a sample"
	@echo "make published models as people publish them, from the checkpoint to the answer; make oracles has half of their bits"
	@echo "make clients   clients of OpenAI's and ollama's APIs, each in an environment of its own; make oracles has some of them"
	@echo "make long      the tests that take minutes: processes killed at random, a soak"
	@echo "make format    rewrite the files as the formatter wants them"
	@echo "make hooks     let git hold the titles of commits to the form of CONTRIBUTING.md"
	@echo "make embedded  export models/stories again to the bundle that the package carries"
	@echo "make kernels   compile kernels/ again if a file there is newer; the others do that too"
	@echo "make wheels    the source distribution and the wheels of every platform, built twice and checked, in $(WHEELS)"
	@echo "make clean     remove $(VENV), $(TRANSFORMERS5) and everything built"

# The tests' workers have a core each, and multiply small matrices.
test affected checked oracles families published clients long: export OPENBLAS_NUM_THREADS := 1

demo: kernels
	HF_HUB_OFFLINE=1 $(BIN)/edgegen export models/stories --int8 --force -o build/stories-int8
	HF_HUB_OFFLINE=1 $(BIN)/edgegen generate -m build/stories-int8 --echo --stats --seed 3 "Once upon a time"

test: $(VENV)/.installed-dev kernels
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow" --hypothesis-profile quick

check: $(VENV)/.installed-oracle $(TRANSFORMERS5)/.installed kernels
	$(MAKE) -j2 static checked

release: $(VENV)/.installed-oracle $(TRANSFORMERS5)/.installed kernels
	$(MAKE) -j2 static oracles

static: $(VENV)/.installed-oracle
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/pyright --pythonpath $(BIN)/python

affected checked oracles families published: export EDGEGEN_TRANSFORMERS5 := $(TRANSFORMERS5)
oracles: $(VENV)/.installed-oracle $(TRANSFORMERS5)/.installed kernels
	$(BIN)/python -m pytest $(PARALLEL)

# What others do not have yet is what has changed; where no branch is followed, everything has.
checked: $(VENV)/.installed-oracle $(TRANSFORMERS5)/.installed kernels
	$(BIN)/python -m pytest $(PARALLEL) -p tests.affected --since "$(UPSTREAM)" --among release

affected: $(VENV)/.installed-oracle $(TRANSFORMERS5)/.installed kernels
	$(BIN)/python -m pytest $(PARALLEL) -p tests.affected --since $(SINCE)

families: $(VENV)/.installed-oracle $(TRANSFORMERS5)/.installed kernels
	EDGEGEN_EVERY_CASE=1 $(BIN)/python -m pytest $(PARALLEL) tests/families

published: $(VENV)/.installed-oracle $(TRANSFORMERS5)/.installed kernels tests/published/node_modules
	EDGEGEN_EVERY_CASE=1 $(BIN)/python -m pytest $(PARALLEL) -m published

tests/published/node_modules: tests/published/package-lock.json
	npm ci --prefix tests/published --ignore-scripts --no-audit --no-fund || echo "without npm, its tests skip"

clients: $(VENV)/.installed-oracle kernels
	$(BIN)/python -m tests.long.clients

long: $(VENV)/.installed-dev kernels
	$(BIN)/python -m tests.long.kill_sessions
	$(BIN)/python -m tests.long.kill_batch
	$(BIN)/python -m tests.long.fail_writes
	$(BIN)/python -m tests.long.fuzz_bundles
	$(BIN)/python -m tests.long.fuzz_checkpoints
	$(BIN)/python -m tests.long.fuzz_tokenizers
	$(BIN)/python -m tests.long.soak
	$(BIN)/python -m tests.long.soak_server
	$(BIN)/python -m tests.long.costly_requests

format: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

hooks:
	git config core.hooksPath .ci/hooks

embedded: $(VENV)/.installed
	rm -rf edgegen/bundle/embedded/stories
	$(BIN)/edgegen export models/stories --int8 -o edgegen/bundle/embedded/stories

# The installation has compiled them, unless it could not: then this says why, in a line, and all goes on without.
kernels: $(VENV)/.installed
	@$(BIN)/python kernels/build.py --optional

# Everything needed comes from PyPI, the compiler too. WHEELS_FLAGS="--once --only win_amd64" builds a part.
wheels: $(WHEEL_TOOLS)/.installed
	$(WHEEL_TOOLS)/bin/python packaging/make_wheels.py $(WHEELS_FLAGS) $(WHEELS)

clean:
	rm -f edgegen/model/edgegen_kernels.*
	rm -rf $(VENV) $(TRANSFORMERS5) build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml hatch_build.py
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	touch $@

$(VENV)/.installed-oracle: $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev,oracle,optimum]"
	touch $@

$(WHEEL_TOOLS)/.installed: packaging/wheel_tools.txt
	$(PYTHON) -m venv --clear $(WHEEL_TOOLS)
	$(WHEEL_TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check -r packaging/wheel_tools.txt
	touch $@

# The tests' second oracle. Torch and all else but transformers 5 and its own needs are those of the first environment.
$(TRANSFORMERS5)/.installed: $(VENV)/.installed-oracle tests/second_oracle.txt
	$(BIN)/python -m venv --clear --without-pip $(TRANSFORMERS5)
	$(BIN)/python -m pip --python $(TRANSFORMERS5)/bin/python install --quiet --disable-pip-version-check --no-deps \
	  -r tests/second_oracle.txt
	$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" \
	  > "$$($(TRANSFORMERS5)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/first.pth"
	$(TRANSFORMERS5)/bin/python -c "import torch, transformers; assert transformers.__version__.startswith('5.')"
	touch $@
