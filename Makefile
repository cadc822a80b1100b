# `make demo` and `make test` each set everything up on a machine that has only Python (3.11 or later) and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.installed-docs

.PHONY: demo test lint types unit web browser docs campaign format clean

demo: $(STAMP)
	$(BIN)/gptree demo --out demo

# Side by side: the checks of types take one core of two for a tenth of the time.
test:
	$(MAKE) --jobs=3 lint types unit

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(STAMP)
	$(BIN)/pyright

unit: $(STAMP)
	$(BIN)/pytest -n 2 --dist worksteal

# The page of the studio, from web/ into src/gptree/studio/static; the only target that needs node and npm.
web:
	cd web && npm ci --no-audit --no-fund && npm run --silent check && npm run --silent build

# The tests in a real browser; they are part of `make test` too, where a chromium is found.
browser: $(STAMP)
	$(BIN)/pytest tests/studio/browser

# Hours of trouble of every kind; stopped, it goes on where it was. docs/reliability.md says what came of it.
campaign: $(STAMP)
	$(BIN)/python tests/campaign/run.py

# The site, in build/site; its builder is installed when it is first asked for.
docs: $(DOCS_STAMP)
	$(BIN)/python docs/build.py

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# torch goes first and pinned: an open range would pull a build with gigabytes of CUDA libraries.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test]'
	touch $@

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) build .cache demo .pytest_cache .ruff_cache
