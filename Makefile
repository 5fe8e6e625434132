# make demo    build, run and explain the example model
# make test    all tests
# make check   style, types and the fast tests
# Each makes its own environment in .venv; PYTHON=python3.12 picks another Python.

PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
BIN := $(VENV)/bin
CXX_USED := $(firstword $(CXX) g++)

MODEL := examples/models/ch_ppocr_mobile_v2.0_cls_infer.onnx
DEMO := build/demo
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test check wheel clean
.DELETE_ON_ERROR:

demo: $(VENV)/.installed
	@mkdir -p $(DEMO)
	$(BIN)/tvmpass build $(MODEL) -o $(DEMO)/cls.so --shape x:1,3,48,192 --report $(DEMO)/cls.json
	$(BIN)/tvmpass run $(DEMO)/cls.so --time
	$(BIN)/tvmpass explain $(DEMO)/cls.json --html $(DEMO)/cls.html
	@echo "The same as a page: $(DEMO)/cls.html"

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile -m "not slow"

wheel: $(VENV)/.installed
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

clean:
	rm -rf build dist *.egg-info

$(VENV)/.created:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is not installed; it is in the Debian package python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 14))' || \
	  { echo "tvmpass needs Python 3.10 to 3.13; name one with PYTHON=..." >&2; exit 1; }
	@command -v $(CXX_USED) >/dev/null || { echo "no C++ compiler; it is in the Debian package g++" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.created setup.py tvmpass/version.py
	$(INSTALL) -e .
	@touch $@

$(VENV)/.installed-%: $(VENV)/.installed
	$(INSTALL) -e '.[$*]'
	@touch $@
