PYTHON ?= python

# The tier for every save: the library end to end in small, and the import directions.  Under five seconds.
TINY = tests/test_tiny.py tests/test_layers.py

.PHONY: check format-check lint types test tiny quick docs-test bench format

check: format-check lint types test

format-check:
	$(PYTHON) -m ruff format --check .

lint:
	$(PYTHON) -m ruff check .

types:
	$(PYTHON) -m mypy

test:
	$(PYTHON) -m pytest

tiny:
	$(PYTHON) -m pytest -q $(TINY)

# The tier for every commit: each operation's first row of samples in every system, and what is not slow.
quick:
	$(PYTHON) -m pytest -q --quick

docs-test:
	$(PYTHON) -m pytest -q --doctest-modules src/undertow tests/test_docs.py

bench:
	$(PYTHON) -m benchmarks

format:
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .
