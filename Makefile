PYTHON ?= python

# The tier for every save: the library end to end in small, and the import directions.  Under five seconds.
TINY = tests/test_tiny.py tests/test_layers.py

.PHONY: check format-check lint types test tiny quick docs docs-search docs-test bench figures format sanitize

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

# The tier for every commit: a row of every operation and class, and of every other test. See tests/quick.py.
quick:
	$(PYTHON) -m pytest -q --quick

# The site, in build/docs: its pages, and the reference made of docstrings.  Needs `pip install -e ".[docs]"`.
docs:
	$(PYTHON) -m tools.site

# What its search finds, in Chromium.
docs-search: docs
	UNDERTOW_SITE=build/docs $(PYTHON) -m pytest -q -n0 tests/test_site_search.py

docs-test:
	$(PYTHON) -m pytest -q --doctest-modules src/undertow tests/test_docs.py

# The compiled core built with the address and undefined-behaviour sanitizers, beside a copy of the Python files, and the
# tests of what it does: make sanitize SANITIZED_TESTS=tests/compiled/test_core.py runs one file of them. A process that
# a sanitizer ends shows nothing any more, so reports are files, which are printed behind the tests.
SANITIZED = build/sanitized
SANITIZED_TESTS = tests/compiled tests/inplace
# not what runs other processes without the core, nor a state machine that spends most of its time in PyTorch
SANITIZED_OPTIONS = -q -x --first-rows -m "not slow" -p no:cacheprovider --ignore tests/inplace/test_programs.py \
	--deselect tests/compiled/test_core.py::test_the_same_program_without_the_core

sanitize:
	rm -rf $(SANITIZED) && mkdir -p $(SANITIZED)
	cp -r src/undertow $(SANITIZED)/undertow
	rm -f $(SANITIZED)/undertow/_core*.so
	UNDERTOW_SANITIZE=1 $(PYTHON) setup.py -q build_ext --build-lib $(SANITIZED) --build-temp $(SANITIZED)/objects
	test -n "$$(ls $(SANITIZED)/undertow/_core*.so)"
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
	ASAN_OPTIONS=detect_leaks=0:log_path=$(SANITIZED)/report \
	UBSAN_OPTIONS=print_stacktrace=1:log_path=$(SANITIZED)/report PYTHONMALLOC=malloc PYTHONPATH=$(SANITIZED) \
	$(PYTHON) -m pytest $(SANITIZED_OPTIONS) $(SANITIZED_TESTS) \
	|| { head -n 20 $(SANITIZED)/report.* 2>/dev/null; exit 1; }

bench:
	$(PYTHON) -m benchmarks

# what pages show of this machine, measured again; benchmarks.cuda and programs-16-cores are of others
figures:
	$(PYTHON) -m benchmarks --repeats 11 --update
	$(PYTHON) -m benchmarks.programs --threads 1 --repeats 7 --update
	UNDERTOW_PURE=1 $(PYTHON) -m benchmarks --quick --repeats 3 --threads 1 --only recorded --only "backward, chain" \
		--only "small MLP step (" --update pure
	$(PYTHON) -m benchmarks.profiler --update
	$(PYTHON) -m benchmarks.growth --only numbers nodes rows parameters --turns 2 --update
	$(PYTHON) -m benchmarks.page --update
	$(PYTHON) -m benchmarks.choices sparse-jacobian saved-hooks anomaly-mode followed-intermediates by-hand --update

format:
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .
