# Everything is set up on first use: python3 (3.11 or later) and make are all that is assumed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet --quiet
CASES ?= tests
QUESTION ?= What is a bridge? Answer in one sentence.
PIN := $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 \
	--generate-hashes --no-annotate --no-header

.DEFAULT_GOAL := help
.PHONY: help browser run test check fix bench vsix vscode pin clean lint types layers extension-lint

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# With `set -m` the chat gets the terminal for itself, and its Ctrl-C does not reach make.
run: $(VENV)/run.stamp ## Fetch a small model, start it here and chat with it: no key, no account
	@if [ -t 0 ] && [ -t 1 ]; then \
		set -m; $(BIN)/tollbridge chat --local; \
	else \
		$(BIN)/tollbridge ask --local "$(QUESTION)" < /dev/null; \
	fi

test: lint types layers extension-lint browser ## Everything CI runs: linters, types, layers, all tests, coverage
	$(BIN)/python -m pytest -n 2 --cov --cov-report= -r fER $(CASES)
	$(BIN)/coverage report --fail-under=90

check: lint types layers extension-lint ## The fast part of it: no slow tests, no coverage
	$(BIN)/python -m pytest -n 2 -m "not slow" $(CASES)

fix: $(VENV)/dev.stamp ## Tidy the code: formatting, imports, what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/bench.stamp ## Measure us beside our peers and the floor
	PYTHONPATH=extension $(BIN)/python -m bench

vsix: $(VENV)/dev.stamp ## Pack the VS Code extension, with what it needs inside, into dist/
	@PYTHONPATH=extension $(BIN)/python -m workshop.vsix

vscode: $(VENV)/dev.stamp ## Open a real VS Code in the browser with the extension and two models: no key, no account
	@PYTHONPATH=extension $(BIN)/python -m workshop.open

pin: $(VENV)/dev.stamp ## Pin the newest allowed dependencies again, with their hashes
	$(PIP) install uv
	$(PIN) --extra local --group build pyproject.toml -o requirements.txt
	$(PIN) --group dev -c requirements.txt -o requirements-dev.txt
	$(PIN) --group bench -c requirements.txt -c requirements-dev.txt -o requirements-bench.txt
	$(PIN) tests/interop/litellm/requirements.in -o tests/interop/litellm/requirements.txt

clean: ## Remove everything that was made here (the model in your cache stays)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage .coverage.* build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The tests in a real VS Code need a browser; where it cannot be installed they say so, and CI fails.
browser:
	@command -v chromium > /dev/null || command -v chromium-browser > /dev/null || { \
		echo "Installing a browser for the tests in a real VS Code…"; \
		{ [ "$$(id -u)" = 0 ] && apt-get -qq update && apt-get -qq install -y chromium; } > /dev/null 2>&1 \
		|| echo "There is no chromium here, and it cannot be installed: the tests in a real VS Code will not run."; }

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev.stamp
	$(BIN)/mypy

layers: $(VENV)/dev.stamp
	$(BIN)/lint-imports

# Node and npm come from a Python package, see extension/workshop/node.py.
NPM := PYTHONPATH=extension $(BIN)/python -m workshop.node npm --prefix extension --silent

extension-lint: extension/node_modules/.package-lock.json
	$(NPM) run lint
	$(NPM) run typecheck

extension/node_modules/.package-lock.json: extension/package-lock.json | $(VENV)/dev.stamp
	@echo "Installing the extension's dependencies…"
	@$(NPM) ci --ignore-scripts
	@touch $@

$(VENV)/python.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Tollbridge needs Python 3.11 or later: make PYTHON=/path/to/python3.13 $(MAKECMDGOALS)"; exit 1; }
	@echo "Making the virtual environment in $(VENV)…"
	@$(PYTHON) -m venv --clear $(VENV) \
		|| { rm -rf $(VENV); echo "python3 -m venv does not work here: install it (on Debian: python3-venv) and try again."; exit 1; }
	@touch $@

$(VENV)/run.stamp: $(VENV)/python.stamp requirements.txt pyproject.toml
	@echo "Installing what Tollbridge needs (pinned, with hashes)…"
	@$(PIP) install --require-hashes -r requirements.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/dev.stamp: $(VENV)/run.stamp requirements-dev.txt
	@echo "Installing what the tests need…"
	@$(PIP) install --require-hashes -r requirements-dev.txt
	@touch $@

$(VENV)/bench.stamp: $(VENV)/dev.stamp requirements-bench.txt
	@echo "Installing what is measured beside us…"
	@$(PIP) install --require-hashes -r requirements-bench.txt
	@touch $@
