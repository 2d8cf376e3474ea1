# Everything runs from a bare checkout: the first target that needs Python builds .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2

.PHONY: help demo test lint types unit clean

help:
	@echo "make demo   train Dual + GCIVL beside Orig + GCIVL on a small maze and write demo/report.html"
	@echo "make test   lint, types and all tests"
	@echo "make clean  remove the environment, the demo and caches"

$(BIN)/.ready: pyproject.toml
	@echo "building $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -e '.[dev]' 2>$(VENV)/pip.log || { cat $(VENV)/pip.log; exit 1; }
	@touch $@

demo: $(BIN)/.ready
	$(BIN)/python -m dualgoal demo --out demo

test: lint types unit

lint: $(BIN)/.ready
	$(BIN)/ruff check --quiet src tests tools

types: $(BIN)/.ready
	$(BIN)/mypy

unit: $(BIN)/.ready
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder tests

clean:
	rm -rf $(VENV) demo build dist .pytest_cache .mypy_cache .ruff_cache src/*.egg-info
