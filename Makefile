# The commands of the project. `make` lists them; each sets up what it needs on the first use.

PYTHON ?= python3
BIN := .venv/bin
# Runs need READY; tests, lint and benchmarks also need DEV_READY.
READY := .venv/.ready
DEV_READY := .venv/.ready-dev
# Unit tests run without Spark, Java and jars where these are not set up.
UNIT_READY := $(or $(wildcard $(DEV_READY)),.venv/.ready-unit)
# Processes for the tests that are safe to run in parallel: one has the brokers, and each waits at times.
WORKERS ?= 3
# The modules of `make mutants`, as Python imports them.
ONLY ?= metrics.judging

# Container images often set this variable. Then each process, Spark's workers included, compiles
# the project's code again, which takes one to two seconds.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev demo generate test test-fast test-for test-long flaky coverage mutants lint docs dist bench bench-calibration bench-decisions bench-experiments bench-scale bench-search release-check clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "Each target sets up what it needs, with PYTHON=$(PYTHON) (3.10 or newer) and Java 17 to 22."

setup: $(READY) ## Make .venv with its redline command, and resolve all jars once
	@echo "Set up: .venv/bin/redline is ready."

setup-dev: $(DEV_READY) ## Add the packages for tests, lint and benchmarks; the targets that need them do so, too
	@echo "Set up: .venv has the packages for tests, lint and benchmarks."

demo: $(READY) ## Find the throughput limit that is planted in three real Kafka brokers on this machine
	@$(BIN)/python -m jobs.setup.preflight
	$(BIN)/redline find-limit --cluster calibrated --workload calibrated --goal default --set goal.search.steady_s=0 --set goal.search.check_for_change=false --out out

test: $(DEV_READY) ## Run all tests but the long ones: first in parallel, then the tests that judge loads one by one
	@$(BIN)/python -m jobs.setup.preflight
	$(BIN)/python -m tests.bench.stages --workers $(WORKERS)

test-fast: $(UNIT_READY) ## Run the unit tests: the daily loop, about a minute and a half on two cores
	$(BIN)/python -m pytest tests/unit -m "not computes and not long" -n $(WORKERS) -q

test-for: $(UNIT_READY) ## Run the unit tests that import a module; FILE=search/model.py
	@files=$$($(BIN)/python -m tests.bench.tests_of $(FILE)) && $(BIN)/python -m pytest -q $$files

test-long: $(DEV_READY) ## Run the validations that take minutes each, into docs/evidence/long-tests.csv; PART=clusters (spark, makes, limits, faults, fidelity, rest)
	@$(BIN)/python -m jobs.setup.preflight
	$(BIN)/python -m pytest -p tests.support.long_parts -m long --timeout 3600 --ledger docs/evidence/long-tests.csv $(if $(PART),--part $(PART))

flaky: $(DEV_READY) ## Run the unit tests 20 times beside a process that keeps a core busy
	@while :; do :; done & busy=$$!; trap 'kill $$busy' EXIT INT TERM; \
	for number in $$(seq 20); do echo "run $$number of 20"; $(BIN)/python -m pytest -q -n logical tests/unit || exit 1; done

coverage: $(DEV_READY) ## Show which lines and branches the unit tests run; ALL=1 runs all tests
	$(BIN)/python -m pytest -q --cov --cov-report= -n $(WORKERS) --no-loadscope-reorder $(if $(ALL),-m "together and not long",tests/unit)
	$(if $(ALL),$(BIN)/python -m pytest -q --cov --cov-append --cov-report= -m "not together and not long")
	$(BIN)/coverage html -q
	$(BIN)/coverage report --skip-covered

mutants: $(DEV_READY) ## Change code that decides, one place at a time, and list the changes with which no unit test fails; ONLY=search.guided
	$(BIN)/python -m tests.bench.mutants --only '$(ONLY)*' --count 99999

