# make up     rehearse a stack on this machine: make up [STACK=dev] [PROJECT=examples/minimal] [NODES=nodes.yaml]
# make down   remove the rehearsal and all it made: make down [STACK=dev]
# make test   lint, type-check and run the whole test suite
STACK ?= dev
PROJECT ?= .
PYTHON ?= python3
N ?= 10000
RUN := .venv/bin/python -m
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Every command starts Python several times: let it keep what it compiled, whatever the user's shell says.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: up down status report test lint format bench differential lock schema clean
.DEFAULT_GOAL := up

up: .venv/.ready
	@$(RUN) rehearsal up --project $(PROJECT) --stack $(STACK) $(if $(NODES),--nodes $(NODES))

down status report: .venv/.ready
	@$(RUN) rehearsal $@ --project $(PROJECT) --stack $(STACK)

test: lint
	@$(RUN) pytest -n 3 --dist loadfile --no-loadscope-reorder

lint: .venv/.ready
	@$(RUN) ruff check && $(RUN) ruff format --check && $(RUN) pyright

format: .venv/.ready
	@$(RUN) ruff check --fix && $(RUN) ruff format

bench: .venv/.ready
	@$(RUN) benchmarks

differential: .venv/.ready ## compare planning with the real scheduler: make differential [N=10000]; goes on where it was
	@$(RUN) tests.differential $(N)

lock: .venv/.ready ## after a change of the dependencies in pyproject.toml
	@$(RUN) uv pip compile pyproject.toml --all-extras --universal --generate-hashes --no-header -q -o requirements.lock
	@$(RUN) uv pip compile pyproject.toml -c requirements.lock --universal --generate-hashes --no-header --no-annotate -q \
		-o components/requirements.txt

schema: .venv/.ready ## after a change of a component's arguments
	@.venv/bin/python stacks/schema.py
	@UPDATE_GOLDEN=1 $(RUN) pytest -q tests/components/test_package.py
	@.venv/bin/python docs/generate.py

# Python's own environment, made from the lock; made anew when the lock or the project's metadata change.
.venv/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "error: Python 3.11 or newer is needed; name one: make PYTHON=python3.12")'
	@echo "installing the Python packages of requirements.lock into .venv (once, about a minute)"
	@$(PYTHON) -m venv .venv
	@.venv/bin/python -m pip install -q --require-hashes -r requirements.lock
	@.venv/bin/python -m pip install -q --no-deps --no-build-isolation -e .
	@touch $@

clean:
	rm -rf .venv dist .pytest_cache .ruff_cache
