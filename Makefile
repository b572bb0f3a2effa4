# Everything happens in .venv; PYTHON is any Python from 3.11 on.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet

.PHONY: help setup setup-all demo test test-slow test-federation soak mutants lint bench reproduce docs dist

help:
	@echo "make demo       set up and train FedQHD with different encoders on CartPole"
	@echo "make test       set up with all extras and run the tests"
	@echo "make test-slow  the tests that take minutes"
	@echo "make test-federation  the tests with real processes over loopback, and Flower's simulation"
	@echo "make soak       a real federation of five clients that is hurt at random moments, for an hour"
	@echo "make mutants    changes of the code that no test notices (hours of one core; resumable)"
	@echo "make lint       ruff, mypy, import-linter"
	@echo "make bench      speed beside torch, numpy, scikit-learn, torchhd, DQN, PPO in JAX (wants an idle machine)"
	@echo "make reproduce  every table and figure of the paper, and the page (half a day of one core; resumable)"
	@echo "make docs       the site, into site/"
	@echo "make dist       sdist and wheel, each installed in a clean environment and tried"
	@echo "make setup      the package alone;  make setup-all: with all extras"
	@echo "fedqhd reproduce --list  names every study, with its cost in core-hours"

setup: $(VENV)/.core
setup-all: $(VENV)/.all

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install -c constraints.txt -e .
	@touch $@

$(VENV)/.all: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/.core

demo: setup
	$(BIN)/fedqhd train --config configs/demo.toml --overwrite
	$(BIN)/fedqhd play runs/demo --client 4 --gif runs/demo/play.gif
	@echo "learning curves: runs/demo/curves.png"
	@echo "the policy:      runs/demo/play.gif"

test: setup-all
	$(BIN)/pytest -n 2 --dist loadfile

test-slow: setup-all
	$(BIN)/pytest -n 2 -m slow

test-federation: setup-all
	$(BIN)/pytest -n 3 -m federation tests/deploy tests/engines tests/test_bits.py

soak: setup-all
	rm -rf runs/soak
	mkdir -p runs/soak
	$(BIN)/python tests/soak.py runs/soak 3600 0

mutants: setup-all
	$(PIP) install mutmut==3.8.1
	$(BIN)/mutmut run
	$(BIN)/mutmut results

lint: setup-all
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

$(VENV)/.bench: $(VENV)/.all
	$(PIP) install -c constraints.txt -e '.[dev,bench]'
	@touch $@

bench: $(VENV)/.bench
	$(BIN)/python benchmarks/bench.py

reproduce: setup-all
	$(BIN)/fedqhd reproduce tune
	$(BIN)/fedqhd reproduce all
	$(BIN)/fedqhd report

docs: setup-all
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

dist: setup-all
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(PYTHON) benchmarks/smoke.py dist
