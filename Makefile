# Two commands are enough: `make demo` and `make test`. Both set up everything they need in .venv.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
FRAMEWORKS := $(VENV)/.frameworks
BROWSER := $(VENV)/.browser
PYTHONS := python3 python3.14 python3.13 python3.12 python3.11 python
RECENT := import sys; sys.exit(sys.version_info < (3, 11))

.DEFAULT_GOAL := help
.PHONY: help setup frameworks browser site demo tiny test lint style types mutants fuzz laws accuracy lowest pythons constraints catalogues catalogues-extract pages

help:  ## Show the targets.
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 28

setup: $(STAMP)  ## Create .venv and install stepwatch with its tools.

# Redone whenever pyproject.toml changes. PYTHON=/path/to/python chooses the interpreter.
$(STAMP): pyproject.toml
	@for python in $(PYTHON) $(PYTHONS); do \
	  if command -v $$python >/dev/null && $$python -c '$(RECENT)' 2>/dev/null; then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "stepwatch needs Python 3.11 or newer, and none of these is: $(PYTHON) $(PYTHONS)" >&2; \
	  echo "install one, or name it: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; \
	fi; \
	echo "setting up $(VENV) with $$($$found --version)"; \
	$$found -m venv --clear $(VENV) || { echo "$$found cannot create a virtual environment (on Debian: apt-get install python3-venv)" >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@$(BIN)/python -m compileall -q src  # some environments forbid Python to do it when it first needs to
	@touch $(STAMP)

# The trainer and the callbacks are tried with the real libraries. Where these cannot be had their tests are skipped, loudly.
frameworks: $(FRAMEWORKS)  ## Install torch, transformers and lightning for the tests, where that is possible.

$(FRAMEWORKS): $(STAMP)
	@echo "installing torch, transformers and lightning"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,frameworks]' && touch $(FRAMEWORKS) \
	  || echo "torch, transformers and lightning cannot be installed here: the tests that need them will be skipped" >&2

# The tests of the page drive a real browser, those of the site need npm too. Where they cannot be had, tests are skipped, loudly.
# Chromium's shell without windows takes a fifth less processor time than Chromium; not every system has it.
browser: $(BROWSER)  ## Install Debian's Chromium, node and npm for the tests of the page and the site, where that is possible.

$(BROWSER): $(STAMP)
	@[ "$$(id -u)" = 0 ] && as= || as="sudo -n"; \
	had() { command -v $$1 >/dev/null; }; \
	install() { had apt-get && echo "installing $$1" && { $$as apt-get update -qq && $$as env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$1; } >/dev/null 2>&1; }; \
	had chromium-headless-shell || install chromium-headless-shell || had chromium || install chromium; \
	had npm || install npm; \
	for needed in chromium npm; do \
	  had $$needed || had $$needed-headless-shell || { echo "$$needed cannot be installed here: the tests that need it will be skipped" >&2; missing=1; }; \
	done; \
	[ "$$missing" ] || touch $(BROWSER)

SITE := build/site
site: setup browser  ## Build the site into build/site: the page with Python in the browser, the documentation, examples.
	$(BIN)/python -m tools.site $(SITE)

demo: setup  ## Explain an example log; where torch is there, train a tiny model and explain its record.
	$(BIN)/stepwatch explain examples/nanogpt-4070.log --gpu 4070
	@if $(BIN)/python -c 'import torch' 2>/dev/null; then $(MAKE) --no-print-directory tiny; \
	  else echo; echo "To see a tiny model trained and explained too: make frameworks demo"; fi

TINY := $(VENV)/tiny
tiny: setup  ## Train a tiny model on the README for some seconds and explain its record.
	@rm -rf $(TINY)
	$(BIN)/stepwatch prepare README.md --out $(TINY)/data
	$(BIN)/stepwatch train --dataset=$(TINY)/data --out_dir=$(TINY) --n_layer=2 --n_head=2 --n_embd=64 --block_size=64 \
	  --batch_size=8 --gradient_accumulation_steps=1 --max_iters=200 --eval_interval=100 --eval_iters=10 --log_interval=20 \
	  --warmup_iters=20 --lr_decay_iters=200 --learning_rate=1e-3 --dropout=0.0 --init_from=scratch
	$(BIN)/stepwatch explain $(TINY)/run.jsonl

