# make demo | install PREFIX=DIR | test | test-all | test-rest | test-real | test-failed | lint | docs | reference | pictures | bench | verdict-rates | mutants | faults. Each target sets up .venv first.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --max-worker-restart 3 --durations 30 --durations-min 5
CHECK_VERSION = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
  { echo "Python 3.10 or newer is needed; name it: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }

demo: $(VENV)/demo.stamp
	$(BIN)/dlio-submit demo --site local --wait

# Installs for all users of a machine: an environment in PREFIX/lib/dlio-hpc, and what install-site writes below PREFIX.
# The environment needs the interpreter that makes it: it is refused if other users cannot enter its folders.
# EXTRAS names extras ([mpi,report]), SITE_OPTIONS passes options of install-site: SITE_OPTIONS='--env DLIO_HPC_SITE=mycluster'.
install:
	@test -n '$(PREFIX)' || { echo 'Name the folder: make install PREFIX=/sw/dlio-hpc' >&2; exit 2; }
	@$(CHECK_VERSION)
	@$(PYTHON) -I dlio_hpc/files/shared_python.py '$(PREFIX)'
	umask 022 && $(PYTHON) -m venv '$(PREFIX)/lib/dlio-hpc'
	umask 022 && '$(PREFIX)/lib/dlio-hpc/bin/python' -m pip install --disable-pip-version-check '.$(EXTRAS)'
	'$(PREFIX)/lib/dlio-hpc/bin/python' -m dlio_hpc install-site '$(PREFIX)' $(SITE_OPTIONS)

# The everyday tests (tests/support/tiers.py): all that need no jobs, and a few jobs for each promise. 10 to 15 minutes on two cores.
test: $(VENV)/test.stamp
	$(PYTEST) -m everyday

# All tests: about an hour on two cores.
test-all: $(VENV)/test.stamp
	$(PYTEST)

# The tests that are not everyday tests: after make test, all have run.
test-rest: $(VENV)/test.stamp
	$(PYTEST) -m 'not everyday'

# Verdicts on cached data, held against the counters of real servers and disks: all ways to read on GlusterFS, CephFS, xfs,
# btrfs, overlay, bindfs and SSHFS. Needs root, and the Debian packages that tests/support/file_servers.py names.
test-real: $(VENV)/test.stamp
	$(BIN)/python -m pytest --real -s tests/files/test_real_storage.py

# The tests that failed in the last run, one at a time.
test-failed: $(VENV)/test.stamp
	$(BIN)/python -m pytest --last-failed --last-failed-no-failures none --maxfail 10

lint: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/shellcheck -S warning .ci/run

bench: $(VENV)/test.stamp
	$(BIN)/python -m tests.bench

# Rates of wrong verdicts, from simulations whose truth is known: ten minutes.
verdict-rates: $(VENV)/test.stamp
	$(BIN)/python -m tests.bench verdicts

# Puts small faults into modules that decide figures and verdicts, and runs the tests of their lines: a quarter of an hour on
# two cores. MUTANTS passes options: make mutants MUTANTS='--count 60 core/merge'.
mutants: $(VENV)/test.stamp
	$(BIN)/python -m tests.mutants $(MUTANTS)

# Writes the documentation to site/; open site/index.html.
docs: $(VENV)/docs.stamp
	$(BIN)/mkdocs build --strict --quiet

# FAULTS passes options: make faults FAULTS='--count 500 --seed 3'.
faults: $(VENV)/test.stamp
	$(BIN)/python -m tests.support.faults $(FAULTS)

# Writes the generated parts of docs/reference/*.md.
reference: $(VENV)/test.stamp
	$(BIN)/python docs/reference_pages.py

# Draws the pictures of the documentation again, from a job and a study on this computer.
pictures: $(VENV)/test.stamp
	docs/pictures.sh $(BIN)

# Records the rendered job scripts again. Review the difference before you commit it.
regold: $(VENV)/test.stamp
	$(BIN)/python -m pytest --regold tests/batch/test_jobscript.py

clean:
	rm -rf $(VENV) build *.egg-info dlio-data dlio-runs

# editable_mode=compat installs a plain .pth file; the import hook of the default mode costs 10 ms per start.
# compileall saves time at every start on machines where Python may not write bytecode.
INSTALL = $(BIN)/pip install --disable-pip-version-check --config-settings editable_mode=compat --editable
COMPILE = $(BIN)/python -m compileall -q dlio_hpc

$(VENV)/demo.stamp: $(VENV)/venv.stamp setup.cfg
	@echo 'Installing MPI, h5py, NumPy and others into $(VENV): 100 MB to download, half a minute' >&2
	$(INSTALL) '.[mpi]'
	@$(COMPILE)
	@touch $@

$(VENV)/test.stamp: $(VENV)/venv.stamp setup.cfg
	@echo 'Installing TensorFlow, PyTorch and others into $(VENV): 0.7 GB to download (with CUDA 4 GB), 3 GB on disk,' \
	  '2 to 10 minutes' >&2
	$(INSTALL) '.[test]'
	@$(COMPILE)
	@touch $@

$(VENV)/docs.stamp: $(VENV)/venv.stamp setup.cfg
	@echo 'Installing MkDocs into $(VENV): 30 MB to download' >&2
	$(INSTALL) '.[docs]'
	@touch $@

$(VENV)/venv.stamp:
	@$(CHECK_VERSION)
	$(PYTHON) -m venv $(VENV)
	@touch $@

.PHONY: demo install test test-all test-rest test-real test-failed lint docs reference bench verdict-rates mutants faults pictures regold clean
