# Everything a newcomer needs: `make demo`, `make test`. Both make and reuse .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The CPU build of PyTorch is pinned, because a range may pull gigabytes of GPU packages; set TORCH= to choose another.
TORCH ?= torch==2.13.0

.PHONY: demo test test-extra fuzz check format bench goldens generated docs docs-serve clean

$(VENV)/.ready: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	touch $@

demo: $(VENV)/.ready
	$(BIN)/isthmus demo

test: $(VENV)/.ready
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m "not extra"

# Tests that need a tool which is not always there (pip install -e ".[flare,track]"; Chromium, its driver and selenium); without it they are skipped, and say so.
test-extra: $(VENV)/.ready
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m extra -rs

fuzz: $(VENV)/.ready
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal --hypothesis-profile random $$(grep -rl hypothesis tests --include='test_*.py')

check: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.ready
	$(BIN)/python benchmarks/rounds.py

goldens: $(VENV)/.ready
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.goldens.record

generated: $(VENV)/.ready
	$(BIN)/python -m isthmus.cli.listing
	$(BIN)/python docs/make_api.py
	$(BIN)/python docs/make_facts.py
	$(BIN)/python docs/make_methods.py
	$(BIN)/python docs/make_choosing.py

# The documentation as a site: build/site/index.html, which needs no server and asks nobody for anything.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

$(VENV)/.docs: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[docs]"
	touch $@

clean:
	rm -rf $(VENV) runs build dist .pytest_cache .mypy_cache .ruff_cache
