# The daily commands; `make help` lists them. scripts/ has what they do.
.DEFAULT_GOAL := help
SHELL := /bin/bash
SETUP := set -euo pipefail; . scripts/lib.sh; install dev

.PHONY: help
help: ## List these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## Make .venv with penstock and everything that tests need
	@$(SETUP)

.PHONY: quickstart
quickstart: ## Start the service, run the demonstration, stop everything
	@scripts/quickstart

.PHONY: test
test: ## Lint, types, layers and all tests: what must pass
	@scripts/test

.PHONY: lint
lint: setup ## Check style, format and layers
	@.venv/bin/ruff check --extend-exclude build . && .venv/bin/ruff format --check --extend-exclude build . && .venv/bin/lint-imports

.PHONY: types
types: setup ## Check types
	@.venv/bin/mypy -p penstock

.PHONY: format
format: setup ## Write every file in the common format
	@.venv/bin/ruff check --fix --extend-exclude build . && .venv/bin/ruff format --extend-exclude build .

.PHONY: serve
serve: setup ## Run the service on :8080 with its data in ./penstock-data
	@.venv/bin/penstock serve

.PHONY: bench
bench: setup ## Measure the workloads of docs/performance.md
	@.venv/bin/python scripts/bench.py

.PHONY: loadtest
loadtest: setup ## Put load on a running service (SERVICE_URL)
	@.venv/bin/python scripts/loadtest.py

.PHONY: chaos
chaos: setup ## Kill, freeze and restart a service of its own under load for ten minutes, and check what it has promised
	@.venv/bin/python scripts/chaos.py

.PHONY: takeover
takeover: setup ## Measure how long runs stand still when a shard or a host of engines is killed
	@.venv/bin/python scripts/takeover.py

.PHONY: pages
pages: setup ## Write the pages that are made from tables in the code
	@.venv/bin/python scripts/settings_table.py && .venv/bin/python scripts/diagrams.py && .venv/bin/python scripts/metrics_table.py

.PHONY: docs
docs: ## Make a site of docs/ in build/site (scripts/docs serve: live, while you write)
	@scripts/docs build

.PHONY: release
release: ## Build and check what is published, into dist (scripts/release --help)
	@scripts/release

.PHONY: audit
audit: ## Look up what penstock depends on in a database of advisories
	@scripts/audit

.PHONY: clean
clean: ## Remove .venv, caches and builds; data stays
	@rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