generate: $(DEV_READY) ## Renew pages, schemas, frozen names and snapshots from the code; read the difference
	$(BIN)/python -m tests.support.reference
	$(BIN)/python -m tests.support.schemas conf/schemas
	$(BIN)/python -m metrics.reporting.summary docs/reference/summary.schema.json
	$(BIN)/python -m tests.bench.experiments --pages
	$(BIN)/python -m tests.support.frozen
	$(BIN)/python -m pytest tests/unit -m "not computes and not long" -n $(WORKERS) -q --snapshot-update --snapshot-file-lock
	@git diff --stat

lint: $(DEV_READY) ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(DEV_READY) ## Build the documentation's site into .cache/site, and fail at a broken link (Python 3.11 or newer)
	@$(BIN)/zensical build --strict

dist: $(READY) ## Build the wheel that executors get, the source archive and a bill of materials into dist/
	@$(BIN)/python -m build --no-isolation --outdir dist . > .cache/dist.log 2>&1 || \
		{ tail -n 5 .cache/dist.log >&2; echo "The whole log is .cache/dist.log" >&2; exit 2; }
	@$(BIN)/python -m jobs.setup.sbom dist/kafka_redline.cdx.json
	@ls dist

bench: $(DEV_READY) ## Compare the project's clients with other clients, Kafka's included, in MB per CPU-second
	@$(BIN)/python -m jobs.setup.preflight
	$(BIN)/python -m tests.bench.clients

bench-scale: $(DEV_READY) ## Measure the cost of 10, 100 and 1,000 simulated brokers for the driver
	@$(BIN)/python -m jobs.setup.preflight
	$(BIN)/python -m tests.bench.scale

bench-calibration: $(DEV_READY) ## Compare find-limit with 60 planted limits, in about 100 minutes
	@$(BIN)/python -m jobs.setup.preflight
	$(BIN)/python -m tests.bench.planted --kind handlers --repeats 4

bench-experiments: $(DEV_READY) ## Run all ready experiments in their short form, in about 95 minutes
	@$(BIN)/python -m jobs.setup.preflight
	$(BIN)/python -m tests.bench.experiments --out out/experiments

bench-decisions: $(DEV_READY) ## Count false alarms of redline nightly and the nights to an alarm, on simulated nights
	$(BIN)/python -m tests.bench.nights

bench-search: $(DEV_READY) ## Compare the search with other methods on simulated clusters
	$(BIN)/python -m tests.bench.search

release-check: $(DEV_READY) ## Check all parts of a release, including wheels in empty environments (needs the network)
	$(BIN)/python -m tests.bench.release $(if $(CRD),--operator-schema $(CRD))

clean: ## Delete build products and the virtual environment, but not the cached jars
	rm -rf .venv build dist mutants *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

# The archive of Spark's classes is valid for one class path, which includes `files_java`.
# Python before 3.10 cannot parse the set-up's code, so the shell checks the version.
$(READY): setup.py conf/constraints.txt conf/hashes.txt jobs/spark/LocalFiles.java
	@version=$$("$(PYTHON)" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null); \
	case "$$version" in \
	3.1[0-9]|3.[2-9][0-9]) ;; \
	'') echo "No Python runs as '$(PYTHON)': install Python 3.10 or newer, or name yours: make setup PYTHON=/path/to/python3." >&2; exit 2 ;; \
	*) echo "Python $$version is too old: redline needs 3.10 or newer. Install a newer Python, and name it: make setup PYTHON=/path/to/python3." >&2; exit 2 ;; \
	esac
	@"$(PYTHON)" -m jobs.setup.bootstrap

.venv/.ready-unit: setup.py conf/hashes.txt conf/hashes-dev.txt
	@"$(PYTHON)" -m jobs.setup.bootstrap --unit

$(DEV_READY): $(READY) conf/hashes-dev.txt
	@$(BIN)/python -m jobs.setup.bootstrap --dev
