# The verbs of this repository. `make` alone lists them. Works with GNU make 3.81 and later.
#   PYTHON=python3.12   the Python to build .venv with; otherwise the first one found that is new enough
#   PYTEST_ARGS='-k x'  more arguments for `make test`, `make test-rest` and `make test-full`
#   MINUTES=60          how long `make explore` searches; EXPLORE_ARGS='…' more arguments, see tests/explore.py
#   FIGURES_ARGS='…'   arguments for `make figures`, see bench/drain.py
#   BENCH_ARGS='…'     arguments for `make bench`, see docs/reference/figures.md
#   ONCE=1              `make demo` ends by itself
#   FORMAT=avro         `make demo` produces Avro; or protobuf, json_schema, connect_json

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
NEW_ENOUGH := -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null
PYTHON_CANDIDATES := $(if $(PYTHON),$(PYTHON),python3 python3.13 python3.12 python3.11)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# `dg` asks for it, and it makes no difference to the others.
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
# Many images set it to stay small; every process that is started would compile all that it imports, each time anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup jars wheel demo dev test test-rest test-full test-retry explore figures bench lint format type check docs reference lock clean

help: ## list the verbs
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(INSTALLED) jars ## make .venv from requirements.lock and fetch the checked JVM artifacts

LOCKED := $(BIN)/python -m pip install --quiet --require-hashes --no-deps --no-compile --no-build-isolation

# PySpark and click come first: they are all that fetching the JVM artifacts needs, which then goes on beside the other
# packages. Most of it is waiting; what fails there is done again by `jars`, which is what counts.
# What comes as source is built by the setuptools of the lock, so nothing unlocked takes part. The lock is whole, so
# nothing is left to resolve; and what is imported is compiled, which is a fraction of what is installed: what Dagster's
# services import right here, so that it is there also for those who never write bytecode.
$(INSTALLED): requirements.lock pyproject.toml
	@set -e; found=; \
	for each in $(PYTHON_CANDIDATES); do \
	  if "$$each" $(NEW_ENOUGH); then found="$$each"; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "error: frazil needs Python 3.11 to 3.13; none of these is one: $(PYTHON_CANDIDATES)" >&2; \
	  echo "  Next: install one, or make setup PYTHON=/path/to/python3.12" >&2; exit 1; \
	fi; \
	"$$found" -m jobs.clients.install.preflight; \
	if ! "$(BIN)/python" $(NEW_ENOUGH); then \
	  echo "making $(VENV) with $$found"; rm -rf $(VENV); "$$found" -m venv $(VENV) || { \
	    echo "error: $$found cannot make a virtual environment" >&2; \
	    echo "  Next: install its venv module (Debian and Ubuntu: the package python3-venv)" >&2; exit 1; }; \
	fi
	@echo "installing the locked Python packages (the first time this takes a minute or two)"
	@sed -n '/^setuptools==/,/[^\\]$$/p' requirements.lock > $(VENV)/setuptools.lock
	@sed -n -e '/^pyspark==/,/[^\\]$$/p' -e '/^click==/,/[^\\]$$/p' requirements.lock > $(VENV)/first.lock
	@$(BIN)/python -m pip install --quiet --require-hashes -r $(VENV)/setuptools.lock
	@$(LOCKED) -r $(VENV)/first.lock
	@$(BIN)/python -m jobs.clients.install.artifacts --quiet & fetching=$$!; \
	$(LOCKED) -r requirements.lock; status=$$?; \
	wait $$fetching || echo 'the JVM artifacts are fetched again below'; exit $$status
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --no-index -e .
	@$(BIN)/python -c 'import dagster._cli.api, dagster._daemon.cli, dagster_webserver.cli, orchestration.definitions'
	@touch $@

# Cheap when they are there: it looks at each file's size and time.
jars: $(INSTALLED)
	@$(BIN)/python -m jobs.clients.install.artifacts --quiet
	@$(BIN)/python -m jobs.clients.spark.class_archive

# Without what an earlier build left, of which removed modules would be in the wheel.
wheel: $(INSTALLED) ## build dist/frazil-*.whl, without a network
	@rm -rf build
	@$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --no-index --wheel-dir dist .
	@ls dist/frazil-*.whl

