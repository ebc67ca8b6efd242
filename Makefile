# Two commands matter: `make up` runs CodeHub, `make test` runs every test. Each does all of its own set-up.
SHELL := /bin/bash
# Some machines set this for every program. Each of the thousands of processes in a test run would compile all it imports.
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help
SEEDS ?= 10000
ARGS ?=

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

up: run-env  ## run CodeHub with its embedded servers (Ctrl-C stops it)
	@exec .venv/bin/codehub up $(ARGS)

test: dev-env parts  ## run every test
	@scripts/test.sh $(ARGS)

check: lint  ## the inner loop: lint, types, import rules, unit and property tests, contract suites on the twins
	.venv/bin/python -m pytest -k "not redis and not postgres and not next_leader and not whole_standard_library" packages/*/tests/unit packages/*/tests/property \
		packages/codehub/tests/contract $(ARGS)

lint: dev-env  ## formatter, linter, type checkers, import contracts
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/lint-imports --no-cache
	scripts/javascript/check.sh

format: dev-env  ## format, and fix what can be fixed automatically
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

bench: dev-env parts  ## measure side by side with the peers, print ratios, write bench/results/*.json
	.venv/bin/python -m bench $(ARGS)

simulate: dev-env  ## run the control plane simulation with SEEDS seeds
	.venv/bin/python -m testing.codehub.simulation --seeds $(SEEDS) $(ARGS)

mutants: dev-env parts  ## plant small bugs one at a time and report those that no test notices
	.venv/bin/python -m testing.codehub.mutants $(ARGS)

kubernetes-up:  ## start a real single-node Kubernetes for tests (root; built once, some minutes)
	@scripts/kubernetes/up.sh

kubernetes-down:  ## stop it
	@scripts/kubernetes/down.sh

test-kubernetes: dev-env parts  ## run the tests that need a cluster, on that node
	@scripts/kubernetes/test.sh $(ARGS)

test-kubernetes-ci: dev-env parts  ## run a selection of them, on a node that is started for it and removed afterwards
	@scripts/kubernetes/test.sh --ci $(ARGS)

soak: dev-env parts  ## run the long tests that `make test` only samples
	CODEHUB_TEST_SOAK=1 scripts/test.sh -m soak $(ARGS)

show-docker: dev-env parts  ## build the shipped images, run a file through containers and S3 (docs/show-docker.md)
	.venv/bin/python -m testing.codehub.container_walkthrough

screens: dev-env parts  ## retake the screenshots in docs/screens
	.venv/bin/python -m e2e.screens
	.venv/bin/python -m e2e.ide_screens
	.venv/bin/python -m e2e.sari_screens

transcripts: dev-env parts  ## regenerate docs/a-day.md, docs/sari/transcript.md and show.md from real runs (root, some minutes)
	.venv/bin/python -m testing.docs.cli_day
	.venv/bin/python -m testing.sari.transcript
	.venv/bin/python -m testing.sari.bootstrap_transcript

docs: docs-env  ## build the documentation site into site/, failing on any warning
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict --clean

first-run: dev-env parts  ## measure the time from `git clone` to the first open workspace (ARGS=--wheel: from a wheel)
	.venv/bin/python -m e2e.first_run $(ARGS)

run-env:
	@scripts/bootstrap.sh run

dev-env:
	@scripts/bootstrap.sh dev

docs-env:
	@scripts/bootstrap.sh docs

parts:
	@scripts/parts.sh

lock:  ## lock the dependencies again
	scripts/lock.sh

clean:  ## remove build products (not CodeHub's data)
	rm -rf .venv .venvs .parts .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache bench/results dist site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help up test check lint format bench simulate mutants kubernetes-up kubernetes-down test-kubernetes test-kubernetes-ci soak show-docker screens transcripts docs first-run run-env dev-env docs-env parts lock clean
