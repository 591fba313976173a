# Commands for people. Everything is installed into .venv (what makes the site: .venv-docs); nothing else is touched.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed-dev
DEMO_STAMP := $(VENV)/.installed-demo
DOCS_VENV ?= .venv-docs
DOCS_STAMP := $(DOCS_VENV)/.installed

OF_AGENTS := $(addprefix tests/unit/agents/,undo/test_modes.py \
	test_attribution.py test_receipts.py test_background.py test_forgotten.py test_hooks_of_agents.py test_compaction.py \
	test_loaded_texts.py test_features.py test_agent_types.py test_early.py test_memory.py)
OF_FEATURES := $(OF_AGENTS) $(addprefix tests/unit/features/sessions/,test_recording.py test_compacted.py) tests/unit/tools
OF_ELSEWHERE := $(addprefix tests/kernel/,test_contract.py test_kernels.py test_agents_in_kernels.py test_interrupted_cells.py \
	test_mcp_calls.py test_served_sessions.py test_task_from_code.py test_task_errors.py test_output_between_cells.py) \
	$(addprefix tests/e2e/,test_doctor_command.py test_cli_terminal.py) \
	tests/terminal/test_conversation.py tests/terminal/plain tests/notebook/test_notebook.py tests/unit/system/test_removal.py tests/unit/kernels

.PHONY: demo test test-fast test-all test-for test-without test-bare test-elsewhere check format docs docs-serve live bench clean

demo: $(DEMO_STAMP)  ## the main job, offline, on real kernels (ARGS=--yes approves everything)
	@$(BIN)/python examples/demo/demo.py $(ARGS)

test-fast: $(STAMP)  ## tests that start no process, for each save; ARGS are passed to pytest, here and below
	$(BIN)/python -m pytest -n auto -m fast $(ARGS)

test: $(STAMP)  ## those, and the ones with real kernels, servers, terminals and programs that tests/contract.txt names
	$(BIN)/python -m pytest -n auto -m "contract or fast" $(ARGS)

test-all: export THOROUGH ?= some
test-all: test test-without  ## all tests, with larger samples (THOROUGH=1: with all of what they else try a sample of)
	$(BIN)/python -m pytest -n 3 -m "not (contract or fast)" $(ARGS)

test-for: $(STAMP)  ## the tests for a change: make test-for FILE... (without FILE: for what differs from the last commit)
	@$(BIN)/python tests/support/tests_for.py $(filter-out $@,$(MAKECMDGOALS))

test-without: $(STAMP)  ## for each feature, the tests of the others with agents that lack it
	$(BIN)/python -m pytest -n auto -m fast --without each $(OF_FEATURES) $(ARGS)

test-bare: $(STAMP)  ## the tests of the core, with agents that have no features
	$(BIN)/python -m pytest -n auto -m "not slow" --bare tests/unit/agents $(ARGS)

test-elsewhere: $(STAMP)  ## the main tests without /proc, Landlock, seccomp, prctl, pidfds and namespaces, as other systems are
	$(BIN)/python tests/support/elsewhere.py $(BIN)/python -m pytest -m "(contract or fast) and not slow" $(OF_ELSEWHERE) $(ARGS)

check: $(STAMP)  ## format, lint, types, layers, import circles
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python tests/support/file_rules.py

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(DOCS_STAMP)  ## the documentation site, into site/; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build $(ARGS)

docs-serve: $(DOCS_STAMP)  ## the same on http://127.0.0.1:8000, built anew at each change
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs serve $(ARGS)

live: $(STAMP)  ## the tests with a real model (BASE_URL=http://127.0.0.1:8089/v1)
	$(BIN)/python -m pytest tests/live --live $(BASE_URL) $(ARGS)

bench: $(STAMP)  ## figures, as a table
	$(BIN)/python -m benchmarks $(ARGS)

clean:
	rm -rf $(VENV) $(DOCS_VENV) site dist .mypy_cache .ruff_cache .pytest_cache

$(VENV)/bin/python:
	@echo "Making the Python environment $(VENV)/"
	@$(PYTHON) -m venv $(VENV)

$(DEMO_STAMP): pyproject.toml | $(VENV)/bin/python
	@$(BIN)/python scripts/install.py
	@touch $@

$(STAMP): pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -e . --group dev
	$(BIN)/python -m compileall -q -j 0 -x '/tests?/' $(VENV)/lib  # with all cores, as pip does not
	touch $@ $(DEMO_STAMP)

$(DOCS_STAMP): pyproject.toml
	@$(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(DOCS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --group docs
	@touch $@
