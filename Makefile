# Everything runs from a bare checkout: the first target that needs Python builds .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# Three processes for two cores: many tests wait for processes that they started.
JOBS ?= 3

.PHONY: help demo test lint types unit docs format clean

help:
	@echo "make demo    Lights Out and a maze: train three small runs and write demo/report.html"
	@echo "make test    check style and types, then run all tests (they build the documentation too)"
	@echo "make lint    check style: ruff's rules and its formatting"
	@echo "make types   check types with mypy"
	@echo "make unit    run the tests; JOBS=4 for four processes"
	@echo "make format  format the code and fix what ruff can fix"
	@echo "make docs    build the documentation site into site/"
	@echo "make clean   remove the virtual environment, the demo, the site and caches"

$(BIN)/.ready: pyproject.toml
	@echo "building $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@{ $(PIP) uv && env $${PIP_INDEX_URL:+UV_DEFAULT_INDEX="$$PIP_INDEX_URL"} UV_NATIVE_TLS=1 \
		$(BIN)/uv pip install --quiet --python $(BIN)/python -e '.[dev]'; } >$(VENV)/uv.log 2>&1 \
		|| $(PIP) -e '.[dev]' 2>$(VENV)/pip.log || { cat $(VENV)/pip.log; exit 1; }  # uv is only the quicker way
	@if $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 13))'; then \
		$(PIP) --no-deps ogbench==1.2.2 dm-control==1.0.36; fi
	@touch $@

demo: $(BIN)/.ready
	$(BIN)/python -m dualgoal demo --out demo

test: lint
	@$(MAKE) --no-print-directory -j 2 types unit  # mypy uses one core

lint: $(BIN)/.ready
	$(BIN)/ruff check --quiet src tests tools
	$(BIN)/ruff format --check --quiet src tests tools

types: $(BIN)/.ready
	$(BIN)/mypy

# One process writes the bytecode of all modules, which the processes below would each compile at the same time.
$(BIN)/.bytecode: $(BIN)/.ready
	@$(BIN)/python -m pytest --collect-only -q tests >/dev/null 2>&1 || true
	@touch $@

unit: $(BIN)/.bytecode
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder tests

format: $(BIN)/.ready
	$(BIN)/ruff check --fix src tests tools
	$(BIN)/ruff format src tests tools

# Material announces its future on every build unless told not to; that is no warning about these pages.
docs: $(BIN)/.ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir site

clean:
	rm -rf $(VENV) demo site build dist .pytest_cache .mypy_cache .ruff_cache src/*.egg-info
