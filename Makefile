# The two commands of the README, and the parts they are made of.
#   make demo   install into .venv, run the main job on simulated clusters and SQLite
#   make test   install what the tests need, run them all (as root also on real Slurm daemons)
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SOURCES := setup.cfg pyproject.toml

.PHONY: demo test check unit fleet packages clean

demo: $(VENV)/.installed
	$(BIN)/slurm-evo demo

test: packages $(VENV)/.installed-test
	$(MAKE) --no-print-directory check
	$(MAKE) --no-print-directory --jobs=4 unit fleet-forky fleet-plain fleet-trixie

# What a fresh Debian lacks. Only root can install it; anybody else is told what is missing by the tests.
packages:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then tests/packages.sh; fi

$(VENV)/bin/python:
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || tests/packages.sh python3-venv
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python $(SOURCES)
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.installed-test: $(VENV)/bin/python $(SOURCES)
	$(BIN)/python -m pip install --quiet --editable '.[test,training]'
	@touch $@ $(VENV)/.installed

check:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit:
	$(BIN)/python -m pytest

# Real Slurm: the same contract tests and the stories that only real daemons can tell.
fleet: fleet-forky fleet-plain fleet-trixie

fleet-%:
	$(BIN)/python tests/fleet/run.py $*

clean:
	rm -rf $(VENV) build dist *.egg-info
