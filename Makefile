# Everything a developer or a user types starts here; `make` alone lists it.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
PY := $(VENV)/bin/python
PYTHON ?= python3
export PYTHONPATH := operator:solver:router:enginesim:hack/cluster:hack/demo:hack/checks
export PYTHONDONTWRITEBYTECODE := 1

##@ The two commands
.PHONY: demo test
demo: $(VENV)/.ready ## Whole product on a real Kubernetes: plan, deploy, ask, escalate, re-plan
	@$(PY) -m cascade_demo up

test: check ## Check, then every test; sets up all that it needs
	@$(PY) -m pytest $(PYTEST_ARGS)

##@ Demo and cluster
.PHONY: demo-down cluster-up cluster-down cluster-status images
demo-down: $(VENV)/.ready ## Stop the demo's cluster: processes, mounts, devices, rules, data
	@$(PY) -m cascade_demo down

cluster-up: $(VENV)/.ready ## A cluster of your own (LEVEL=api|kwok|pods)
	@$(PY) -m cascade_cluster up --level $(or $(LEVEL),pods)

cluster-down: $(VENV)/.ready ## Stop it
	@$(PY) -m cascade_cluster down

cluster-status: $(VENV)/.ready ## What runs
	@$(PY) -m cascade_cluster status

images: $(VENV)/.ready ## Build the three images and load them into the cluster
	@$(PY) -m cascade_cluster images

##@ Development
.PHONY: install format lint type layers charts check test-quick test-long bench crds docs flags generated
install: $(VENV)/.ready ## The project's environment in .venv

format: $(VENV)/.ready ## Rewrite to the project's format
	@$(PY) -m ruff format . && $(PY) -m ruff check --fix .

lint: $(VENV)/.ready ## Format and lint, nothing rewritten
	@$(PY) -m ruff format --check . && $(PY) -m ruff check .

type: $(VENV)/.ready ## Types
	@$(PY) -m mypy

layers: $(VENV)/.ready ## Who may import whom
	@$(VENV)/bin/lint-imports --no-cache

generated: $(VENV)/.ready ## Generated files are up to date
	@$(PY) -m cascade_checks generated

charts: $(VENV)/.ready ## Lint the Helm charts
	@$(PY) -m cascade_checks charts

check: lint type layers generated charts ## All of the above

test-quick: $(VENV)/.ready ## Only the tests that need no cluster
	@$(PY) -m pytest -m "not api and not kwok and not pods" $(PYTEST_ARGS)

test-long: $(VENV)/.ready ## Fuzz and soak, much longer
	@$(PY) -m pytest --run-long $(PYTEST_ARGS)

bench: $(VENV)/.ready ## Benchmarks as JSON lines (BENCH=solver|router|operator|evaluate)
	@$(PY) -m bench $(BENCH)

crds docs: $(VENV)/.ready ## Regenerate the copies of the CRD and the reference
	@$(PY) -m cascade_checks write

flags: $(VENV)/.ready ## Re-read the engine's flags from its published package
	@$(PY) enginesim/extract_flags.py

$(VENV)/.ready: pyproject.toml constraints.txt hack/bootstrap.sh
	@PYTHON=$(PYTHON) hack/bootstrap.sh $(VENV)

.PHONY: help
help: ## This list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z -]+:.*## / {split($$1, n, " "); printf "  make %-16s %s\n", n[1], $$2}' Makefile
