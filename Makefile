# Two commands matter: `make up` runs CodeHub, `make test` runs every test. Each does all of its own set-up.
SHELL := /bin/bash
.DEFAULT_GOAL := help
SEEDS ?= 10000
ARGS ?=

help:  ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

up: run-env  ## run CodeHub on its embedded default (Ctrl-C stops it)
	@exec .venv/bin/codehub up $(ARGS)

test: dev-env parts  ## run every test
	@scripts/test.sh $(ARGS)

lint: dev-env  ## formatter, linter, type checker, import contracts
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/lint-imports --no-cache

format: dev-env  ## format and mend what can be mended
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

bench: dev-env parts  ## measure beside the peers, print ratios, write bench/results/*.json
	.venv/bin/python -m bench $(ARGS)

simulate: dev-env  ## the control plane under SEEDS seeds of faults
	.venv/bin/python -m testing.codehub.simulation --seeds $(SEEDS) $(ARGS)

soak: dev-env parts  ## the long runs that `make test` only samples
	CODEHUB_TEST_SOAK=1 scripts/test.sh -m soak $(ARGS)

show-docker: dev-env parts  ## build the shipped images, walk a file through containers and S3 (docs/show-docker.md)
	.venv/bin/python -m testing.codehub.container_walkthrough

screens: dev-env parts  ## take the pictures in docs/screens anew
	.venv/bin/python -m e2e.screens
	.venv/bin/python -m e2e.ide_screens
	.venv/bin/python -m e2e.sari_screens

transcripts: dev-env parts  ## write docs/a-day.md, docs/sari/transcript.md and show.md anew, from real runs (root, some minutes)
	.venv/bin/python -m testing.docs.cli_day
	.venv/bin/python -m testing.sari_transcript
	.venv/bin/python -m testing.sari_bootstrap_transcript

first-run: dev-env parts  ## time the way from `git clone` to the first open workspace (ARGS=--wheel: from a wheel)
	.venv/bin/python -m e2e.first_run $(ARGS)

run-env:
	@scripts/bootstrap.sh run

dev-env:
	@scripts/bootstrap.sh dev

parts:
	@scripts/parts.sh

lock:  ## lock the dependencies anew
	scripts/lock.sh

clean:  ## remove what was made here (not CodeHub's data)
	rm -rf .venv .venvs .parts .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache bench/results dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help up test lint format bench simulate soak show-docker screens transcripts first-run run-env dev-env parts lock clean