demo: setup ## run the whole way on this machine: broker, payments, Dagster, table (ONCE=1 ends by itself; FORMAT=avro, …)
	@$(BIN)/frazil demo $(if $(ONCE),--once) $(if $(FORMAT),--format $(FORMAT))

dev: setup ## start the local broker and Dagster's UI and daemon
	@$(BIN)/frazil dev

# Three processes on two cores, since one of them usually waits. Which tests of `make test` run in which process, in which
# order and with which input is the same in every run: tests/helpers/fixed_parts.py, and PYTHONHASHSEED for the order of
# sets. Real parts take as long as the machine needs, so their files go to whichever process is free. Where PYTEST_ARGS
# chooses tests, a target may be left without any, which pytest calls 5.
PYTEST := PYTHONHASHSEED=0 $(BIN)/python -m pytest -q
CHOSEN := $(if $(PYTEST_ARGS),|| test $$? -eq 5)
TEST := $(PYTEST) -n 3 -m 'not rest' $(PYTEST_ARGS) $(CHOSEN)
TEST_REST := $(PYTEST) -n 3 --dist loadfile -m rest $(PYTEST_ARGS) $(CHOSEN)
test: setup ## run the tests that each change has to pass: every package, and a story with real parts
	@$(TEST)

test-rest: setup ## run all other tests: every kill, clusters, S3, PostgreSQL, Debezium, security, earlier releases
	@$(TEST_REST)

test-full: setup ## run both, the second also if the first fails
	@failed=; \
	{ $(TEST); } || failed='make test'; \
	{ $(TEST_REST); } || failed="$$failed$${failed:+ and }make test-rest"; \
	if [ -n "$$failed" ]; then echo "error: failed: $$failed, see above" >&2; exit 1; fi

# Only after failures of tests (1): a run that broke off has not run all of them.
test-retry: setup ## run test-rest, and those of its tests that failed once more, one after the other
	@{ $(TEST_REST); } || { \
	  test $$? -eq 1 && \
	  echo 'Tests failed beside others. They run once more, alone.' && \
	  $(PYTEST) -m rest --last-failed --last-failed-no-failures=none --maxfail=1 && \
	  echo 'warning: the tests that failed above passed alone. One of two is at fault: the test, or what it tests.' >&2; \
	}

explore: setup ## search for faults with fresh random input until MINUTES (60) are over
	@$(BIN)/python -m tests.explore --minutes $(or $(MINUTES),60) $(EXPLORE_ARGS)

figures: setup ## measure how fast this machine drains payments, as the README quotes it
	@$(BIN)/python -m bench.drain $(FIGURES_ARGS)

# Fetches the Connect worker's jars the first time; nothing else here needs them.
bench: setup ## measure frazil beside the Kafka Connect sink
	@$(BIN)/python -m bench.versus $(BENCH_ARGS)

lint: $(INSTALLED) ## look for mistakes and unformatted files
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: $(INSTALLED) ## mend what ruff can mend
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

type: $(INSTALLED) ## check the types
	@$(BIN)/basedpyright

check: $(INSTALLED) ## load Dagster's definitions, and check who imports whom
	@$(BIN)/dg check defs
	@$(BIN)/python -m pytest -q tests/unit/test_imports.py

docs: $(INSTALLED) ## build the site of docs/ into build/site; a broken link fails
	@$(BIN)/zensical build --strict --clean

reference: $(INSTALLED) ## write the generated pages of docs/reference anew
	@$(BIN)/python -m tests.module_list
	@$(BIN)/python -m tests.reference

# Without index addresses, so that the file serves any index; --universal, so that it serves every platform.
lock: $(INSTALLED) ## write requirements.lock anew from pyproject.toml
	@test -x .venv-lock/bin/uv || { $(BIN)/python -m venv .venv-lock && .venv-lock/bin/pip install --quiet uv; }
	@.venv-lock/bin/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --no-emit-find-links --no-header --no-annotate --no-strip-extras --extra registry --extra expectations --extra ui \
	  --extra s3 --extra postgres --extra dagster-postgres --extra dev pyproject.toml \
	  -o requirements.lock

clean: ## remove .venv and caches; what was landed (.frazil) stays
	@rm -rf $(VENV) .venv-lock build dist *.egg-info .cache .pytest_cache .ruff_cache .hypothesis
	@find assets bench jobs orchestration resources tests -name __pycache__ -type d -prune -exec rm -rf {} +