# Each group runs in one process, with style and types beside them. With pytest-xdist each worker would collect all tests,
# import torch for it, and send every result to the main process. The groups of integration tests take about as long as
# each other; those of a group share a server, or what they import. The output is grouped by part if make can do that.
# One group more than there are processors: some wait a lot, and many at once slow each other down.
# Bytecode may be written: the tests start many interpreters.
INTEGRATION := $(wildcard tests/integration/test_*.py)
PAGES := $(wildcard tests/integration/test_web*.py) $(addprefix tests/integration/test_,charts.py overview_page.py)
TRAINING := $(wildcard tests/integration/test_recorder_*.py) $(addprefix tests/integration/test_,train.py run_command.py watching.py calibrate.py)
REST := $(filter-out $(PAGES) $(TRAINING),$(INTEGRATION))
LAWS := tests/property tests/corpus tests/house
UNIT := tests/unit
GROUPS := $(addprefix test-,PAGES TRAINING REST LAWS UNIT)
test: setup frameworks browser  ## Check style, types and behaviour; skips are listed and counted (STEPWATCH_NO_SKIP=1 forbids them).
	@$(MAKE) --no-print-directory --jobs=$$(($$(getconf _NPROCESSORS_ONLN || echo 1) + 1)) --keep-going $(if $(filter output-sync,$(.FEATURES)),--output-sync) $(GROUPS) lint

test-%:
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -p tests.no_skip -rs $($*)

lint: setup  ## Check style and types only.
	@$(MAKE) --no-print-directory -j2 style types types-win32 types-darwin

style:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types:
	$(BIN)/mypy

# On other systems only modules that import one of these can have other errors.
DIFFER := asyncio|ctypes|errno|faulthandler|fcntl|grp|locale|mmap|msvcrt|multiprocessing|os|pathlib|psutil|pwd|readline|resource|select|selectors|shutil|signal|socket|socketserver|ssl|stat|subprocess|sys|syslog|tempfile|termios|time|tty|webbrowser|winreg
types-%:
	$(BIN)/mypy --config-file tools/other_systems.ini --platform $* --cache-dir .mypy_cache/$* $$(grep -rlE '^ *(import|from) ($(DIFFER))\b' src --include=*.py)

mutants: setup  ## Move every constant of analysis, advice and estimator and report the moves that no test notices.
	$(BIN)/python tools/mutants.py $(MUTANTS)

fuzz: setup  ## Put damaged inputs through every command; FUZZ="--count 100000 --corpus DIR --write-docs" does more.
	$(BIN)/python -m tools.fuzz $(FUZZ)

laws: setup  ## Try every law with 20,000 values, the cheapest first; LAWS="--most-seconds 60 --write-docs" takes less.
	$(BIN)/python -m tools.laws $(LAWS)

accuracy: setup  ## Measure on the real logs and rewrite docs/accuracy.md and docs/performance.md.
	$(BIN)/python -m benchmarks.write_docs

# Of the tools only those that the units need: others ask for newer versions of what stepwatch needs itself.
LOWEST := $(VENV)-lowest
UNITS := Babel httpx2 hypothesis pyte pytest setuptools tqdm vl-convert-python
lowest:  ## Try the units with the lowest version of each dependency (needs uv).
	uv venv --quiet --clear $(LOWEST)
	uv pip compile pyproject.toml --resolution lowest-direct --no-header --quiet --output-file $(LOWEST)/lowest.txt
	uv pip install --quiet --python $(LOWEST) --constraints $(LOWEST)/lowest.txt --editable . $(UNITS)
	$(LOWEST)/bin/python -m pytest -rs tests/unit --ignore=tests/unit/fleet --ignore=tests/unit/test_notebook.py

pythons:  ## Try the units with each Python that is supported (needs uv).
	@for version in 3.11 3.12 3.13 3.14; do \
	  uv venv --quiet --clear --python $$version $(VENV)-$$version \
	  && uv pip install --quiet --python $(VENV)-$$version --editable . $(UNITS) \
	  && $(VENV)-$$version/bin/python -m pytest -rs tests/unit --ignore=tests/unit/fleet --ignore=tests/unit/test_notebook.py \
	  || exit 1; \
	done

constraints:  ## Pin every package of a plain install, with hashes (needs uv).
	@echo "# Every package of a plain install with its hashes, for all systems and Pythons from 3.11 on. Made by: make constraints" > constraints.txt
	uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-header --quiet >> constraints.txt

catalogues: setup  ## Compile the catalogues (.po to .mo).
	$(BIN)/python -m tools.catalogues compile

catalogues-extract: setup  ## Bring new sentences into the catalogues.
	$(BIN)/python -m tools.catalogues extract

pages: setup  ## Rewrite the help texts and outputs in README.md and docs/, and the example logs.
	$(BIN)/python -m examples.make_logs
	$(BIN)/python -m tools.pages
