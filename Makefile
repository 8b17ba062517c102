# nerfleet: everything starts from here. Needs Python 3.11 or newer with pip, and network access to a package index.
#
#   make demo       environment, built-in scene, training, pictures, report
#   make test       environment, every fast test that this machine can run
#   make test-slow  the slow tests too
#   make test-gpu   GPU tests with the Python that PATH holds (no environment, no network)
#   make lint       ruff and mypy
#   make clean      remove what the targets above made

PYTHON ?= python3
VENV := .venv
VENV_PYTHON := $(VENV)/bin/python
STAMP := $(VENV)/.installed
DEMO_OUT ?= runs/demo
TORCH_WITHOUT_GPU := torch==2.13.0

# One thread a test process: two of them share the machine.
PYTEST := OMP_NUM_THREADS=1 $(VENV_PYTHON) -m pytest -n 2 --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-gpu lint clean

help:
	@sed -n 's/^#   //p' Makefile

$(VENV_PYTHON):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is older than 3.11: make PYTHON=python3.11 ..." >&2; exit 2; }
	@# Some distributions ship venv without pip (no ensurepip): then the system's pip installs one.
	$(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || { \
	    $(PYTHON) -m venv --clear --without-pip $(VENV) && $(PYTHON) -m pip --python $(VENV_PYTHON) install pip; } || { rm -rf $(VENV); exit 1; }

$(STAMP): pyproject.toml | $(VENV_PYTHON)
	@# Without a GPU the CPU build of torch is enough: a fixed release, so that pip does not fetch the newest CUDA build.
	@command -v nvidia-smi >/dev/null 2>&1 || $(VENV_PYTHON) -m pip install --quiet $(TORCH_WITHOUT_GPU)
	$(VENV_PYTHON) -m pip install --quiet --editable '.[dev]'
	@touch $(STAMP)

demo: $(STAMP)
	$(VENV_PYTHON) -m nerfleet demo --out "$(DEMO_OUT)"
	@echo "report: $(DEMO_OUT)/report.html"

test: $(STAMP)
	$(PYTEST) -m "not slow"

test-slow: $(STAMP)
	$(PYTEST)

test-gpu:
	@$(PYTHON) -c 'import importlib.util as u, sys; names = "torch numpy numba cuda.core PIL msgpack rich torchmetrics pytest".split(); \
	missing = [n for n in names if u.find_spec(n.split(".")[0]) is None or u.find_spec(n) is None]; \
	sys.exit("make test-gpu: " + sys.executable + " lacks " + ", ".join(missing) if missing else 0)'
	PYTHONPATH=src $(PYTHON) -m pytest -m gpu -p no:cacheprovider

lint: $(STAMP)
	$(VENV_PYTHON) -m ruff check .
	$(VENV_PYTHON) -m mypy

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis build dist
	find src tests examples -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf src/nerfleet.egg-info
