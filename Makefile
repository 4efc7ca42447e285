# Everything a fresh machine needs: `make demo` and `make test` set up .venv by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test exhaustive bench docs format lint clean

demo: $(STAMP)
	$(BIN)/sosmarkov demo --out demo

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

# Every family with every coupling in every property test: about twice as long.
exhaustive: $(STAMP)
	SOSMARKOV_EXHAUSTIVE=1 $(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

bench: $(STAMP)
	for script in core queries linear_gaussian streaming hidden periodic; do \
		$(BIN)/python bench/scripts/$$script.py $(ARGS) || exit 1; \
	done
	$(BIN)/python bench/scripts/page.py

# The site, in docs/_build/html; a warning is an error.
docs: $(STAMP)
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python

# uv where it is installed (seconds), plain venv and pip otherwise.
$(STAMP): pyproject.toml bench/pyproject.toml
	@if command -v uv >/dev/null 2>&1; then \
		uv venv --quiet --allow-existing --python $(PYTHON) $(VENV) && \
		uv pip install --quiet --python $(BIN)/python -e . -e bench --group dev; \
	else \
		$(PYTHON) -m venv $(VENV) && \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1" && \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check -e . -e bench --group dev; \
	fi
	@touch $(STAMP)

clean:
	rm -rf $(VENV) .jax_cache demo dist build
