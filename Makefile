# Everything happens in .venv; PYTHON is any Python from 3.11 on.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet

.PHONY: help setup setup-all demo test test-slow test-federation test-kill lint bench bench-check returns methods \
	bench-dqn closed-form learners options features fit-cost robust participation overhead theory bench-federation privacy \
	reproduce own-envs export-table docs dist clean

help:
	@echo "make demo       set up and train FedQHD with different encoders on CartPole"
	@echo "make test       set up with all extras and run the tests"
	@echo "make test-slow  the tests that take minutes"
	@echo "make test-federation  the tests with real processes over loopback, and Flower's simulation"
	@echo "make test-kill  200 runs killed at random moments and resumed (about 10 minutes)"
	@echo "make lint       ruff, mypy, import-linter"
	@echo "make bench      speed beside torch, numpy, scikit-learn, torchhd, DQN; make bench-check: against results/bench.json"
	@echo "make returns    the returns this version promises, on three seeds (about an hour)"
	@echo "make methods    all methods on CartPole, one seed (about 45 minutes)"
	@echo "make bench-dqn  our DQN beside the references and Stable-Baselines3's"
	@echo "make closed-form least squares against the paper on twenty seeds (hours; resumable)"
	@echo "make learners   episodes that each learner needs to the paper's returns (hours; resumable)"
	@echo "make features   returns with hypervectors kept as int8 and as float32, on ten seeds (over an hour of one core; resumable)"
	@echo "make fit-cost   what least squares costs beside replay (wants an idle machine)"
	@echo "make options    what certainty is worth to least squares (hours; resumable)"
	@echo "make robust     attacks against every rule of aggregation, on three seeds (under an hour; resumable)"
	@echo "make participation  twenty clients, half of them a round, on three seeds (about 10 minutes; resumable)"
	@echo "make overhead   what checkpoints, validation and aggregation cost"
	@echo "make bench-federation  bytes and seconds a round of a federation of real processes (about 15 minutes)"
	@echo "make privacy    what hiding clients from the server costs in return (under an hour; resumable)"
	@echo "make theory     the paper's claims about the gap, and its ablations (resumable)"
	@echo "make reproduce  every table and figure of the paper, and the page (more than a day of one core; resumable)"
	@echo "make own-envs   environments of other packages, untuned, on one seed (resumable)"
	@echo "make export-table  size and error of exported policies"
	@echo "make docs       the site, into site/"
	@echo "make dist       sdist and wheel, each installed in a clean environment and tried"
	@echo "make setup      the package alone;  make setup-all: with all extras"

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
	$(BIN)/pytest -n 2

test-slow: setup-all
	$(BIN)/pytest -n 2 -m slow

test-federation: setup-all
	$(BIN)/pytest -n 2 -m federation

test-kill: setup-all
	rm -rf runs/killed
	$(BIN)/python tests/killed.py runs/killed 200 2

lint: setup-all
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup-all
	$(BIN)/python benchmarks/bench.py

bench-check: setup-all
	$(BIN)/python benchmarks/bench.py --check

returns: setup-all
	$(BIN)/python benchmarks/returns.py

methods: setup-all
	$(BIN)/python benchmarks/methods.py

bench-dqn: setup-all
	$(BIN)/python benchmarks/dqn.py

closed-form: setup-all
	$(BIN)/python benchmarks/closed_form.py

learners: setup-all
	$(BIN)/python benchmarks/learners.py

features: setup-all
	$(BIN)/python benchmarks/features.py

fit-cost: setup-all
	$(BIN)/python benchmarks/fit_cost.py

options: setup-all
	$(BIN)/python benchmarks/options.py

robust: setup-all
	$(BIN)/python benchmarks/robust.py

participation: setup-all
	$(BIN)/python benchmarks/participation.py

overhead: setup-all
	$(BIN)/python benchmarks/overhead.py

theory: setup-all
	$(BIN)/fedqhd reproduce ablation-dim
	$(BIN)/fedqhd reproduce ablation-anchors
	$(BIN)/fedqhd reproduce ablation-anchors --set anchor_source=uniform lam=1e-6
	cp results/images/ablation-*.png docs/images/
	$(BIN)/python benchmarks/gap.py --envs MountainCar-v0 --seeds 0
	$(BIN)/python benchmarks/theory.py

bench-federation: setup-all
	$(BIN)/python benchmarks/federation.py

privacy: setup-all
	$(BIN)/python benchmarks/privacy.py

reproduce: setup-all
	$(BIN)/fedqhd reproduce tune
	$(BIN)/fedqhd reproduce all
	$(BIN)/fedqhd report

own-envs: setup-all
	$(BIN)/python benchmarks/own_envs.py

export-table: setup-all
	$(BIN)/python benchmarks/export.py

docs: setup-all
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

dist: setup-all
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(PYTHON) benchmarks/smoke.py dist

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
