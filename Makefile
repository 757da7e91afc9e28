$(foreach name,stack project nodes,$(if $(filter command line,$(origin $(name))),$(error make knows no $(name)=: write it in capitals)))
STACK ?= dev
PROJECT ?= .
PYTHON ?= python3
N ?= 10000
# Their values are data: make expands none, and a recipe reads them as variables of the shell, such as MAKE_STACK.
$(foreach name,STACK PROJECT NODES PYTHON N FIRST GENERATOR WRITE,\
	$(eval override $(name) := $$(value $(name)))$(eval export MAKE_$(name) := $$(value $(name))))
RUN := .venv/bin/python -m
# Four workers keep two cores busy: some tests wait for a replica.
SPREAD := -q -n 4 --dist loadfile --no-loadscope-reorder
PINNED := uv pip compile pyproject.toml -c requirements.lock --universal --generate-hashes --no-header --no-annotate -q
# The messages then name make's own targets.
REHEARSE := ML_FOUNDATIONS_MAKE=1 .venv/bin/ml-foundations
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Every command starts Python several times: let it keep what it compiled, whatever the user's shell says.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: up down status report quota test test-all trials golden lint format bench differential faults lock generate outdated release install clean help
.DEFAULT_GOAL := up

up: .venv/.ready ## rehearse a stack on this machine: make up [STACK=dev] [PROJECT=examples/minimal] [NODES=nodes.yaml]
	@$(REHEARSE) up --project="$$MAKE_PROJECT" --stack="$$MAKE_STACK" $${MAKE_NODES:+--nodes="$$MAKE_NODES"}

down: ## remove the rehearsal and all it made: make down [STACK=dev] [PROJECT=examples/minimal]
status: ## which processes of a rehearsal run
report: ## show again what a rehearsal came to
quota: ## print the quotas, APIs and roles of Google Cloud that a stack needs: make quota [STACK=dev]
down status report quota: .venv/.ready
	@$(REHEARSE) $@ --project="$$MAKE_PROJECT" --stack="$$MAKE_STACK"

test: lint ## lint, type-check, and run the tests that need no replica or share one
	@$(RUN) pytest $(SPREAD) -m "not test_all and not trial"

test-all: test ## make test, then whole stacks, faults, and comparisons with the real controllers
	@$(RUN) pytest $(SPREAD) -m "test_all and not trial"

trials: .venv/.ready-dev ## repeat the random trials many times: kills, comparisons with Kubernetes, bad input
	@$(RUN) pytest -n 2 --dist loadfile -m trial

lint: .venv/.ready-dev ## lint and type-check, also the Python blocks of the pages; check STYLE.md
	@$(RUN) ruff check && $(RUN) ruff format --check && $(RUN) pyright && $(RUN) tools.blocks && $(RUN) tools.texts && $(RUN) tools.readability --check

format: .venv/.ready-dev ## fix what ruff can fix
	@$(RUN) ruff check --fix && $(RUN) ruff format

golden: .venv/.ready-dev ## rewrite the golden files after a wanted change: read their diff
	@UPDATE_GOLDEN=1 $(RUN) pytest -q tests/stacks/test_golden.py tests/stacks/test_every_key.py tests/workloads/test_training_goldens.py tests/gke/test_gpu_networks.py

bench: .venv/.ready-dev ## measure, and print the figures
	@$(RUN) benchmarks

differential: .venv/.ready-dev ## compare planning with the real scheduler: make differential [N=10000] [FIRST=1] [GENERATOR=schema]; goes on where it was
	@$(RUN) tests.differential $${MAKE_FIRST:+--first="$$MAKE_FIRST"} $${MAKE_GENERATOR:+--generator="$$MAKE_GENERATOR"} $${MAKE_WRITE:+--write} -- "$$MAKE_N"

faults: .venv/.ready-dev ## kill parts of rehearsals at random moments: make faults [N=200]; goes on where it was
	@$(RUN) tests.reliability $${MAKE_WRITE:+--write} -- "$$MAKE_N"

lock: .venv/.ready-dev ## update the locks, after a change of the dependencies in pyproject.toml
	@$(RUN) uv pip compile pyproject.toml --all-extras --universal --generate-hashes --no-header -q -o requirements.lock
	@$(RUN) $(PINNED) -o components/requirements.txt
	@printf 'editables\nhatchling\n' | $(RUN) $(PINNED) - --extra rehearsal --extra policy -o requirements-up.lock

generate: .venv/.ready-dev ## write arguments, schemas and pages, after a change of a component's arguments
	@$(RUN) codegen

outdated: .venv/.ready-dev ## list images, charts and prices that were last checked more than 90 days ago
	@$(RUN) tools.outdated

release: .venv/.ready-dev ## make dist/: wheel, sdist, schema, SBOM and notes; the wheel is tried in an empty environment
	rm -rf dist && mkdir dist
	@$(RUN) build --no-isolation --outdir dist
	@cp components/schema.json dist
	@$(RUN) $(PINNED) --extra rehearsal --extra policy -o dist/requirements.txt
	@PYTHONWARNINGS=ignore .venv/bin/cyclonedx-py requirements dist/requirements.txt --pyproject pyproject.toml --mc-type library \
		--output-reproducible -o dist/sbom.cdx.json
	@awk '/^## / { sections++ } sections == 1' CHANGELOG.md > dist/notes.md
	@"$$MAKE_PYTHON" -m venv dist/.try && dist/.try/bin/pip install -q -r dist/requirements.txt
	@dist/.try/bin/pip install -q --no-deps dist/*.whl && dist/.try/bin/ml-foundations --help > dist/.try/help
	@cd dist && .try/bin/ml-foundations plan ../examples/bring-your-own-cluster/nodes.yaml ../examples/bring-your-own-cluster/job.yaml
	@$(RUN) tests.upgrades
	@rm -r dist/.try && ls dist

install: .venv/.ready ## make .venv, the Python environment, and no more

# Each is made from its lock, and again when the lock or the project's metadata change. `up` needs no tools of development.
.venv/.ready: requirements-up.lock pyproject.toml
	@sh install.sh $< "$$MAKE_PYTHON" && touch $@

.venv/.ready-dev: requirements.lock .venv/.ready
	@sh install.sh $< "$$MAKE_PYTHON" && touch .venv/.ready $@

clean: ## remove .venv and what tests and builds left
	rm -rf .venv dist .pytest_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

help: ## this list
	@sed -nE 's/^([a-z]+):.*## (.*)/make \1\t\2/p' Makefile | expand -t 20
