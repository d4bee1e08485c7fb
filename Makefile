# Every target installs what it lacks: Debian packages, and Python environments under build/.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 60
PYTEST_ARGS ?=
PARTS ?=
BENCH_ARGS ?=
SOAK_ARGS ?=

PYTHON = $(or $(TENSORD_PY311),$(CURDIR)/build/venv/bin/python)
CLANG_FLAGS = -DCMAKE_C_COMPILER=clang -DCMAKE_C_FLAGS_RELWITHDEBINFO="-O1 -g1"
CCACHE = $(if $(shell command -v ccache),-DCMAKE_C_COMPILER_LAUNCHER=ccache)

export ASAN_OPTIONS ?= detect_stack_use_after_return=1:strict_string_checks=1:abort_on_error=0
export UBSAN_OPTIONS ?= print_stacktrace=1
export TSAN_OPTIONS ?= halt_on_error=1:second_deadlock_stack=1:suppressions=$(CURDIR)/tests/tsan.supp
export LSAN_OPTIONS ?= suppressions=$(CURDIR)/tests/lsan.supp:print_suppressions=0

.PHONY: help deps python build demo test test-unit test-system lint asan tsan fuzz bench soak format clean

help: ## what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' Makefile

deps: ## install the Debian packages that are missing
	@scripts/deps.sh

python: deps
	@scripts/python_env.sh

build: deps ## build/tensord, build/tensorctl
	@cmake -S . -B build -G Ninja $(CCACHE) >/dev/null
	@ninja -C build -j$(JOBS)

demo: build python ## train a classifier of handwritten digits on a local cluster
	@$(PYTHON) scripts/demo.py

test: build python ## unit tests, then system tests with TensorFlow clients
	@scripts/test.sh $(PYTEST_ARGS)

test-unit: build
	@ctest --test-dir build --output-on-failure -j$(JOBS)

test-system: build python
	@$(PYTHON) -m pytest tests -q -ra $(PYTEST_ARGS)

lint: deps ## clang-format, clang-tidy, the house rules
	@scripts/lint.sh

format: deps ## clang-format all sources
	@git ls-files 'src/**.c' 'src/**.h' 'bench/*.c' | xargs -P$(JOBS) -n 20 clang-format -i

asan: deps ## unit tests under AddressSanitizer and UBSan
	@cmake -S . -B build/asan -G Ninja $(CCACHE) $(CLANG_FLAGS) -DTD_SANITIZE=address,undefined -DTD_FUZZ=ON >/dev/null
	@ninja -C build/asan -j$(JOBS)
	@ctest --test-dir build/asan --output-on-failure -j$(JOBS)

tsan: deps ## unit tests, clusters inside one process among them, under ThreadSanitizer
	@cmake -S . -B build/tsan -G Ninja $(CCACHE) $(CLANG_FLAGS) -DTD_SANITIZE=thread >/dev/null
	@ninja -C build/tsan -j$(JOBS)
	@ctest --test-dir build/tsan --output-on-failure -j$(JOBS)

fuzz: deps ## each fuzzer for FUZZ_SECONDS (60)
	@cmake -S . -B build/asan -G Ninja $(CCACHE) $(CLANG_FLAGS) -DTD_SANITIZE=address,undefined -DTD_FUZZ=ON >/dev/null
	@ninja -C build/asan -j$(JOBS)
	@scripts/fuzz.sh build/asan/fuzz $(FUZZ_SECONDS)

bench: build python ## benchmarks beside TensorFlow (PARTS="micro op system scale", BENCH_ARGS: see bench/run.py --help)
	@$(PYTHON) bench/run.py $(if $(PARTS),--parts $(PARTS)) $(BENCH_ARGS)

soak: build python ## a training whose servers are killed, queues under many clients (SOAK_ARGS: see tests/soak)
	@$(PYTHON) tests/soak $(SOAK_ARGS)

clean:
	@rm -rf build
